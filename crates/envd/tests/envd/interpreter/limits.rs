//! More than fits.

use serde_json::json;

use super::interpreter;
use crate::daemon::PATIENCE;

#[tokio::test]
async fn an_output_that_is_too_long_is_left_out_and_said_to_be() {
    let interpreter = interpreter!();
    let said = interpreter.run("print('x' * (70 << 20))\n1").await;
    assert_eq!(said.error().0, "OutputTooLarge");
    assert_eq!(said.text(), "1");
    assert_eq!(interpreter.run("2").await.text(), "2");
}

#[tokio::test]
async fn much_output_comes_whole() {
    let interpreter = interpreter!();
    let said = interpreter
        .run("for i in range(100_000): print('x' * 99)")
        .await;
    assert_eq!(said.printed("stdout").len(), 10_000_000);
}

#[tokio::test]
async fn who_does_not_read_fills_nothing_and_is_told_of_the_end() {
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
    tokio::time::timeout(PATIENCE, written).await.unwrap();
    let megabytes = interpreter.memory() >> 10;
    assert!(megabytes < 150, "the daemon holds {megabytes} MB of 300");
    // The kernel is as it comes, and may have dropped some of it.
    running.wait_for("Some output may be missing").await;
    running.wait_for("end_of_execution").await;
    let said = interpreter.run("1").await;
    assert_eq!((said.text(), said.printed("stderr")), ("1", String::new()));
}
