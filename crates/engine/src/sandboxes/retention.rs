//! Records and logs of ended sandboxes, kept for a while.

use std::time::Duration;

use shoal_core::auth::Principal;
use shoal_core::clock::Timestamp;
use shoal_core::detail::Chain;
use shoal_core::id::SandboxId;
use shoal_core::store::StoreError;

use super::Sandboxes;
use crate::telemetry::{LogEntry, LogQuery};
use shoal_core::ports::sandboxes::SandboxError;

/// How often expired records are looked for.
const FORGET_EVERY: Duration = Duration::from_secs(600);

impl Sandboxes {
    /// The log of a sandbox, also of an ended one whose record is still kept.
    pub(crate) async fn logs(
        &self,
        principal: &Principal,
        id: &SandboxId,
        query: LogQuery,
    ) -> Result<Vec<LogEntry>, SandboxError> {
        let known = match self.registry.record(id) {
            Some(record) => Some(record.team),
            None => self
                .parts
                .store
                .sandbox(id)
                .await?
                .map(|found| found.value.team),
        };
        if known != Some(principal.team) {
            return Err(SandboxError::NotFound(id.clone()));
        }
        let read = self
            .parts
            .telemetry
            .logs
            .read(principal.team, id, query)
            .await;
        Ok(read.map_err(StoreError::failed)?)
    }

    /// Deletes the records and the logs of sandboxes that ended long enough ago. Never ends.
    pub(crate) async fn forget_for_ever(&self) {
        loop {
            let now = self.parts.clock.now();
            let kept = i64::try_from(self.keep_ended.as_millis()).unwrap_or(i64::MAX);
            let before = Timestamp::from_unix_millis(now.unix_millis().saturating_sub(kept));
            match self.parts.store.forget_terminated(before).await {
                Ok(gone) => {
                    if let Err(error) = self.parts.telemetry.logs.forget(gone).await {
                        tracing::warn!(error = %Chain(&error), "logs of ended sandboxes are not removed");
                    }
                }
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "ended sandboxes are not forgotten");
                }
            }
            self.parts.clock.sleep_until(now + FORGET_EVERY).await;
        }
    }
}
