//! A sandbox: its specification ([`SandboxSpec`]) and its stored state ([`SandboxRecord`]).

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
use crate::network::{NetworkPolicy, RequestedNetwork};
use crate::pool::PoolMember;
use crate::resources::{Mib, MilliCpu, Resources};
use crate::snapshot::Contents;
use crate::state::State;
use crate::template::RuntimeName;

pub use self::reserved::{
    DEFAULT_PORT, InvalidSandboxName, NAME_KEY, PARKING_KEY, RESERVED_PREFIX, SandboxName,
};

/// The action at the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// The sandbox is killed.
    #[default]
    Kill,
    /// The sandbox is paused.
    Pause,
}

/// The lifetime of a sandbox and what follows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifecycle {
    /// Its lifetime from its start, as requested at its creation.
    pub timeout: Duration,
    /// The action at the deadline.
    pub on_timeout: OnTimeout,
    /// Whether traffic resumes it when it is paused.
    pub auto_resume: bool,
    /// Whether a pause at the deadline keeps memory, not only the disk.
    pub keep_memory: bool,
    /// Whether it has no deadline. `timeout` is then ignored.
    #[serde(default)]
    pub endless: bool,
}

/// A request with all defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// The template it starts from.
    pub template: TemplateId,
    /// The name of that template, for display.
    pub template_name: Option<String>,
    /// The name that leads to that template, if its id does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_key: Option<String>,
    /// The image of its root file system.
    pub image: ImageName,
    /// The OCI runtime; the driver's default if `None`.
    pub runtime: Option<RuntimeName>,
    /// Whether the operator chose the runtime, in an entry of the catalogue or a template of the
    /// installation. Every key may then use it.
    #[serde(default)]
    pub runtime_from_operator: bool,
    /// Limits.
    pub resources: Resources,
    /// The user that commands run as.
    pub user: String,
    /// The working directory of commands; the user's home if `None`.
    pub workdir: Option<String>,
    /// Environment of every process.
    pub env: BTreeMap<String, String>,
    /// The user's labels.
    pub metadata: BTreeMap<String, String>,
    /// Its lifetime.
    pub lifecycle: Lifecycle,
    /// Its network.
    pub network: NetworkPolicy,
    /// The template's network rules. Clones inherit them, but not the request's rules.
    #[serde(default)]
    pub template_network: RequestedNetwork,
    /// Whether envd requires its access token.
    pub secure: bool,
    /// The default contents of a pause or a snapshot.
    #[serde(default)]
    pub persistent: Contents,
    /// The highest processor limit for resizes.
    #[serde(default)]
    pub cpu_ceiling: MilliCpu,
    /// The snapshot that it starts from instead of its image.
    #[serde(default)]
    pub snapshot: Option<SnapshotOrigin>,
    /// Its start command; saved memory already runs it.
    #[serde(default)]
    pub start: Option<StartCommand>,
    /// The variables of that command.
    #[serde(default)]
    pub start_env: BTreeMap<String, String>,
    /// Its purpose.
    #[serde(default)]
    pub purpose: Purpose,
    /// The port that is meant when a request to it names none; [`DEFAULT_PORT`] when nothing is
    /// said.
    #[serde(default)]
    pub port: Option<NonZeroU16>,
    /// Whether containers run inside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub privileged: bool,
}

/// The salts of a sandbox's tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TokenSalts {
    /// The salt of the current tokens; `None` until the first rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<TokenSalt>,
    /// The salt of a rotation in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<TokenSalt>,
}

impl TokenSalts {
    /// The salts after the rotation in progress, if there is one.
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

/// The purpose of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// For its user.
    #[default]
    Use,
    /// For the steps of a build; hidden from users.
    Build(BuildId),
    /// For the next claim from its entry's pool; hidden until then.
    Pool(PoolMember),
}

/// The snapshot that a sandbox starts from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotOrigin {
    /// The snapshot.
    pub id: SnapshotId,
    /// Whether its memory is restored.
    pub memory: bool,
    /// The token that the envd in that memory requires.
    pub guest_token: Option<Token>,
}

/// A sandbox as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// Its id, for its whole life.
    pub id: SandboxId,
    /// The owner.
    pub team: TeamId,
    /// Its current execution.
    pub execution: ExecutionId,
    /// Its specification.
    pub spec: SandboxSpec,
    /// Its state, with its checkpoint while it is paused or parked.
    #[serde(flatten)]
    pub state: State,
    /// When it was created. For a pool member this is the time of its claim: to its user, its life
    /// starts there.
    pub created_at: Timestamp,
    /// When its current execution started.
    pub started_at: Timestamp,
    /// Its deadline; see [`SandboxRecord::ends_at`].
    pub deadline: Timestamp,
    /// When it entered its current state.
    pub since: Timestamp,
    /// The report of its last start, once it was ready.
    pub report: Option<StartReport>,
    /// A resize is in progress, and the create returned without waiting for it.
    #[serde(default)]
    pub resizing: bool,
    /// The target of a resize in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aim: Option<Resources>,
    /// The salts of its tokens.
    #[serde(default)]
    pub tokens: TokenSalts,
    /// The idempotency key of the request that created it. Recovery settles the key when the previous
    /// server could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency: Option<IdempotencyKey>,
}

impl SandboxRecord {
    /// Whether users may see and use it: it is alive, not a build's, and not an unclaimed pool
    /// member.
    #[must_use]
    pub fn is_user_visible(&self) -> bool {
        self.state.is_live() && self.spec.purpose == Purpose::Use
    }

    /// The processor time that counts against quotas: its limit, or the target of a resize if that
    /// is higher.
    #[must_use]
    pub fn cpu_kept(&self) -> MilliCpu {
        let aim = self.aim.map_or(MilliCpu(0), |aim| aim.cpu);
        self.spec.resources.cpu.max(aim)
    }

    /// The memory that counts against quotas, in the same way.
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

    /// When the engine must check this sandbox next: at the end of a transient state's timer, or at
    /// the deadline of one that runs or is parked. A pool member has no deadline until it is claimed.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Timestamp> {
        match self.state.timer() {
            Some(timer) => Some(self.since + timer),
            None if self.state.shows_running() && self.pool_member().is_none() => self.ends_at(),
            None => None,
        }
    }

    /// Its deadline; `None` if it has none.
    #[must_use]
    pub fn ends_at(&self) -> Option<Timestamp> {
        (!self.spec.lifecycle.endless).then_some(self.deadline)
    }

    /// The pool of an unclaimed member.
    #[must_use]
    pub fn pool_member(&self) -> Option<&PoolMember> {
        match &self.spec.purpose {
            Purpose::Pool(pool_member) => Some(pool_member),
            Purpose::Use | Purpose::Build(_) => None,
        }
    }
}
