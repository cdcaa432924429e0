//! The port through which the data path finds a sandbox.

use std::net::IpAddr;
use std::sync::Arc;

use crate::BoxFuture;
use crate::auth::{ApiKey, Token};
use crate::id::{ExecutionId, KeyId, SandboxId, TeamId};
use crate::network::HostMask;
use crate::state::FailReason;
use crate::template::RuntimeName;

/// How to reach a running sandbox, and what to ask of those who want to.
#[derive(Debug, Clone)]
pub struct Route {
    /// Which sandbox.
    pub sandbox: SandboxId,
    /// Whose it is.
    pub team: TeamId,
    /// Which run of it: an answer from another run is not this one's.
    pub execution: ExecutionId,
    /// What runs it, for figures.
    pub runtime: RuntimeName,
    /// Where its ports answer.
    pub address: IpAddr,
    /// What the daemon inside asks for.
    pub guest_token: Token,
    /// The same, where callers must know it. Those of a sandbox that is not secured need not: the
    /// gateway shows it to the daemon for them.
    pub envd_access_token: Option<Token>,
    /// What the gateway asks for; none when the sandbox is public.
    pub traffic_access_token: Option<Token>,
    /// What servers in the sandbox see as `Host`.
    pub mask_request_host: Option<HostMask>,
}

/// What is known of a sandbox to which somebody wants to talk.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// It runs.
    Running(Arc<Route>),
    /// It rests, and whoever may talk to it may wake it.
    Asleep(Sleeper),
    /// It rests, and only a call of the API resumes it.
    Paused,
    /// It is on its way from one state to another.
    Busy,
    /// It stopped a while ago, and this is why.
    Failed(FailReason),
    /// There is none, or it does not run.
    Unknown,
}

/// What to ask of those who want to wake a sandbox.
#[derive(Debug, Clone)]
pub struct Sleeper {
    /// What callers of the daemon inside must know; none when the sandbox is not secured.
    pub envd_access_token: Option<Token>,
    /// What the gateway asks for; none when the sandbox is public.
    pub traffic_access_token: Option<Token>,
}

/// What is shown at a door that is open to nobody without.
#[derive(Debug, Clone)]
pub enum Proof {
    /// A key of the team whose the sandbox is.
    Key(ApiKey),
    /// The traffic token of the sandbox, which one that is public does not have.
    Traffic(String),
}

/// What a name means to whoever has shown something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// The port that is meant when none is said.
    pub port: u16,
    /// The key that was shown, if it was one: what it opened ends with it.
    pub key: Option<KeyId>,
}

/// Why somebody is not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// What was shown opens nothing.
    #[error("what was shown is not valid")]
    Unproven,
    /// There is no sandbox of that name, or it is another tenant's.
    #[error("the sandbox was not found")]
    NotFound,
    /// It cannot be found out.
    #[error("{0}")]
    Failed(String),
}

/// Why a sandbox was not woken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotWoken {
    /// It has ended, or rests again.
    #[error("it does not run")]
    Gone,
    /// There are as many sandboxes as there may be.
    #[error("{0}")]
    Full(String),
    /// It could not go on.
    #[error("{0}")]
    Failed(String),
}

/// A view of the sandboxes that never waits for one.
pub trait Catalog: Send + Sync {
    /// Looks one up.
    fn lookup(&self, id: &SandboxId) -> Lookup;

    /// Lets a sandbox go on that rests; those who ask while it is on its way wait for the same run.
    fn wake(&self, id: &SandboxId) -> BoxFuture<'static, Result<Arc<Route>, NotWoken>>;

    /// Finds the sandbox that is called `name`, or has this id, for whoever shows `proof`. With a
    /// traffic token only an id names one.
    fn admit(&self, name: &str, proof: Proof) -> BoxFuture<'static, Result<Admitted, NotAdmitted>>;

    /// Every route there is now.
    fn routes(&self) -> Vec<Arc<Route>>;

    /// Ends when this run of the sandbox has ended, or its tokens are others; at once when that already
    /// is so.
    fn ended(&self, route: &Route) -> BoxFuture<'static, ()>;

    /// Ends when a key that was admitted is deleted.
    fn key_deleted(&self, key: KeyId) -> BoxFuture<'static, ()>;
}
