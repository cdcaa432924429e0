//! Limits.

use serde_json::json;

use super::{Interpreter, Running, interpreter};
use crate::daemon::DEADLINE;

#[tokio::test]
async fn oversized_output_is_omitted_with_an_error() {
    let interpreter = interpreter!();
    let said = interpreter.run("print('x' * (70 << 20))\n1").await;
    assert_eq!(said.error().0, "OutputTooLarge");
    assert_eq!(said.text(), "1");
    assert_eq!(interpreter.run("2").await.text(), "2");
}

#[tokio::test]
async fn large_output_is_complete() {
    let interpreter = interpreter!();
    let said = interpreter
        .run("for i in range(100_000): print('x' * 99)")
        .await;
    assert_eq!(said.printed("stdout").len(), 10_000_000);
    // Nothing blocked, so there is no notice about missing output.
    assert_eq!(said.printed("stderr"), "");
}

#[tokio::test]
async fn a_slow_client_does_not_fill_memory_and_receives_the_end() {
    let interpreter = interpreter!();
    let done = interpreter.daemon.path("done");
    let code = format!(
        "print('begun', flush=True)\nfor i in range(300): print('x' * 1_000_000, flush=True)\n\
         open({done:?}, 'w').close()"
    );
    let mut running = interpreter.begin(&json!({"code": code})).await;
    running.wait_for("begun").await;
    let written = async {
        while !std::path::Path::new(&done).exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, written).await.unwrap();
    let megabytes = interpreter.memory() >> 10;
    assert!(megabytes < 150, "the daemon holds {megabytes} MB of 300");
    // A standard kernel drops what its sockets cannot hold. It keeps all if the daemon keeps up.
    let (bytes, told) = running.read_to_end().await;
    assert!(
        told || bytes >= 300_000_000,
        "{bytes} bytes came, and none were reported missing"
    );
    let said = interpreter.run("1").await;
    assert_eq!((said.text(), said.printed("stderr")), ("1", String::new()));
}

impl Interpreter {
    /// Starts code that runs until a file exists.
    async fn until(&self, gate: &str) -> Running {
        let code = format!(
            "print('begun', flush=True)\nimport os, time\n\
             while not os.path.exists({gate:?}): time.sleep(0.01)"
        );
        let mut running = self.begin(&json!({"code": code})).await;
        running.wait_for("begun").await;
        running
    }
}

#[tokio::test]
async fn the_queue_of_a_context_is_bounded() {
    let interpreter = interpreter!();
    let gate = interpreter.daemon.path("gate");
    let mut first = interpreter.until(&gate).await;
    let mut others = Vec::new();
    for _ in 1..256 {
        others.push(interpreter.begin(&json!({"code": "1"})).await);
    }
    for other in &mut others {
        other.wait_for("HTTP/1.1 200").await;
    }
    let refused = interpreter.post("/execute", &json!({"code": "1"})).await;
    assert_eq!(refused.status, 429);
    assert!(
        refused.text().contains("Too many executions wait"),
        "{}",
        refused.text()
    );
    std::fs::write(&gate, "").unwrap();
    first.wait_for("end_of_execution").await;
    for other in &mut others {
        other.wait_for("end_of_execution").await;
    }
    assert_eq!(interpreter.run("2").await.text(), "2");
}

#[tokio::test]
async fn queued_code_is_bounded_in_bytes() {
    let interpreter = interpreter!();
    let gate = interpreter.daemon.path("gate");
    let mut first = interpreter.until(&gate).await;
    let long = json!({"code": format!("1 #{}", "x".repeat(15 << 20))});
    let mut others = Vec::new();
    for _ in 0..4 {
        let mut other = interpreter.begin(&long).await;
        other.wait_for("HTTP/1.1 200").await;
        others.push(other);
    }
    let refused = interpreter.post("/execute", &long).await;
    assert_eq!(refused.status, 429);
    assert!(
        refused.text().contains("exceed 64 MiB"),
        "{}",
        refused.text()
    );
    // Short requests still fit.
    let mut short = interpreter.begin(&json!({"code": "3"})).await;
    std::fs::write(&gate, "").unwrap();
    first.wait_for("end_of_execution").await;
    for other in &mut others {
        other.wait_for("end_of_execution").await;
    }
    short.wait_for("end_of_execution").await;
    assert_eq!(interpreter.execute(&long).await.text(), "1");
}
