//! Processes.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use connectrpc::ErrorCode;
use serde_json::json;
use shoal_protocol::client::{ClientError, Command, EnvdClient, Exit, Output, Process, Selector};
use shoal_protocol::process::process_input::Input;
use shoal_protocol::process::process_selector::Selector as WireSelector;
use shoal_protocol::process::stream_input_request::{DataEvent, KeepAlive, StartEvent};
use shoal_protocol::process::{ProcessInput, ProcessSelector, Signal, StreamInputRequest};

use crate::daemon::{DEADLINE, GROUP, Options, UID, USER, daemon};
use crate::wire::{Item, basic};

const START: &str = "/process.Process/Start";

fn shell(line: &str) -> Command {
    Command::new("/bin/sh", ["-c", line])
}

/// Output of a process and its end.
async fn finish(process: &mut Process) -> Result<(String, String, String, Exit), ClientError> {
    let (mut stdout, mut stderr, mut terminal) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(output) = process.next().await? {
        match output {
            Output::Stdout(bytes) => stdout.extend_from_slice(&bytes),
            Output::Stderr(bytes) => stderr.extend_from_slice(&bytes),
            Output::Terminal(bytes) => terminal.extend_from_slice(&bytes),
            Output::Exit(exit) => {
                let text = |bytes| String::from_utf8(bytes).unwrap();
                return Ok((text(stdout), text(stderr), text(terminal), exit));
            }
        }
    }
    panic!("no exit");
}

async fn wait(process: &mut Process) -> Exit {
    finish(process).await.unwrap().3
}

