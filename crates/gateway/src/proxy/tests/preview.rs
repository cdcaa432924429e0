//! Previews: one port of a session's machine, by its name alone.

use std::sync::atomic::{AtomicUsize, Ordering};

use shoal_core::id::{ExecutionId, SandboxId};
use shoal_core::ports::sessions::preview::{
    Forwarded, Forwarding, NotForwarded, PortForward, Preview, Waking,
};
use shoal_core::session::preview::{PREVIEW_PORT, PreviewHash};
use tokio_util::compat::TokioAsyncReadCompatExt;

use super::*;

const HASH: &str = "0123456789abcdefghij";

/// The previews of one session.
struct OnePreview {
    machine: Mutex<Option<SandboxId>>,
    forwarding: Mutex<Option<Forwarding>>,
    waking: Mutex<Waking>,
    wakes: AtomicUsize,
}

impl Previews for OnePreview {
    fn find(&self, hash: &PreviewHash) -> Option<Preview> {
        (hash.as_str() == HASH).then(|| Preview {
            machine: self.machine.lock().clone(),
            forwarding: self.forwarding.lock().clone(),
            wakes: *self.waking.lock() != Waking::Never,
        })
    }

    fn wake(&self, _: &PreviewHash) -> Waking {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.waking.lock().clone()
    }

    fn is_machine(&self, sandbox: &SandboxId) -> bool {
        self.machine.lock().as_ref() == Some(sandbox)
    }
}

struct Previewed {
    fixture: Fixture,
    previews: Arc<OnePreview>,
}

/// A session on loopback address `127.89.<process>.<number>`, with a server on the public port.
async fn session(number: u8) -> Previewed {
    let own = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 89, own[3], number);
    let (saw, asked) = mpsc::unbounded_channel();
    let listener = TcpListener::bind((address, PREVIEW_PORT)).await.unwrap();
    let server = serve_on(listener, move |request: Request<Incoming>| {
        let saw = saw.clone();
        async move {
            let (parts, body) = request.into_parts();
            let answer = respond(&parts, body).await;
            saw.send(parts).unwrap();
            answer
        }
    });
    let route = Route {
        address: address.into(),
        traffic_access_token: Some(traffic_token()),
        ..sandbox()
    };
    let previews = Arc::new(OnePreview {
        machine: Mutex::new(Some(route.sandbox.clone())),
        forwarding: Mutex::default(),
        waking: Mutex::new(Waking::Never),
        wakes: AtomicUsize::new(0),
    });
    let routes = Arc::new(OneSandbox::running(route));
    let config = GatewayConfig {
        domain: Some("e2b.localhost".to_owned()),
        ..GatewayConfig::default()
    };
    let gateway = Gateway::new(config, routes.clone()).with_previews(previews.clone());
    let gateway = serve(move |request| route_request(gateway.clone(), request)).await;
    Previewed {
        fixture: Fixture {
            routes,
            gateway,
            server,
            asked,
        },
        previews,
    }
}

/// As the server does: the host decides first.
async fn route_request(gateway: Gateway, request: Request<Incoming>) -> Response<GatewayBody> {
    if let Some(name) = gateway.preview(&request) {
        return gateway
            .proxy_preview(request, name, Client::default())
            .await;
    }
    match (gateway.target(&request), gateway.path_route(&request)) {
        (Ok(Some(target)), _) => gateway.proxy(request, target, Client::default()).await,
        (Ok(None), Ok(Some(path))) => gateway.proxy_path(request, path, Client::default()).await,
        (Ok(None), Ok(None)) => answer_of(Response::new(Bytes::from("the api"))),
        (Err(invalid), _) | (_, Err(invalid)) => gateway.refuse(invalid),
    }
}

fn on(host: &str, more: &str) -> String {
    format!("GET / HTTP/1.1\nHost: {host}\nConnection: close\n{more}\n")
}

fn on_preview(more: &str) -> String {
    on(&format!("{HASH}.preview.e2b.localhost:3000"), more)
}

/// A connection to the preview that its server has upgraded.
async fn upgraded(session: &Previewed) -> TcpStream {
    let upgrade = on_preview("Upgrade: echo\n").replace("Connection: close", "Connection: upgrade");
    let mut upgraded = send(&session.fixture, &upgrade.replace("GET /", "GET /upgrade")).await;
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        seen.push(upgraded.read_u8().await.unwrap());
    }
    assert!(seen.starts_with(b"HTTP/1.1 101"));
    upgraded
}

