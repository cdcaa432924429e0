//! A member of a pool becomes ready, and somebody's.

use std::collections::BTreeMap;
use std::time::Duration;

use shoal_core::clock::Timestamp;
use shoal_core::detail::Chain;
use shoal_core::driver::{Origin, Phases, StartReport};
use shoal_core::id::TeamId;
use shoal_core::pool::{Membership, Stage};
use shoal_core::resources::Resources;
use shoal_core::sandbox::{IdempotencyKey, Purpose, SandboxRecord, SandboxSpec};
use shoal_core::state::{KillReason, StateKind};
use tokio::time::Instant;

use super::Sandbox;
use super::start::count;
use crate::guest::{GuestDoor, GuestError};
use crate::sandboxes::command::{run_to_end, within};
use crate::sandboxes::order::{ClaimOrder, Claiming, HandOutError};
use crate::telemetry::EventKind;
use shoal_core::ports::sandboxes::SandboxError;

/// How long the daemon of a member may take to be told whose it is. It is up, so it does not take
/// long, and whoever asks waits.
const TOLD: Duration = Duration::from_secs(3);

/// How long `startupCmd` may take.
const STARTUP: Duration = Duration::from_secs(30);

/// How long the programs of a member go on when it is ready, before they are held still: what they do
/// behind the opening of a port is done by then.
const SETTLED: Duration = Duration::from_secs(10);

impl Sandbox {
    /// Notes that the member may be handed out.
    pub(super) async fn join_pool(&mut self, ready: Timestamp) -> Result<(), SandboxError> {
        self.must_run()?;
        let Some(membership) = self.record.membership() else {
            return Err(SandboxError::NotFound(self.record.id.clone()));
        };
        let purpose = Purpose::Pool(Membership {
            stage: Stage::Ready(ready),
            ..membership.clone()
        });
        let mut next = self.record.as_ref().clone();
        next.spec.purpose = purpose;
        self.commit(next).await?;
        let settled = Some(ready + SETTLED);
        self.sandboxes.deadlines.set(&self.record.id, settled);
        Ok(())
    }

    /// Since when it is a member that may be handed out.
    pub(super) fn ready_since(&self) -> Option<Timestamp> {
        match self.record.membership()?.stage {
            Stage::Ready(since) => Some(since).filter(|_| self.record.state.is_running()),
            Stage::Starting | Stage::Claimed => None,
        }
    }

    /// Holds a member still that is ready since then, when it has settled: nobody can reach it, and
    /// waiting is to cost nothing. Unless its entry wants its programs to go on.
    pub(super) async fn hold_still(&self, ready: Timestamp) {
        let (sandboxes, id) = (&self.sandboxes, &self.record.id);
        let settled = ready + SETTLED;
        if sandboxes.clock.now() < settled {
            return sandboxes.deadlines.set(id, Some(settled));
        }
        if self.keeps_running() {
            return;
        }
        if let Err(error) = sandboxes.driver.hold(id, true).await {
            tracing::debug!(sandbox.id = %id, error = %Chain(&error), "a member of a pool cannot be held still yet");
            let again = sandboxes.clock.now() + SETTLED;
            sandboxes.deadlines.set(id, Some(again));
        }
    }

    fn keeps_running(&self) -> bool {
        let in_force = self.sandboxes.catalogues.current();
        let name = self.record.membership().map(|member| member.entry.as_str());
        let entry = name.and_then(|name| in_force.catalogue.entry(name));
        let pool = entry.and_then(|entry| entry.pool.as_ref());
        pool.and_then(|pool| pool.keep_running).unwrap_or_default()
    }

