//! How the data path finds the machine behind a preview.

use std::time::Duration;

use crate::id::SandboxId;
use crate::session::SessionId;
use crate::session::preview::PreviewHash;

/// The preview of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// The machine of its session, if it has one. It may have ended by itself.
    pub machine: Option<SandboxId>,
    /// Whether a request starts the machine when there is none.
    pub wakes: bool,
}

/// The effect of a request to a preview without a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waking {
    /// The machine of this session starts for it.
    Begun(SessionId),
    /// The machine starts already.
    Going,
    /// Requests start no machine for so long.
    NotFor(Duration),
    /// Requests do not start the machine of this session, or the session has gone.
    Never,
}

/// The previews of all sessions. Nothing here waits.
pub trait Previews: Send + Sync {
    /// The preview with this hash.
    fn find(&self, hash: &PreviewHash) -> Option<Preview>;

    /// Starts the machine behind a preview, as long as its session allows it.
    fn wake(&self, hash: &PreviewHash) -> Waking;

    /// Whether this sandbox is the machine of a session, whose ports are closed but for its preview.
    fn is_machine(&self, sandbox: &SandboxId) -> bool;
}

/// The previews of a backend that has no sessions.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPreviews;

impl Previews for NoPreviews {
    fn find(&self, _: &PreviewHash) -> Option<Preview> {
        None
    }

    fn wake(&self, _: &PreviewHash) -> Waking {
        Waking::Never
    }

    fn is_machine(&self, _: &SandboxId) -> bool {
        false
    }
}
