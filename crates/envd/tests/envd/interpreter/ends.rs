//! Executions that end early: disconnects and kernel exits.

use http::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::time::timeout;

use super::{Interpreter, children, interpreter};
use crate::daemon::DEADLINE;

impl Interpreter {
    /// Kills the only kernel and waits until the daemon has noticed.
    async fn end_kernel(&self) {
        let kernel = async {
            loop {
                if let [kernel] = children(self.pid()).as_slice() {
                    return *kernel;
                }
                tokio::task::yield_now().await;
            }
        };
        let kernel = timeout(DEADLINE, kernel).await.unwrap();
        kill_process(Pid::from_raw(kernel).unwrap(), Signal::KILL).unwrap();
        let process = std::path::PathBuf::from(format!("/proc/{kernel}"));
        let ended = async {
            while process.exists() {
                tokio::task::yield_now().await;
            }
        };
        timeout(DEADLINE, ended).await.unwrap();
        // The process ends a moment before its status is reported, and no other starts in between.
        self.daemon.run("true").await;
    }

    async fn restart(&self, id: &str) {
        let path = format!("/contexts/{id}/restart");
        let answer = self.ask(Method::POST, &path).send("");
        assert_eq!(timeout(DEADLINE, answer).await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn a_disconnect_interrupts_the_code_and_keeps_the_state() {
    let interpreter = interpreter!();
    let code = "x = 1\nprint('begun', flush=True)\nimport time\ntime.sleep(300)\nx = 2";
    let mut running = interpreter
        .begin(&json!({"code": code, "env_vars": {"A": "1"}}))
        .await;
    running.wait_for("begun").await;
    drop(running);
    let said = interpreter.run("import os\n(x, os.environ.get('A'))").await;
    assert_eq!(said.text(), "(1, None)");
    assert_eq!(said.printed("stderr"), "");
}

#[tokio::test]
async fn unstoppable_code_ends_the_kernel_and_leaves_a_notice() {
    let interpreter = interpreter!();
    let code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n\
        print('begun', flush=True)\nwhile True: pass";
    let mut running = interpreter.begin(&json!({"code": code})).await;
    running.wait_for("begun").await;
    drop(running);
    let said = interpreter.run("1").await;
    assert_eq!((said.count(), said.text()), (1, "1"));
    assert!(
        said.printed("stderr")
            .starts_with("The context was restarted"),
        "{said:?}"
    );
    assert_eq!(interpreter.run("2").await.printed("stderr"), "");
}

#[tokio::test]
async fn a_kernel_exit_is_reported_and_the_kernel_restarted() {
    let interpreter = interpreter!();
    let said = interpreter
        .run("print('last', flush=True)\nimport os\nos._exit(3)")
        .await;
    let value = "Context was restarted: the kernel ended (exit status 3)";
    assert_eq!(said.error(), ("ContextRestarting", value));
    let said = interpreter.run("1").await;
    assert_eq!((said.text(), said.printed("stderr").as_str()), ("1", ""));

    // While idle, so that the next execution is notified.
    interpreter.end_kernel().await;
    let said = interpreter.run("2").await;
    let told = "The context was restarted: its kernel had ended (signal: killed)\n";
    assert_eq!((said.text(), said.printed("stderr").as_str()), ("2", told));
    assert_eq!(interpreter.run("3").await.printed("stderr"), "");
}

#[tokio::test]
async fn a_restart_or_deletion_ends_the_running_execution() {
    let interpreter = interpreter!();
    let context = interpreter.post("/contexts", &json!({})).await.json();
    let id = context["id"].as_str().unwrap();
    let code = "print('begun', flush=True)\nwhile True: pass";
    for (method, path, name) in [
        (
            Method::POST,
            format!("/contexts/{id}/restart"),
            "\"ContextRestarting\"",
        ),
        (
            Method::DELETE,
            format!("/contexts/{id}"),
            "\"UnexpectedEndOfExecution\"",
        ),
    ] {
        let mut running = interpreter
            .begin(&json!({"code": code, "context_id": id}))
            .await;
        running.wait_for("begun").await;
        assert_eq!(interpreter.ask(method, &path).send("").await.status, 200);
        running.wait_for(name).await;
        running.wait_for("end_of_execution").await;
    }
}

#[tokio::test]
async fn a_stuck_client_does_not_block_a_restart() {
    let interpreter = interpreter!();
    let id = interpreter.create(json!({})).await;
    let before = interpreter.memory();
    let code = "print('begun', flush=True)\nwhile True: print('x' * 8_000_000, flush=True)";
    let body = json!({"code": code, "context_id": id});
    let mut running = interpreter.begin(&body).await;
    running.wait_for("begun").await;
    // Two lines are queued, one is in transit, and one waits for budget along with its source
    // message.
    let filled = async {
        while interpreter.memory() < before + (34 << 10) {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, filled).await.unwrap();
    interpreter.restart(&id).await;
    running.wait_for("\"ContextRestarting\"").await;
    running.wait_for("end_of_execution").await;
    let body = json!({"code": "1", "context_id": id});
    let said = interpreter.execute(&body).await;
    assert_eq!(said.printed("stderr"), "", "who asked for it knows");
}

#[tokio::test]
async fn a_restart_does_not_wait_for_the_queue() {
    let interpreter = interpreter!();
    let id = interpreter.create(json!({})).await;
    let code = "print('begun', flush=True)\nwhile True: pass";
    let body = json!({"code": code, "context_id": id});
    let mut first = interpreter.begin(&body).await;
    first.wait_for("begun").await;
    let mut second = interpreter.begin(&body).await;
    second.wait_for("HTTP/1.1 200").await;
    interpreter.restart(&id).await;
    first.wait_for("\"ContextRestarting\"").await;
    second.wait_for("begun").await;
}

#[tokio::test]
async fn a_kernel_that_sends_noise_is_restarted() {
    let interpreter = interpreter!();
    // Writes the header of an endless frame into every connection of the kernel.
    let code = "import os, socket\nfor fd in os.listdir('/proc/self/fd'):\n    try:\n        \
        s = socket.socket(fileno=os.dup(int(fd)))\n        s.getpeername()\n        \
        s.family == socket.AF_INET and s.send(b'\\x02' + b'\\x7f' * 8)\n    except OSError: pass\n\
        print('done', flush=True)";
    let said = interpreter.run(code).await;
    assert_eq!(said.error().0, "ContextRestarting");
    assert_eq!(interpreter.run("1").await.text(), "1");
}