/// Polls until a condition set by another process holds.
pub(crate) async fn until(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !done() {
        assert!(Instant::now() < deadline, "timeout");
        tokio::task::yield_now().await;
    }
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn running_commands_are_activity_until_they_end() {
    let daemon = daemon!();
    let client = daemon.client();
    assert_eq!(
        client.activity().await.unwrap().commands,
        Vec::<Vec<String>>::new()
    );
    let mut process = client.start(shell("exec sleep 1000")).await.unwrap();
    let line: Vec<String> = ["/bin/sh", "-c", "exec sleep 1000"]
        .map(String::from)
        .into();
    let activity = client.activity().await.unwrap();
    assert_eq!((activity.commands, activity.orphans), (vec![line], 0));
    let pid = Selector::Pid(process.pid());
    client.signal(pid, Signal::SIGNAL_SIGKILL).await.unwrap();
    wait(&mut process).await;
    assert!(client.activity().await.unwrap().commands.is_empty());
}

#[tokio::test]
async fn a_process_streams_start_output_and_end_in_both_codecs() {
    let daemon = daemon!();
    let finished = daemon.run("echo out; echo err >&2").await;
    assert_eq!(
        (finished.stdout.as_str(), finished.stderr.as_str()),
        ("out\n", "err\n")
    );
    assert_eq!(
        finished.end,
        json!({"exited": true, "status": "exit status 0"})
    );
    assert_eq!(finished.last, json!({}));

    let mut process = daemon
        .client()
        .start(shell("echo out; echo err >&2"))
        .await
        .unwrap();
    assert!(process.pid() > 1);
    let (stdout, stderr, _, exit) = finish(&mut process).await.unwrap();
    assert_eq!((stdout.as_str(), stderr.as_str()), ("out\n", "err\n"));
    let success = Exit {
        code: 0,
        exited: true,
        status: "exit status 0".into(),
    };
    assert_eq!(exit, success);
    assert!(process.next().await.unwrap().is_none());
}

#[tokio::test]
async fn exit_statuses_have_e2bs_texts() {
    let daemon = daemon!();
    let finished = daemon.run("exit 3").await;
    assert_eq!(
        finished.end,
        json!({"exitCode": 3, "exited": true, "status": "exit status 3", "error": "exit status 3"})
    );
    for (signal, words) in [("KILL", "signal: killed"), ("TERM", "signal: terminated")] {
        let finished = daemon.run(&format!("kill -{signal} $$")).await;
        assert_eq!(
            finished.end,
            json!({"exitCode": -1, "status": words, "error": words})
        );
    }
}

#[tokio::test]
async fn a_process_has_its_user_and_groups_and_inherits_nothing() {
    let daemon = daemon!();
    let line = "id -u; id -g; id -G; pwd; umask; cat /proc/self/oom_score_adj; \
        ls /proc/self/fd | wc -l; grep -E '^Sig(Blk|Ign)' /proc/self/status; \
        test $(ps -o sid= -p $$) = $$ && echo session";
    let finished = daemon.run(line).await;
    let home = daemon.home();
    let expected = format!(
        "{UID}\n{UID}\n{UID} {GROUP}\n{}\n0022\n100\n4\nSigBlk:\t{zero}\nSigIgn:\t{zero}\nsession\n",
        home.display(),
        zero = "0".repeat(16),
    );
    assert_eq!(finished.stdout, expected, "{}", finished.stderr);
    let client = daemon.client().with_user("root");
    let mut root = client.start(shell("id -u")).await.unwrap();
    assert_eq!(finish(&mut root).await.unwrap().0, "0\n");
}

#[tokio::test]
async fn the_request_overrides_the_global_environment_and_that_the_users() {
    let daemon = daemon!();
    daemon
        .post_json("/init", json!({"envVars": {"A": "global", "B": "global"}}))
        .await;
    let command = Command::new("/usr/bin/env", [] as [&str; 0]).with_env("A", "request");
    let mut process = daemon.client().start(command).await.unwrap();
    let (stdout, ..) = finish(&mut process).await.unwrap();
    let lines: HashSet<_> = stdout.lines().collect();
    let home = format!("HOME={}", daemon.home().display());
    let expected = [
        "A=request",
        "B=global",
        "E2B_SANDBOX=true",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        &format!("USER={USER}"),
        &format!("LOGNAME={USER}"),
        &home,
    ];
    assert_eq!(lines, HashSet::from(expected));
}

#[tokio::test]
async fn a_process_starts_in_the_requested_directory() {
    let daemon = daemon!();
    std::fs::create_dir(daemon.home().join("sub")).unwrap();
    let client = daemon.client();
    for (cwd, expected) in [("sub", "sub"), ("~/sub", "sub"), ("~", "")] {
        let mut process = client.start(shell("pwd").with_cwd(cwd)).await.unwrap();
        let (stdout, ..) = finish(&mut process).await.unwrap();
        assert_eq!(
            stdout.trim_end(),
            daemon.path(expected).trim_end_matches('/')
        );
    }
    let message = json!({"process": {"cmd": "/bin/true", "cwd": "/no/such"}});
    let mut stream = daemon.stream(START, &[], &message).await;
    let error = json!({"code": "invalid_argument", "message": "cwd '/no/such' does not exist"});
    assert_eq!(stream.next().await, Item::End(json!({"error": error})));
}

#[tokio::test]
async fn an_unstartable_command_is_an_invalid_argument() {
    let daemon = daemon!();
    let script = daemon.home().join("script");
    std::fs::write(&script, "echo $0 $1").unwrap();
    let client = daemon.client();
    for command in [
        Command::new("no-such-program", [] as [&str; 0]),
        Command::new(&daemon.path("script"), [] as [&str; 0]),
        Command::new("", [] as [&str; 0]),
        Command::new("/bin/true", ["a\0b"]),
        Command::new("/bin/true", [] as [&str; 0]).with_cwd("/root/x"),
    ] {
        let error = client.start(command).await.err().unwrap();
        assert_eq!(error.code(), Some(ErrorCode::InvalidArgument), "{error}");
    }
    // Scripts without `#!` run in a shell.
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable).unwrap();
    let command = Command::new(&daemon.path("script"), ["arg"]);
    let mut process = client.start(command).await.unwrap();
    let (stdout, ..) = finish(&mut process).await.unwrap();
    assert_eq!(stdout, format!("{} arg\n", daemon.path("script")));
}

