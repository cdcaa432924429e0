//! Snapshots of a sandbox, which then resumes or ends.

use std::collections::BTreeMap;

use shoal_core::detail::Chain;
use shoal_core::driver::{AfterSnapshot, Checkpointer};
use shoal_core::snapshot::{Contents, Saved, SnapshotRecord};
use shoal_core::state::{Input, KillReason};

use super::Sandbox;
use super::rest::count;
use crate::sandboxes::command::{SnapshotRequest, Taken};
use crate::telemetry::EventKind;
use shoal_core::ports::sandboxes::SandboxError;

impl Sandbox {
    /// Takes a snapshot of the sandbox, which then resumes, or ends if the request says so.
    pub(super) async fn snapshot(
        &mut self,
        request: SnapshotRequest,
    ) -> Result<Taken, SandboxError> {
        self.must_be_awake().await?;
        self.record.state.on(&Input::Snapshot)?;
        let driver = self.driver();
        let checkpointer = driver.checkpoints()?;
        let contents = request.contents.unwrap_or(self.record.spec.persistent);
        self.freeze_guest(contents, false).await?;
        if let Err(error) = self.advance(&Input::Snapshot).await {
            self.unfreeze_guest().await;
            return Err(error);
        }
        if request.end {
            return self.snapshot_and_end(checkpointer, request, contents).await;
        }
        let id = &self.record.id;
        let saved = checkpointer.snapshot(id, request.id, contents, AfterSnapshot::Resume);
        let saved = saved.await;
        self.unfreeze_guest().await;
        self.happened(&Input::SnapshotEnded).await?;
        self.note(request, saved?).await
    }

    /// Keeps the sandbox frozen until the snapshot is recorded, and then ends it. A failure thaws it.
    async fn snapshot_and_end(
        &mut self,
        checkpointer: &dyn Checkpointer,
        request: SnapshotRequest,
        contents: Contents,
    ) -> Result<Taken, SandboxError> {
        let id = self.record.id.clone();
        let saved = checkpointer.snapshot(&id, request.id, contents, AfterSnapshot::KeepFrozen);
        let noted = match saved.await {
            Ok(saved) => {
                let noted = self.note(request, saved).await;
                if noted.is_err()
                    && let Err(error) = checkpointer.thaw_source(&id).await
                {
                    tracing::error!(sandbox.id = %id, error = %Chain(&error), "a sandbox stays frozen");
                }
                noted
            }
            Err(error) => Err(error.into()),
        };
        if noted.is_ok() {
            // The snapshot exists. A failed removal of the sandbox is retried.
            self.end(KillReason::Requested).await;
        } else {
            self.unfreeze_guest().await;
            self.happened(&Input::SnapshotEnded).await?;
        }
        noted
    }

    /// Records a complete snapshot, so that users find it. If that fails, the snapshot is removed.
    async fn note(&self, request: SnapshotRequest, saved: Saved) -> Result<Taken, SandboxError> {
        let (sandboxes, record) = (&self.sandboxes, self.record.clone());
        sandboxes.parts.drivers.note_snapshot(request.id, &record);
        count(&saved, "snapshot");
        let noted = request.note.map(|note| SnapshotRecord {
            id: request.id,
            template: note.template,
            tag: note.tag,
            more_tags: BTreeMap::new(),
            name: note.name,
            team: record.team,
            source: record.id.clone(),
            guest_token: Some(sandboxes.parts.access.guest_token(&record)),
            spec: record.spec.clone(),
            saved: saved.clone(),
            created_at: sandboxes.parts.clock.now(),
            expires_at: note.ttl.map(|ttl| sandboxes.parts.clock.now() + ttl),
            backend_id: None,
        });
        if let Some(noted) = noted.clone()
            && let Err(error) = sandboxes.parts.snapshots.keep(noted).await
        {
            // If the removal fails, the next start removes it: no record names it.
            let _ = sandboxes.parts.drivers.remove_snapshot(request.id).await;
            return Err(error.into());
        }
        let detail = BTreeMap::from([("contents", saved.contents.to_string())]);
        self.emit(EventKind::Snapshotted, detail);
        Ok(Taken {
            record,
            saved,
            noted,
        })
    }
}
