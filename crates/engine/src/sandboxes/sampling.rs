//! Samples the use of sandboxes at intervals.

use std::collections::HashMap;
use std::time::Duration;

use shoal_core::detail::Chain;
use shoal_core::driver::DriverError;
use shoal_core::id::SandboxId;
use shoal_core::sandbox::SandboxRecord;

use super::Sandboxes;

/// How long after its first reading a new sandbox is read again.
const SOON: Duration = Duration::from_secs(1);

impl Sandboxes {
    /// Samples all sandboxes at intervals. Never ends.
    pub(crate) async fn sample_for_ever(&self) {
        loop {
            let next = self.parts.clock.now() + self.sample_every;
            self.sample_teams();
            self.sample_all(|_| true).await;
            // A client that has just created a sandbox does not wait twice as long for its samples.
            let soon = self.parts.clock.now() + SOON;
            if soon < next {
                self.parts.clock.sleep_until(soon).await;
                let samples = &self.parts.telemetry.samples;
                self.sample_all(|id| samples.is_new(id)).await;
            }
            self.parts.clock.sleep_until(next).await;
        }
    }

    /// Records how many sandboxes each team runs now.
    fn sample_teams(&self) {
        let mut running = HashMap::new();
        for record in self.registry.records() {
            if record.state.shows_running() && record.is_user_visible() {
                *running.entry(record.team).or_default() += 1;
            }
        }
        let now = self.parts.clock.now();
        self.parts.telemetry.teams.note_running(running, now);
    }

    async fn sample_all(&self, wanted: impl Fn(&SandboxId) -> bool) {
        for record in self.registry.records() {
            // No client sees the samples of a pool member.
            if record.pool_member().is_some() || !wanted(&record.id) {
                continue;
            }
            if record.state.is_running() {
                self.sample(&record).await;
            } else if record.state.is_parked() {
                let now = self.parts.clock.now();
                self.parts.telemetry.samples.rest(now, &record);
            }
        }
    }

    async fn sample(&self, record: &SandboxRecord) {
        let usage = match self.parts.drivers.of(record).usage(&record.id).await {
            Ok(usage) => usage,
            // It ended meanwhile.
            Err(DriverError::NotFound(_)) => return,
            Err(error) => {
                tracing::debug!(sandbox.id = %record.id, error = %Chain(&error), "use cannot be read");
                return;
            }
        };
        let now = self.parts.clock.now();
        // A sandbox that ended meanwhile must not come back.
        if self.registry.mailbox(&record.id).is_some() {
            self.parts.telemetry.samples.add(now, &usage, record);
        }
    }
}
