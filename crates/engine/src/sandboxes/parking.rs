//! Parks idle sandboxes: they are saved with their memory and ended, until they are needed.

use std::sync::Arc;
use std::time::Duration;

use shoal_core::clock::Timestamp;
use shoal_core::detail::Chain;
use shoal_core::driver::{DriverError, RuntimeInfo};
use shoal_core::id::SandboxId;
use shoal_core::parking::{CpuReading, Facts, LONGEST_LOOK, ParkingRules, has_room};
use shoal_core::resources::Usage;
use shoal_core::sandbox::{Purpose, SandboxRecord};
use shoal_core::state::StateKind;
use tokio::sync::OwnedSemaphorePermit;

use shoal_core::ports::sandboxes::SandboxError;

use super::Sandboxes;
use super::activity::SharedActivity;
use super::command::Command;

/// A sandbox, and since when it has been idle.
type Idle = (Timestamp, Arc<SandboxRecord>);

/// How many sandboxes are parked at once: each writes its memory to the disk.
pub(super) const AT_ONCE: usize = 2;

/// Whether a sandbox may be parked in its present state. Builds are not, and pools park their members themselves.
pub(super) fn may_park(record: &SandboxRecord) -> bool {
    let settled = record.aim.is_none() && !record.resizing && record.tokens.next.is_none();
    let is_users = record.spec.purpose == Purpose::Use;
    record.state.kind() == StateKind::Running && is_users && settled
}

/// A pool member that waits in memory, and since when.
fn ready_in_memory(record: &Arc<SandboxRecord>) -> Option<(Timestamp, &SandboxId)> {
    let ready = record.pool_member()?.phase.ready_since()?;
    record.state.is_running().then_some((ready, &record.id))
}

impl Sandboxes {
    /// Looks for idle sandboxes and parks them. Never ends.
    pub(crate) async fn park_for_ever(self: &Arc<Self>) {
        if self.parking.is_none() {
            return std::future::pending().await;
        }
        loop {
            let now = self.parts.clock.now();
            let mut look_every = LONGEST_LOOK;
            if !self.parts.work.is_stopping() {
                look_every = self.park_idle().await;
            }
            self.parts.clock.sleep_until(now + look_every).await;
        }
    }

    /// Begins to park the sandboxes that have been idle for longest. Others wait for the next look. Returns
    /// the time until that.
    async fn park_idle(self: &Arc<Self>) -> Duration {
        let hurried = self.is_short_of_memory().await;
        let (idle, look_every) = self.idle(hurried).await;
        for (since, record) in idle {
            let Ok(permit) = self.parks.clone().try_acquire_owned() else {
                break;
            };
            self.begin_park(since, record, permit);
        }
        look_every
    }

    /// Parks the sandbox that has been idle for longest, although its time has not come. False if there is none.
    pub(super) async fn park_idlest(self: &Arc<Self>) -> bool {
        let (idle, _) = self.idle(true).await;
        for (since, record) in idle {
            let park = |reply| Command::Park(since, reply);
            // Its task logs a failure. It may have been used since it was looked at.
            let _ = self.call(&record.id, park).await;
            let now = self.record(&record.id);
            if now.is_none_or(|now| now.state.kind() == StateKind::Parked) {
                return true;
            }
        }
        false
    }

    /// The sandboxes that may be parked now, those that have been idle for longest first, and the time until the next
    /// look. `hurried` while the machine is short of memory.
    async fn idle(&self, hurried: bool) -> (Vec<Idle>, Duration) {
        let mut idle = Vec::new();
        let mut look_every = LONGEST_LOOK;
        for record in self.registry.records() {
            let rules = self.parking_rules(&record);
            let Some(rules) = rules.filter(|_| may_park(&record)) else {
                continue;
            };
            look_every = look_every.min(rules.look_every());
            let rules = if hurried { rules.hurried() } else { rules };
            if let Some(since) = self.idle_since(&rules, &record).await {
                idle.push((since, record));
            }
        }
        idle.sort_by_key(|(since, _)| *since);
        (idle, look_every)
    }

    /// Parks a ready pool member, after other parks that are under way. False if it stays in memory: its runtime
    /// cannot save memory, the disk has no room, or it has connections to the outside.
    pub(crate) async fn park_member(&self, id: &SandboxId) -> Result<bool, SandboxError> {
        let Some(settings) = self.parking else {
            return Ok(false);
        };
        // The semaphore is never closed.
        let _permit = self.parks.acquire().await;
        let gone = || SandboxError::NotFound(id.clone());
        let record = self.record(id).ok_or_else(gone)?;
        let runtime = self.runtime_of(&record);
        if !runtime.is_some_and(|runtime| runtime.memory_snapshot) {
            return Ok(false);
        }
        let usage = self.parts.drivers.of(&record).usage(id).await?;
        let room = self.room_for(&record).await;
        if !has_room(usage.saved_at_most(), settings.disk_room, room) {
            return Ok(false);
        }
        self.call(id, Command::ParkMember).await
    }

