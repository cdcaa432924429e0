//! Windows with a real bash on a real terminal, which `script` provides.

mod secrets;

use std::time::Duration;

use shoal_core::session::life::WINDOW_IDLE;

use super::*;
use crate::events::Events;
use crate::local::{Local, Manual, all};
use crate::secrets::Secrets;

async fn window_at(clock: Arc<Manual>) -> Window {
    window_with(clock, watch::channel(Secrets::default()).1).await
}

async fn window_with(clock: Arc<Manual>, secrets: FollowSecrets) -> Window {
    let events = WindowEvents {
        events: Events::new(clock.clone()),
        window: WindowName::default(),
    };
    let place = Place {
        in_container: false,
        client: Arc::new(Local::default()),
        events,
        clock,
        env: BTreeMap::from([("PS1".to_owned(), "$ ".to_owned())]),
        secrets,
    };
    Window::open(WindowName::default(), place).await.unwrap()
}

async fn window() -> Window {
    window_at(Arc::default()).await
}

async fn ran(window: &Window, command: &str) -> (String, ExecEnd) {
    all(window.exec(command).await.unwrap()).await
}

fn done(output: &str) -> (String, ExecEnd) {
    (output.to_owned(), ExecEnd::Exited(0))
}

/// Starts a command and waits until it has printed something.
async fn started(window: &Window, command: &str) -> ExecStream {
    let mut events = window.exec(command).await.unwrap();
    let first = events.next().await;
    let printed = |event: &ExecEvent| matches!(event, ExecEvent::Output(bytes) if bytes.starts_with(b"begun"));
    assert!(first.as_ref().is_some_and(printed), "{first:?}");
    events
}

#[tokio::test]
async fn r2_070_r2_071_variables_and_directory_stay() {
    let window = window().await;
    assert_eq!(ran(&window, "cd /usr; export A=1; B=2").await, done(""));
    assert_eq!(
        ran(&window, "pwd; echo $A$B; env | grep ^A=").await,
        done("/usr\n12\nA=1\n")
    );
    assert_eq!(ran(&window, "(exit 7)").await.1, ExecEnd::Exited(7));
    assert_eq!(ran(&window, "if true; then").await.1, ExecEnd::Exited(2));
    assert_eq!(ran(&window, "printf 'a\\nb'").await, done("a\nb"));
}

#[tokio::test]
async fn r2_072_windows_share_nothing() {
    let (one, other) = (window().await, window().await);
    assert_eq!(ran(&one, "cd /usr; A=1").await, done(""));
    let here = ran(&other, "pwd; echo \"[$A]\"").await.0;
    assert!(
        !here.starts_with("/usr\n") && here.ends_with("[]\n"),
        "{here:?}"
    );
}

#[tokio::test]
async fn r2_075_a_new_command_cancels_the_running_one() {
    let window = window().await;
    // The programs print themselves: bash may end when it is interrupted while it starts one.
    for running in [
        "sh -c 'echo begun; exec sleep 1000'",
        "echo begun; while :; do :; done",
        "sh -c 'echo begun; exec cat'",
    ] {
        let events = started(&window, running).await;
        assert_eq!(
            ran(&window, "A=$A+; echo next $A").await.1,
            ExecEnd::Exited(0),
            "{running}"
        );
        assert_eq!(all(events).await.1, ExecEnd::Cancelled, "{running}");
    }
    assert_eq!(ran(&window, "echo $A").await, done("+++\n"));
}

#[tokio::test]
async fn r2_076_all_of_a_stubborn_command_is_cancelled_and_jobs_stay() {
    let window = window().await;
    ran(&window, "sleep 1000 & JOB=$!").await;
    let stubborn = "sh -c 'trap : INT; sleep 1000 & echo $!; while :; do wait; done'";
    let mut events = window.exec(stubborn).await.unwrap();
    let Some(ExecEvent::Output(child)) = events.next().await else {
        panic!("no output");
    };
    let child = String::from_utf8(child.to_vec()).unwrap();
    // It is killed together with its parent, and may end later. An ended one may be a zombie.
    let look = format!(
        "timeout 60 sh -c 'while grep -qs State:.[^Z] /proc/{}/status; do :; done'; echo $?; \
         kill -0 $JOB; echo $?",
        child.trim()
    );
    assert_eq!(ran(&window, &look).await, done("0\n0\n"));
    assert_eq!(all(events).await.1, ExecEnd::Cancelled);
    ran(&window, "kill $JOB").await;
}

