//! The last log line of a sandbox whose deadline has passed.

use shoal_core::sandbox::Purpose;

use super::Sandbox;

impl Sandbox {
    /// Says in the log why the sandbox ended, for a reader who expected it to run.
    pub(super) async fn log_the_timeout(&self) {
        let record = &self.record;
        if record.spec.purpose != Purpose::Use {
            return;
        }
        let given = record.deadline.since(record.started_at);
        let message = format!(
            "the sandbox ended: its time ({} s) was up; a longer timeout, or a new one while it \
             runs, keeps it",
            given.as_millis().div_ceil(1000)
        );
        let line = serde_json::json!({"level": "info", "logger": "sandbox", "message": message});
        let now = self.sandboxes.parts.clock.now();
        let logs = &self.sandboxes.parts.telemetry.logs;
        logs.append(record.team, &record.id, vec![line.to_string()], now)
            .await;
    }
}
