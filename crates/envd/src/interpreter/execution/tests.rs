use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::budget::Budget;
use super::super::lines;
use super::super::output_channel::{OutputStream, channel};
use super::super::response_stream::KEEPALIVE;
use super::super::tests::fake::{FakeKernel, kernel, launcher};
use super::super::wire::Session;
use super::*;

/// Deno's.
const LATE_RESULTS: KernelTraits = KernelTraits {
    late_results: true,
    holds_output: false,
};

/// All lines, after the end of the execution.
async fn lines(lines: OutputStream) -> Vec<Value> {
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
async fn a_late_result_is_awaited_for_late_kernels() {
    let (mut kernel, mut fake) = kernel().await;
    let (output_channel, body) = channel(&Budget::default());
    let mut response = ResponseStream::new(output_channel);
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
    let (followed, ()) = tokio::join!(
        follow(&mut kernel, "x", LATE_RESULTS, &mut response),
        saying
    );
    assert!(followed.is_ok());
    response.end();
    drop(response);
    let lines = lines(body).await;
    assert_eq!(
        kinds(&lines),
        ["number_of_executions", "result", "end_of_execution"]
    );
    assert_eq!(lines[0]["execution_count"], 4);
}

#[tokio::test]
async fn a_reply_suffices_when_the_kernel_dropped_its_output() {
    let (mut kernel, mut fake) = kernel().await;
    let (output_channel, body) = channel(&Budget::default());
    let mut response = ResponseStream::new(output_channel);
    let error = json!({"status": "error", "execution_count": 2, "ename": "E", "evalue": "v"});
    fake.says(
        "stream",
        "another",
        json!({"name": "stdout", "text": "not mine"}),
    )
    .await;
    fake.replies("x", error).await;
    // It ends by timeout; nothing else arrives.
    assert!(
        follow(&mut kernel, "x", KernelTraits::default(), &mut response)
            .await
            .is_ok()
    );
    response.end();
    drop(response);
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

/// A text that needs budget.
fn large() -> Value {
    json!({"name": "stdout", "text": "x".repeat(3 << 20)})
}

#[tokio::test]
async fn output_waiting_for_budget_is_awaited_after_the_reply() {
    let (mut kernel, mut fake) = kernel().await;
    let budget = Budget::with_bytes(8 << 20);
    kernel.iopub.set_budget(&budget);
    let taken = budget.reserve(4 << 20).await;
    let (output_channel, body) = channel(&Budget::default());
    let mut response = ResponseStream::new(output_channel);
    let saying = async {
        fake.replies("x", json!({"status": "ok", "execution_count": 1}))
            .await;
        // More than the connection's buffers hold.
        tokio::join!(
            async {
                fake.says("stream", "x", large()).await;
                fake.idles("x").await;
            },
            async {
                budget.wait_until_contended().await;
                tokio::time::pause();
                tokio::time::sleep(KEEPALIVE * 3).await;
                tokio::time::resume();
                drop(taken);
            }
        );
    };
    let following = follow(&mut kernel, "x", KernelTraits::default(), &mut response);
    let (followed, ()) = tokio::join!(following, saying);
    assert!(followed.is_ok());
    // The kernel was blocked and may have dropped output.
    response.notify_missing();
    drop(response);
    let mut lines = lines(body).await;
    lines.retain(|line| line["type"] != "keepalive");
    assert_eq!(kinds(&lines), ["number_of_executions", "stdout", "stderr"]);
    assert_eq!(lines[1]["text"].as_str().unwrap().len(), 3 << 20);
    let told = lines[2]["text"].as_str().unwrap();
    assert!(told.starts_with("Some output may be missing"), "{told}");
}

#[tokio::test]
async fn a_large_error_needs_no_budget_beyond_its_message() {
    let (mut kernel, mut fake) = kernel().await;
    let budget = Budget::with_bytes(7 << 20);
    kernel.iopub.set_budget(&budget);
    let (output_channel, body) = channel(&budget);
    let mut response = ResponseStream::new(output_channel);
    let value = "x".repeat(3 << 20);
    let error = json!({"status": "error", "ename": "E", "evalue": value, "traceback": []});
    let saying = async {
        fake.says("error", "x", error.clone()).await;
        fake.idles("x").await;
        // Broadcast already, so the reply is not kept.
        fake.replies("x", error).await;
    };
    let following = follow(&mut kernel, "x", KernelTraits::default(), &mut response);
    let both = async { tokio::join!(following, saying) };
    let (followed, ()) = timeout(INTERNAL_TIMEOUT, both).await.unwrap();
    assert!(followed.is_ok());
    response.notify_missing();
    drop(response);
    assert_eq!(kinds(&lines(body).await), ["number_of_executions", "error"]);
}

#[tokio::test]
async fn endless_output_after_a_dropped_idle_does_not_hold_an_execution() {
    let (mut kernel, mut fake) = kernel().await;
    let (output_channel, body) = channel(&Budget::default());
    let mut response = ResponseStream::new(output_channel);
    let mut body = body.body();
    tokio::time::pause();
    let saying = async {
        fake.replies("x", json!({"status": "ok", "execution_count": 1}))
            .await;
        let mut asked = 0;
        for _ in 0..100 {
            let text = json!({"name": "stdout", "text": "again"});
            fake.says("stream", "x", text).await;
            body.frame().await.unwrap().unwrap();
            tokio::time::advance(TRAILING_OUTPUT_TIMEOUT / 2).await;
            let asks = tokio::select! {
                biased;
                fence = fake.asked() => Some(fence),
                () = tokio::task::yield_now() => None,
            };
            if let Some(fence) = asks {
                asked += 1;
                // The first answer is dropped too.
                if asked == 2 {
                    fake.idles(&fence).await;
                }
            }
        }
    };
    // The clock is advanced manually while a task is busy.
    let busy = async {
        loop {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        followed = follow(&mut kernel, "x", KernelTraits::default(), &mut response) => {
            assert!(followed.is_ok());
        }
        () = saying => panic!("expected no end"),
        () = busy => {}
    }
}

#[tokio::test]
async fn the_first_error_is_sent_and_noise_ignored() {
    let (mut kernel, mut fake) = kernel().await;
    let (output_channel, body) = channel(&Budget::default());
    let mut response = ResponseStream::new(output_channel);
    fake.iopub
        .send(&[Bytes::from_static(b"noise")])
        .await
        .unwrap();
    let stranger = Session::new();
    let forged = stranger.frames(b"{}".to_vec(), b"{}".to_vec(), b"{}".to_vec());
    fake.iopub.send(&forged).await.unwrap();
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
    assert!(
        follow(&mut kernel, "x", KernelTraits::default(), &mut response)
            .await
            .is_ok()
    );
    drop(response);
    let lines = lines(body).await;
    assert_eq!(kinds(&lines), ["number_of_executions", "error"]);
    assert_eq!(lines[1]["name"], "First");
}

#[tokio::test]
async fn a_queued_execution_of_a_disconnected_client_does_not_start() {
    let (kernel, _fake) = kernel().await;
    let context = Context::of_test(kernel).await;
    let slot = context.acquire().await;
    let (output_channel, lines) = channel(&Budget::default());
    let mut response = ResponseStream::new(output_channel);
    let (turn, ()) = tokio::join!(response.acquire(&context), async {
        drop(lines);
        drop(slot);
    });
    assert_eq!(turn.err(), Some(Disconnected));
    // The queue is not blocked.
    timeout(INTERNAL_TIMEOUT, context.acquire()).await.unwrap();
}

#[tokio::test]
async fn a_broken_connection_or_a_disconnected_client_ends_the_execution() {
    let (mut kernel, fake) = kernel().await;
    let (feed_of_one, body) = channel(&Budget::default());
    drop(fake);
    let mut response = ResponseStream::new(feed_of_one);
    let end = follow(&mut kernel, "x", KernelTraits::default(), &mut response).await;
    assert!(matches!(end, Err(ExecutionEnd::KernelLost(_))));
    drop(body);
    let end = follow(&mut kernel, "x", KernelTraits::default(), &mut response).await;
    assert!(matches!(end, Err(ExecutionEnd::Disconnected)));
}

#[tokio::test]
async fn output_before_a_kernel_exit_is_delivered() {
    let (mut kernel, mut fake) = kernel().await;
    let (output_channel, body) = channel(&Budget::default());
    // Small enough to be sent at once: both ends are noticed together.
    let text = json!({"name": "stdout", "text": "last"});
    fake.says("stream", "x", text).await;
    // The exit status is not known yet.
    let FakeKernel {
        shell,
        iopub,
        ends: _ends,
        ..
    } = fake;
    drop((shell, iopub));
    let mut response = ResponseStream::new(output_channel);
    let end = follow(&mut kernel, "x", KernelTraits::default(), &mut response).await;
    assert!(matches!(end, Err(ExecutionEnd::KernelLost(_))));
    drop(response);
    assert_eq!(lines(body).await.last().unwrap()["text"], "last");
}

#[tokio::test]
async fn waiting_for_a_reply_is_cancel_safe() {
    let (mut kernel, mut fake) = kernel().await;
    let mut awaited = PendingReply::of("x".to_owned());
    fake.replies("x", json!({"status": "ok"})).await;
    while !awaited.has_begun() {
        // Cancelled at once, repeatedly.
        let _ = timeout(Duration::ZERO, kernel.wait_reply(&mut awaited)).await;
        tokio::task::yield_now().await;
    }
    // The reply is not sent twice.
    fake.idles("x").await;
    assert!(kernel.wait_reply(&mut awaited).await.is_ok());
}

#[tokio::test]
async fn a_freeze_does_not_shorten_the_stop_timeout() {
    let (kernel, _fake) = kernel().await;
    let (context, launcher) = (Context::of_test(kernel).await, launcher());
    let mut slot = context.acquire().await;
    launcher.time.freeze();
    tokio::time::pause();
    let stopping = stop(&mut slot, &context, &launcher);
    tokio::pin!(stopping);
    let night = Duration::from_secs(600);
    assert!(timeout(night, &mut stopping).await.is_err());
    launcher.time.unfreeze();
    let begun = Instant::now();
    assert!(!stopping.await);
    assert_eq!(begun.elapsed().as_secs(), STOP_TIMEOUT.as_secs());
}

/// Reads keepalives and checks their interval.
async fn signs_of_life(lines: OutputStream) {
    let mut body = lines.body();
    let begun = Instant::now();
    for number in 1..4 {
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), lines::KEEPALIVE);
        assert_eq!(begun.elapsed().as_secs(), (KEEPALIVE * number).as_secs());
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_client_receives_keepalives() {
    let context = Context::of_language("test");
    let _slot = context.acquire().await;
    let (output_channel, lines) = channel(&Budget::default());
    let mut response = ResponseStream::new(output_channel);
    tokio::select! {
        _ = response.acquire(&context) => panic!("the slot is taken"),
        () = signs_of_life(lines) => {}
    }
}

#[tokio::test]
async fn a_client_of_silent_code_receives_keepalives() {
    let (mut kernel, _fake) = kernel().await;
    let (output_channel, lines) = channel(&Budget::default());
    let mut response = ResponseStream::new(output_channel);
    tokio::time::pause();
    tokio::select! {
        _ = follow(&mut kernel, "x", KernelTraits::default(), &mut response) => panic!("expected no end"),
        () = signs_of_life(lines) => {}
    }
}
