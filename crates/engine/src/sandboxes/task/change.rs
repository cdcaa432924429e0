//! Changes of a sandbox that runs or is parked: its deadline and its network rules.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shoal_core::network::Egress;
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::sandbox::SandboxRecord;

use super::Sandbox;
use crate::sandboxes::command::DeadlineChange;
use crate::telemetry::EventKind;

impl Sandbox {
    /// Extends the deadline to at least `timeout` from now.
    pub(super) async fn prolong(
        &mut self,
        timeout: Duration,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        let deadline = self.sandboxes.parts.clock.now() + timeout;
        self.set_deadline(DeadlineChange::AtLeast(deadline)).await
    }

    pub(super) async fn set_deadline(
        &mut self,
        change: DeadlineChange,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        self.must_show_running()?;
        if self.record.spec.lifecycle.endless {
            return Ok(self.record.clone());
        }
        let latest = self.record.started_at + self.sandboxes.limits.max_timeout;
        let deadline = match change {
            DeadlineChange::To(moment) => moment.min(latest),
            DeadlineChange::AtLeast(moment) => moment.min(latest).max(self.record.deadline),
        };
        if deadline != self.record.deadline {
            let next = SandboxRecord {
                deadline,
                ..self.record.as_ref().clone()
            };
            self.commit(next).await?;
            let detail = BTreeMap::from([("set_timeout", deadline.to_string())]);
            self.emit(EventKind::Updated, detail);
        }
        Ok(self.record.clone())
    }

    pub(super) async fn set_egress(&mut self, egress: Egress) -> Result<(), SandboxError> {
        self.must_show_running()?;
        let driver = self.driver();
        let filter = driver.filters_egress()?;
        // Written first: after a crash in between, the requested rules are known.
        let before = self.record.as_ref().clone();
        let mut next = before.clone();
        next.spec.network.egress = egress.clone();
        self.commit(next).await?;
        // The next run of a parked sandbox starts with them.
        if self.record.state.is_running()
            && let Err(error) = filter.set_egress(&self.record.id, egress).await
        {
            self.commit(before).await?;
            return Err(error.into());
        }
        self.emit(
            EventKind::Updated,
            BTreeMap::from([("network", "set".to_owned())]),
        );
        Ok(())
    }
}
