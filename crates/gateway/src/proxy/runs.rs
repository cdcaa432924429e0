//! The runs of sandboxes: their beginnings, connections and ends.

use std::sync::Arc;
use std::time::Duration;

use shoal_core::BoxFuture;
use shoal_core::routes::{Lookup, NotResumed, Route};
use tokio::time::timeout;
use tracing::Instrument;

use super::{AuthenticatedBy, Gateway};
use crate::answer::Refusal;
use crate::target::Target;
use crate::upstream::Upstream;

/// The interval for closing idle connections.
const SWEEP: Duration = Duration::from_secs(10);

impl Gateway {
    /// Resolves when the run has ended or the key was deleted.
    pub(super) fn over(
        &self,
        route: &Route,
        authenticated: AuthenticatedBy,
    ) -> BoxFuture<'static, ()> {
        let ended = self.shared.routes.ended(route);
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
        let mut upstreams = self.shared.upstreams.lock();
        if let Some(known) = upstreams.get(&route.execution) {
            return known.clone();
        }
        let upstream = Arc::new(Upstream::new(route, self.shared.places.clone()));
        upstreams.insert(route.execution, upstream.clone());
        let (shared, execution) = (self.shared.clone(), route.execution);
        let mut ended = shared.routes.ended(route);
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
