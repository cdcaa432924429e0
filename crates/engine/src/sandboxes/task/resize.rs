//! Resizes in place.

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
    /// Commits the target of a resize before it is carried out. `kept` is the reservation for it, if
    /// there already is one.
    pub(super) async fn announce_resize(
        &mut self,
        resize: Resize,
        kept: Option<QuotaReservation>,
    ) -> Result<(), SandboxError> {
        self.must_be_awake().await?;
        self.must_run()?;
        self.driver().resizes()?;
        let (aim, kept) = self.aim(resize, kept)?;
        let mut next = self.record.as_ref().clone();
        next.resizing = true;
        next.aim = Some(aim);
        self.commit(next).await?;
        // The record counts from here on.
        drop(kept);
        Ok(())
    }

    /// Carries out an announced resize, unless another one has replaced it.
    pub(super) async fn finish_resize(&mut self) -> Result<Arc<SandboxRecord>, SandboxError> {
        match self.record.aim {
            None => Ok(self.record.clone()),
            Some(aim) if self.record.state.kind() == StateKind::Paused => {
                // Its next run starts with them.
                self.note_limits(Some(aim), None).await?;
                Ok(self.record.clone())
            }
            Some(aim) => {
                self.must_be_awake().await?;
                self.must_run()?;
                self.put_in_force(aim, None).await
            }
        }
    }

    /// Changes limits of the running sandbox. Limits that `resize` leaves out do not change. After a
    /// failure the old ones stay.
    pub(super) async fn resize(
        &mut self,
        resize: Resize,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        self.must_be_awake().await?;
        self.must_run()?;
        self.driver().resizes()?;
        let before = self.record.aim;
        let (aim, kept) = self.aim(resize, None)?;
        // Committed first: after a crash in between, the requested limits are known.
        let mut next = self.record.as_ref().clone();
        next.aim = Some(aim);
        self.commit(next).await?;
        drop(kept);
        self.put_in_force(aim, before).await
    }

    /// The target of `resize`, and a reservation of the team's quota until the target is committed. A
    /// resize in progress counts as done.
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

    /// Checks limits against the same bounds as those that the run started with.
    pub(super) fn grant(&self, wanted: Resources) -> Result<Granted, SandboxError> {
        let spec = &self.record.spec;
        let ceiling = spec.cpu_ceiling.max(spec.resources.cpu);
        let bounds = self.sandboxes.parts.access.bounds(self.record.team);
        Ok(bounds.regrant(&spec.resources, wanted, ceiling)?)
    }

    /// Sets limits in the driver.
    pub(super) async fn set_limits(&self, granted: Granted) -> Result<(), DriverError> {
        let driver = self.driver();
        driver.resizes()?.resize(&self.record.id, granted).await
    }

    /// Changes the limits in the driver. After a failure, `otherwise` becomes the target again.
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
        // The daemon ends programs that use up the memory, so it must know the new limit.
        if let Some(report) = &self.record.report
            && let Err(error) = self.tell_guest(report).await
        {
            tracing::warn!(sandbox.id = %self.record.id, error = %Chain(&error), "the daemon does not know the new limits");
        }
        let detail = BTreeMap::from([
            ("cpu", limits.cpu.to_string()),
            ("memory", limits.memory.to_string()),
        ]);
        self.emit(EventKind::Updated, detail);
        Ok(self.record.clone())
    }

    /// Commits the limits in force, if they have changed, and the target that remains.
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

    /// Finishes a resize of the previous server. If that fails, the old limits are restored. The driver
    /// may have either in force.
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
                        tracing::warn!(sandbox.id = %self.record.id, error = %Chain(&error), "a resize of the previous server cannot be finished");
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
            StateKind::Paused | StateKind::Parked => self.note_limits(aim, None).await,
            // It is ending.
            _ => Ok(()),
        };
        if let Err(error) = settled {
            tracing::error!(sandbox.id = %self.record.id, error = %Chain(&error), "the limits of a sandbox may differ from its record");
        }
    }
}
