//! The routing table: addresses of pods, from the watch.

mod known;

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp as Time;
use shoal_core::BoxFuture;
use shoal_core::auth::{Principal, Token, TokenSeed};
use shoal_core::id::{KeyId, SandboxId};
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::routes::{
    Authorized, Credential, Lookup, NotAuthorized, NotResumed, Route, RouteTable, WakeAuth,
};
use shoal_core::sandbox::DEFAULT_PORT;
use shoal_core::state::StateKind;
use shoal_crds::kruise::Sandbox;

use self::known::Known;
use crate::identity::{self, key};
use crate::keys::Keys;
use crate::sandboxes::Sandboxes;
use crate::{pod, record};

/// The annotation of a sandbox that traffic resumes.
pub(crate) const WAKE_ON_TRAFFIC: &str = "agents.kruise.io/wake-on-traffic";

/// The timeout of a sandbox that traffic has resumed.
const WOKEN: Duration = Duration::from_secs(300);

/// The routes to all sandboxes.
#[derive(Clone)]
pub(crate) struct Routes {
    sandboxes: Arc<Sandboxes>,
    keys: Arc<Keys>,
    known: Arc<Known>,
}

impl Routes {
    pub(crate) fn new(sandboxes: Arc<Sandboxes>, keys: Arc<Keys>) -> Self {
        Self {
            sandboxes,
            keys,
            known: Arc::default(),
        }
    }

    fn route(sandbox: &Sandbox, address: IpAddr) -> Route {
        let (namespace, _) = key(&sandbox.metadata);
        let status = sandbox.status.clone().unwrap_or_default();
        let id = identity::sandbox_id(sandbox);
        let token = record::access_token(sandbox);
        let execution = identity::execution(&status.pod_info.pod_uid, &status.sandbox_ip);
        Route {
            team: identity::team(&namespace),
            execution,
            runtime: pod::runtime(sandbox.spec.template.as_ref()),
            address,
            // Without a token of its own the daemon takes none either; this one opens nothing.
            guest_token: token.clone().unwrap_or_else(|| useless(&id)),
            envd_access_token: token,
            traffic_access_token: record::traffic_access_token(sandbox),
            mask_request_host: None,
            is_parkable: false,
            keeps_connections: false,
            network: execution,
            sandbox: id,
        }
    }

    fn running(&self, id: &SandboxId) -> Option<Arc<Route>> {
        match self.lookup(id) {
            Lookup::Running(route) => Some(route),
            _ => None,
        }
    }

    async fn authorize(
        &self,
        name: &str,
        credential: Credential,
    ) -> Result<Authorized, NotAuthorized> {
        let (found, key) = match credential {
            Credential::Key(api_key) => {
                let principal = self.keys.holder(&api_key).ok_or(NotAuthorized::Unproven)?;
                let found = self.of_team(&principal, name);
                (found.ok_or(NotAuthorized::NotFound)?, Some(principal.key))
            }
            Credential::Traffic(offered) => {
                let id = name.parse().map_err(|_| NotAuthorized::Unproven)?;
                let found = self.sandboxes.visible(&id).ok_or(NotAuthorized::Unproven)?;
                let token = record::traffic_access_token(&found);
                if !token.is_some_and(|token| token.matches(&offered)) {
                    return Err(NotAuthorized::Unproven);
                }
                (found, None)
            }
        };
        Ok(Authorized {
            sandbox: identity::sandbox_id(&found),
            port: record::port(&found).map_or(DEFAULT_PORT, NonZeroU16::get),
            key,
        })
    }

    /// A sandbox of the key's team, by its id or its name.
    fn of_team(&self, principal: &Principal, name: &str) -> Option<Arc<Sandbox>> {
        let team = principal.slug.to_string();
        let by_id = name.parse().ok().and_then(|id| self.sandboxes.visible(&id));
        let by_name = || {
            let named = self.sandboxes.watched.get(&(team.clone(), name.to_owned()));
            named.filter(|sandbox| record::is_claimed(sandbox))
        };
        let found = by_id.or_else(by_name)?;
        (found.metadata.namespace.as_ref() == Some(&team)).then_some(found)
    }
}

