//! Deletes orphaned checkpoints: their `Checkpoint` was deleted while the node was away.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use shoal_checkpoint::Key;

use crate::agent::Agent;
use crate::failure::Failure;

/// How often the agent looks.
const PERIOD: Duration = Duration::from_secs(600);

/// Looks again and again.
pub(crate) async fn collect(agent: Arc<Agent>) {
    loop {
        if let Err(error) = pass(&agent).await {
            tracing::warn!(%error, "leftover checkpoints were not looked for");
        }
        tokio::time::sleep(PERIOD).await;
    }
}

async fn pass(agent: &Arc<Agent>) -> Result<(), Failure> {
    // Read before the list is complete: every complete checkpoint in the store had its `Checkpoint` then.
    let kept = agent.store.list()?;
    let known: BTreeSet<Key> = agent
        .cluster
        .uids()
        .await?
        .iter()
        .filter_map(|uid| Key::of_uid(uid).ok())
        .collect();
    for (namespace, key, bytes) in kept {
        if known.contains(&key) {
            continue;
        }
        tracing::info!(%namespace, %key, bytes, "nothing knows this checkpoint any more: deleted");
        let store = agent.store.clone();
        tokio::task::spawn_blocking(move || store.remove(&namespace, &key)).await??;
    }
    Ok(())
}
