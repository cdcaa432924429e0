//! Copies of a sandbox for the engine's own use.

use std::sync::Arc;

use shoal_core::auth::SandboxPermit;
use shoal_core::id::SnapshotId;
use shoal_core::sandbox::SandboxRecord;
use shoal_core::snapshot::{Contents, Saved};

use super::Sandboxes;
use super::command::{Command, SnapshotRequest};
use shoal_core::ports::sandboxes::SandboxError;

impl Sandboxes {
    /// Takes the data of a snapshot without a record of it. Returns the record of the sandbox at that
    /// moment.
    pub(crate) async fn take_as(
        &self,
        permit: &SandboxPermit,
        id: SnapshotId,
        contents: Option<Contents>,
    ) -> Result<(Arc<SandboxRecord>, Saved), SandboxError> {
        let request = SnapshotRequest {
            id,
            contents,
            note: None,
            end: false,
        };
        let command = |reply| Command::Snapshot(request, reply);
        let taken = self.call(permit.sandbox(), command).await?;
        Ok((taken.record, taken.saved))
    }
}
