//! Clients of running sandboxes.

use std::sync::Arc;

use shoal_core::auth::SandboxPermit;
use shoal_core::id::SandboxId;
use shoal_core::ports::inside::SandboxClient;
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::routes::{Lookup, NotResumed, Route, RouteTable};
use shoal_protocol::client::{RunEnd, SandboxTarget};

use super::Sandboxes;
use super::routes::EngineRoutes;

impl Sandboxes {
    /// Opens a client of one run of a sandbox. A paused sandbox that traffic may resume is resumed, a
    /// parked one is woken. Calls under way fail when the run ends.
    ///
    /// # Errors
    /// [`SandboxError::Paused`] when it stays paused, [`SandboxError::Busy`] while its state changes,
    /// [`SandboxError::NotFound`] when it has ended.
    pub(crate) async fn open(
        self: &Arc<Self>,
        permit: &SandboxPermit,
        user: Option<&str>,
    ) -> Result<Arc<dyn SandboxClient>, SandboxError> {
        let (routes, id) = (EngineRoutes::new(self.clone()), permit.sandbox());
        let mut route = match routes.lookup(id) {
            Lookup::Running(route) => route,
            Lookup::Resumable(_) | Lookup::Parked(_) => self.wake_to_open(id).await?,
            Lookup::Busy => return Err(SandboxError::Busy(id.clone())),
            Lookup::Paused => return Err(SandboxError::Paused(id.clone())),
            Lookup::Failed(_) | Lookup::Unknown => {
                return Err(SandboxError::NotFound(id.clone()));
            }
        };
        let mut visit = self.visit(&route);
        if visit.is_none() {
            // It was about to be parked.
            route = self.wake_to_open(id).await?;
            visit = self.visit(&route);
        }
        let visit = Arc::new(visit.ok_or_else(|| SandboxError::Busy(id.clone()))?);
        let target = SandboxTarget {
            address: route.address,
            token: Some(route.guest_token.clone()),
            user: user.map(str::to_owned),
        };
        // The client and each of its connections keep the sandbox from being parked.
        let end: RunEnd = Arc::new(move || {
            let (ended, visit) = (routes.ended(&route), visit.clone());
            Box::pin(async move {
                ended.await;
                drop(visit);
            })
        });
        Ok(self.parts.guest.open(target, Some(end)))
    }

    async fn wake_to_open(&self, id: &SandboxId) -> Result<Arc<Route>, SandboxError> {
        self.wake(id).await.map_err(|error| match error {
            NotResumed::Gone => SandboxError::NotFound(id.clone()),
            NotResumed::Full(_) | NotResumed::Failed(_) => SandboxError::Busy(id.clone()),
        })
    }
}
