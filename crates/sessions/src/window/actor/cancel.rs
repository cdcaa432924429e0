//! Cancelling a command: an interrupt, questions to the shell, and killing in the end.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use shoal_core::ports::inside::SandboxCommand;
use tokio::time::Instant;

use super::{Actor, Wait};
use crate::window::typed;

/// The steps after the interrupt, each with its delay after the step before, in milliseconds. They end when the shell
/// answers.
///
/// The question is repeated, because an interrupt discards input that was typed around it, and because a program may read
/// the question. The delays grow: the answer to an earlier question is ignored.
const CANCELLING: &[(u64, Step)] = &[
    (30, Step::Ask),
    (100, Step::Ask),
    (300, Step::Ask),
    (900, Step::KillPrograms),
    (100, Step::Ask),
    (400, Step::Ask),
    (1600, Step::Ask),
    (3000, Step::KillShell),
];

/// A command that is interrupted within this time may be starting a program.
const STARTING: Duration = Duration::from_secs(2);

/// Timeout of the script that kills programs.
const KILLING: Duration = Duration::from_secs(5);

/// The key that interrupts.
const INTERRUPT: &[u8] = b"\x03";

/// Kills the processes of the session of shell `$1`, except the shell and the process groups in the other arguments. A program
/// that the shell has just forked is still in the shell's own group.
const KILL: &str = r#"
shell=$1; shift; kept=" $* "
for stat in /proc/[0-9]*/stat; do
    read -r line 2>/dev/null <"$stat" || continue
    pid=${line%% *}
    set -- ${line##*) }
    [ "$4" = "$shell" ] && [ "$pid" != "$shell" ] || continue
    case $kept in *" $3 "*) continue ;; esac
    if [ "$3" = "$shell" ]; then kill -9 "$pid"; else kill -9 "-$3"; fi 2>/dev/null
done
:
"#;

/// A step of a cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Ask the shell whether it is at its prompt.
    Ask,
    /// Kill the programs of the command.
    KillPrograms,
    /// Kill the shell.
    KillShell,
}

impl Actor {
    /// Interrupts the command, and then asks whether the shell is at its prompt.
    ///
    /// An interrupt may reach bash at the moment when it starts a program: bash returns to its prompt, and the program runs.
    /// See [`Actor::end_leftover`].
    pub(super) async fn interrupt(&mut self) {
        let id = self.id();
        self.shell.cancelling(id);
        self.interrupted_early = self.exec.is_some() && self.typed_at.elapsed() < STARTING;
        self.write(Bytes::from_static(INTERRUPT)).await;
        self.wait_for_step(0);
        // The output of a cancelled command is discarded.
        self.room = None;
    }

    /// Takes one of the steps of [`CANCELLING`].
    pub(super) async fn cancel(&mut self, number: usize) {
        match CANCELLING.get(number).map(|(_, step)| step) {
            Some(Step::Ask) => self.ask().await,
            Some(Step::KillPrograms) => self.kill_programs().await,
            // The actor sees the exit of the shell.
            Some(Step::KillShell) => self.kill_shell().await,
            None => {}
        }
        self.wait_for_step(number + 1);
    }

    /// Kills the program that bash was starting when it was interrupted. Otherwise the program would outlive its command, and
    /// its terminal would take no other one.
    pub(super) async fn end_leftover(&mut self) {
        self.interrupted_early = false;
        if self.shell.begun {
            self.kill_programs().await;
        }
    }

    fn wait_for_step(&mut self, number: usize) {
        let step = CANCELLING.get(number);
        self.wait = step.map(|(millis, _)| {
            let wait = Wait::Cancelling(number);
            (wait, Instant::now() + Duration::from_millis(*millis))
        });
    }

    async fn ask(&mut self) {
        let id = self.id();
        let line = typed::ready(&id);
        self.shell.cancelling(id);
        self.write(line.into()).await;
    }

    /// Kills the shell. In a container it outlives the client of Docker that it is used through.
    pub(super) async fn kill_shell(&mut self) {
        if let (true, Some(shell)) = (self.place.in_container, self.shell.process) {
            let words = ["-c", "kill -9 \"$1\"", "sh", &shell.to_string()].map(str::to_owned);
            let command = SandboxCommand::new("/bin/sh", words).with_timeout(KILLING);
            if let Ok(mut killing) = self.place.client.run(command).await {
                while killing.output.next().await.is_some() {}
            }
        }
        // It may have exited.
        let _ = self.control.kill().await;
    }

    /// Kills the programs in the foreground.
    async fn kill_programs(&mut self) {
        let Some(shell) = self.shell.process else {
            return;
        };
        let jobs = self.shell.jobs.iter().map(u32::to_string);
        let args = [
            "-c".to_owned(),
            KILL.to_owned(),
            "sh".to_owned(),
            shell.to_string(),
        ];
        let command =
            SandboxCommand::new("/bin/sh", args.into_iter().chain(jobs)).with_timeout(KILLING);
        match self.place.client.run(command).await {
            Ok(mut killing) => while killing.output.next().await.is_some() {},
            Err(error) => tracing::debug!(%error, "cannot kill the programs of a window"),
        }
    }
}