#[tokio::test]
async fn a_command_that_is_cancelled_at_its_start_leaves_no_program() {
    let window = window().await;
    ran(&window, "sleep 1000 & JOB=$!").await;
    // An interrupt does not reach the first program, as one that bash has just forked.
    let starting = "sh -c 'sleep 1000 & echo $!; exec sleep 1000'";
    for _ in 0..10 {
        let begun = std::time::Instant::now();
        let mut events = window.exec(starting).await.unwrap();
        let Some(ExecEvent::Output(child)) = events.next().await else {
            panic!("no output");
        };
        window.cancel().await;
        let in_time = begun.elapsed() < Duration::from_secs(1);
        assert_eq!(all(events).await.1, ExecEnd::Cancelled);
        let child = String::from_utf8(child.to_vec()).unwrap();
        let child = child.trim();
        // It may end a moment after its command.
        let look = format!(
            "timeout 20 sh -c 'while grep -qs State:.[^Z] /proc/{child}/status; do :; done'; echo $?; \
             kill -0 $JOB; echo $?"
        );
        let seen = ran(&window, &look).await;
        ran(&window, &format!("kill {child} 2>/dev/null")).await;
        // On a busy machine, a later cancellation kills the foreground processes alone.
        if in_time {
            assert_eq!(seen, done("0\n0\n"));
            ran(&window, "kill $JOB").await;
            return;
        }
    }
    panic!("no command was cancelled in time");
}

#[tokio::test]
async fn a_shell_that_cannot_be_interrupted_is_replaced() {
    let window = window().await;
    let events = started(&window, "A=1; trap '' INT; echo begun; while :; do :; done").await;
    assert_eq!(ran(&window, "echo \"[$A]\"").await, done("[]\n"));
    assert_eq!(all(events).await.1, ExecEnd::Cancelled);
}

#[tokio::test]
async fn a_command_that_waits_gives_way_to_a_later_one() {
    let window = window().await;
    let first = started(&window, "sh -c 'echo begun; exec sleep 1000'").await;
    let second = window.exec("echo second").await.unwrap();
    let third = window.exec("echo third").await.unwrap();
    assert_eq!(all(first).await.1, ExecEnd::Cancelled);
    // The second may have started, but it was ended for the third.
    let ended = all(second).await;
    assert!(
        ended == done("second\n") || ended.1 == ExecEnd::Cancelled,
        "{ended:?}"
    );
    assert_eq!(all(third).await, done("third\n"));
}

#[tokio::test]
async fn r2_073_an_unused_window_closes() {
    let clock = Arc::new(Manual::default());
    let window = window_at(clock.clone()).await;
    assert_eq!(ran(&window, "echo").await.1, ExecEnd::Exited(0));
    clock.advance(WINDOW_IDLE - Duration::from_secs(1));
    assert_eq!(ran(&window, "echo").await.1, ExecEnd::Exited(0));
    let events = started(&window, "sh -c 'echo begun; exec sleep 1000'").await;
    // A running command keeps it.
    clock.advance(WINDOW_IDLE * 2);
    window.cancel().await;
    assert_eq!(all(events).await.1, ExecEnd::Cancelled);
    assert!(!window.state().closed);
    clock.advance(WINDOW_IDLE);
    let mut state = window.state.clone();
    state.wait_for(|state| state.closed).await.unwrap();
    assert!(window.exec("echo").await.is_none());
}

#[tokio::test]
async fn the_end_of_the_shell_is_the_end_of_the_command() {
    let window = window().await;
    assert_eq!(
        ran(&window, "echo last; exit 3").await,
        ("last\nexit\n".to_owned(), ExecEnd::Exited(3))
    );
    let mut state = window.state.clone();
    state.wait_for(|state| state.closed).await.unwrap();
}

#[tokio::test]
async fn nobody_need_listen() {
    let window = window().await;
    drop(
        window
            .exec("seq 100000; echo done >/dev/null")
            .await
            .unwrap(),
    );
    // It has no room to wait for, so it ends by itself; or it is cancelled by the next.
    assert_eq!(ran(&window, "echo next").await, done("next\n"));
}

#[tokio::test]
async fn much_output_arrives_whole() {
    let window = window().await;
    let expected: String = (1..=20_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(ran(&window, "seq 20000").await, done(&expected));
}

#[tokio::test]
async fn an_attached_terminal_sees_the_window() {
    let window = window().await;
    ran(&window, "echo one").await;
    let mut attached = window.attach(0);
    assert_eq!(attached.offset, 0);
    let mut seen = Vec::new();
    attached
        .control
        .input(Bytes::from_static(b"echo ty''ped\n"))
        .await
        .unwrap();
    while !String::from_utf8_lossy(&seen).contains("typed\r\n") {
        seen.extend(attached.output.next().await.unwrap());
    }
    let seen = String::from_utf8(seen).unwrap();
    assert!(
        seen.contains("echo one\r\none\r\n") && !seen.contains("__shoal"),
        "{seen:?}"
    );
    // Text that a person has left there does not disturb.
    attached
        .control
        .input(Bytes::from_static(b"cat\nhalf a li"))
        .await
        .unwrap();
    assert_eq!(ran(&window, "echo two").await, done("two\n"));
    drop(window);
    drop(attached.control);
    // The window closes with its last user, and the terminal ends.
    while attached.output.next().await.is_some() {}
}
