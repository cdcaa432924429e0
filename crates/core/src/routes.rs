//! The port through which the gateway finds a sandbox.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::BoxFuture;
use crate::auth::{ApiKey, Token};
use crate::id::{ExecutionId, KeyId, SandboxId, TeamId};
use crate::network::HostMask;
use crate::state::FailReason;
use crate::template::RuntimeName;

/// How to reach a running sandbox, and the tokens that protect it.
#[derive(Debug, Clone)]
pub struct Route {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// The owner.
    pub team: TeamId,
    /// Its execution: a response from another execution must not count as this one's.
    pub execution: ExecutionId,
    /// Its OCI runtime, for metrics.
    pub runtime: RuntimeName,
    /// The address of its ports.
    pub address: IpAddr,
    /// The token that envd requires.
    pub guest_token: Token,
    /// The token that callers of envd must present. `None` for a sandbox that is not secured: the
    /// gateway then presents the token for them.
    pub envd_access_token: Option<Token>,
    /// The token that the gateway requires; `None` for a public sandbox.
    pub traffic_access_token: Option<Token>,
    /// The `Host` header that servers in the sandbox see.
    pub mask_request_host: Option<HostMask>,
    /// Whether the sandbox is parked while it is idle, so that its requests count.
    pub is_parkable: bool,
    /// Whether its connections go on after it was parked and woken.
    pub keeps_connections: bool,
    /// The run since which it has its address and its network. A wake may leave it the same; then connections go on.
    pub network: ExecutionId,
}

/// The state of a sandbox, as the gateway sees it.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// Running.
    Running(Arc<Route>),
    /// Paused; authorized traffic resumes it.
    Resumable(WakeAuth),
    /// Parked; to its users it runs, and authorized traffic wakes it.
    Parked(WakeAuth),
    /// Paused; only an API call resumes it.
    Paused,
    /// Changing its state.
    Busy,
    /// Failed recently, for this reason.
    Failed(FailReason),
    /// Unknown, or not running.
    Unknown,
}

/// The tokens that protect a paused or parked sandbox from being resumed by traffic.
#[derive(Debug, Clone)]
pub struct WakeAuth {
    /// The token that callers of envd must present; `None` for a sandbox that is not secured.
    pub envd_access_token: Option<Token>,
    /// The token that the gateway requires; `None` for a public sandbox.
    pub traffic_access_token: Option<Token>,
}

/// Keeps a sandbox from being parked until it is dropped.
#[derive(Default)]
pub struct Visit(Option<Box<dyn Send + Sync>>);

impl Visit {
    /// A visit that ends when `guard` is dropped.
    #[must_use]
    pub fn until_dropped(guard: impl Send + Sync + 'static) -> Self {
        Self(Some(Box::new(guard)))
    }
}

impl fmt::Debug for Visit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Visit").field(&self.0.is_some()).finish()
    }
}

/// An open connection on which nothing may be sent for a while. It does not keep the sandbox from being parked, but the
/// sandbox keeps its network meanwhile.
pub struct OpenConnection {
    _guard: Box<dyn Send + Sync>,
}

impl OpenConnection {
    /// A connection that is open until `guard` is dropped.
    #[must_use]
    pub fn until_dropped(guard: impl Send + Sync + 'static) -> Self {
        Self {
            _guard: Box::new(guard),
        }
    }
}

impl fmt::Debug for OpenConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenConnection").finish_non_exhaustive()
    }
}

/// The credential presented on a path-based URL.
#[derive(Debug, Clone)]
pub enum Credential {
    /// An API key of the sandbox's team.
    Key(ApiKey),
    /// The sandbox's traffic access token. A public sandbox has none.
    Traffic(String),
}

/// The sandbox that an authorized request refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorized {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// The port of a request that names none.
    pub port: u16,
    /// The key that was presented, if any: connections that it authorized end with it.
    pub key: Option<KeyId>,
}

/// Why access is denied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAuthorized {
    /// The credential is not valid.
    #[error("what was shown is not valid")]
    Unproven,
    /// The sandbox does not exist, or belongs to another tenant.
    #[error("the sandbox was not found")]
    NotFound,
    /// The credential cannot be checked.
    #[error("{0}")]
    Failed(String),
}

/// Why a sandbox was not resumed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotResumed {
    /// It has ended, or is paused again.
    #[error("it does not run")]
    Gone,
    /// A limit on sandboxes is reached.
    #[error("{0}")]
    Full(String),
    /// Resuming failed.
    #[error("{0}")]
    Failed(String),
}

/// The routing table. Lookups never wait for a sandbox.
pub trait RouteTable: Send + Sync {
    /// Looks up a sandbox.
    fn lookup(&self, id: &SandboxId) -> Lookup;

    /// Keeps a sandbox from being parked while a request is under way. `None` if it is about to be
    /// parked: then [`RouteTable::wake`] returns its next route. By default nothing is parked.
    fn visit(&self, _route: &Route) -> Option<Visit> {
        Some(Visit::default())
    }

    /// Registers a connection that may be idle: its sandbox can be parked then, and each use of the connection is a visit.
    /// Call it during a visit. `None` if connections end with a park: then a visit must last as long as the connection,
    /// which is so by default.
    fn open_connection(&self, _route: &Route) -> Option<OpenConnection> {
        None
    }

    /// Resolves when a connection of [`RouteTable::open_connection`] cannot go on: the sandbox has ended or has another network,
    /// was paused, or its tokens were rotated.
    fn disconnected(&self, route: &Route) -> BoxFuture<'static, ()> {
        self.ended(route)
    }

    /// Resumes a paused or parked sandbox. Concurrent calls share one resume.
    fn wake(&self, id: &SandboxId) -> BoxFuture<'static, Result<Arc<Route>, NotResumed>>;

    /// Finds the sandbox with this name or id, and checks `credential`. A traffic access token
    /// authorizes ids only.
    fn admit(
        &self,
        name: &str,
        credential: Credential,
    ) -> BoxFuture<'static, Result<Authorized, NotAuthorized>>;

    /// Of the sandboxes that run or are parked, one whose `envd_access_token` is wanted. It looks at all of them, so
    /// a look must cost little.
    fn find_by_token(&self, is_wanted: &dyn Fn(&Token) -> bool) -> Option<SandboxId>;

    /// Resolves when this execution has ended or its tokens were rotated; immediately if that has
    /// already happened.
    fn ended(&self, route: &Route) -> BoxFuture<'static, ()>;

    /// Resolves when an admitted key is deleted.
    fn key_deleted(&self, key: KeyId) -> BoxFuture<'static, ()>;
}