    /// Hands the member out. One that cannot be is ended: it may be half somebody's.
    pub(super) async fn claim(&mut self, order: ClaimOrder) {
        let ClaimOrder {
            team,
            spec,
            idempotency,
            startup,
            room,
            name,
            claiming,
            reply,
        } = order;
        let mut claimed = self.begin_claim(team, spec, idempotency).await;
        drop(room);
        if let Ok(before) = &claimed {
            let before = before.clone();
            if let Err(error) = self.finish_claim(&before, &startup, claiming).await {
                claimed = Err(error);
            }
        }
        // It is known by it now, or another sandbox may be.
        drop(name);
        match claimed {
            Ok(_) => {
                // Whoever asked may have gone: it lives until its deadline all the same.
                let _ = reply.send(Ok(self.record.clone()));
            }
            Err(error) => {
                // First: it is the team's already, and counts until it is gone. What is made for whoever
                // asked instead is not to be one too many.
                self.end(KillReason::Failed).await;
                let _ = reply.send(Err(error));
            }
        }
    }

    /// Commits that it is being handed out, and to whom. Returns what it was.
    async fn begin_claim(
        &mut self,
        team: TeamId,
        spec: SandboxSpec,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<SandboxSpec, HandOutError> {
        let gone = || SandboxError::NotFound(self.record.id.clone());
        let membership = self.record.membership().ok_or_else(gone)?.clone();
        let ready = matches!(membership.stage, Stage::Ready(_));
        if !ready || self.record.state.kind() != StateKind::Running {
            return Err(gone().into());
        }
        let before = self.record.spec.clone();
        let next = SandboxRecord {
            team,
            spec: SandboxSpec {
                purpose: Purpose::Pool(Membership {
                    stage: Stage::Claimed,
                    ..membership
                }),
                cpu_ceiling: before.cpu_ceiling,
                ..spec
            },
            created_at: self.sandboxes.clock.now(),
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
        let report = self.record.report.clone();
        let mut report = report.ok_or_else(|| SandboxError::NotFound(self.record.id.clone()))?;
        let owner = self.sandboxes.access.owner(self.record.team);
        let given = self
            .sandboxes
            .driver
            .set_owner(&self.record.id, owner)
            .await;
        given.map_err(SandboxError::from)?;
        // First: with the little that a member has its daemon would take its time.
        self.raise_limits(&before.resources).await?;
        // Whether it is: it may have been by an earlier server.
        let released = self.sandboxes.driver.hold(&self.record.id, false).await;
        released.map_err(SandboxError::from)?;
        let (rules, told) = tokio::join!(self.change_rules(before), self.tell_guest(&report));
        rules?;
        report.envd_version = told?;
        let door = GuestDoor {
            address: report.address,
            token: Some(self.sandboxes.access.guest_token(&self.record)),
            user: None,
        };
        drop(claiming);
        run_to_end(&self.sandboxes, door, "startupCmd", startup, STARTUP).await?;
        report.origin = Origin::Pooled;
        report.phases = Phases {
            ready: begun.elapsed(),
            ..Phases::default()
        };
        let now = self.sandboxes.clock.now();
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

    async fn raise_limits(&self, before: &Resources) -> Result<(), SandboxError> {
        let limits = self.record.spec.resources;
        if (limits.cpu, limits.memory) == (before.cpu, before.memory) {
            return Ok(());
        }
        let ceiling = self.record.spec.cpu_ceiling.max(limits.cpu);
        let bounds = self.sandboxes.access.bounds(self.record.team);
        let granted = bounds.regrant(before, limits, ceiling)?;
        let resized = self.sandboxes.driver.resize(&self.record.id, granted).await;
        resized.map_err(SandboxError::from)
    }

    async fn change_rules(&self, before: &SandboxSpec) -> Result<(), SandboxError> {
        let egress = &self.record.spec.network.egress;
        if egress.same_rules(&before.network.egress) {
            return Ok(());
        }
        let driver = &self.sandboxes.driver;
        let set = driver.set_egress(&self.record.id, egress.clone()).await;
        set.map_err(SandboxError::from)
    }

    /// Tells the daemon what it was not told when the run began.
    pub(super) async fn tell_guest(&self, report: &StartReport) -> Result<String, GuestError> {
        let end = self.sandboxes.clock.now() + TOLD;
        let told = self.sandboxes.guest.init(report.address, self.init_order());
        let told = within(&*self.sandboxes.clock, end, told).await;
        told.unwrap_or_else(|| Err(GuestError::Unreachable("no answer".to_owned())))
    }
}
