//! Works on the checkpoints of the node. One pass at a time works on a checkpoint.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;
use shoal_checkpoint::{Key, Records, Store};
use shoal_crds::kruise::Checkpoint;
use tokio::sync::{Notify, Semaphore};

use crate::cluster::Cluster;
use crate::failure::{Failure, SaveError};
use crate::objects::Objects;
use crate::peers::Peers;
use crate::plan::{self, Elsewhere, Next};
use crate::room::{Bounds, Rooms};
use crate::runsc::Runsc;
use crate::transfers::Transfers;

/// When a failed pass is repeated. It holds no place while it waits.
const AGAIN: Duration = Duration::from_secs(5);

/// The agent of a node.
pub(crate) struct Agent {
    pub(crate) node: String,
    pub(crate) cluster: Cluster,
    pub(crate) store: Store,
    pub(crate) records: Records,
    pub(crate) runsc: Runsc,
    pub(crate) bounds: Bounds,
    pub(crate) rooms: Rooms,
    /// How many pods are saved at once.
    pub(crate) places: Semaphore,
    /// The other place of checkpoints, beside this node, if there is one.
    pub(crate) objects: Option<Objects>,
    /// The needs of transfers between nodes, if there are any.
    pub(crate) peers: Option<Peers>,
    /// How many checkpoints are copied at once.
    pub(crate) transfers: Semaphore,
    pub(crate) uploads: Transfers,
    pub(crate) downloads: Transfers,
    /// A checkpoint of another node is here.
    pub(crate) fetched: Notify,
}

impl Agent {
    /// Brings a checkpoint to its next phase.
    pub(crate) async fn reconcile(
        checkpoint: Arc<Checkpoint>,
        agent: Arc<Self>,
    ) -> Result<Action, Failure> {
        let elsewhere = Elsewhere {
            stored: agent.objects.is_some(),
            served: agent.peers.is_some(),
        };
        match plan::next(&checkpoint, elsewhere) {
            Next::Nothing => {}
            Next::Tell => {
                agent
                    .cluster
                    .mark_served(&checkpoint, elsewhere.served)
                    .await?
            }
            Next::Share => agent.share(&checkpoint),
            Next::Begin => {
                let taken = agent.cluster.take(&checkpoint).await?;
                agent.complete(&taken).await?;
            }
            Next::Complete => agent.complete(&checkpoint).await?,
            Next::Remove => agent.remove(&checkpoint).await?,
        }
        Ok(Action::await_change())
    }

    pub(crate) fn failed(
        checkpoint: Arc<Checkpoint>,
        failure: &Failure,
        _agent: Arc<Self>,
    ) -> Action {
        // The next event shows the change.
        let conflict =
            matches!(failure, Failure::Api(kube::Error::Api(status)) if status.code == 409);
        if !conflict {
            tracing::warn!(checkpoint = %checkpoint.name_any(), error = %failure, "trying again");
        }
        Action::requeue(AGAIN)
    }

    async fn complete(&self, checkpoint: &Checkpoint) -> Result<(), Failure> {
        let name = checkpoint.name_any();
        match self.save(checkpoint).await {
            Ok((id, checkpoint)) => {
                tracing::info!(checkpoint = %name, %id, "saved");
                let namespace = checkpoint.namespace().unwrap_or_default();
                let manifest = self.store.manifest(&namespace, &id)?;
                self.cluster.succeed(&checkpoint, &id, &manifest).await?;
            }
            Err(SaveError::Unsaved(why)) => {
                tracing::warn!(checkpoint = %name, error = %why, "not saved");
                self.cluster.fail(checkpoint, &why.to_string()).await?;
            }
            Err(SaveError::Failed(failure)) => return Err(failure),
        }
        Ok(())
    }

    async fn remove(&self, checkpoint: &Checkpoint) -> Result<(), Failure> {
        let namespace = checkpoint.namespace().unwrap_or_default();
        // A pod that was stopped for a failed save resumes.
        self.let_go(checkpoint).await?;
        if let Some(Ok(key)) = checkpoint.uid().map(|uid| Key::of_uid(&uid)) {
            self.unshare(&namespace, &key).await;
            let store = self.store.clone();
            tokio::task::spawn_blocking(move || store.remove(&namespace, &key)).await??;
            tracing::info!(checkpoint = %checkpoint.name_any(), "deleted");
        }
        Ok(self.cluster.release(checkpoint).await?)
    }
}