#[tokio::test]
async fn an_unknown_user_is_unauthenticated_in_every_call() {
    let daemon = daemon!();
    let message = json!({"process": {"cmd": "/bin/true"}});
    let headers = [("authorization", basic("nobody-here"))];
    let headers = headers
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    let finished = daemon
        .stream(START, &headers, &message)
        .await
        .finish()
        .await;
    let error = &finished.last["error"];
    assert_eq!(error["code"], "unauthenticated");
    assert_eq!(error["message"], "invalid username: 'nobody-here'");
    let answer = daemon
        .call_as("nobody-here", "/process.Process/List", json!({}))
        .await;
    assert_eq!(answer.status, 401);
    assert_eq!(answer.json()["code"], "unauthenticated");
}

#[tokio::test]
async fn the_timeout_kills_a_process_without_subscribers() {
    let daemon = daemon!();
    // Long enough for a shell to start on a busy machine.
    let timeout = Duration::from_secs(3);
    let headers = [("connect-timeout-ms", "3000")];
    let start = Instant::now();
    let mut stream = daemon.shell("echo begun; exec sleep 1000", &headers).await;
    let pid = stream.pid().await;
    let finished = stream.finish().await;
    assert!(start.elapsed() >= timeout);
    assert_eq!(finished.stdout, "begun\n");
    assert_eq!(finished.code(), "deadline_exceeded");
    until(|| !is_alive(pid)).await;

    let start = Instant::now();
    let mut stream = daemon.shell("exec sleep 1000", &headers).await;
    let pid = stream.pid().await;
    drop(stream);
    until(|| !is_alive(pid)).await;
    assert!(start.elapsed() >= timeout, "it outlives its subscriber");
}

#[tokio::test]
async fn an_invalid_timeout_is_rejected() {
    let daemon = daemon!();
    for timeout in ["soon", "-1", "12345678901"] {
        let stream = daemon
            .shell("true", &[("connect-timeout-ms", timeout)])
            .await;
        assert_eq!(
            stream.finish().await.code(),
            "invalid_argument",
            "{timeout}"
        );
    }
    let mut stream = daemon.shell("true", &[("connect-timeout-ms", "0")]).await;
    stream.pid().await;
    assert_eq!(stream.finish().await.code(), "");
}

#[tokio::test]
async fn a_process_outlives_its_subscriber_and_can_be_reconnected() {
    let daemon = daemon!();
    let client = daemon.client();
    let command = shell("read line; echo got $line")
        .with_stdin()
        .with_tag("job");
    let process = client.start(command).await.unwrap();
    let pid = process.pid();
    drop(process);

    let listed = client.list_processes().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].pid, listed[0].tag.as_deref()),
        (pid, Some("job"))
    );
    assert_eq!(listed[0].config.cmd, "/bin/sh");

    let tag = || Selector::Tag("job".into());
    let mut again = client.connect(tag()).await.unwrap();
    let mut third = client.connect(Selector::Pid(pid)).await.unwrap();
    client
        .send_stdin(tag(), Bytes::from_static(b"hello\n"))
        .await
        .unwrap();
    for process in [&mut again, &mut third] {
        assert_eq!(process.pid(), pid);
        assert_eq!(finish(process).await.unwrap().0, "got hello\n");
    }
    assert!(client.list_processes().await.unwrap().is_empty());

    // A late subscriber receives the end.
    let mut late = client.connect(Selector::Pid(pid)).await.unwrap();
    assert_eq!((late.pid(), wait(&mut late).await.code), (pid, 0));
    let error = client.send_stdin(tag(), Bytes::new()).await.unwrap_err();
    assert!(error.is_not_found());
}

#[tokio::test]
async fn an_unknown_process_is_not_found_with_e2bs_text() {
    let daemon = daemon!();
    let answer = daemon
        .call(
            "/process.Process/SendSignal",
            json!({"process": {"pid": 4_000_000}, "signal": 9}),
        )
        .await;
    assert_eq!(answer.status, 404);
    let expected = json!({"code": "not_found", "message": "process with pid 4000000 not found"});
    assert_eq!(answer.json(), expected);
    let answer = daemon
        .call(
            "/process.Process/CloseStdin",
            json!({"process": {"tag": "x"}}),
        )
        .await;
    assert_eq!(answer.json()["message"], "process with tag x not found");
    let message = json!({"process": {"pid": 4_000_000}});
    let stream = daemon
        .stream("/process.Process/Connect", &[], &message)
        .await;
    assert_eq!(stream.finish().await.code(), "not_found");
}

