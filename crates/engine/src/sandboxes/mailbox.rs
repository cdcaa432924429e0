//! The mailbox of a sandbox's task. Kills overtake all other commands.

use shoal_core::state::KillReason;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::oneshot;
use tracing::Span;

use super::command::Command;
use shoal_core::ports::sandboxes::SandboxError;

/// How many commands may wait for a sandbox. Further callers are refused: the sandbox is busy.
const WAITING: usize = 64;

/// How many kills may wait for a sandbox. Further callers wait for a place.
const KILLS_WAITING: usize = 8;

/// A command with the span of its caller, to which the log lines of the task belong.
#[derive(Debug)]
pub(super) struct Envelope {
    pub(super) command: Command,
    pub(super) span: Span,
}

type Kill = (KillReason, oneshot::Sender<Result<(), SandboxError>>, Span);

/// The sending side of a sandbox's mailbox.
#[derive(Debug, Clone)]
pub(crate) struct Mailbox {
    commands: mpsc::Sender<Envelope>,
    kills: mpsc::Sender<Kill>,
}

/// The receiving side, which the task owns.
#[derive(Debug)]
pub(super) struct Commands {
    commands: mpsc::Receiver<Envelope>,
    kills: mpsc::Receiver<Kill>,
    /// A kill that was received but not carried out yet.
    kill: Option<Kill>,
}

/// Why a command was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// Too many commands wait.
    Full,
    /// The task has ended.
    Ended,
}

impl Envelope {
    /// A command from the current span.
    fn here(command: Command) -> Self {
        Self {
            command,
            span: Span::current(),
        }
    }
}

impl From<Kill> for Envelope {
    fn from((reason, reply, span): Kill) -> Self {
        Self {
            command: Command::Kill(reason, reply),
            span,
        }
    }
}

impl<T> From<TrySendError<T>> for NotTaken {
    fn from(error: TrySendError<T>) -> Self {
        match error {
            TrySendError::Full(_) => Self::Full,
            TrySendError::Closed(_) => Self::Ended,
        }
    }
}

/// A mailbox: both of its sides.
pub(super) fn mailbox() -> (Mailbox, Commands) {
    let (commands, waiting) = mpsc::channel(WAITING);
    let (kills, ends) = mpsc::channel(KILLS_WAITING);
    let inner = Commands {
        commands: waiting,
        kills: ends,
        kill: None,
    };
    (Mailbox { commands, kills }, inner)
}

impl Mailbox {
    /// Sends a command if there is a place for it now. A kill waits for a place, so that other
    /// callers cannot keep it out.
    pub(crate) async fn send(&self, command: Command) -> Result<(), NotTaken> {
        match command {
            Command::Kill(..) => self.send_waiting(command).await,
            command => self.try_send(command),
        }
    }

    /// Sends a command if there is a place for it now.
    pub(crate) fn try_send(&self, command: Command) -> Result<(), NotTaken> {
        match command {
            Command::Kill(reason, reply) => {
                self.kills.try_send((reason, reply, Span::current()))?;
            }
            command => self.commands.try_send(Envelope::here(command))?,
        }
        Ok(())
    }

    /// Sends a command, and waits for a place.
    pub(crate) async fn send_waiting(&self, command: Command) -> Result<(), NotTaken> {
        let sent = match command {
            Command::Kill(reason, reply) => {
                let kill = (reason, reply, Span::current());
                self.kills.send(kill).await.is_ok()
            }
            command => self.commands.send(Envelope::here(command)).await.is_ok(),
        };
        sent.then_some(()).ok_or(NotTaken::Ended)
    }
}

impl Commands {
    /// The next command: a kill if there is one, otherwise the oldest.
    pub(super) async fn next(&mut self) -> Option<Envelope> {
        if let Some(kill) = self.kill.take() {
            return Some(Envelope::from(kill));
        }
        tokio::select! {
            biased;
            Some(kill) = self.kills.recv() => Some(Envelope::from(kill)),
            sent = self.commands.recv() => sent,
        }
    }

    /// Resolves when a kill arrives. [`Commands::next`] then returns it.
    pub(super) async fn kill_asked(&mut self) {
        if self.kill.is_none() {
            self.kill = self.kills.recv().await;
        }
        if self.kill.is_none() {
            // All senders are gone.
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_kill_comes_before_what_waits_and_is_not_refused_when_all_places_are_taken() {
        let (mailbox, mut commands) = mailbox();
        for _ in 0..WAITING {
            mailbox.send(Command::Tick).await.unwrap();
        }
        assert_eq!(mailbox.send(Command::Tick).await, Err(NotTaken::Full));
        let (reply, _answer) = oneshot::channel();
        let kill = Command::Kill(KillReason::Requested, reply);
        mailbox.send(kill).await.unwrap();
        commands.kill_asked().await;
        let next = commands.next().await.unwrap();
        assert!(matches!(next.command, Command::Kill(..)));
        let next = commands.next().await.unwrap();
        assert!(matches!(next.command, Command::Tick));
        drop(commands);
        assert_eq!(mailbox.send(Command::Tick).await, Err(NotTaken::Ended));
    }
}
