//! The routing table: how the data path finds and wakes a sandbox.

use std::sync::Arc;

use shoal_core::BoxFuture;
use shoal_core::auth::Token;
use shoal_core::driver::PausedNetwork;
use shoal_core::id::{KeyId, SandboxId};
use shoal_core::routes::{
    Authorized, Credential, Lookup, NotAuthorized, NotResumed, OpenConnection, Route, RouteTable,
    Visit, WakeAuth,
};
use shoal_core::sandbox::SandboxRecord;
use shoal_core::state::StateKind;

use super::Sandboxes;
use super::registry::Published;
use crate::access::KeyLifetime;

/// Whether traffic resumes a sandbox that is paused or being resumed. A sandbox without saved memory is
/// not resumed: it would boot, and no program would listen (E2B's rule).
fn can_wake(record: &SandboxRecord) -> bool {
    let has_memory = record
        .state
        .saved()
        .is_some_and(|saved| saved.contents.has_memory());
    let rests = match record.state.kind() {
        StateKind::Paused | StateKind::Resuming => has_memory,
        // The contents are known only after the pause, so requests wait for it.
        StateKind::Pausing => true,
        _ => false,
    };
    rests && record.spec.lifecycle.auto_resume
}

fn has_tokens_of(now: &Route, before: &Route) -> bool {
    now.envd_access_token == before.envd_access_token
        && now.traffic_access_token == before.traffic_access_token
}

/// Whether connections that were opened by a route go on: the sandbox runs in the same network, or is parked and
/// keeps it.
fn is_connected(now: &Published, opened: &Route) -> bool {
    let parked = now.parked.as_ref();
    let parked = parked.filter(|_| now.network == PausedNetwork::Kept);
    let place = now.route.as_ref().or(parked);
    place.is_some_and(|place| place.network == opened.network && has_tokens_of(place, opened))
}

impl Sandboxes {
    fn wake_auth(&self, record: &SandboxRecord) -> WakeAuth {
        WakeAuth {
            envd_access_token: self.parts.access.envd_access_token(record),
            traffic_access_token: self.parts.access.traffic_access_token(record),
        }
    }

    async fn admit(&self, name: &str, credential: Credential) -> Result<Authorized, NotAuthorized> {
        let (record, key) = match credential {
            Credential::Key(key) => {
                let principal = self.parts.access.authenticate(&key).await;
                let principal = principal.map_err(|e| NotAuthorized::Failed(e.to_string()))?;
                let principal = principal.ok_or(NotAuthorized::Unproven)?;
                let found = self.find(&principal, name);
                let record = found.map_err(|_| NotAuthorized::NotFound)?.1;
                (record, Some(principal.key))
            }
            Credential::Traffic(offered) => {
                let id = SandboxId::from_wire(name).map_err(|_| NotAuthorized::Unproven)?;
                let record = self.registry.record(&id);
                let record = record.filter(|record| record.is_user_visible());
                let record = record.ok_or(NotAuthorized::Unproven)?;
                let token = self.parts.access.traffic_access_token(&record);
                if !token.is_some_and(|token| token.matches(&offered)) {
                    return Err(NotAuthorized::Unproven);
                }
                (record, None)
            }
        };
        Ok(Authorized {
            sandbox: record.id.clone(),
            port: record.default_port(),
            key,
        })
    }
}

/// The data path's view.
#[derive(Clone)]
pub struct EngineRoutes(Arc<Sandboxes>);

impl EngineRoutes {
    pub(crate) fn new(sandboxes: Arc<Sandboxes>) -> Self {
        Self(sandboxes)
    }

    fn seen(&self, id: &SandboxId, published: &Published) -> Lookup {
        let record = &published.record;
        match &published.route {
            Some(route) => Lookup::Running(route.clone()),
            None if record.state.is_parked() => Lookup::Parked(self.0.wake_auth(record)),
            None if can_wake(record) => Lookup::Resumable(self.0.wake_auth(record)),
            // A sandbox that is being paused counts as paused, as with E2B.
            None if matches!(record.state.kind(), StateKind::Pausing | StateKind::Paused) => {
                Lookup::Paused
            }
            None if record.state.is_live() && record.state.timer().is_some() => Lookup::Busy,
            None => self.0.registry.missing(id),
        }
    }
}

impl RouteTable for EngineRoutes {
    fn lookup(&self, id: &SandboxId) -> Lookup {
        let found = self
            .0
            .registry
            .read(id, |published| self.seen(id, published));
        found.unwrap_or_else(|| self.0.registry.missing(id))
    }

    fn visit(&self, route: &Route) -> Option<Visit> {
        self.0.visit(route)
    }

    fn open_connection(&self, route: &Route) -> Option<OpenConnection> {
        self.0.open_connection(route)
    }

    fn disconnected(&self, route: &Route) -> BoxFuture<'static, ()> {
        let published = self.0.registry.published(&route.sandbox);
        let route = route.clone();
        Box::pin(async move {
            if let Some(mut published) = published {
                // An error means that the task has ended, and with it the sandbox.
                let _ = published.wait_for(|now| !is_connected(now, &route)).await;
            }
        })
    }

    fn wake(&self, id: &SandboxId) -> BoxFuture<'static, Result<Arc<Route>, NotResumed>> {
        let (sandboxes, id) = (self.0.clone(), id.clone());
        Box::pin(async move { sandboxes.wake(&id).await })
    }

    fn admit(
        &self,
        name: &str,
        credential: Credential,
    ) -> BoxFuture<'static, Result<Authorized, NotAuthorized>> {
        let (sandboxes, name) = (self.0.clone(), name.to_owned());
        Box::pin(async move { sandboxes.admit(&name, credential).await })
    }

    fn find_by_token(&self, is_wanted: &dyn Fn(&Token) -> bool) -> Option<SandboxId> {
        let mut routes = self.0.registry.routes().into_iter();
        let found = routes.find(|route| route.envd_access_token.as_ref().is_some_and(is_wanted));
        found.map(|route| route.sandbox.clone())
    }

    fn key_deleted(&self, key: KeyId) -> BoxFuture<'static, ()> {
        let mut lifetime = KeyLifetime::of(&self.0.parts.access, key);
        Box::pin(async move { lifetime.ended().await })
    }

    fn ended(&self, route: &Route) -> BoxFuture<'static, ()> {
        let published = self.0.registry.published(&route.sandbox);
        let route = route.clone();
        Box::pin(async move {
            if let Some(mut published) = published {
                // New tokens end the connections that the old ones opened.
                let over = |now: &Published| {
                    now.route.as_ref().is_none_or(|now| {
                        now.execution != route.execution || !has_tokens_of(now, &route)
                    })
                };
                // An error means that the task has ended, and with it the run.
                let _ = published.wait_for(over).await;
            }
        })
    }
}