#[tokio::test]
async fn r2_061_whoever_knows_the_name_reaches_port_8080_and_nothing_is_taken_from_the_request() {
    let mut session = session(1).await;
    let told = "Cookie: a=b\nAuthorization: Bearer x\nX-API-Key: y\n\
                E2b-Sandbox-Id: iother\nE2b-Sandbox-Port: 3000\n";
    let answer = ask(&session.fixture, &on_preview(told)).await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"),
        "{answer}"
    );
    let seen = session.fixture.asked.recv().await.unwrap().headers;
    assert_eq!(seen["host"], format!("{HASH}.preview.e2b.localhost:3000"));
    let told = ("a=b", "Bearer x", "y");
    assert_eq!(
        (&seen["cookie"], &seen["authorization"], &seen["x-api-key"]),
        (
            &told.0.parse().unwrap(),
            &told.1.parse().unwrap(),
            &told.2.parse().unwrap()
        ),
    );
    assert!(!seen.contains_key("e2b-traffic-access-token"));
    // No path means anything to the gateway there.
    for path in [
        "/sandboxes/router/iother/3000/",
        "/sandbox/iother/",
        "/files?path=x",
    ] {
        let request = on_preview("").replace("GET /", &format!("GET {path}"));
        assert!(
            ask(&session.fixture, &request).await.ends_with("hello"),
            "{path}"
        );
        let seen = session.fixture.asked.recv().await.unwrap();
        assert_eq!(seen.uri.to_string(), path);
    }
}

#[tokio::test]
async fn r2_062_every_other_way_to_a_port_of_the_machine_is_refused() {
    let session = session(2).await;
    let token = traffic_token();
    let token = format!("e2b-traffic-access-token: {}\n", token.reveal());
    for port in [PREVIEW_PORT, 3000, 1] {
        let headers = format!("E2b-Sandbox-Id: iabc\nE2b-Sandbox-Port: {port}\n");
        let path = |more: &str| {
            let request = on("e2b.localhost", more);
            request.replace("GET /", &format!("GET /sandboxes/router/iabc/{port}/"))
        };
        for request in [
            on(&format!("{port}-iabc.e2b.localhost"), ""),
            on(&format!("{port}-iabc.e2b.localhost"), &token),
            on("e2b.localhost", &headers),
            on("e2b.localhost", &format!("{headers}{token}")),
            path(&token),
            path(&format!("X-API-Key: {KEY}\n")),
        ] {
            let answer = ask(&session.fixture, &request).await;
            assert!(answer.starts_with("HTTP/1.1 403"), "{request}{answer}");
            assert!(answer.contains("the machine of a session"), "{answer}");
        }
    }
    // Its daemon is reached, and has a token of its own.
    let daemon = on(&format!("{ENVD_PORT}-iabc.e2b.localhost"), "");
    let answer = ask(&session.fixture, &daemon).await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    // A sandbox that is no session's machine has open ports.
    *session.previews.machine.lock() = None;
    let public = on(&format!("{PREVIEW_PORT}-iabc.e2b.localhost"), &token);
    assert!(ask(&session.fixture, &public).await.ends_with("hello"));
}

#[tokio::test]
async fn r2_066_websockets_and_streams_pass_and_end_with_the_machine() {
    let session = session(3).await;
    let request = on_preview("").replace("GET /", "GET /forever");
    let mut stream = send(&session.fixture, &request).await;
    let mut seen = Vec::new();
    while !seen.ends_with(b"first\r\n") {
        seen.push(stream.read_u8().await.unwrap());
    }
    let upgraded = upgraded(&session).await;
    assert_echoes_until_the_end(&session.fixture, upgraded).await;
    let mut rest = Vec::new();
    assert!(matches!(
        stream.read_to_end(&mut rest).await,
        Ok(_) | Err(_)
    ));
    assert!(
        !rest.ends_with(b"0\r\n\r\n"),
        "a stream that is cut does not look complete"
    );
}

