use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::super::budget::Budget;
use super::super::fake::{kernel, launcher};
use super::super::feed::{Lines, feed};
use super::super::wire::Session;
use super::*;

/// All lines, after the end of their execution.
async fn lines(lines: Lines) -> Vec<Value> {
    let body = lines.body().collect().await.unwrap().to_bytes();
    let lines = body.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

fn kinds(lines: &[Value]) -> Vec<&str> {
    lines
        .iter()
        .map(|line| line["type"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_result_that_comes_late_is_waited_for_where_kernels_are_late() {
    let (mut kernel, mut fake) = kernel().await;
    let (feed, body) = feed(&Budget::default());
    let mut telling = Telling::new(feed);
    let saying = async {
        fake.says("execute_input", "x", json!({"execution_count": 4}))
            .await;
        fake.replies("x", json!({"status": "ok", "execution_count": 4}))
            .await;
        fake.idles("x").await;
        let fence = fake.asked().await;
        fake.says("execute_result", "x", json!({"data": {"text/plain": "1"}}))
            .await;
        fake.idles(&fence).await;
    };
    let (followed, ()) = tokio::join!(follow(&mut kernel, "x", true, &mut telling), saying);
    assert!(followed.is_ok());
    telling.end();
    drop(telling);
    let lines = lines(body).await;
    assert_eq!(
        kinds(&lines),
        ["number_of_executions", "result", "end_of_execution"]
    );
    assert_eq!(lines[0]["execution_count"], 4);
}

#[tokio::test]
async fn a_reply_is_enough_when_the_kernel_dropped_the_rest() {
    let (mut kernel, mut fake) = kernel().await;
    let (feed, body) = feed(&Budget::default());
    let mut telling = Telling::new(feed);
    let error = json!({"status": "error", "execution_count": 2, "ename": "E", "evalue": "v"});
    fake.says(
        "stream",
        "another",
        json!({"name": "stdout", "text": "not mine"}),
    )
    .await;
    fake.replies("x", error).await;
    // It ends by a time that has passed; nothing else is to come.
    assert!(follow(&mut kernel, "x", false, &mut telling).await.is_ok());
    telling.end();
    drop(telling);
    let lines = lines(body).await;
    assert_eq!(
        kinds(&lines),
        ["number_of_executions", "error", "end_of_execution"]
    );
    assert_eq!(
        (&lines[0]["execution_count"], &lines[1]["name"]),
        (&json!(2), &json!("E"))
    );
}

#[tokio::test]
async fn of_several_errors_the_first_is_told_and_noise_is_passed_over() {
    let (mut kernel, mut fake) = kernel().await;
    let (feed, body) = feed(&Budget::default());
    let mut telling = Telling::new(feed);
    fake.heard
        .send(&[Bytes::from_static(b"noise")])
        .await
        .unwrap();
    let stranger = Session::new();
    let forged = stranger.frames(b"{}".to_vec(), b"{}".to_vec(), b"{}".to_vec());
    fake.heard.send(&forged).await.unwrap();
    for name in ["First", "Second"] {
        fake.says(
            "error",
            "x",
            json!({"ename": name, "evalue": "", "traceback": []}),
        )
        .await;
    }
    fake.replies("x", json!({"status": "aborted"})).await;
    fake.idles("x").await;
    assert!(follow(&mut kernel, "x", false, &mut telling).await.is_ok());
    drop(telling);
    let lines = lines(body).await;
    assert_eq!(kinds(&lines), ["number_of_executions", "error"]);
    assert_eq!(lines[1]["name"], "First");
}

#[tokio::test]
async fn who_has_left_when_his_turn_comes_does_not_get_it() {
    let (kernel, _fake) = kernel().await;
    let context = Context::of_test(kernel).await;
    let slot = context.turn().await;
    let (feed, lines) = feed(&Budget::default());
    let mut telling = Telling::new(feed);
    let (turn, ()) = tokio::join!(telling.turn(&context), async {
        drop(lines);
        drop(slot);
    });
    assert_eq!(turn.err(), Some(Left));
    // Nor does he keep it from the next one.
    timeout(SILENT, context.turn()).await.unwrap();
}

#[tokio::test]
async fn a_connection_that_breaks_and_a_client_that_leaves_end_it() {
    let (mut kernel, fake) = kernel().await;
    let (feed_of_one, body) = feed(&Budget::default());
    drop(fake);
    let mut telling = Telling::new(feed_of_one);
    let end = follow(&mut kernel, "x", false, &mut telling).await;
    assert!(matches!(end, Err(End::Lost(_))));
    drop(body);
    let end = follow(&mut kernel, "x", false, &mut telling).await;
    assert!(matches!(end, Err(End::Left)));
}

#[tokio::test]
async fn whoever_stops_waiting_for_an_answer_goes_on_where_he_was() {
    let (mut kernel, mut fake) = kernel().await;
    let mut awaited = Awaited::of("x".to_owned());
    fake.replies("x", json!({"status": "ok"})).await;
    while !awaited.has_begun() {
        // Given up at once, again and again.
        let _ = timeout(Duration::ZERO, kernel.replied(&mut awaited)).await;
        tokio::task::yield_now().await;
    }
    // The reply does not come a second time.
    fake.idles("x").await;
    assert!(kernel.replied(&mut awaited).await.is_ok());
}

#[tokio::test]
async fn a_kernel_has_all_its_time_to_stop_although_the_sandbox_was_saved_meanwhile() {
    let (kernel, _fake) = kernel().await;
    let (context, launcher) = (Context::of_test(kernel).await, launcher());
    let mut slot = context.turn().await;
    launcher.time.freeze();
    tokio::time::pause();
    let stopping = stop(&mut slot, &context, &launcher);
    tokio::pin!(stopping);
    let night = Duration::from_secs(600);
    assert!(timeout(night, &mut stopping).await.is_err());
    launcher.time.unfreeze();
    let begun = Instant::now();
    assert!(!stopping.await);
    assert_eq!(begun.elapsed().as_secs(), STOP.as_secs());
}

/// Reads signs of life, and sees that they come in time.
async fn signs_of_life(lines: Lines) {
    let mut body = lines.body();
    let begun = Instant::now();
    for number in 1..4 {
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), lines::KEEPALIVE);
        assert_eq!(begun.elapsed().as_secs(), (KEEPALIVE * number).as_secs());
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_his_turn_gets_signs_of_life() {
    let context = Context::of_language("test");
    let _slot = context.turn().await;
    let (feed, lines) = feed(&Budget::default());
    let mut telling = Telling::new(feed);
    tokio::select! {
        _ = telling.turn(&context) => panic!("it is another's"),
        () = signs_of_life(lines) => {}
    }
}

#[tokio::test]
async fn who_waits_for_silent_code_gets_signs_of_life() {
    let (mut kernel, _fake) = kernel().await;
    let (feed, lines) = feed(&Budget::default());
    let mut telling = Telling::new(feed);
    tokio::time::pause();
    tokio::select! {
        _ = follow(&mut kernel, "x", false, &mut telling) => panic!("it goes on"),
        () = signs_of_life(lines) => {}
    }
}
