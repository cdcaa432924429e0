//! Other limits, in place.

use std::collections::BTreeMap;
use std::sync::Arc;

use shoal_core::resources::Resources;
use shoal_core::sandbox::SandboxRecord;

use super::Sandbox;
use crate::engine::SandboxError;
use crate::events::EventKind;

impl Sandbox {
    /// Lets it be seen that a resize is feasible and on its way.
    pub(super) async fn announce_resize(&mut self) -> Result<(), SandboxError> {
        self.must_run()?;
        let mut next = self.record.as_ref().clone();
        next.resizing = true;
        self.commit(next).await
    }

    /// Puts other limits in force while the sandbox runs. When they cannot be, the old ones stay.
    pub(super) async fn resize(
        &mut self,
        limits: Resources,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        self.must_run()?;
        let resized = self.shared.driver.resize(&self.record.id, limits).await;
        let mut next = self.record.as_ref().clone();
        next.resizing = false;
        if resized.is_ok() {
            next.spec.resources = limits;
        }
        self.commit(next).await?;
        resized?;
        // It ends who uses the memory up, and has to know how much that is.
        if let Some(report) = &self.record.report
            && let Err(error) = self.tell_guest(report).await
        {
            tracing::warn!(sandbox.id = %self.record.id, %error, "the daemon does not know of other limits");
        }
        let detail = BTreeMap::from([
            ("cpu", limits.cpu.to_string()),
            ("memory", limits.memory.to_string()),
        ]);
        self.emit(EventKind::Updated, detail);
        Ok(self.record.clone())
    }
}
