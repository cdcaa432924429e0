//! The runs of sandboxes: their beginnings, connections and ends.

use std::sync::Arc;
use std::time::Duration;

use shoal_core::BoxFuture;
use shoal_core::id::{ExecutionId, SandboxId};
use shoal_core::ports::sessions::preview::Forwarding;
use shoal_core::routes::{Lookup, NotResumed, Route};
use tokio::time::timeout;
use tracing::Instrument;

use super::idle::IdleConnection;
use super::{AuthenticatedBy, Gateway};
use crate::answer::Refusal;
use crate::places::Places;
use crate::target::Target;
use crate::upstream::{Sender, Upstream};

/// The interval for closing idle connections.
const SWEEP: Duration = Duration::from_secs(10);

impl Gateway {
    /// Resolves when the run has ended or the key was deleted.
    pub(super) fn over(
        &self,
        route: &Route,
        authenticated: AuthenticatedBy,
    ) -> BoxFuture<'static, ()> {
        self.or_key_deleted(self.shared.routes.ended(route), authenticated)
    }

    /// A connection into a sandbox that may be parked while it is idle. `None` if connections end with that.
    pub(super) fn idle_connection(
        &self,
        route: &Arc<Route>,
        authenticated: AuthenticatedBy,
    ) -> Option<IdleConnection> {
        let routes = &self.shared.routes;
        let open = routes.open_connection(route)?;
        let over = self.or_key_deleted(routes.disconnected(route), authenticated);
        Some(IdleConnection::new(
            routes.clone(),
            route.clone(),
            open,
            over,
        ))
    }

    fn or_key_deleted(
        &self,
        ended: BoxFuture<'static, ()>,
        authenticated: AuthenticatedBy,
    ) -> BoxFuture<'static, ()> {
        let AuthenticatedBy::Key(key) = authenticated else {
            return ended;
        };
        let deleted = self.shared.routes.key_deleted(key);
        Box::pin(async move {
            tokio::select! {
                () = ended => {}
                () = deleted => {}
            }
        })
    }

    pub(super) fn has_ended(&self, route: &Route) -> bool {
        match self.shared.routes.lookup(&route.sandbox) {
            Lookup::Running(now) => now.execution != route.execution,
            Lookup::Resumable(_)
            | Lookup::Parked(_)
            | Lookup::Paused
            | Lookup::Busy
            | Lookup::Failed(_)
            | Lookup::Unknown => true,
        }
    }

    /// Resumes a sandbox for an authorized request; others must not cost anything. `failed` is the answer
    /// if that fails.
    pub(super) async fn wake(
        &self,
        target: &Target,
        failed: Refusal,
    ) -> Result<Arc<Route>, Refusal> {
        let woken = self.shared.routes.wake(&target.sandbox);
        let woken = woken.instrument(tracing::debug_span!("gateway.wake"));
        let woken = woken.await;
        woken.map_err(|error| match error {
            NotResumed::Gone => Refusal::NotFound,
            NotResumed::Full(_) => Refusal::QuotaExceeded,
            NotResumed::Failed(_) => failed,
        })
    }

    /// The connections of a run: created by its first request, removed at its end.
    pub(super) fn upstream(&self, route: &Arc<Route>) -> Arc<Upstream> {
        let of_sandbox = |places| Upstream::of_sandbox(route, places);
        let ended = || self.shared.routes.ended(route);
        self.upstream_of(route.execution, of_sandbox, ended)
    }

    /// The same for an external machine.
    pub(super) fn external_upstream(
        &self,
        machine: &SandboxId,
        forwarding: &Forwarding,
    ) -> Arc<Upstream> {
        let of_external = |places| Upstream::of_external(machine, forwarding, places);
        let ended = || forwarding.ports.closed();
        self.upstream_of(forwarding.execution, of_external, ended)
    }

    fn upstream_of(
        &self,
        execution: ExecutionId,
        make: impl FnOnce(Arc<Places<Sender>>) -> Upstream,
        ended: impl FnOnce() -> BoxFuture<'static, ()>,
    ) -> Arc<Upstream> {
        let mut upstreams = self.shared.upstreams.lock();
        if let Some(known) = upstreams.get(&execution) {
            return known.clone();
        }
        let upstream = Arc::new(make(self.shared.places.clone()));
        upstreams.insert(execution, upstream.clone());
        let (shared, mut ended) = (self.shared.clone(), ended());
        let ending = upstream.clone();
        tokio::spawn(async move {
            while timeout(SWEEP, &mut ended).await.is_err() {
                shared.places.close_old();
            }
            shared.upstreams.lock().remove(&execution);
            ending.end();
        });
        upstream
    }
}
