//! Output of executions.

use http::Method;
use serde_json::{Value, json};

use super::{ExecutionOutput, Interpreter, interpreter, interpreter_config, options};
use crate::daemon::Daemon;

fn kinds(said: &ExecutionOutput) -> Vec<&str> {
    said.0
        .iter()
        .map(|line| line["type"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn output_errors_results_and_state_work() {
    let interpreter = interpreter!();
    assert_eq!(interpreter.get("/health").await.text(), "\"OK\"");

    let said = interpreter
        .run("import sys\nx = 20\nprint('a')\nprint('é', file=sys.stderr)\n'it'")
        .await;
    let wanted = [
        "number_of_executions",
        "stdout",
        "stderr",
        "result",
        "end_of_execution",
    ];
    assert_eq!(kinds(&said), wanted);
    assert_eq!((said.count(), said.text()), (1, "it"));
    assert_eq!(
        (said.printed("stdout"), said.printed("stderr")),
        ("a\n".into(), "é\n".into())
    );
    assert!(
        said.of("stdout")[0]["timestamp"]
            .as_str()
            .unwrap()
            .ends_with('Z')
    );
    let result = json!({"type": "result", "text": "it", "extra": {}, "is_main_result": true});
    assert_eq!(said.of("result"), [&result]);

    let said = interpreter.run("x + 1").await;
    assert_eq!((said.count(), said.text()), (2, "21"));

    let said = interpreter
        .run("print('before')\n1 / 0\nprint('after')")
        .await;
    assert_eq!(said.error(), ("ZeroDivisionError", "division by zero"));
    assert!(
        said.of("error")[0]["traceback"]
            .as_str()
            .unwrap()
            .contains("ZeroDivisionError")
    );
    assert_eq!(said.printed("stdout"), "before\n");

    let show = "from IPython.display import display\n\
        display({'text/plain': 'p', 'x/own': 'o', 'text/html': '<b>'}, raw=True)";
    let said = interpreter.run(show).await;
    let result = json!({
        "type": "result", "text": "p", "html": "<b>", "extra": {"x/own": "o"}, "is_main_result": false,
    });
    assert_eq!(said.of("result"), [&result]);
}

#[tokio::test]
async fn the_interpreter_starts_with_the_configuration_seen_by_init() {
    let Some(daemon) = options(None).and_then(Daemon::start_with) else {
        return;
    };
    let file = daemon.root.path().join("etc/shoal/interpreter.json");
    daemon.post_json("/init", json!({})).await;
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    let root = daemon.root.path().to_str().unwrap().to_owned();
    std::fs::write(&file, interpreter_config().replace("{root}", &root)).unwrap();
    daemon.post_json("/init", json!({})).await;
    // No earlier log entry reports it.
    let interpreter = Interpreter::of(daemon);
    assert_eq!(interpreter.run("1").await.text(), "1");
}

fn check_too_long(answer: &crate::http::Answer) {
    assert_eq!(answer.status, 413);
    let said = answer.text();
    assert!(said.contains("longer than 16 MiB"), "{said}");
}

#[tokio::test]
async fn invalid_requests_are_rejected_with_a_reason() {
    let interpreter = interpreter!();
    for (body, status, said) in [
        (json!({}), 422, "missing field `code`"),
        (json!([1]), 422, "expected a map"),
        (
            json!({"code": "1", "context_id": "a", "language": "python"}),
            400,
            "Only one of",
        ),
        (
            json!({"code": "1", "context_id": "a"}),
            404,
            "Context a not found",
        ),
        (
            json!({"code": "1", "language": "Ruby"}),
            500,
            "No kernel for 'ruby' is installed. Installed are: python",
        ),
    ] {
        let answer = interpreter.post("/execute", &body).await;
        assert_eq!(answer.status, status, "{body}");
        assert!(answer.text().contains(said), "{}", answer.text());
    }
    let execute = || interpreter.ask(Method::POST, "/execute");
    assert_eq!(
        execute().send(&b"{\"code\": \"\xff\"}"[..]).await.status,
        422
    );
    assert_eq!(interpreter.run("1").await.text(), "1");
    for megabytes in [17, 50] {
        let long = json!({"code": "#".repeat(megabytes << 20)}).to_string();
        let answer = execute().send(long).await;
        check_too_long(&answer);
        assert_eq!(interpreter.run("2").await.text(), "2");
    }
    assert_eq!(interpreter.get("/execute").await.status, 405);
    assert_eq!(interpreter.get("/other").await.status, 404);
}

#[tokio::test]
async fn pages_may_call_and_execution_needs_the_token() {
    let interpreter = interpreter!();
    let asked = interpreter.ask(Method::OPTIONS, "/execute");
    let asked = asked
        .header("origin", "http://a")
        .header("access-control-request-method", "POST");
    assert_eq!(
        asked.send("").await.header("access-control-allow-origin"),
        "*"
    );

    interpreter.init(&json!({"accessToken": "first"})).await;
    let execute = |token: Option<&'static str>| {
        let ask = interpreter
            .ask(Method::POST, "/execute")
            .header("origin", "http://a");
        match token {
            Some(token) => ask.header("x-access-token", token),
            None => ask,
        }
    };
    let code = json!({"code": "1", "context_id": Value::Null, "language": Value::Null, "env_vars": Value::Null});
    for wrong in [None, Some("second")] {
        let answer = execute(wrong).send(code.to_string()).await;
        assert_eq!(answer.error().0, 401);
        assert_eq!(answer.header("access-control-allow-origin"), "*");
    }
    assert_eq!(
        execute(Some("first")).send(code.to_string()).await.status,
        200
    );
    assert_eq!(interpreter.get("/contexts").await.status, 200);
}
