//! Contexts: create, list, restart, delete, and queued executions.

use http::Method;
use serde_json::{Value, json};

use super::{Interpreter, children, interpreter, options};
use crate::daemon::{Daemon, USER};

impl Interpreter {
    pub(super) async fn create(&self, body: Value) -> String {
        let answer = self.post("/contexts", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    async fn list(&self) -> Vec<Value> {
        self.get("/contexts")
            .await
            .json()
            .as_array()
            .unwrap()
            .clone()
    }

    async fn change(&self, method: Method, path: &str) -> (u16, String) {
        let answer = self.ask(method, path).send("").await;
        (answer.status.as_u16(), answer.text().to_owned())
    }
}

#[tokio::test]
async fn each_context_has_its_own_directory_and_state() {
    let interpreter = interpreter!();
    let home = interpreter.daemon.path("");
    let home = home.trim_end_matches('/');
    let listed = interpreter.list().await;
    assert_eq!(listed.len(), 1, "there is no kernel for JavaScript");
    assert_eq!(
        (&listed[0]["language"], &listed[0]["cwd"]),
        (&json!("python"), &json!(home))
    );

    let id = interpreter.create(json!({"cwd": "/usr"})).await;
    assert_eq!(interpreter.list().await.len(), 2);
    let inside = |code: &str| json!({"code": code, "context_id": id});
    interpreter.run("x = 1").await;
    let said = interpreter
        .execute(&inside("import os\nx = os.getcwd()\nx"))
        .await;
    assert_eq!(said.text(), "/usr");
    assert_eq!(interpreter.run("x").await.text(), "1");

    let restart = format!("/contexts/{id}/restart");
    assert_eq!(
        interpreter.change(Method::POST, &restart).await,
        (200, "null".into())
    );
    assert_eq!(
        interpreter.execute(&inside("x")).await.error().0,
        "NameError"
    );
    // The default directory, not that of the request (spec).
    let said = interpreter.execute(&inside("import os\nos.getcwd()")).await;
    assert_eq!((said.text(), said.count()), (home, 2));

    let path = format!("/contexts/{id}");
    assert_eq!(
        interpreter.change(Method::DELETE, &path).await,
        (200, "null".into())
    );
    for (method, path) in [(Method::DELETE, path), (Method::POST, restart)] {
        let (status, text) = interpreter.change(method, &path).await;
        assert_eq!(status, 404);
        assert!(text.contains("not found"), "{text}");
    }
    assert_eq!(interpreter.list().await.len(), 1);
}

#[tokio::test]
async fn a_kernel_on_demand_starts_with_its_first_execution() {
    let config = json!({
        "kernels": ["{root}/kernels"], "user": USER, "cwd": "{root}/home", "start": [], "on_demand": ["python"],
    });
    let Some(daemon) = options(Some(config.to_string())).and_then(Daemon::start_with) else {
        return;
    };
    let interpreter = Interpreter::of(daemon);
    assert_eq!(interpreter.get("/health").await.status, 200);
    assert_eq!(children(interpreter.pid()), [0; 0]);
    let [listed] = interpreter.list().await.try_into().unwrap();
    // Variables that came before its kernel are there.
    interpreter.init(&json!({"envVars": {"LATE": "yes"}})).await;
    let id = listed["id"].as_str().unwrap();
    let said = interpreter
        .execute(&json!({"code": "import os\nx = os.environ['LATE'], os.getcwd()\nx[0]", "context_id": id}))
        .await;
    assert_eq!((said.text(), said.count()), ("yes", 1));
    let home = interpreter.daemon.path("");
    let home = home.trim_end_matches('/');
    assert_eq!(interpreter.run("x[1]").await.text(), home);
    assert_eq!(interpreter.list().await, [listed]);
}

#[tokio::test]
async fn a_failed_context_creation_reports_why_and_leaves_nothing() {
    let interpreter = interpreter!();
    // The default context, whose kernel is started again if it did not start.
    interpreter.run("x = 1").await;
    for (body, said) in [
        (json!({"language": "r"}), "No kernel for 'r' is installed"),
        (json!({"cwd": "/no/such"}), "cwd '/no/such' does not exist"),
        (
            json!({"cwd": "~other"}),
            "cannot expand user-specific home dir",
        ),
    ] {
        let answer = interpreter.post("/contexts", &body).await;
        assert_eq!(answer.status, 500);
        assert!(answer.text().contains(said), "{}", answer.text());
    }
    assert_eq!(interpreter.list().await.len(), 1);
}

#[tokio::test]
async fn a_deleted_default_context_is_recreated() {
    let interpreter = interpreter!();
    interpreter.run("x = 1").await;
    let id = interpreter.list().await[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    interpreter
        .change(Method::DELETE, &format!("/contexts/{id}"))
        .await;
    assert_eq!(interpreter.run("x").await.error().0, "NameError");
    assert_ne!(interpreter.list().await[0]["id"], id.as_str());
}

#[tokio::test]
async fn executions_run_in_the_order_of_arrival() {
    let interpreter = interpreter!();
    let gate = interpreter.daemon.path("gate");
    let wait = format!(
        "print('begun', flush=True)\nimport os\nwhile not os.path.exists({gate:?}): pass\nx = [1]"
    );
    let mut first = interpreter.begin(&json!({"code": wait})).await;
    first.wait_for("begun").await;
    let mut others = Vec::new();
    for number in 2..6 {
        let code = format!("x.append({number})");
        let mut other = interpreter.begin(&json!({"code": code})).await;
        // Its slot is reserved.
        other.wait_for("HTTP/1.1 200").await;
        others.push(other);
    }
    std::fs::write(&gate, "").unwrap();
    first.wait_for("end_of_execution").await;
    for mut other in others {
        other.wait_for("end_of_execution").await;
    }
    assert_eq!(interpreter.run("x").await.text(), "[1, 2, 3, 4, 5]");
}

#[tokio::test]
async fn health_fails_until_the_templates_kernel_starts() {
    let interpreter_config = json!({
        "kernels": ["{root}/kernels"], "user": USER, "cwd": "{root}/home", "start": ["python", "r"],
    });
    let Some(mut options) = options(Some(interpreter_config.to_string())) else {
        return;
    };
    let broken = r#"{"argv": ["/bin/sh", "-c", "echo no library; exit 3"], "language": "r"}"#;
    options
        .files
        .push(("kernels/r/kernel.json", broken.to_owned()));
    let Some(daemon) = Daemon::start_with(options) else {
        return;
    };
    let mended = daemon.root.path().join("kernels/r/kernel.json");
    let interpreter = Interpreter::of(daemon);
    let answer = interpreter.get("/health").await;
    assert_eq!(answer.status, 500);
    let said = answer.text();
    assert!(
        said.starts_with("These kernels did not start: r: "),
        "{said}"
    );
    assert!(
        said.contains("no library") && !said.contains("python"),
        "{said}"
    );

    std::fs::write(mended, super::KERNEL).unwrap();
    // In any context.
    interpreter.create(json!({"language": "r"})).await;
    assert_eq!(interpreter.get("/health").await.status, 200);
    let said = interpreter
        .execute(&json!({"code": "1", "language": "r"}))
        .await;
    assert_eq!(said.text(), "1");
}
