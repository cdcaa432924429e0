//! Events of a session.

use futures_core::stream::BoxStream;

use super::ExecEnd;
use crate::clock::Timestamp;
use crate::id::SandboxId;
use crate::session::WindowName;
use crate::session::files::SyncState;
use crate::session::path::SessionPath;
use crate::session::secret::SecretName;

/// The most paths of one event. More files become several events.
pub const PATHS_MAX: usize = 256;

/// Something that happened in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionFact {
    /// Its labels or settings changed.
    Changed,
    /// It is deleted. Nothing follows.
    Deleted,
    /// A machine started.
    MachineStarted(SandboxId),
    /// The machine ended.
    MachineEnded(SandboxId),
    /// A reset was confirmed: the machine is being ended.
    Reset,
    /// A window opened.
    WindowOpened(WindowName),
    /// A window closed.
    WindowClosed(WindowName),
    /// A command started.
    CommandStarted {
        /// The window.
        window: WindowName,
        /// The command line, with `***` in place of secrets.
        command: String,
    },
    /// A command ended.
    CommandEnded {
        /// The window.
        window: WindowName,
        /// How.
        end: ExecEnd,
    },
    /// The files of both sides stand in another way.
    Sync {
        /// In one word.
        state: SyncState,
        /// How many files of the session wait for the machine.
        behind: usize,
        /// Whether there is a machine that is kept equal.
        connected: bool,
    },
    /// Files of the session changed, from either side: at most [`PATHS_MAX`].
    Files {
        /// The written files.
        changed: Vec<SessionPath>,
        /// The removed files.
        removed: Vec<SessionPath>,
    },
    /// A secret became a variable of the windows.
    SecretActivated(SecretName),
    /// A secret was taken from the windows.
    SecretDeactivated(SecretName),
}

/// Something that happened in a session, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEvent {
    /// When it happened.
    pub at: Timestamp,
    /// The event.
    pub fact: SessionFact,
}

/// An item of a subscription to a session's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionSeen {
    /// Something happened.
    Event(SessionEvent),
    /// The subscriber was too slow, and has missed some. Later ones follow.
    Lagged,
}

/// Events from the subscription on. It ends when the session is deleted.
pub type SessionSeenStream = BoxStream<'static, SessionSeen>;
