//! Deletes orphaned checkpoints: their `Checkpoint` was deleted while the node was away.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use shoal_checkpoint::Key;
use tokio::time::Instant;

use crate::agent::Agent;
use crate::failure::Failure;

/// How often the agent looks at its node.
const PERIOD: Duration = Duration::from_secs(600);

/// How often it looks while the node has copies of other nodes' checkpoints: their deletion is told to those alone.
const WITH_COPIES: Duration = Duration::from_secs(30);

/// How often it looks at the object store, as the agents of all nodes do.
const OBJECTS: Duration = Duration::from_secs(3600);

/// Looks again and again.
pub(crate) async fn collect(agent: Arc<Agent>) {
    let mut looked: Option<Instant> = None;
    loop {
        let objects = looked.is_none_or(|looked| looked.elapsed() >= OBJECTS);
        match pass(&agent, objects).await {
            Ok(()) if objects => looked = Some(Instant::now()),
            Ok(()) => {}
            Err(error) => tracing::warn!(%error, "leftover checkpoints were not looked for"),
        }
        let copies = matches!(agent.store.oldest_copy(None), Ok(Some(_)));
        let period = if copies { WITH_COPIES } else { PERIOD };
        // A fetch ends the wait.
        let _ = tokio::time::timeout(period, agent.fetched.notified()).await;
    }
}

async fn pass(agent: &Arc<Agent>, objects: bool) -> Result<(), Failure> {
    // Read before the list is complete: every complete checkpoint in the stores had its `Checkpoint` then.
    let kept = agent.store.list()?;
    let copies = match agent.objects.as_ref().filter(|_| objects) {
        Some(objects) => objects.list().await,
        None => Ok(BTreeSet::new()),
    };
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
    // Those of nodes that are gone, too.
    for (namespace, key) in copies? {
        if !known.contains(&key) {
            tracing::info!(%namespace, %key, "nothing knows this copy in the object store any more: deleted");
            agent.unshare(&namespace, &key).await;
        }
    }
    Ok(())
}
