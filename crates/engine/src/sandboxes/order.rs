//! The messages that a sandbox's task receives.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use shoal_core::clock::Timestamp;
use shoal_core::id::{ExecutionId, SnapshotId, TeamId, TemplateId};
use shoal_core::network::Egress;
use shoal_core::sandbox::{IdempotencyKey, SandboxRecord, SandboxSpec};
use shoal_core::snapshot::{Contents, Saved, SnapshotRecord};
use shoal_core::state::{Input, KillReason};
use shoal_core::template::TemplateName;
use tokio::sync::{Notify, oneshot};

use super::connect::Connected;
use super::names::KeptName;
use super::quota::Room;
use super::resize::Resize;
use crate::guest::GuestError;
use shoal_core::ports::sandboxes::SandboxError;

type Reply<T> = oneshot::Sender<Result<T, SandboxError>>;

/// How a deadline is to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeadlineChange {
    /// To this moment.
    To(Timestamp),
    /// To this moment, unless it is later already.
    AtLeast(Timestamp),
}

/// A request to pause.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PauseOrder {
    /// What is kept; what its template says when nobody does.
    pub(crate) contents: Option<Contents>,
    /// Whether a daemon that does not answer is a reason not to.
    pub(crate) healthy: bool,
    /// The run that the caller wants to end. A pause of it that came first is the caller's too.
    pub(crate) of: ExecutionId,
}

/// A request to resume.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResumeOrder {
    /// How long it lives from then on.
    pub(crate) timeout: Duration,
    /// Whether its memory goes on, if it was kept.
    pub(crate) memory: bool,
    /// Whether the caller found it at rest. A resume by another that came first is the caller's too.
    pub(crate) found_paused: bool,
}

/// A request for a snapshot.
#[derive(Debug)]
pub(crate) struct SnapshotOrder {
    /// What it is to be found by.
    pub(crate) id: SnapshotId,
    /// What is kept; what the sandbox's template says when nobody does.
    pub(crate) contents: Option<Contents>,
    /// What is noted of it, so that users find it; a copy of ours is noted by whoever takes it.
    pub(crate) note: Option<SnapshotNote>,
    /// Whether the sandbox ends with it. It is held still until then: what it was told had been written
    /// after the copy was taken would be lost.
    pub(crate) end: bool,
}

/// What users are to find a snapshot by.
#[derive(Debug)]
pub(crate) struct SnapshotNote {
    /// What they start from.
    pub(crate) template: TemplateId,
    /// What it is called.
    pub(crate) name: Option<TemplateName>,
    /// The tag of its name.
    pub(crate) tag: String,
    /// After how long it goes by itself.
    pub(crate) ttl: Option<Duration>,
}

/// A copy that was taken.
#[derive(Debug)]
pub(crate) struct Taken {
    /// What the sandbox was then.
    pub(crate) record: Arc<SandboxRecord>,
    /// What was saved.
    pub(crate) saved: Saved,
    /// What was noted of it.
    pub(crate) noted: Option<SnapshotRecord>,
}

/// Why a pool member was not handed out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandOutError {
    /// It ended meanwhile, or the change cannot be committed.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The daemon inside failed.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// A command failed.
    #[error("`{what}` failed with exit status {code}{said}")]
    Failed {
        what: &'static str,
        code: i32,
        said: String,
    },
    /// A command did not end.
    #[error("`{what}` did not end within {} s{hint}", .within.as_secs())]
    Endless {
        what: &'static str,
        within: Duration,
        hint: &'static str,
    },
}

/// Counts a member as being handed out until it is dropped.
#[derive(Debug)]
pub(crate) struct Claiming {
    pub(crate) claiming: Arc<AtomicUsize>,
    pub(crate) changed: Arc<Notify>,
}

impl Drop for Claiming {
    fn drop(&mut self) {
        if self.claiming.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.changed.notify_one();
        }
    }
}

/// How a pool member is handed out.
#[derive(Debug)]
pub(crate) struct ClaimOrder {
    /// The team that gets it.
    pub(crate) team: TeamId,
    /// What it becomes.
    pub(crate) spec: SandboxSpec,
    /// The idempotency key of the request.
    pub(crate) idempotency: Option<IdempotencyKey>,
    /// The command that runs in it first.
    pub(crate) startup: Vec<String>,
    /// Its reservation in the quota of the team.
    pub(crate) room: Room,
    /// Its reserved name, until the sandbox has it.
    pub(crate) name: Option<KeptName>,
    /// Counts it among the members being handed out, until `startupCmd` begins.
    pub(crate) claiming: Claiming,
    /// Where the answer goes.
    pub(crate) reply: oneshot::Sender<Result<Arc<SandboxRecord>, HandOutError>>,
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

impl Order {
    /// Its name in traces.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Kill(..) => "kill",
            Self::SetDeadline(..) => "set_deadline",
            Self::SetEgress(..) => "set_egress",
            Self::Pause(..) => "pause",
            Self::Resume(..) => "resume",
            Self::Connect(..) => "connect",
            Self::Wake(..) => "wake",
            Self::Snapshot(..) => "snapshot",
            Self::AnnounceResize(..) => "announce_resize",
            Self::FinishResize(..) => "finish_resize",
            Self::RotateTokens(..) => "rotate_tokens",
            Self::Resize(..) => "resize",
            Self::JoinPool(..) => "join_pool",
            Self::Claim(..) => "claim",
            Self::Observed { .. } => "observed",
            Self::Look => "look",
        }
    }
}

/// Whoever asked may have gone.
pub(super) fn answer<T>(reply: Reply<T>, outcome: Result<T, SandboxError>) {
    let _ = reply.send(outcome);
}
