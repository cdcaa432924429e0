//! The task of a pool member: it becomes ready, is frozen, and is claimed.

use std::collections::BTreeMap;
use std::time::Duration;

use shoal_core::clock::Timestamp;
use shoal_core::detail::Chain;
use shoal_core::driver::{Phases, StartKind, StartReport};
use shoal_core::id::TeamId;
use shoal_core::pool::{PoolMember, PoolPhase, SETTLED};
use shoal_core::resources::Resources;
use shoal_core::sandbox::{IdempotencyKey, Purpose, SandboxRecord, SandboxSpec};
use shoal_core::state::{KillReason, StateKind};
use tokio::time::Instant;

use super::Sandbox;
use super::start::count;
use crate::sandboxes::command::{ClaimRequest, Claiming, HandOutError};
use crate::sandboxes::member_command::{run_to_end, within};
use crate::telemetry::EventKind;
use shoal_core::ports::inside::InsideError;
use shoal_core::ports::sandboxes::SandboxError;
use shoal_protocol::client::SandboxTarget;

/// How long `/init` may take during a claim. The daemon runs already, and the client waits.
const INIT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long `startupCmd` may take.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

impl Sandbox {
    /// Commits that the member can be claimed.
    pub(super) async fn join_pool(&mut self, ready: Timestamp) -> Result<(), SandboxError> {
        self.must_run()?;
        let Some(pool_member) = self.record.pool_member() else {
            return Err(SandboxError::NotFound(self.record.id.clone()));
        };
        let purpose = Purpose::Pool(PoolMember {
            phase: PoolPhase::Ready(ready),
            ..pool_member.clone()
        });
        let mut next = self.record.as_ref().clone();
        next.spec.purpose = purpose;
        self.commit(next).await?;
        let settled = Some(ready + SETTLED);
        self.sandboxes.deadlines.set(&self.record.id, settled);
        Ok(())
    }

    /// When it became a member that can be claimed.
    pub(super) fn ready_since(&self) -> Option<Timestamp> {
        let since = self.record.pool_member()?.phase.ready_since()?;
        self.record.state.is_running().then_some(since)
    }

    /// Freezes a ready member after [`SETTLED`], unless its entry says `keepRunning`. No client can
    /// reach it, and a frozen member uses no processor time.
    pub(super) async fn freeze_idle(&self, ready: Timestamp) {
        let (sandboxes, id) = (&self.sandboxes, &self.record.id);
        let settled = ready + SETTLED;
        if sandboxes.parts.clock.now() < settled {
            return sandboxes.deadlines.set(id, Some(settled));
        }
        if self.keeps_running() {
            return;
        }
        let driver = self.driver();
        let Some(freezer) = driver.freezer() else {
            return;
        };
        if let Err(error) = freezer.freeze(id).await {
            tracing::debug!(sandbox.id = %id, error = %Chain(&error), "a member of a pool cannot be frozen yet");
            let again = sandboxes.parts.clock.now() + SETTLED;
            sandboxes.deadlines.set(id, Some(again));
        }
    }

    fn keeps_running(&self) -> bool {
        let in_force = self.sandboxes.parts.catalogues.current();
        let name = self
            .record
            .pool_member()
            .map(|member| member.entry.as_str());
        let entry = name.and_then(|name| in_force.catalogue.entry(name));
        let pool = entry.and_then(|entry| entry.pool.as_ref());
        pool.and_then(|pool| pool.keep_running).unwrap_or_default()
    }

    /// Hands the member out. A member that fails is ended, because it may already have the client's
    /// environment.
    pub(super) async fn claim(&mut self, request: ClaimRequest) {
        let ClaimRequest {
            team,
            spec,
            idempotency,
            startup,
            quota,
            name,
            claiming,
            reply,
        } = request;
        let mut claimed = self.begin_claim(team, spec, idempotency).await;
        drop(quota);
        if let Ok(before) = &claimed {
            let before = before.clone();
            if let Err(error) = self.finish_claim(&before, &startup, claiming).await {
                claimed = Err(error);
            }
        }
        // The registry has the name now, or the name is free again.
        drop(name);
        match claimed {
            Ok(_) => {
                // The client may have disconnected. The sandbox lives until its deadline.
                let _ = reply.send(Ok(self.record.clone()));
            }
            Err(error) => {
                // Before the answer: it counts for the team until it has ended. Its replacement must not
                // exceed the quota.
                self.end(KillReason::Failed).await;
                let _ = reply.send(Err(error));
            }
        }
    }