#[tokio::test]
async fn standard_input_can_be_written_and_closed() {
    let daemon = daemon!();
    let client = daemon.client();
    let mut cat = client
        .start(shell("cat; echo end; exec sleep 1000").with_stdin())
        .await
        .unwrap();
    let number = cat.pid();
    let pid = || Selector::Pid(number);
    let large = "x".repeat(1 << 20);
    client
        .send_stdin(pid(), large.clone().into())
        .await
        .unwrap();
    let answer = daemon
        .call(
            "/process.Process/SendInput",
            json!({"process": {"pid": number}, "input": {"stdin": "eQ=="}}),
        )
        .await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "{}"));
    client.close_stdin(pid()).await.unwrap();
    client.close_stdin(pid()).await.unwrap();
    let error = client.send_stdin(pid(), Bytes::from_static(b"z")).await;
    assert_eq!(error.unwrap_err().code(), Some(ErrorCode::Internal));
    client.signal(pid(), Signal::SIGNAL_SIGKILL).await.unwrap();
    let (stdout, ..) = finish(&mut cat).await.unwrap();
    assert!(format!("{large}yend\n").starts_with(&stdout));
}

#[tokio::test]
async fn a_process_without_standard_input_cannot_be_written_to() {
    let daemon = daemon!();
    let client = daemon.client();
    let mut process = client
        .start(shell("cat; echo end; sleep 1000"))
        .await
        .unwrap();
    let output = process.next().await.unwrap();
    assert_eq!(output, Some(Output::Stdout(Bytes::from_static(b"end\n"))));
    let pid = Selector::Pid(process.pid());
    let error = client
        .send_stdin(pid.clone(), Bytes::from_static(b"x"))
        .await
        .unwrap_err();
    assert!(
        error.to_string().ends_with("stdin not enabled or closed"),
        "{error}"
    );
    let error = client
        .send_terminal(pid.clone(), Bytes::from_static(b"x"))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Internal));
    let error = client.resize(pid.clone(), 1, 1).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Internal));
    client.signal(pid, Signal::SIGNAL_SIGKILL).await.unwrap();
    assert_eq!(wait(&mut process).await.status, "signal: killed");
}

#[tokio::test]
async fn input_can_be_streamed() {
    let daemon = daemon!();
    let client = daemon.client();
    let mut cat = client.start(shell("cat").with_stdin()).await.unwrap();
    let pid = cat.pid();
    let selector = ProcessSelector {
        selector: Some(WireSelector::Pid(pid)),
    };
    let data = |text: &'static str| StreamInputRequest {
        event: Some(
            DataEvent {
                input: Some(ProcessInput {
                    input: Some(Input::Stdin(text.into())),
                })
                .into(),
            }
            .into(),
        ),
    };
    let start = StreamInputRequest {
        event: Some(
            StartEvent {
                process: Some(selector).into(),
            }
            .into(),
        ),
    };
    let alive = StreamInputRequest {
        event: Some(KeepAlive::default().into()),
    };
    let requests = vec![start, data("a"), alive, data("b")];
    let rpc = client.process_rpc();
    rpc.stream_input(connectrpc::stream_iter(requests))
        .await
        .unwrap();
    client.close_stdin(Selector::Pid(pid)).await.unwrap();
    assert_eq!(finish(&mut cat).await.unwrap().0, "ab");

    let error = rpc
        .stream_input(connectrpc::stream_iter(vec![data("a")]))
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::Unimplemented);
}

