//! Two agents on loopback, with an API server that knows the pods of one node.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use http::{Request, Response};
use kube::client::Body;
use serde_json::json;
use shoal_checkpoint::{CheckpointId, Contents, Manifest, Store, StoreError};
use tempfile::TempDir;
use tower::service_fn;

use super::agents::Other;
use super::*;
use crate::cluster::Cluster;

/// The size of the memory in bytes: more than a piece.
const MEMORY: usize = 600_000;

/// The agent of the node `a`, which has a checkpoint in the namespace `ns`.
struct Giver {
    _directory: TempDir,
    store: Store,
    id: CheckpointId,
    /// How another agent sees it.
    other: Other,
    port: u16,
    agents: Arc<Agents>,
}

impl Giver {
    /// It serves. A pod of the node `b` starts from its checkpoint, and none of `c`.
    async fn serving() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::at(directory.path());
        store.prepare().unwrap();
        let id = published(&store);
        let identity = Identity::new().unwrap();
        let other = Other {
            node: "a".to_owned(),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            certificate: identity.certificate(),
        };
        let agents = Arc::new(Agents::default());
        let offer = Offer {
            store: store.clone(),
            cluster: cluster(id.to_string()),
            agents: Arc::clone(&agents),
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(serve(Arc::new(offer), listener, identity.server().unwrap()));
        Self {
            _directory: directory,
            store,
            id,
            other,
            port,
            agents,
        }
    }

    /// The agent of another node, which knows this one. This one knows it too, if it `is_known`.
    fn asked_by(&self, node: &str, is_known: bool) -> Peers {
        let identity = Identity::new().unwrap();
        if is_known {
            self.agents.add(Other {
                node: node.to_owned(),
                certificate: identity.certificate(),
                ..self.other.clone()
            });
        }
        let agents = Arc::new(Agents::default());
        agents.add(self.other.clone());
        Peers {
            identity,
            agents,
            port: self.port,
        }
    }
}

fn published(store: &Store) -> CheckpointId {
    let staged = store.stage(&"1".repeat(32).parse().unwrap()).unwrap();
    fs::write(staged.path().join("pages.img"), vec![7; MEMORY]).unwrap();
    fs::create_dir(staged.path().join("main")).unwrap();
    fs::write(staged.path().join("main/files.img"), b"files").unwrap();
    let [namespace, pod, uid] = ["ns", "pod", "uid"].map(str::to_owned);
    staged
        .publish(Manifest::new(namespace, pod, uid, Contents::Memory))
        .unwrap()
}

/// An API server where a pod of the node `b` starts from a checkpoint.
fn cluster(id: String) -> Cluster {
    let answer = move |request: Request<Body>| {
        let of_b = request
            .uri()
            .query()
            .unwrap_or_default()
            .contains("nodeName%3Db");
        let pod =
            json!({"metadata": {"name": "p", "annotations": {shoal_checkpoint::RESTORE_FROM: id}}});
        let pods = if of_b { vec![pod] } else { Vec::new() };
        let list = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": pods,
        });
        async move {
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(
                list.to_string().into_bytes(),
            )))
        }
    };
    let client = kube::Client::new(service_fn(answer), "default");
    Cluster::new(client, "a")
}

async fn refusal(peers: &Peers, namespace: &str, id: &CheckpointId) -> String {
    let asked = async {
        let mut peer = Peer::connect(peers, "a").await?;
        peer.manifest(namespace, id).await
    };
    let refused: PeerError = asked.await.unwrap_err();
    refused.to_string()
}

#[tokio::test]
async fn a_checkpoint_is_the_same_on_the_other_node() {
    let giver = Giver::serving().await;
    let peers = giver.asked_by("b", true);
    let (directory, id) = (tempfile::tempdir().unwrap(), &giver.id);
    let store = Store::at(directory.path());
    store.prepare().unwrap();
    let mut peer = Peer::connect(&peers, "a").await.unwrap();
    let (bytes, manifest) = peer.manifest("ns", id).await.unwrap();
    let staged = store.stage(id.key()).unwrap();
    peer.get("ns", id, &manifest, staged.path()).await.unwrap();
    staged.publish_copy("ns", id, &bytes).unwrap();
    let [here, there] = [&giver.store, &store].map(|store| store.manifest("ns", id).unwrap());
    assert_eq!(here.files, there.files);
}

#[tokio::test]
async fn only_the_agent_of_a_node_with_a_pod_of_the_checkpoint_gets_it() {
    let giver = Giver::serving().await;
    let unrelated = giver.asked_by("c", true);
    let told = refusal(&unrelated, "ns", &giver.id).await;
    assert!(
        told.contains("no pod of node c starts from this checkpoint"),
        "{told}"
    );
    // The name of a node alone does not make a caller its agent.
    let stranger = giver.asked_by("b", false);
    let told = refusal(&stranger, "ns", &giver.id).await;
    assert!(
        told.starts_with("node a: ") && !told.contains("checkpoint"),
        "{told}"
    );
    let related = giver.asked_by("b", true);
    let told = refusal(&related, "other", &giver.id).await;
    assert!(told.contains("does not have the checkpoint"), "{told}");
    let told = refusal(&related, "../ns", &giver.id).await;
    assert!(told.contains("404"), "{told}");
}

#[tokio::test]
async fn an_agent_asks_nobody_but_the_other_agent() {
    let giver = Giver::serving().await;
    let peers = giver.asked_by("b", true);
    // Another agent has its address.
    let certificate = Identity::new().unwrap().certificate();
    peers.agents.add(Other {
        certificate,
        ..giver.other.clone()
    });
    let told = refusal(&peers, "ns", &giver.id).await;
    assert!(told.contains("certificate"), "{told}");
}

#[tokio::test]
async fn a_changed_manifest_is_not_given() {
    let giver = Giver::serving().await;
    let peers = giver.asked_by("b", true);
    let place = giver.store.place("ns", giver.id.key()).unwrap();
    fs::write(place.join("manifest.json"), b"{}").unwrap();
    assert!(matches!(
        giver.store.manifest("ns", &giver.id),
        Err(StoreError::Changed(_))
    ));
    let told = refusal(&peers, "ns", &giver.id).await;
    assert!(told.contains("changed after it was saved"), "{told}");
}
