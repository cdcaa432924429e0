//! Starts and stops the agent.

use std::sync::Arc;

use futures_util::StreamExt;
use kube::runtime::controller::Controller;
use kube::runtime::watcher;
use kube::{Client, Config};
use shoal_checkpoint::{Records, Store};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, Semaphore};
use url::Url;

use crate::agent::Agent;
use crate::args::NodeArgs;
use crate::cluster::Cluster;
use crate::objects::Objects;
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
        () = fetches(agent) => ended("the watch of pods"),
    }
}

/// Fetches checkpoints for pods of this node, if there is an object store.
async fn fetches(agent: Arc<Agent>) {
    match agent.objects {
        Some(_) => fetch::watch(agent).await,
        None => std::future::pending().await,
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
