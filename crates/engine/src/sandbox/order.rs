//! What a sandbox's task may be told.

use std::sync::Arc;

use shoal_core::clock::Timestamp;
use shoal_core::id::ExecutionId;
use shoal_core::network::Egress;
use shoal_core::sandbox::SandboxRecord;
use shoal_core::state::{Input, KillReason};
use tokio::sync::oneshot;

use super::copy::{SnapshotOrder, Taken};
use super::rest::{PauseOrder, ResumeOrder};
use crate::connect::Connected;
use crate::engine::SandboxError;
use crate::pool::ClaimOrder;
use crate::resize::Resize;
use crate::room::Room;

type Reply<T> = oneshot::Sender<Result<T, SandboxError>>;

/// How a deadline is to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeadlineChange {
    /// To this moment.
    To(Timestamp),
    /// To this moment, unless it is later already.
    AtLeast(Timestamp),
}

/// What a sandbox's task may be told.
#[derive(Debug)]
pub(crate) enum Order {
    /// End for good.
    Kill(KillReason, Reply<()>),
    /// Change the deadline.
    SetDeadline(DeadlineChange, Reply<Arc<SandboxRecord>>),
    /// Change what may be reached.
    SetEgress(Egress, Reply<()>),
    /// Save and stop.
    Pause(PauseOrder, Reply<()>),
    /// Go on from what was saved.
    Resume(ResumeOrder, Reply<Arc<SandboxRecord>>),
    /// Run for a while yet, from what was saved if it was.
    Connect(ResumeOrder, Reply<Connected>),
    /// Go on from what was saved, unless it runs.
    Wake(ResumeOrder, Reply<()>),
    /// Take a copy.
    Snapshot(SnapshotOrder, Reply<Taken>),
    /// Let it be seen that what it may use is about to change, and to what.
    AnnounceResize(Resize, Option<Room>, Reply<()>),
    /// Change what it may use as was announced.
    FinishResize(Reply<Arc<SandboxRecord>>),
    /// Replace its tokens.
    RotateTokens(Reply<Arc<SandboxRecord>>),
    /// Change what it may use.
    Resize(Resize, Reply<Arc<SandboxRecord>>),
    /// Let it be handed out, as a member of its pool, since then.
    JoinPool(Timestamp, Reply<()>),
    /// Hand it out, as a member of its pool.
    Claim(Box<ClaimOrder>),
    /// Something was observed, of this run.
    Observed {
        execution: ExecutionId,
        input: Input,
    },
    /// A moment that was asked for has come.
    Look,
}

/// Whoever asked may have gone.
pub(super) fn answer<T>(reply: Reply<T>, outcome: Result<T, SandboxError>) {
    let _ = reply.send(outcome);
}
