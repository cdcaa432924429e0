//! A sandbox: what was asked ([`SandboxSpec`]) and what is known ([`SandboxRecord`]).

mod reserved;

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::auth::{Token, TokenSalt};
use crate::build::StartCommand;
use crate::clock::Timestamp;
use crate::driver::StartReport;
use crate::id::{BuildId, ExecutionId, SandboxId, SnapshotId, TeamId, TemplateId};
use crate::image::ImageName;
use crate::network::{AskedNetwork, NetworkPolicy};
use crate::pool::Membership;
use crate::resources::{Mib, MilliCpu, Resources};
use crate::snapshot::{Contents, Saved};
use crate::state::State;
use crate::template::RuntimeName;

pub use self::reserved::{
    DEFAULT_PORT, InvalidSandboxName, NAME_KEY, RESERVED_PREFIX, SandboxName,
};

/// What happens at the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// The sandbox is ended.
    #[default]
    Kill,
    /// The sandbox is paused.
    Pause,
}

/// How a sandbox ends or rests by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifecycle {
    /// How long it lives from its start, as asked at its creation.
    pub timeout: Duration,
    /// What happens then.
    pub on_timeout: OnTimeout,
    /// Whether traffic to it wakes it when it is paused.
    pub auto_resume: bool,
    /// Whether a pause at the deadline keeps memory (else the disk only).
    pub keep_memory: bool,
    /// Whether it has no deadline at all. `timeout` says nothing then.
    #[serde(default)]
    pub endless: bool,
}

/// What was asked for, with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// The template it starts from.
    pub template: TemplateId,
    /// What that template was called, for showing.
    pub template_name: Option<String>,
    /// What leads to that template, where its id does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_key: Option<String>,
    /// The image of its root file system.
    pub image: ImageName,
    /// The OCI runtime; the driver's default when none is named.
    pub runtime: Option<RuntimeName>,
    /// Whether it is the operator who chose the runtime, in an entry of the catalogue or a template of the
    /// installation, so that every key may have it.
    #[serde(default)]
    pub runtime_from_operator: bool,
    /// Limits.
    pub resources: Resources,
    /// Who commands run as.
    pub user: String,
    /// Where commands start; the user's home when none is given.
    pub workdir: Option<String>,
    /// Environment of every process.
    pub env: BTreeMap<String, String>,
    /// The user's labels.
    pub metadata: BTreeMap<String, String>,
    /// Its end.
    pub lifecycle: Lifecycle,
    /// Its network.
    pub network: NetworkPolicy,
    /// What its template says of that, which counts for its clones too. What whoever asked for it said
    /// does not.
    #[serde(default)]
    pub template_network: AskedNetwork,
    /// Whether the daemon inside asks for its token.
    pub secure: bool,
    /// What a pause or a snapshot keeps when nobody says.
    #[serde(default)]
    pub persistent: Contents,
    /// The most processor time that it can be given while it runs.
    #[serde(default)]
    pub cpu_ceiling: MilliCpu,
    /// The snapshot that it begins with, in the place of its image alone.
    #[serde(default)]
    pub snapshot: Option<SnapshotOrigin>,
    /// What runs in it from its start on; in saved memory it does already.
    #[serde(default)]
    pub start: Option<StartCommand>,
    /// Variables of that command alone.
    #[serde(default)]
    pub start_env: BTreeMap<String, String>,
    /// What it is for.
    #[serde(default)]
    pub purpose: Purpose,
    /// The port that is meant when a request to it names none; [`DEFAULT_PORT`] when nothing is
    /// said.
    #[serde(default)]
    pub port: Option<NonZeroU16>,
}

/// What the tokens of a sandbox are made with, beside its id.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TokenSalts {
    /// Of the tokens in force; none until they are rotated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<TokenSalt>,
    /// Of those that a rotation under way puts in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<TokenSalt>,
}

impl TokenSalts {
    /// After a rotation that was under way, if one was.
    #[must_use]
    pub fn settled(&self) -> Self {
        Self {
            current: self.next.clone().or_else(|| self.current.clone()),
            next: None,
        }
    }
}

