//! Clients of running sandboxes.

use std::sync::Arc;

use shoal_core::auth::SandboxPermit;
use shoal_core::ports::inside::SandboxClient;
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::routes::{Lookup, NotResumed, RouteTable};
use shoal_protocol::client::{RunEnd, SandboxTarget};

use super::Sandboxes;
use super::routes::EngineRoutes;

impl Sandboxes {
    /// Opens a client of one run of a sandbox. A paused sandbox that traffic may resume is resumed. Calls
    /// under way fail when the run ends.
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
        let route = match routes.lookup(id) {
            Lookup::Running(route) => route,
            Lookup::Resumable(_) => self.wake(id).await.map_err(|error| match error {
                NotResumed::Gone => SandboxError::NotFound(id.clone()),
                NotResumed::Full(_) | NotResumed::Failed(_) => SandboxError::Busy(id.clone()),
            })?,
            Lookup::Busy => return Err(SandboxError::Busy(id.clone())),
            Lookup::Paused => return Err(SandboxError::Paused(id.clone())),
            Lookup::Failed(_) | Lookup::Unknown => {
                return Err(SandboxError::NotFound(id.clone()));
            }
        };
        let target = SandboxTarget {
            address: route.address,
            token: Some(route.guest_token.clone()),
            user: user.map(str::to_owned),
        };
        let end: RunEnd = Arc::new(move || routes.ended(&route));
        Ok(self.parts.guest.open(target, Some(end)))
    }
}
