//! Other limits, in place.

use std::collections::BTreeMap;
use std::sync::Arc;

use shoal_core::detail::Chain;
use shoal_core::driver::DriverError;
use shoal_core::limits::Granted;
use shoal_core::resources::Resources;
use shoal_core::sandbox::SandboxRecord;
use shoal_core::state::StateKind;

use super::Sandbox;
use crate::sandboxes::quota::{Load, QuotaReservation};
use crate::sandboxes::resize::Resize;
use crate::telemetry::EventKind;
use shoal_core::ports::sandboxes::SandboxError;

impl Sandbox {
    /// Lets it be seen that a resize is on its way, and to what. `kept` is the processor time that was
    /// kept for it, if that was done before.
    pub(super) async fn announce_resize(
        &mut self,
        resize: Resize,
        kept: Option<QuotaReservation>,
    ) -> Result<(), SandboxError> {
        self.must_run()?;
        self.driver().resizes()?;
        let (aim, kept) = self.aim(resize, kept)?;
        let mut next = self.record.as_ref().clone();
        next.resizing = true;
        next.aim = Some(aim);
        self.commit(next).await?;
        // It is known itself now.
        drop(kept);
        Ok(())
    }

    /// Carries out the resize that was announced, unless another has taken its place meanwhile.
    pub(super) async fn finish_resize(&mut self) -> Result<Arc<SandboxRecord>, SandboxError> {
        match self.record.aim {
            None => Ok(self.record.clone()),
            Some(aim) if self.record.state.kind() == StateKind::Paused => {
                // Its next run begins with them.
                self.note_limits(Some(aim), None).await?;
                Ok(self.record.clone())
            }
            Some(aim) => {
                self.must_run()?;
                self.put_in_force(aim, None).await
            }
        }
    }

    /// Puts other limits in force while the sandbox runs; what is not said stays as it is by then. When
    /// they cannot be, the old ones stay.
    pub(super) async fn resize(
        &mut self,
        resize: Resize,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        self.must_run()?;
        self.driver().resizes()?;
        let before = self.record.aim;
        let (aim, kept) = self.aim(resize, None)?;
        // Written first: after a crash in between, the limits that were asked for are known.
        let mut next = self.record.as_ref().clone();
        next.aim = Some(aim);
        self.commit(next).await?;
        drop(kept);
        self.put_in_force(aim, before).await
    }

    /// What the limits are to be, of what they are now or will be soon, with what is kept of the team's
    /// share until that is committed.
    fn aim(
        &self,
        resize: Resize,
        kept: Option<QuotaReservation>,
    ) -> Result<(Resources, Option<QuotaReservation>), SandboxError> {
        let (sandboxes, record) = (&self.sandboxes, &self.record);
        let aim = resize.of(&record.aim.unwrap_or(record.spec.resources));
        let aim = self.grant(aim)?.resources();
        let kept = match kept {
            Some(kept) => Some(kept),
            None => {
                let has = Load::kept(record);
                sandboxes.reserve_growth(record.team, has, has, Load::of(&aim))?
            }
        };
        Ok((aim, kept))
    }

    /// Other limits for the run, which passed the same bounds as those that it began with.
    pub(super) fn grant(&self, wanted: Resources) -> Result<Granted, SandboxError> {
        let spec = &self.record.spec;
        let ceiling = spec.cpu_ceiling.max(spec.resources.cpu);
        let bounds = self.sandboxes.access.bounds(self.record.team);
        Ok(bounds.regrant(&spec.resources, wanted, ceiling)?)
    }

    /// Sets limits in the driver.
    pub(super) async fn set_limits(&self, granted: Granted) -> Result<(), DriverError> {
        let driver = self.driver();
        driver.resizes()?.resize(&self.record.id, granted).await
    }

    /// Has the driver change the limits. When it does not, `otherwise` is what is still to be done.
    async fn put_in_force(
        &mut self,
        limits: Resources,
        otherwise: Option<Resources>,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        let resized = match self.grant(limits) {
            Ok(granted) => self.set_limits(granted).await.map_err(SandboxError::from),
            Err(refused) => Err(refused),
        };
        if let Err(error) = resized {
            self.note_limits(None, otherwise).await?;
            return Err(error);
        }
        self.note_limits(Some(limits), None).await?;
        // It ends who uses the memory up, and has to know how much that is.
        if let Some(report) = &self.record.report
            && let Err(error) = self.tell_guest(report).await
        {
            tracing::warn!(sandbox.id = %self.record.id, error = %Chain(&error), "the daemon does not know of other limits");
        }
        let detail = BTreeMap::from([
            ("cpu", limits.cpu.to_string()),
            ("memory", limits.memory.to_string()),
        ]);
        self.emit(EventKind::Updated, detail);
        Ok(self.record.clone())
    }

    /// Notes which limits are in force, if they have changed, and which are still to be.
    async fn note_limits(
        &mut self,
        limits: Option<Resources>,
        aim: Option<Resources>,
    ) -> Result<(), SandboxError> {
        let mut next = self.record.as_ref().clone();
        next.spec.resources = limits.unwrap_or(next.spec.resources);
        next.resizing &= aim.is_some();
        next.aim = aim;
        self.commit(next).await
    }

    /// Settles a resize that the last server did not finish: the limits become what they were to be,
    /// or else what they were, whichever of them the driver had put in force.
    pub(super) async fn settle_resize(&mut self) {
        let (kind, aim) = (self.record.state.kind(), self.record.aim);
        if aim.is_none() && !self.record.resizing {
            return;
        }
        let settled = match kind {
            StateKind::Running | StateKind::Snapshotting => {
                let old = self.record.spec.resources;
                match self.put_in_force(aim.unwrap_or(old), None).await {
                    Err(error) => {
                        tracing::warn!(sandbox.id = %self.record.id, error = %Chain(&error), "a resize of the last server cannot be finished");
                        match self.grant(old) {
                            Ok(granted) => {
                                self.set_limits(granted).await.map_err(SandboxError::from)
                            }
                            Err(refused) => Err(refused),
                        }
                    }
                    Ok(_) => Ok(()),
                }
            }
            StateKind::Paused => self.note_limits(aim, None).await,
            // It is ending.
            _ => Ok(()),
        };
        if let Err(error) = settled {
            tracing::error!(sandbox.id = %self.record.id, error = %Chain(&error), "a sandbox may have other limits than it is said to have");
        }
    }
}