#[tokio::test]
async fn a_name_that_no_preview_has_has_one_answer() {
    let session = session(4).await;
    let firefox = "User-Agent: Mozilla/5.0 (X11; rv:128.0) Gecko/20100101 Firefox/128.0\n";
    let mut answers = Vec::new();
    for label in [
        "zzzzzzzzzzzzzzzzzzzz",
        "x",
        "3000-0123456789abcdefghij",
        "a.0123456789abcdefghij",
    ] {
        for more in [
            "",
            firefox,
            "E2b-Sandbox-Id: iabc\nE2b-Sandbox-Port: 49983\n",
        ] {
            let request = on(&format!("{label}.preview.e2b.localhost"), more);
            let answer = ask(&session.fixture, &request).await;
            let lines = answer.lines().filter(|line| !line.starts_with("date:"));
            answers.push(lines.collect::<Vec<_>>().join("\n"));
        }
    }
    assert!(answers[0].starts_with("HTTP/1.1 404"), "{}", answers[0]);
    assert!(
        answers.iter().all(|answer| *answer == answers[0]),
        "{answers:#?}"
    );
    assert_eq!(session.previews.wakes.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_session_without_a_machine_says_so_and_is_asked_to_wake() {
    let session = session(5).await;
    let asks = async |status: &str, words: &str| {
        let answer = ask(&session.fixture, &on_preview("")).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
        assert!(
            answer.contains(words) && !answer.contains("iabc"),
            "{answer}"
        );
        answer
    };
    // Paused, which only its session ends: traffic resumes other sandboxes.
    session.fixture.routes.rest(Ok(()));
    let answer = asks("503", "the next command in it starts").await;
    assert!(answer.contains("retry-after: 60\r\n") && answer.contains("cache-control: no-store"));
    assert!(session.fixture.routes.asleep.lock().is_some());
    // Gone without the session having noticed.
    *session.fixture.routes.asleep.lock() = None;
    asks("503", "the next command in it starts").await;
    *session.previews.machine.lock() = None;
    *session.previews.waking.lock() = Waking::NotFor(Duration::from_secs(7));
    let answer = asks("503", "too often").await;
    assert!(answer.contains("retry-after: 7\r\n"), "{answer}");
    *session.previews.waking.lock() = Waking::Going;
    let answer = asks("503", "starts: try again").await;
    assert!(answer.contains("refresh: 2\r\n"), "{answer}");
    assert_eq!(session.previews.wakes.load(Ordering::Relaxed), 4);
}

/// The ports of an external machine: those of one address here.
#[derive(Debug)]
struct Ports {
    address: IpAddr,
    opened: AtomicUsize,
    refusal: Mutex<Option<NotForwarded>>,
    closed: watch::Sender<bool>,
}

impl PortForward for Ports {
    fn open(&self, port: u16) -> BoxFuture<'_, Result<Forwarded, NotForwarded>> {
        Box::pin(async move {
            if let Some(refusal) = self.refusal.lock().clone() {
                return Err(refusal);
            }
            self.opened.fetch_add(1, Ordering::Relaxed);
            let stream = TcpStream::connect((self.address, port)).await;
            Ok(Forwarded {
                stream: Box::new(stream.unwrap().compat()),
                guard: Box::new(()),
            })
        })
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        let mut closed = self.closed.subscribe();
        Box::pin(async move {
            let _ = closed.wait_for(|closed| *closed).await;
        })
    }
}

#[tokio::test]
async fn an_external_machine_is_reached_through_its_connection_until_that_is_closed() {
    let mut session = session(6).await;
    let ports = Arc::new(Ports {
        address: Ipv4Addr::new(127, 89, std::process::id().to_be_bytes()[3], 6).into(),
        opened: AtomicUsize::new(0),
        refusal: Mutex::default(),
        closed: watch::channel(false).0,
    });
    // No sandbox has this id.
    *session.previews.machine.lock() = Some("iexternal".parse().unwrap());
    *session.previews.forwarding.lock() = Some(Forwarding {
        ports: ports.clone(),
        execution: ExecutionId::from_entropy([5; 16]),
        team: TeamId::from_entropy([6; 16]),
    });
    for _ in 0..3 {
        let answer = ask(&session.fixture, &on_preview("Cookie: a=b\n")).await;
        assert!(answer.ends_with("hello"), "{answer}");
        let seen = session.fixture.asked.recv().await.unwrap().headers;
        assert_eq!(seen["cookie"], "a=b");
    }
    assert_eq!(ports.opened.load(Ordering::Relaxed), 1, "it is kept");
    let mut upgraded = upgraded(&session).await;
    ports.closed.send_replace(true);
    let mut rest = Vec::new();
    assert!(matches!(
        upgraded.read_to_end(&mut rest).await,
        Ok(0) | Err(_)
    ));
    // Refusals are answered, and do not wake anything.
    let refusals = [
        (NotForwarded::PortClosed, "502"),
        (NotForwarded::Full(16), "503"),
        (NotForwarded::Failed("lost".to_owned()), "502"),
    ];
    for (number, (refusal, status)) in (7..).zip(refusals) {
        ports.closed.send_replace(false);
        *ports.refusal.lock() = Some(refusal);
        if let Some(forwarding) = &mut *session.previews.forwarding.lock() {
            forwarding.execution = ExecutionId::from_entropy([number; 16]);
        }
        let answer = ask(&session.fixture, &on_preview("")).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
    }
    assert_eq!(session.previews.wakes.load(Ordering::Relaxed), 0);
}
