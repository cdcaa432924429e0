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
use super::names::NameReservation;
use super::quota::QuotaReservation;
use super::resize::Resize;
use shoal_core::ports::inside::InsideError;
use shoal_core::ports::sandboxes::SandboxError;

type Reply<T> = oneshot::Sender<Result<T, SandboxError>>;

/// A change of a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeadlineChange {
    /// To this moment.
    To(Timestamp),
    /// To this moment, unless it is later already.
    AtLeast(Timestamp),
}

/// A request to pause.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PauseRequest {
    /// The contents to keep; none for the template's default.
    pub(crate) contents: Option<Contents>,
    /// Whether to refuse when the daemon does not answer.
    pub(crate) healthy: bool,
    /// The run that the caller saw. An earlier pause of the same run answers this request too.
    pub(crate) of: ExecutionId,
}

/// A request to resume.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResumeRequest {
    /// The new timeout, from the resume on.
    pub(crate) timeout: Duration,
    /// Whether to restore memory, if it was kept.
    pub(crate) memory: bool,
    /// Whether the caller saw it paused. An earlier resume by another caller answers this request too.
    pub(crate) found_paused: bool,
}

/// A request for a snapshot.
#[derive(Debug)]
pub(crate) struct SnapshotRequest {
    /// The id of the snapshot.
    pub(crate) id: SnapshotId,
    /// The contents to keep; none for the template's default.
    pub(crate) contents: Option<Contents>,
    /// The record for users; none for a copy of the engine's own.
    pub(crate) note: Option<SnapshotNote>,
    /// Whether the sandbox ends with the snapshot. It stays frozen until then, so that no write after the
    /// copy is lost.
    pub(crate) end: bool,
}

/// The names and the lifetime of a snapshot's record.
#[derive(Debug)]
pub(crate) struct SnapshotNote {
    /// The template id of its clones.
    pub(crate) template: TemplateId,
    /// Its name.
    pub(crate) name: Option<TemplateName>,
    /// The tag of its name.
    pub(crate) tag: String,
    /// After this time it is deleted.
    pub(crate) ttl: Option<Duration>,
}

/// A copy that was taken.
#[derive(Debug)]
pub(crate) struct Taken {
    /// The record of the sandbox at that moment.
    pub(crate) record: Arc<SandboxRecord>,
    /// The contents of the copy.
    pub(crate) saved: Saved,
    /// The record of the snapshot.
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
    Guest(#[from] InsideError),
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
pub(crate) struct ClaimRequest {
    /// The team that gets it.
    pub(crate) team: TeamId,
    /// Its new specification.
    pub(crate) spec: SandboxSpec,
    /// The idempotency key of the request.
    pub(crate) idempotency: Option<IdempotencyKey>,
    /// The command that runs in it first.
    pub(crate) startup: Vec<String>,
    /// Its reservation in the quota of the team.
    pub(crate) quota: QuotaReservation,
    /// Its reserved name, until the sandbox has it.
    pub(crate) name: Option<NameReservation>,
    /// Counts it among the members being handed out, until `startupCmd` begins.
    pub(crate) claiming: Claiming,
    /// The receiver of the answer.
    pub(crate) reply: oneshot::Sender<Result<Arc<SandboxRecord>, HandOutError>>,
}

/// A command to a sandbox's task.
#[derive(Debug)]
pub(crate) enum Command {
    /// End for good.
    Kill(KillReason, Reply<()>),
    /// Change the deadline.
    SetDeadline(DeadlineChange, Reply<Arc<SandboxRecord>>),
    /// Change the network rules.
    SetEgress(Egress, Reply<()>),
    /// Save and stop.
    Pause(PauseRequest, Reply<()>),
    /// Resume from the checkpoint.
    Resume(ResumeRequest, Reply<Arc<SandboxRecord>>),
    /// Extend the deadline, after a resume if it is paused.
    Connect(ResumeRequest, Reply<Connected>),
    /// Resume from the checkpoint, of a pause or of a park, unless it runs.
    Wake(ResumeRequest, Reply<()>),
    /// Park, if it has been idle since this moment.
    Park(Timestamp, Reply<()>),
    /// Take a snapshot.
    Snapshot(SnapshotRequest, Reply<Taken>),
    /// Publish that its limits are about to change, and to which.
    AnnounceResize(Resize, Option<QuotaReservation>, Reply<()>),
    /// Change its limits as announced.
    FinishResize(Reply<Arc<SandboxRecord>>),
    /// Replace its tokens.
    RotateTokens(Reply<Arc<SandboxRecord>>),
    /// Change its limits.
    Resize(Resize, Reply<Arc<SandboxRecord>>),
    /// Make the pool member claimable from this moment on.
    JoinPool(Timestamp, Reply<()>),
    /// Park the ready pool member. False if it is one that stays in memory.
    ParkMember(Reply<bool>),
    /// Wake the parked pool member.
    WakeMember(Reply<()>),
    /// Hand the pool member out.
    Claim(Box<ClaimRequest>),
    /// The driver or a watcher has observed an event of this run.
    Observed {
        execution: ExecutionId,
        input: Input,
    },
    /// A timer of the sandbox has expired.
    Tick,
}

impl Command {
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
            Self::Park(..) => "park",
            Self::Snapshot(..) => "snapshot",
            Self::AnnounceResize(..) => "announce_resize",
            Self::FinishResize(..) => "finish_resize",
            Self::RotateTokens(..) => "rotate_tokens",
            Self::Resize(..) => "resize",
            Self::JoinPool(..) => "join_pool",
            Self::ParkMember(..) => "park_member",
            Self::WakeMember(..) => "wake_member",
            Self::Claim(..) => "claim",
            Self::Observed { .. } => "observed",
            Self::Tick => "tick",
        }
    }
}

/// Sends the answer. The caller may have disconnected.
pub(super) fn answer<T>(reply: Reply<T>, outcome: Result<T, SandboxError>) {
    let _ = reply.send(outcome);
}
