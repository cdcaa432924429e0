//! Ends the builds that a previous server was running.

use shoal_core::build::{BuildFailure, BuildStatus};
use shoal_core::store::StoreError;

use super::Builds;
use super::run::INTERRUPTED;

impl Builds {
    /// Ends the builds that the previous server was running, because their sandboxes are gone. A build
    /// that has committed its output becomes ready, all others fail.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn recover(&self) -> Result<(), StoreError> {
        for record in self.parts.records.records() {
            if record.status != BuildStatus::Building {
                continue;
            }
            let Some(build) = self.parts.records.get(record.id) else {
                continue;
            };
            if record.made.is_some() {
                self.complete(record.team, &build).await?;
                continue;
            }
            let failure = BuildFailure::whole(INTERRUPTED);
            let changing = self.parts.records.changing.lock().await;
            let dropped = self.fail(&build, failure).await?;
            drop(changing);
            self.parts.records.release(dropped).await;
        }
        Ok(())
    }
}
