//! How the data path finds the machine behind a preview.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_io::{AsyncRead, AsyncWrite};

use crate::BoxFuture;
use crate::id::{ExecutionId, SandboxId, TeamId};
use crate::session::SessionId;
use crate::session::preview::PreviewHash;

/// A connection: bytes both ways.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Duplex for T {}

/// A connection to a port of an external machine.
pub struct Forwarded {
    /// Its bytes.
    pub stream: Box<dyn Duplex>,
    /// Holds its resources. Dropped after the stream.
    pub guard: Box<dyn Send>,
}

/// Why a port of an external machine was not reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotForwarded {
    /// Nothing listens on it.
    #[error("nothing listens on the port")]
    PortClosed,
    /// The machine has so many connections already.
    #[error("{0} connections are open: close some")]
    Full(usize),
    /// The machine cannot be reached, or does not allow it.
    #[error("{0}")]
    Failed(String),
}

/// The way to the ports of an external machine, which has no address in this network.
pub trait PortForward: fmt::Debug + Send + Sync {
    /// Connects to a port of the machine's localhost.
    ///
    /// # Errors
    /// See [`NotForwarded`].
    fn open(&self, port: u16) -> BoxFuture<'_, Result<Forwarded, NotForwarded>>;

    /// Resolves when the session does not use the machine any more.
    fn closed(&self) -> BoxFuture<'static, ()>;
}

/// A way to the ports of one external machine, and whose it is.
#[derive(Debug, Clone)]
pub struct Forwarding {
    /// The way.
    pub ports: Arc<dyn PortForward>,
    /// Identifies it among all that runs.
    pub execution: ExecutionId,
    /// The owner.
    pub team: TeamId,
}

/// The preview of a session.
#[derive(Debug, Clone)]
pub struct Preview {
    /// The machine of its session, if it has one. It may have ended by itself.
    pub machine: Option<SandboxId>,
    /// The way to the machine's ports, if it is an external one.
    pub forwarding: Option<Forwarding>,
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