/// A claimed idempotency key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdempotencyKey {
    /// The client's key.
    pub key: String,
    /// When it was claimed. The same key can be claimed again after it has expired.
    pub at: Timestamp,
}

/// What a sandbox is for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// For its user.
    #[default]
    Use,
    /// For the steps of a build; nobody else sees it.
    Build(BuildId),
    /// For whoever asks for one of its entry next; nobody sees it until then.
    Pool(Membership),
}

/// The snapshot that a sandbox begins with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotOrigin {
    /// Which.
    pub id: SnapshotId,
    /// Whether its memory goes on.
    pub memory: bool,
    /// What the daemon in that memory asks for.
    pub guest_token: Option<Token>,
}

/// A sandbox as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// Its id, for its whole life.
    pub id: SandboxId,
    /// Whose it is.
    pub team: TeamId,
    /// Its present run.
    pub execution: ExecutionId,
    /// What was asked.
    pub spec: SandboxSpec,
    /// Where it is in its life.
    pub state: State,
    /// When it was created; of one that came from a pool, when it began to be handed out: for whoever
    /// asked its life begins there.
    pub created_at: Timestamp,
    /// When its present run began.
    pub started_at: Timestamp,
    /// When its time is over; see [`SandboxRecord::ends_at`].
    pub deadline: Timestamp,
    /// When it entered its present state.
    pub since: Timestamp,
    /// What ran at the last start, once it was ready.
    pub report: Option<StartReport>,
    /// What was saved, while it is paused.
    #[serde(default)]
    pub saved: Option<Saved>,
    /// Its limits are being changed, and it was handed out before that has ended.
    #[serde(default)]
    pub resizing: bool,
    /// What its limits are being changed to, until that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aim: Option<Resources>,
    /// What its tokens are made with.
    #[serde(default)]
    pub tokens: TokenSalts,
    /// The idempotency key of the request that created it. Recovery settles the key when the previous
    /// server could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency: Option<IdempotencyKey>,
}

impl SandboxRecord {
    /// Whether somebody may see it and use it: it lives, no build has it to itself, and no pool has
    /// it still.
    #[must_use]
    pub fn is_anybodys(&self) -> bool {
        self.state.is_live() && self.spec.purpose == Purpose::Use
    }

    /// The processor time that counts as its own: what it has, or what it is being given, if that is
    /// more.
    #[must_use]
    pub fn cpu_kept(&self) -> MilliCpu {
        let aim = self.aim.map_or(MilliCpu(0), |aim| aim.cpu);
        self.spec.resources.cpu.max(aim)
    }

    /// The memory that counts as its own, in the same way.
    #[must_use]
    pub fn memory_kept(&self) -> Mib {
        let aim = self.aim.map_or(Mib(0), |aim| aim.memory);
        self.spec.resources.memory.max(aim)
    }

    /// The record with `state`, entered at `now`.
    #[must_use]
    pub fn with_state(&self, state: State, now: Timestamp) -> Self {
        Self {
            state,
            since: now,
            ..self.clone()
        }
    }

    /// When the engine has to look at this sandbox again by itself: the end of a transient
    /// state's timer, or the deadline of a running one. A member of a pool has no deadline until it
    /// is handed out.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Timestamp> {
        match self.state.timer() {
            Some(timer) => Some(self.since + timer),
            None if self.state.is_running() && self.membership().is_none() => self.ends_at(),
            None => None,
        }
    }

    /// When its time is over; none for one without a deadline.
    #[must_use]
    pub fn ends_at(&self) -> Option<Timestamp> {
        (!self.spec.lifecycle.endless).then_some(self.deadline)
    }

    /// The pool that it belongs to, until it is handed out.
    #[must_use]
    pub fn membership(&self) -> Option<&Membership> {
        match &self.spec.purpose {
            Purpose::Pool(membership) => Some(membership),
            Purpose::Use | Purpose::Build(_) => None,
        }
    }
}
