//! `/init`.

use http::Method;
use serde_json::{Value, json};
use shoal_protocol::init::InitRequest;
use shoal_protocol::pass::{DIGEST_VARIABLE, InitSecret};
use shoal_protocol::token::AccessToken;

use crate::daemon::{Daemon, Options, daemon};
use crate::http::Answer;

impl Daemon {
    async fn init(&self, token: Option<&str>, body: Value) -> Answer {
        let mut ask = self.ask(Method::POST, "/init");
        if let Some(token) = token {
            ask = ask.header("x-access-token", token);
        }
        ask.send(body.to_string()).await
    }

    async fn list(&self, token: Option<&str>) -> u16 {
        let mut ask = self.ask(Method::POST, "/process.Process/List");
        ask = ask.header("content-type", "application/json");
        if let Some(token) = token {
            ask = ask.header("x-access-token", token);
        }
        ask.send("{}").await.status.as_u16()
    }
}

/// Options with a token on standard input.
fn with_token(token: &str) -> Options {
    Options {
        stdin: Some(format!("{token}\n")),
        ..Options::default()
    }
}

#[tokio::test]
async fn in_a_pod_everything_is_refused_until_the_first_token() {
    let daemon = daemon!(Options {
        stdin: Some(String::new()),
        arguments: vec!["--pod".to_owned()],
        ..Options::default()
    });
    for token in [None, Some(""), Some("any")] {
        assert_eq!(daemon.list(token).await, 401, "{token:?}");
        for body in [json!({}), json!({"open": true}), json!({"envVars": {}})] {
            let answer = daemon.init(token, body.clone()).await;
            assert_eq!(answer.error().0, 401, "{token:?} {body}");
        }
    }
    let first = daemon.init(None, json!({"accessToken": "first"})).await;
    assert_eq!(first.status.as_u16(), 204);
    let second = daemon.init(None, json!({"accessToken": "second"})).await;
    assert_eq!(second.status.as_u16(), 401);
    assert_eq!(daemon.list(Some("second")).await, 401);
    assert_eq!(daemon.list(Some("first")).await, 200);
    // A retry of the first request.
    let again = daemon.init(None, json!({"accessToken": "first"})).await;
    assert_eq!(again.status.as_u16(), 204);
}

#[tokio::test]
async fn the_first_token_is_required_from_the_start() {
    let daemon = daemon!(with_token("first"));
    let foreign = [None, Some(""), Some("other"), Some("firs")];
    for token in foreign {
        assert_eq!(daemon.list(token).await, 401, "{token:?}");
        for body in [
            json!({}),
            json!({"accessToken": ""}),
            json!({"accessToken": "mine"}),
            json!({"open": true}),
            json!({"open": true, "accessToken": "mine"}),
        ] {
            let answer = daemon.init(token, body.clone()).await;
            assert_eq!(answer.error().0, 401, "{token:?} {body}");
        }
    }
    for (method, path) in [
        (Method::GET, "/envs"),
        (Method::GET, "/metrics"),
        (Method::GET, "/files?path=/etc/passwd"),
        (Method::POST, "/files?path=/etc/profile.d/x.sh"),
        (Method::POST, "/files/compose"),
        (Method::POST, "/freeze"),
        (Method::POST, "/unfreeze"),
        (Method::GET, "/activity"),
        (Method::GET, "/tunnel/22"),
        (Method::POST, "/process.Process/Start"),
        (Method::POST, "/process.Process/List"),
        (Method::POST, "/filesystem.Filesystem/ListDir"),
    ] {
        let answer = daemon.ask(method.clone(), path).send("{}").await;
        assert_eq!(answer.status, 401, "{method} {path}");
    }
    assert_eq!(daemon.get("/health").await.status, 204);
    assert_eq!(daemon.list(Some("first")).await, 200);
    let answer = daemon
        .init(Some("first"), json!({"accessToken": "second"}))
        .await;
    assert_eq!(answer.status, 204);
    assert_eq!(daemon.list(Some("first")).await, 401);
    assert_eq!(daemon.list(Some("second")).await, 200);
}