fn useless(id: &SandboxId) -> Token {
    TokenSeed::new([0; 32]).envd_access_token(id)
}

impl RouteTable for Routes {
    fn lookup(&self, id: &SandboxId) -> Lookup {
        let Some(sandbox) = self.sandboxes.visible(id) else {
            return Lookup::Unknown;
        };
        let state = record::state(&sandbox, Time::now());
        match (state.kind(), self.sandboxes.address(&sandbox)) {
            (StateKind::Running, Some(address)) => {
                let make = || Self::route(&sandbox, address);
                let route = self.known.get_or_make(id, &sandbox, address, make);
                Lookup::Running(route)
            }
            // A sandbox that is being paused counts as paused, as with E2B.
            (StateKind::Paused | StateKind::Pausing, _) => {
                if sandbox.annotation(WAKE_ON_TRAFFIC) == Some("true") {
                    Lookup::Resumable(WakeAuth {
                        envd_access_token: record::access_token(&sandbox),
                        traffic_access_token: record::traffic_access_token(&sandbox),
                    })
                } else {
                    Lookup::Paused
                }
            }
            (
                StateKind::Creating
                | StateKind::Resuming
                | StateKind::Running
                | StateKind::Parking
                | StateKind::Parked
                | StateKind::Waking
                | StateKind::Snapshotting,
                _,
            ) => Lookup::Busy,
            (StateKind::Failed | StateKind::Terminating | StateKind::Terminated, _) => {
                Lookup::Unknown
            }
        }
    }

    fn wake(&self, id: &SandboxId) -> BoxFuture<'static, Result<Arc<Route>, NotResumed>> {
        let (routes, id) = (self.clone(), id.clone());
        Box::pin(async move {
            let sandbox = routes.sandboxes.visible(&id).ok_or(NotResumed::Gone)?;
            // Only the write that changes `paused` resumes it; the others wait for the same pod.
            let (resuming, of) = (routes.sandboxes.clone(), key(&sandbox.metadata));
            let resumed = tokio::spawn(async move { resuming.resume_one(&of, WOKEN).await });
            let resumed = resumed.await;
            let resumed = resumed.map_err(|error| NotResumed::Failed(error.to_string()))?;
            resumed.map_err(|error| match error {
                SandboxError::NotFound(_) => NotResumed::Gone,
                SandboxError::Full(full) => NotResumed::Full(full.to_string()),
                error => NotResumed::Failed(error.to_string()),
            })?;
            routes.running(&id).ok_or(NotResumed::Gone)
        })
    }

    fn admit(
        &self,
        name: &str,
        credential: Credential,
    ) -> BoxFuture<'static, Result<Authorized, NotAuthorized>> {
        let (routes, name) = (self.clone(), name.to_owned());
        Box::pin(async move { routes.authorize(&name, credential).await })
    }

    fn find_by_token(&self, is_wanted: &dyn Fn(&Token) -> bool) -> Option<SandboxId> {
        // A copy, so that no lock is held while tokens are compared.
        let sandboxes = self.sandboxes.watched.filter(record::is_claimed);
        let found = sandboxes.into_iter().find(|sandbox| {
            record::access_token(sandbox).is_some_and(|token| is_wanted(&token))
                && self.sandboxes.address(sandbox).is_some()
        })?;
        Some(identity::sandbox_id(&found))
    }

    fn ended(&self, route: &Route) -> BoxFuture<'static, ()> {
        let Some(sandbox) = self.sandboxes.visible(&route.sandbox) else {
            return Box::pin(std::future::ready(()));
        };
        let (routes, key, id) = (self.clone(), key(&sandbox.metadata), route.sandbox.clone());
        let (execution, token) = (route.execution, route.envd_access_token.clone());
        Box::pin(async move {
            let over = || {
                let now = routes.running(&id);
                let same = now.is_some_and(|now| {
                    now.execution == execution && now.envd_access_token == token
                });
                (!same).then_some(())
            };
            routes.sandboxes.watched.wait(&key, over).await;
        })
    }

    fn key_deleted(&self, key: KeyId) -> BoxFuture<'static, ()> {
        Box::pin(self.keys.lifetime(key))
    }
}
