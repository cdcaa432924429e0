//! Starts and stops the agent.

use std::sync::Arc;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::controller::Controller;
use kube::runtime::watcher;
use kube::{Api, Client, Config};
use rustls::ServerConfig;
use shoal_checkpoint::{Records, Store};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, Semaphore};
use url::Url;

use crate::agent::Agent;
use crate::args::NodeArgs;
use crate::cluster::Cluster;
use crate::objects::Objects;
use crate::peers::{self, Agents, Identity, Offer, Peers};
use crate::room::{Bounds, Rooms};
use crate::runsc::Runsc;
use crate::transfers::Transfers;
use crate::{fetch, garbage};

/// Why the agent ended.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NodeError(String);

impl NodeError {
    fn new(what: &str, error: impl std::fmt::Display) -> Self {
        Self(format!("{what}: {error}"))
    }
}

/// Runs the agent until a signal. Saves that are under way end first.
///
/// # Errors
/// When the cluster cannot be reached at the start, the store cannot be used, or the watch ends.
pub async fn run(args: NodeArgs) -> Result<(), NodeError> {
    let config = Config::infer()
        .await
        .map_err(|error| NodeError::new("no cluster is configured", error))?;
    let client = Client::try_from(config)
        .map_err(|error| NodeError::new("cannot use the cluster's configuration", error))?;
    let store = Store::at(&args.store);
    store
        .prepare()
        .map_err(|error| NodeError::new("cannot use the store", error))?;
    let all = args.store_size.0;
    let cluster = Cluster::new(client, &args.node_name);
    let objects = match &args.objects {
        Some(url) => Some(open(&cluster, url).await?),
        None => None,
    };
    let (peers, exchange) = match args.peer_port {
        Some(port) => {
            let pod = args.pod_name.as_deref().zip(args.pod_namespace.as_deref());
            let pod = pod.ok_or_else(|| NodeError::new("--peer-port", "needs the agent's pod"))?;
            let (peers, exchange) = open_peers(&cluster, port, pod).await?;
            (Some(peers), Some(exchange))
        }
        None => (None, None),
    };
    let agent = Arc::new(Agent {
        cluster,
        node: args.node_name,
        store,
        records: Records::at(&args.state),
        runsc: Runsc::new(&args.runsc, &args.state),
        bounds: Bounds {
            all,
            namespace: all / 100 * u64::from(args.namespace_share),
        },
        rooms: Rooms::default(),
        places: Semaphore::new(args.parallel.into()),
        objects,
        peers,
        transfers: Semaphore::new(args.parallel.into()),
        uploads: Transfers::default(),
        downloads: Transfers::default(),
        fetched: Notify::new(),
    });
    let stop = stop().map_err(|error| NodeError::new("cannot listen for signals", error))?;
    let watched = watcher::Config::default().labels(agent.cluster.selector());
    tracing::info!(node = %agent.node, "watching checkpoints of pods of this node");
    let passes = Controller::new(agent.cluster.all(), watched)
        .graceful_shutdown_on(stop)
        .run(Agent::reconcile, Agent::failed, agent.clone())
        .for_each(|_| std::future::ready(()));
    let ended = |task: &str| Err(NodeError(format!("{task} ended")));
    tokio::select! {
        () = passes => Ok(()),
        () = garbage::collect(Arc::clone(&agent)) => ended("the search for leftovers"),
        () = fetches(Arc::clone(&agent)) => ended("the watch of pods"),
        () = exchanges(agent, exchange) => ended("the exchange with other nodes"),
    }
}

/// Fetches checkpoints for pods of this node, if there is an object store, or other agents give theirs.
async fn fetches(agent: Arc<Agent>) {
    if agent.objects.is_some() || agent.peers.is_some() {
        fetch::watch(agent).await;
    } else {
        std::future::pending().await
    }
}

/// The needs of the exchange of checkpoints with other nodes, beside [`Peers`].
struct Exchange {
    listener: TcpListener,
    settings: ServerConfig,
    agents: Arc<Agents>,
    /// The pods of the agents, and their service account.
    pods: Api<Pod>,
    account: String,
}

/// Opens the port, and shows the certificate in the agent's own pod, given by name and namespace.
async fn open_peers(
    cluster: &Cluster,
    port: u16,
    (pod, namespace): (&str, &str),
) -> Result<(Peers, Exchange), NodeError> {
    let failed = |error| NodeError::new("cannot make a certificate", error);
    let identity = Identity::new().map_err(failed)?;
    let settings = identity.server();
    let settings = settings.map_err(|error| NodeError::new("cannot use TLS", error))?;
    let listener = peers::bind(port).await;
    let listener = listener
        .map_err(|error| NodeError::new(&format!("cannot listen on port {port}"), error))?;
    let own = cluster.show(namespace, pod, &identity.shown()).await;
    let own = own.map_err(|error| {
        NodeError::new("cannot show the certificate in the agent's own pod", error)
    })?;
    let account = own.spec.and_then(|spec| spec.service_account_name);
    let agents = Arc::new(Agents::default());
    let exchange = Exchange {
        listener,
        settings,
        agents: Arc::clone(&agents),
        pods: cluster.agents(namespace),
        account: account.unwrap_or_default(),
    };
    let peers = Peers {
        identity,
        agents,
        port,
    };
    Ok((peers, exchange))
}

/// Gives checkpoints to other nodes, if that is wanted.
async fn exchanges(agent: Arc<Agent>, exchange: Option<Exchange>) {
    let Some(exchange) = exchange else {
        return std::future::pending().await;
    };
    let offer = Offer {
        store: agent.store.clone(),
        cluster: agent.cluster.clone(),
        agents: Arc::clone(&exchange.agents),
    };
    tokio::select! {
        () = exchange.agents.watch(exchange.pods, &exchange.account) => {}
        () = peers::serve(Arc::new(offer), exchange.listener, exchange.settings) => {}
    }
}

async fn open(cluster: &Cluster, url: &Url) -> Result<Objects, NodeError> {
    let uid = cluster.uid().await;
    let uid =
        uid.map_err(|error| NodeError::new("cannot read the namespace kube-system", error))?;
    let opened = Objects::open(url, &uid, std::env::vars());
    opened.map_err(|error| NodeError::new("cannot use the object store", error))
}

/// Ends at the first SIGTERM or SIGINT.
fn stop() -> std::io::Result<impl Future<Output = ()> + Send + 'static> {
    let (mut term, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