#[tokio::test]
async fn no_process_can_find_the_token() {
    let secret = "handed-over-secret";
    let daemon = daemon!(Options {
        stdin: Some(format!("{secret}\nand what comes behind it\n")),
        ..Options::default()
    });
    let own = std::fs::read_link(format!("/proc/{}/fd/0", daemon.pid())).unwrap();
    assert_eq!(own.to_str(), Some("/dev/null"));
    let opened = AccessToken::parse(secret).unwrap();
    let client = daemon.client().with_token(&opened);
    let line = format!(
        "id -u; readlink /proc/self/fd/0; head -c 100 <&0; env; \
         cat /proc/{0}/cmdline /proc/{0}/environ; ls -l /proc/{0}/fd",
        daemon.pid()
    );
    let command = shoal_protocol::client::Command::new("/bin/sh", ["-c", &line]);
    let mut process = client.start(command).await.unwrap();
    let mut said = String::new();
    while let Some(output) = process.next().await.unwrap() {
        if let shoal_protocol::client::Output::Stdout(bytes) = output {
            said.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
    assert!(said.contains("--default-user"), "{said}");
    assert!(!said.contains(secret) && !said.contains("behind"), "{said}");
}

#[test]
fn the_daemon_does_not_listen_without_a_token() {
    let long = "t".repeat(2000);
    for said in ["", "\n", "no end", "two words\n", "\u{e4}\n", &long] {
        let (reader, mut writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut writer, said.as_bytes()).unwrap();
        drop(writer);
        let ended = std::process::Command::new(env!("CARGO_BIN_EXE_shoal-envd"))
            .args(["--port", "0", "--bind", "127.0.0.1", "--keep-clock"])
            .stdin(reader)
            .output()
            .unwrap();
        assert!(!ended.status.success(), "{said:?}");
        assert!(ended.stdout.is_empty(), "no ready line");
        let complaint = String::from_utf8_lossy(&ended.stderr);
        assert!(complaint.contains("no access token"), "{complaint}");
    }
}

#[tokio::test]
async fn the_first_init_of_an_open_daemon_sets_the_token() {
    let daemon = daemon!();
    assert_eq!(daemon.list(None).await, 200);
    let answer = daemon.init(None, json!({"accessToken": "first"})).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (204, ""));
    assert_eq!(answer.header("x-envd-version"), "0.6.13");
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(daemon.list(None).await, 401);
    assert_eq!(daemon.list(Some("other")).await, 401);
    assert_eq!(daemon.list(Some("first")).await, 200);

    let answer = daemon.get("/envs").await;
    let text =
        "unauthorized access, please provide a valid access token or method signing if supported";
    assert_eq!(answer.json(), json!({"code": 401, "message": text}));
    assert_eq!(daemon.get("/health").await.status, 204);
}

#[tokio::test]
async fn the_token_can_be_repeated_or_changed_by_its_holder() {
    let daemon = daemon!();
    daemon.init(None, json!({"accessToken": "first"})).await;
    for (token, body) in [
        (None, json!({})),
        (None, json!({"accessToken": "second"})),
        (Some("wrong"), json!({"accessToken": "second"})),
        (Some("wrong"), json!({"envVars": {"A": "1"}})),
    ] {
        let answer = daemon.init(token, body.clone()).await;
        assert_eq!(answer.error().0, 401, "{body}");
        assert_eq!(answer.header("x-envd-version"), "0.6.13");
    }
    assert_eq!(
        daemon
            .init(None, json!({"accessToken": "first"}))
            .await
            .status,
        204
    );
    // A request without a token keeps the current one.
    assert_eq!(
        daemon
            .init(Some("first"), json!({"accessToken": ""}))
            .await
            .status,
        204
    );
    assert_eq!(daemon.list(None).await, 401);

    let client = daemon
        .client()
        .with_token(&AccessToken::parse("first").unwrap());
    let request = InitRequest {
        access_token: Some(AccessToken::parse("second").unwrap()),
        ..InitRequest::default()
    };
    assert_eq!(
        client.init(&request).await.unwrap().as_deref(),
        Some("0.6.13")
    );
    assert_eq!(daemon.list(Some("first")).await, 401);
    assert_eq!(daemon.list(Some("second")).await, 200);

    // Only a caller with the token may lift the requirement, and only for programs inside, such as
    // this test.
    let open = json!({"open": true});
    assert_eq!(daemon.init(None, open.clone()).await.status, 401);
    assert_eq!(daemon.list(None).await, 401);
    assert_eq!(daemon.init(Some("second"), open).await.status, 204);
    assert_eq!(daemon.list(None).await, 200);
    // Internal routes still require it.
    for path in ["/freeze", "/unfreeze", "/init", "/tunnel/22"] {
        let answer = daemon.ask(Method::POST, path).send("{}").await;
        assert_eq!(answer.status, 401, "{path}");
    }
    let answer = daemon
        .init(Some("second"), json!({"accessToken": "third"}))
        .await;
    assert_eq!(answer.status, 204);
    assert_eq!(daemon.list(None).await, 401);
}

#[tokio::test]
async fn identity_reaches_processes_files_and_the_hosts_file() {
    let daemon = daemon!();
    std::fs::write(
        daemon.root.path().join("etc/hosts"),
        "127.0.0.1 localhost\n",
    )
    .unwrap();
    let variables = json!({"E2B_SANDBOX_ID": "i1", "E2B_TEMPLATE_ID": "t1", "A": "1"});
    daemon
        .init(
            None,
            json!({"envVars": variables, "hyperloopIP": "192.0.2.1"}),
        )
        .await;
    daemon.init(None, json!({"envVars": {"B": "2"}})).await;
    assert_eq!(
        daemon.get("/envs").await.json(),
        json!({
            "E2B_SANDBOX": "true", "E2B_SANDBOX_ID": "i1", "E2B_TEMPLATE_ID": "t1",
            "E2B_EVENTS_ADDRESS": "http://192.0.2.1", "B": "2",
        })
    );
    let read = |name: &str| std::fs::read_to_string(daemon.root.path().join(name)).unwrap();
    assert_eq!(read("run/e2b/.E2B_SANDBOX"), "true");
    assert_eq!(read("run/e2b/.E2B_SANDBOX_ID"), "i1");
    assert_eq!(read("run/e2b/.E2B_TEMPLATE_ID"), "t1");
    assert_eq!(
        read("etc/hosts"),
        "127.0.0.1 localhost\n192.0.2.1\tevents.e2b.local\n"
    );
}

#[tokio::test]
async fn the_default_user_and_directory_are_used() {
    let daemon = daemon!();
    let body = json!({"defaultUser": "root", "defaultWorkdir": daemon.path("")});
    daemon.init(None, body).await;
    let finished = daemon.run("id -u; pwd").await;
    assert_eq!(finished.stdout, format!("0\n{}\n", daemon.home().display()));
    daemon
        .init(None, json!({"defaultUser": "nobody-here"}))
        .await;
    let finished = daemon.shell("true", &[]).await.finish().await;
    assert_eq!(
        finished.last["error"]["message"],
        "invalid default user: 'nobody-here'"
    );
}

#[tokio::test]
async fn an_older_request_changes_nothing() {
    let daemon = daemon!();
    let at = |second: u32, value: &str| {
        let timestamp = format!("2026-01-01T00:00:{second:02}.5Z");
        json!({"timestamp": timestamp, "envVars": {"A": value}})
    };
    for (second, value, expected) in [(5, "1", "1"), (4, "2", "1"), (6, "3", "3")] {
        assert_eq!(daemon.init(None, at(second, value)).await.status, 204);
        assert_eq!(daemon.get("/envs").await.json()["A"], expected);
    }
}

#[tokio::test]
async fn an_invalid_request_is_rejected_and_an_empty_one_accepted() {
    let daemon = daemon!();
    for body in [
        "{",
        "[]",
        r#"{"accessToken":"a b"}"#,
        r#"{"envVars":{"A":1}}"#,
    ] {
        let answer = daemon.ask(Method::POST, "/init").send(body).await;
        assert_eq!(answer.error().0, 400, "{body}");
    }
    assert_eq!(daemon.ask(Method::POST, "/init").send("").await.status, 204);
    let large = format!(r#"{{"envVars":{{"A":"{}"}}}}"#, "x".repeat(9 << 20));
    assert_eq!(
        daemon
            .ask(Method::POST, "/init")
            .send(large)
            .await
            .error()
            .0,
        400
    );
    // Variables that no process could receive are dropped.
    daemon
        .init(
            None,
            json!({"envVars": {"A=B": "1", "": "2", "C": "a\u{0}", "D": "4"}}),
        )
        .await;
    assert_eq!(
        daemon.get("/envs").await.json(),
        json!({"E2B_SANDBOX": "true", "D": "4"})
    );
    assert_eq!(daemon.run("echo $D").await.stdout, "4\n");
}

#[tokio::test]
async fn in_a_pod_with_a_digest_the_first_token_needs_the_pass() {
    let pass = InitSecret::new([1; 32]).pass("sandbox");
    let digest = pass.digest().to_string().leak();
    let daemon = daemon!(Options {
        stdin: Some(String::new()),
        arguments: vec!["--pod".to_owned()],
        environment: vec![(DIGEST_VARIABLE, digest)],
        ..Options::default()
    });
    let first = json!({"accessToken": "first"});
    let with = |pass: Option<String>, body: &Value| {
        let mut ask = daemon.ask(Method::POST, "/init");
        if let Some(pass) = pass {
            ask = ask.header("x-init-pass", &pass);
        }
        ask.send(body.to_string())
    };
    let neighbours = InitSecret::new([1; 32]).pass("neighbour");
    for wrong in [None, Some(""), Some(&*digest), Some(neighbours.reveal())] {
        let answer = with(wrong.map(str::to_owned), &first).await;
        assert_eq!(answer.error().0, 403, "{wrong:?}");
    }
    let own = Some(pass.reveal().to_owned());
    let nothing = with(own.clone(), &json!({})).await;
    assert_eq!(
        nothing.error().0,
        401,
        "a pass without a token opens nothing"
    );
    assert_eq!(with(own.clone(), &first).await.status.as_u16(), 204);
    assert_eq!(daemon.list(Some("first")).await, 200);
    // From then on the token counts, and the pass does not.
    let second = with(own, &json!({"accessToken": "second"})).await;
    assert_eq!(second.status.as_u16(), 401);
}

#[test]
fn a_daemon_with_a_broken_digest_does_not_start() {
    let daemon = std::process::Command::new(env!("CARGO_BIN_EXE_shoal-envd"))
        .args(["--pod", "--port=0", "--bind=127.0.0.1", "--keep-clock"])
        .env(DIGEST_VARIABLE, "00")
        .output()
        .unwrap();
    assert!(!daemon.status.success());
    let told = String::from_utf8_lossy(&daemon.stderr);
    assert!(told.contains(DIGEST_VARIABLE), "{told}");
}