    /// Parks the ready pool member that claims would take last, although its pool keeps it in memory. False if there is none.
    /// Its pool finds out when it looks at its members.
    pub(super) async fn park_last_member(&self) -> bool {
        let records = self.registry.records();
        let mut ready: Vec<_> = records.iter().filter_map(ready_in_memory).collect();
        ready.sort();
        for (_, id) in ready.into_iter().rev() {
            match self.park_member(id).await {
                Ok(true) => return true,
                Ok(false) => {}
                Err(error) => {
                    tracing::debug!(sandbox.id = %id, error = %Chain(&error), "a member of a pool stays in memory");
                }
            }
        }
        false
    }

    fn begin_park(
        self: &Arc<Self>,
        since: Timestamp,
        record: Arc<SandboxRecord>,
        permit: OwnedSemaphorePermit,
    ) {
        let sandboxes = self.clone();
        self.parts.work.spawn(async move {
            let park = |reply| Command::Park(since, reply);
            // Its task logs a failure.
            let _ = sandboxes.call(&record.id, park).await;
            drop(permit);
        });
    }

    /// The rules by which a sandbox is parked; `None` if it is not to be parked.
    pub(super) fn parking_rules(&self, record: &SandboxRecord) -> Option<ParkingRules> {
        self.parking?.rules(&record.spec)
    }

    /// Since when a sandbox has been idle, if it may be parked now.
    async fn idle_since(&self, rules: &ParkingRules, record: &SandboxRecord) -> Option<Timestamp> {
        let activity = self.registry.activity(&record.id)?;
        if activity.with(|activity| activity.open()) > 0 {
            return None;
        }
        let runtime = self.runtime_of(record)?;
        let usage = self.read(rules, record, &activity, runtime).await?;
        let mut facts = Facts {
            now: self.parts.clock.now(),
            since: record.since,
            keeps_memory: runtime.memory_snapshot,
            ends_at: record.ends_at(),
            memory: usage.saved_at_most(),
            room: None,
        };
        let judge = |facts: &Facts| {
            activity
                .with(|activity| rules.judge(activity, facts))
                .is_ok()
        };
        if !judge(&facts) {
            return None;
        }
        // Asked last, because it takes longest.
        facts.room = self.room_for(record).await;
        let since = activity.with(|activity| activity.idle_since(record.since));
        since.filter(|_| judge(&facts))
    }

    /// Reads the use of a sandbox.
    async fn read(
        &self,
        rules: &ParkingRules,
        record: &SandboxRecord,
        activity: &SharedActivity,
        runtime: &RuntimeInfo,
    ) -> Option<Usage> {
        let usage = self.parts.drivers.of(record).usage(&record.id).await.ok()?;
        let reading = CpuReading {
            at: self.parts.clock.now(),
            execution: record.execution,
            nanos: usage.cpu_nanos,
        };
        activity.with(|activity| activity.read(reading, runtime.idle_cpu, rules.look_every()));
        Some(usage)
    }

    /// The runtime that a sandbox runs in.
    fn runtime_of(&self, record: &SandboxRecord) -> Option<&RuntimeInfo> {
        let name = &record.report.as_ref()?.runtime;
        let mut runtimes = self.parts.drivers.capabilities().runtimes.iter();
        runtimes.find(|runtime| runtime.name == *name)
    }

    /// The bytes that are free for the memory of a sandbox: on the disk, and in its team's share. `None`
    /// if neither is known.
    async fn room_for(&self, record: &SandboxRecord) -> Option<u64> {
        let unread = |error: DriverError| {
            tracing::debug!(sandbox.id = %record.id, error = %Chain(&error), "the free disk is not known");
        };
        let driver = self.parts.drivers.of(record);
        let disk = match driver.checkpointer()?.room().await {
            Ok(room) => room,
            Err(error) => {
                unread(error);
                return Some(0);
            }
        };
        let limit = self.parts.access.limits_of(record.team).disk;
        let used = match self.parts.drivers.disk_use(record.team).await {
            Ok(used) => used,
            Err(error) => {
                unread(error);
                return Some(0);
            }
        };
        let share = limit
            .zip(used)
            .map(|(limit, used)| limit.bytes().saturating_sub(used.bytes));
        disk.into_iter().chain(share).min()
    }
}

#[cfg(test)]
mod tests {
    use shoal_core::id::BuildId;

    use super::*;
    use crate::test_util;

    #[test]
    fn only_settled_running_sandboxes_of_users_are_parked() {
        let record = test_util::record("ia");
        assert!(may_park(&record));
        let mut builds = record.clone();
        builds.spec.purpose = Purpose::Build(BuildId::from_entropy([1; 16]));
        let mut grows = record.clone();
        grows.aim = Some(record.spec.resources);
        for kept in [builds, grows] {
            assert!(!may_park(&kept), "{kept:?}");
        }
    }
}