    /// Commits that it is being claimed, and its new owner. Returns its previous specification.
    async fn begin_claim(
        &mut self,
        team: TeamId,
        spec: SandboxSpec,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<SandboxSpec, HandOutError> {
        let gone = || SandboxError::NotFound(self.record.id.clone());
        let pool_member = self.record.pool_member().ok_or_else(gone)?.clone();
        let ready = matches!(pool_member.phase, PoolPhase::Ready(_));
        let rests_or_runs = matches!(
            self.record.state.kind(),
            StateKind::Running | StateKind::Parked
        );
        if !ready || !rests_or_runs {
            return Err(gone().into());
        }
        let before = self.record.spec.clone();
        let next = SandboxRecord {
            team,
            spec: SandboxSpec {
                purpose: Purpose::Pool(PoolMember {
                    phase: PoolPhase::Claimed,
                    ..pool_member
                }),
                cpu_ceiling: before.cpu_ceiling,
                ..spec
            },
            created_at: self.sandboxes.parts.clock.now(),
            idempotency,
            ..self.record.as_ref().clone()
        };
        self.commit(next).await?;
        Ok(before)
    }

    async fn finish_claim(
        &mut self,
        before: &SandboxSpec,
        startup: &[String],
        claiming: Claiming,
    ) -> Result<(), HandOutError> {
        let begun = Instant::now();
        let is_parked = self.record.state.kind() == StateKind::Parked;
        if is_parked {
            // It wakes with everything that it has from now on.
            self.awake().await?;
        }
        if let Some(accounts) = self.driver().disk_accounts() {
            let owner = self.sandboxes.parts.access.owner(self.record.team);
            let given = accounts.set_owner(&self.record.id, owner).await;
            given.map_err(SandboxError::from)?;
        }
        let mut report = match is_parked {
            true => self.report()?,
            false => self.refit(before).await?,
        };
        let target = SandboxTarget {
            address: report.address,
            token: Some(self.sandboxes.parts.access.guest_token(&self.record)),
            user: None,
        };
        drop(claiming);
        run_to_end(
            &self.sandboxes,
            target,
            "startupCmd",
            startup,
            STARTUP_TIMEOUT,
        )
        .await?;
        report.origin = StartKind::Pooled;
        report.phases = Phases {
            ready: begun.elapsed(),
            ..Phases::default()
        };
        let now = self.sandboxes.parts.clock.now();
        let mut next = SandboxRecord {
            report: Some(report),
            started_at: now,
            since: now,
            deadline: now + self.record.spec.lifecycle.timeout,
            ..self.record.as_ref().clone()
        };
        next.spec.purpose = Purpose::Use;
        self.commit(next).await?;
        self.emit(EventKind::Created, BTreeMap::new());
        if let Some(report) = &self.record.report {
            count(report);
        }
        Ok(())
    }

    /// Gives a member in memory the limits, the rules and the variables that it has from now on.
    async fn refit(&self, before: &SandboxSpec) -> Result<StartReport, HandOutError> {
        let mut report = self.report()?;
        // First: the daemon would be slow with the small limits of a member.
        self.raise_limits(&before.resources).await?;
        self.thaw().await?;
        let (rules, told) = tokio::join!(self.change_rules(before), self.tell_guest(&report));
        rules?;
        report.envd_version = told?;
        Ok(report)
    }

    fn report(&self) -> Result<StartReport, SandboxError> {
        let report = self.record.report.clone();
        report.ok_or_else(|| SandboxError::NotFound(self.record.id.clone()))
    }

    /// Thaws the member, always: an earlier server may have frozen it.
    async fn thaw(&self) -> Result<(), SandboxError> {
        match self.driver().freezer() {
            Some(freezer) => Ok(freezer.thaw(&self.record.id).await?),
            None => Ok(()),
        }
    }

    /// Parks a ready member. Its programs are saved as they are: no client waits for them. False if it has
    /// connections to the outside, which a park would break; it stays in memory then.
    pub(super) async fn park_member(&mut self) -> Result<bool, SandboxError> {
        let gone = || SandboxError::NotFound(self.record.id.clone());
        self.ready_since().ok_or_else(gone)?;
        self.thaw().await?;
        let parked = match self.look_inside().await {
            Ok(Some(inside)) if inside.connections == 0 => self.save_now().await.map(|()| true),
            Ok(_) => Ok(false),
            Err(error) => Err(error),
        };
        if parked.is_err() {
            self.count_park("failed");
        }
        if self.record.state.is_running() {
            self.freeze_soon();
        }
        parked
    }

    /// Wakes a parked member, which stays in its pool.
    pub(super) async fn wake_member(&mut self) -> Result<(), SandboxError> {
        // Its claim may have come first.
        if self.record.pool_member().is_none() {
            return Err(SandboxError::NotFound(self.record.id.clone()));
        }
        self.awake().await?;
        self.must_run()?;
        self.freeze_soon();
        Ok(())
    }

    /// Lets the timer freeze the member.
    fn freeze_soon(&self) {
        let at = self.sandboxes.parts.clock.now() + SETTLED;
        self.sandboxes.deadlines.set(&self.record.id, Some(at));
    }

    async fn raise_limits(&self, before: &Resources) -> Result<(), SandboxError> {
        let limits = self.record.spec.resources;
        if (limits.cpu, limits.memory) == (before.cpu, before.memory) {
            return Ok(());
        }
        let ceiling = self.record.spec.cpu_ceiling.max(limits.cpu);
        let bounds = self.sandboxes.parts.access.bounds(self.record.team);
        let granted = bounds.regrant(before, limits, ceiling)?;
        self.set_limits(granted).await.map_err(SandboxError::from)
    }

    async fn change_rules(&self, before: &SandboxSpec) -> Result<(), SandboxError> {
        let egress = &self.record.spec.network.egress;
        if egress.same_rules(&before.network.egress) {
            return Ok(());
        }
        let driver = self.driver();
        let set = driver
            .filters_egress()?
            .set_egress(&self.record.id, egress.clone())
            .await;
        set.map_err(SandboxError::from)
    }

    /// Calls `/init` with the values that the start of the run did not have.
    pub(super) async fn tell_guest(&self, report: &StartReport) -> Result<String, InsideError> {
        let end = self.sandboxes.parts.clock.now() + INIT_TIMEOUT;
        let told = self
            .sandboxes
            .parts
            .guest
            .init(report.address, self.init_spec());
        let told = within(&*self.sandboxes.parts.clock, end, told).await;
        told.unwrap_or_else(|| Err(InsideError::Unreachable("no answer".to_owned())))
    }
}