#[tokio::test]
async fn a_terminal_has_a_size_an_owner_and_one_stream() {
    let daemon = daemon!();
    let client = daemon.client();
    let line = "tty -s && stty size; stat -c %u $(tty); echo ready; read line; stty size; \
        echo got $line; read rest; echo over";
    let mut process = client
        .start(Command::new("/bin/bash", ["-c", line]).with_terminal(80, 24))
        .await
        .unwrap();
    let number = process.pid();
    let pid = || Selector::Pid(number);
    let error = client
        .send_stdin(pid(), Bytes::from_static(b"x"))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Internal));
    let error = client.close_stdin(pid()).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Unknown));

    let mut seen = String::new();
    let mut resized = false;
    loop {
        match process.next().await.unwrap().unwrap() {
            Output::Terminal(bytes) => seen.push_str(std::str::from_utf8(&bytes).unwrap()),
            Output::Exit(exit) => {
                assert_eq!(exit.code, 0);
                break;
            }
            other => panic!("{other:?}"),
        }
        if seen.contains("ready") && !resized {
            resized = true;
            client.resize(pid(), 100, 50).await.unwrap();
            let typed = Bytes::from_static(b"hello\n\x04");
            client.send_terminal(pid(), typed).await.unwrap();
        }
    }
    assert!(
        seen.starts_with(&format!("24 80\r\n{UID}\r\nready\r\n")),
        "{seen:?}"
    );
    assert!(
        seen.contains("50 100\r\ngot hello\r\n") && seen.contains("over"),
        "{seen:?}"
    );
}

#[tokio::test]
async fn a_signal_ends_the_stream_although_children_hold_it_open() {
    let daemon = daemon!();
    let client = daemon.client();
    for (signal, status) in [
        (Signal::SIGNAL_SIGKILL, "signal: killed"),
        (Signal::SIGNAL_SIGTERM, "signal: terminated"),
    ] {
        let mut process = client
            .start(shell("sleep 1000 & echo $!; wait"))
            .await
            .unwrap();
        let Some(Output::Stdout(child)) = process.next().await.unwrap() else {
            panic!("no child");
        };
        let child: u32 = std::str::from_utf8(&child).unwrap().trim().parse().unwrap();
        client
            .signal(Selector::Pid(process.pid()), signal)
            .await
            .unwrap();
        assert_eq!(wait(&mut process).await.status, status);
        // The child is not signalled.
        assert!(is_alive(child));
        let child = rustix::process::Pid::from_raw(child.cast_signed()).unwrap();
        rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    }
    let answer = daemon
        .call(
            "/process.Process/SendSignal",
            json!({"process": {"pid": 1}, "signal": 2}),
        )
        .await;
    assert_eq!(answer.status, 404);
    let mut process = client.start(shell("exec sleep 1000")).await.unwrap();
    let pid = process.pid();
    let answer = daemon
        .call(
            "/process.Process/SendSignal",
            json!({"process": {"pid": pid}, "signal": 2}),
        )
        .await;
    assert_eq!(answer.json()["code"], "unimplemented");
    client
        .signal(Selector::Pid(pid), Signal::SIGNAL_SIGKILL)
        .await
        .unwrap();
    wait(&mut process).await;
}

#[tokio::test]
async fn a_normal_exit_waits_for_output_of_children() {
    let daemon = daemon!();
    let finished = daemon.run("(sleep 0.3; echo late) & echo early").await;
    assert_eq!(finished.stdout, "early\nlate\n");
    assert_eq!(finished.end["status"], "exit status 0");
}

#[tokio::test]
async fn large_output_reaches_every_subscriber_completely() {
    const SIZE: usize = 32 << 20;
    let daemon = daemon!();
    let client = daemon.client();
    let line = format!("read go; head -c {SIZE} /dev/zero | tr '\\0' 'x'");
    let mut first = client.start(shell(&line).with_stdin()).await.unwrap();
    let pid = || Selector::Pid(first.pid());
    let mut second = client.connect(pid()).await.unwrap();
    client
        .send_stdin(pid(), Bytes::from_static(b"\n"))
        .await
        .unwrap();
    let count = async |process: &mut Process| {
        let mut count = 0;
        loop {
            match process.next().await.unwrap().unwrap() {
                Output::Stdout(bytes) => {
                    assert!(bytes.len() <= 32 << 10);
                    count += bytes.len();
                }
                Output::Exit(exit) => return (count, exit.code),
                other => panic!("{other:?}"),
            }
        }
    };
    let both = tokio::join!(count(&mut first), count(&mut second));
    assert_eq!(both, ((SIZE, 0), (SIZE, 0)));
}

