//! Copies checkpoints out of the node, so that pods on others can start from them, and when this one is gone.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use shoal_checkpoint::{CheckpointId, Key};
use shoal_crds::kruise::Checkpoint;

use crate::agent::Agent;
use crate::objects::{Objects, ObjectsError};

/// When a failed transfer is tried again: first, and at most.
const AGAIN: Duration = Duration::from_secs(5);
const AGAIN_AT_MOST: Duration = Duration::from_secs(60);

/// The times of the next attempts: each doubles, up to a minute.
pub(crate) struct Attempts(Duration);

impl Attempts {
    pub(crate) fn new() -> Self {
        Self(AGAIN)
    }

    /// Waits until the next attempt.
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(AGAIN_AT_MOST);
    }
}

impl Agent {
    /// Begins to copy a complete checkpoint, if that is still to be done.
    pub(crate) fn share(self: &Arc<Self>, checkpoint: &Arc<Checkpoint>) {
        let key = checkpoint.uid().and_then(|uid| Key::of_uid(&uid).ok());
        let (Some(objects), Some(key)) = (self.objects.clone(), key) else {
            return;
        };
        let (agent, checkpoint) = (Arc::clone(self), Arc::clone(checkpoint));
        self.uploads.start(&key, async move {
            let mut attempts = Attempts::new();
            while let Err(error) = agent.upload(&objects, &checkpoint).await {
                let checkpoint = checkpoint.name_any();
                tracing::warn!(%checkpoint, %error, "the object store has no copy yet");
                attempts.wait().await;
            }
        });
    }

    async fn upload(&self, objects: &Objects, checkpoint: &Checkpoint) -> Result<(), ShareError> {
        let _place = self.transfers.acquire().await;
        let namespace = checkpoint.namespace().unwrap_or_default();
        let status = checkpoint.status.as_ref();
        let id = status.map_or("", |status| &status.checkpoint_id);
        // Other executors have other ids.
        let Ok(id) = id.parse::<CheckpointId>() else {
            return Ok(());
        };
        objects.put(&self.store, &namespace, &id).await?;
        match self.cluster.mark_stored(checkpoint).await {
            // It is gone, or another has its name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => {
                objects.delete(&namespace, id.key()).await?;
                return Ok(());
            }
            marked => marked?,
        }
        tracing::info!(checkpoint = %checkpoint.name_any(), %id, "the object store has a copy");
        Ok(())
    }

    /// Deletes the copy of a checkpoint. One that stays is found by the search for leftovers.
    pub(crate) async fn unshare(&self, namespace: &str, key: &Key) {
        self.uploads.stop(key).await;
        let Some(objects) = &self.objects else { return };
        if let Err(error) = objects.delete(namespace, key).await {
            tracing::warn!(%namespace, %key, %error, "the copy in the object store is deleted later");
        }
    }
}

/// Why a checkpoint has no copy.
#[derive(Debug, thiserror::Error)]
enum ShareError {
    #[error(transparent)]
    Transfer(#[from] ObjectsError),
    #[error("{0}")]
    Api(#[from] kube::Error),
}
