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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::fs;
    use std::path::Path;

    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use object_store::memory::InMemory;
    use object_store::path::Path as Location;
    use serde_json::json;
    use shoal_checkpoint::{Contents, Manifest, Records, Store};
    use tokio::sync::{Notify, Semaphore};
    use tower::service_fn;

    use super::*;
    use crate::cluster::Cluster;
    use crate::objects::Objects;
    use crate::room::{Bounds, Rooms};
    use crate::runsc::Runsc;
    use crate::transfers::Transfers;

    /// UIDs of `Checkpoint`s: one that exists, and two that are gone.
    const KNOWN: &str = "11111111-1111-4111-8111-111111111111";
    const GONE: [&str; 2] = [
        "22222222-2222-4222-8222-222222222222",
        "33333333-3333-4333-8333-333333333333",
    ];

    fn key(uid: &str) -> Key {
        Key::of_uid(uid).unwrap()
    }

    /// An API server that knows one `Checkpoint`, or fails.
    fn cluster(status: StatusCode) -> Cluster {
        let answer = move |_: Request<Body>| {
            let known = json!([{"metadata": {"name": "c", "uid": KNOWN}}]);
            let list = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": known,
            });
            let mut response = Response::new(Body::from(list.to_string().into_bytes()));
            *response.status_mut() = status;
            async move { Ok::<_, Infallible>(response) }
        };
        Cluster::new(kube::Client::new(service_fn(answer), "default"), "node")
    }

    /// An agent whose store and bucket have a known checkpoint, and one that nothing knows; the bucket has another of these, of a
    /// node that is gone.
    async fn agent(directory: &Path, status: StatusCode) -> Arc<Agent> {
        let store = Store::at(directory.join("store"));
        store.prepare().unwrap();
        let objects = Objects::below(InMemory::new(), &Location::from("cluster"));
        for uid in [KNOWN, GONE[0], GONE[1]] {
            let staged = store.stage(&key(uid)).unwrap();
            fs::write(staged.path().join("pages.img"), b"memory").unwrap();
            let [namespace, pod, uid] = ["ns", "pod", uid].map(str::to_owned);
            let manifest = Manifest::new(namespace, pod, uid, Contents::Memory);
            let id = staged.publish(manifest).unwrap();
            objects.put(&store, "ns", &id).await.unwrap();
        }
        store.remove("ns", &key(GONE[1])).unwrap();
        Arc::new(Agent {
            node: "node".to_owned(),
            cluster: cluster(status),
            store,
            records: Records::at(directory),
            runsc: Runsc::new(directory, directory),
            bounds: Bounds {
                all: 0,
                namespace: 0,
            },
            rooms: Rooms::default(),
            places: Semaphore::new(1),
            objects: Some(objects),
            peers: None,
            transfers: Semaphore::new(1),
            uploads: Transfers::default(),
            downloads: Transfers::default(),
            fetched: Notify::new(),
        })
    }

    async fn stored(agent: &Agent) -> [Vec<Key>; 2] {
        let here = agent.store.list().unwrap().into_iter();
        let objects = agent.objects.as_ref().unwrap();
        let there = objects.list().await.unwrap().into_iter();
        let mut all = [
            here.map(|(_, key, _)| key).collect(),
            there.map(|(_, key)| key).collect(),
        ];
        all.iter_mut().for_each(|keys: &mut Vec<Key>| keys.sort());
        all
    }

    #[tokio::test]
    async fn what_no_checkpoint_stands_for_is_deleted_here_and_in_the_bucket() {
        let directory = tempfile::tempdir().unwrap();
        let agent = agent(directory.path(), StatusCode::OK).await;
        let [known, first, second] = [KNOWN, GONE[0], GONE[1]].map(key);
        let before = [
            vec![known.clone(), first.clone()],
            vec![known.clone(), first.clone(), second.clone()],
        ];
        assert_eq!(stored(&agent).await, before);
        pass(&agent, false).await.unwrap();
        assert_eq!(
            stored(&agent).await,
            [vec![known.clone()], vec![known.clone(), first, second]]
        );
        pass(&agent, true).await.unwrap();
        assert_eq!(stored(&agent).await, [vec![known.clone()], vec![known]]);
    }

    #[tokio::test]
    async fn nothing_is_deleted_while_nobody_says_what_exists() {
        let directory = tempfile::tempdir().unwrap();
        let agent = agent(directory.path(), StatusCode::INTERNAL_SERVER_ERROR).await;
        let before = stored(&agent).await;
        assert!(pass(&agent, true).await.is_err());
        assert_eq!(stored(&agent).await, before);
    }
}