#[tokio::test]
async fn a_stuck_subscriber_does_not_block_the_others() {
    let daemon = daemon!();
    let client = daemon.client();
    let line = "read go; head -c 33554432 /dev/zero";
    let mut quick = client.start(shell(line).with_stdin()).await.unwrap();
    let pid = quick.pid();
    let message = json!({"process": {"pid": pid}});
    let mut stuck = daemon
        .stream("/process.Process/Connect", &[], &message)
        .await;
    assert_eq!(stuck.pid().await, pid);
    client
        .send_stdin(Selector::Pid(pid), Bytes::from_static(b"\n"))
        .await
        .unwrap();
    assert_eq!(wait(&mut quick).await.code, 0);
    let finished = stuck.finish().await;
    assert_eq!(finished.code(), "resource_exhausted");
}

#[tokio::test]
async fn an_idle_stream_sends_keepalives_at_the_requested_interval() {
    let daemon = daemon!();
    let mut stream = daemon
        .shell("exec sleep 1000", &[("keepalive-ping-interval", "1")])
        .await;
    stream.pid().await;
    let start = Instant::now();
    let alive = json!({"event": {"keepalive": {}}});
    assert_eq!(stream.item().await, Item::Message(alive.clone()));
    assert_eq!(stream.item().await, Item::Message(alive));
    assert!(start.elapsed() >= Duration::from_millis(1900));
}

#[tokio::test]
async fn many_short_processes_all_end() {
    let daemon = daemon!();
    let client = daemon.client();
    let runs = (0..200).map(|number: i32| {
        let client: EnvdClient = client.clone();
        tokio::spawn(async move {
            let line = format!("exit {}", number % 7);
            let mut process = client.start(shell(&line)).await.unwrap();
            assert_eq!(wait(&mut process).await.code, number % 7);
        })
    });
    for run in runs.collect::<Vec<_>>() {
        run.await.unwrap();
    }
    assert!(client.list_processes().await.unwrap().is_empty());
}

#[tokio::test]
async fn pid_1_reaps_orphans() {
    let daemon = daemon!(Options {
        as_init: true,
        ..Options::default()
    });
    let client = daemon.client().with_user("root");
    let orphans = "for n in 1 2 3 4 5 6 7 8 9; do (sleep 0.0$n & ) ; done; exec true";
    for _ in 0..10 {
        let mut process = client.start(shell(orphans)).await.unwrap();
        assert_eq!(wait(&mut process).await.code, 0);
    }
    let count = "n=1; while [ $n -gt 0 ]; do \
        n=$(cat /proc/[0-9]*/stat 2>/dev/null | grep -cE '\\) Z |\\(sleep\\)'); done; \
        cat /proc/1/comm";
    let mut process = client.start(shell(count)).await.unwrap();
    let (stdout, _, _, exit) = finish(&mut process).await.unwrap();
    assert_eq!((stdout.as_str(), exit.code), ("shoal-envd\n", 0));
}

#[tokio::test]
async fn process_events_and_output_are_logged() {
    let daemon = daemon!();
    let finished = daemon.run("echo hello; printf 'no end' >&2; exit 4").await;
    assert_eq!(finished.end["exitCode"], 4);
    let start = daemon.logged(|entry| entry["message"] == "start");
    assert_eq!(
        start["cmd"],
        "/bin/sh -c echo hello; printf 'no end' >&2; exit 4"
    );
    assert_eq!(
        (&start["user"], &start["level"]),
        (&json!(USER), &json!("info"))
    );
    let lines = [
        daemon.logged(|entry| entry["message"] == "output"),
        daemon.logged(|entry| entry["message"] == "output"),
    ];
    let lines: HashSet<_> = lines
        .iter()
        .map(|entry| {
            (
                entry["stream"].as_str().unwrap(),
                entry["line"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        lines,
        HashSet::from([("stdout", "hello"), ("stderr", "no end")])
    );
    let end = daemon.logged(|entry| entry["message"] == "end");
    assert_eq!((&end["exit"], &end["pid"]), (&json!(4), &start["pid"]));
}
