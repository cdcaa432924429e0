//! Starts and stops the operator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::runtime::watcher;
use kube::{Api, Client, Config};
use parking_lot::Mutex;
use shoal_crds::names::annotation::ALPHA_SANDBOX;
use shoal_crds::names::label;
use shoal_crds::v1beta1::Sandbox;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::args::OperatorArgs;
use crate::cache::{Cache, Change, Kind, watch_kind};
use crate::cluster::Cluster;
use crate::endpoints::Endpoints;
use crate::lease::{Candidate, LostLease};
use crate::owner;
use crate::queue::{self, Queue};
use crate::sandbox::SandboxController;
use crate::slim::{PersistentVolumeClaim, Pod, Service};
use crate::{measures, webhook};

/// How long reconciles under way may take after a stop.
const STOP: Duration = Duration::from_secs(10);

/// Why the operator ended.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OperatorError(String);

impl OperatorError {
    fn new(what: &str, error: impl std::fmt::Display) -> Self {
        Self(format!("{what}: {error}"))
    }
}

/// Runs the operator until a signal ends it, or until another replica leads.
///
/// # Errors
/// When the cluster cannot be reached at the start, an address cannot be bound, or the lease is lost.
pub async fn run(args: OperatorArgs) -> Result<(), OperatorError> {
    let config = Config::infer()
        .await
        .map_err(|error| OperatorError::new("no cluster is configured", error))?;
    let own_namespace = config.default_namespace.clone();
    let client = Client::try_from(config)
        .map_err(|error| OperatorError::new("cannot use the cluster's configuration", error))?;
    let metrics =
        measures::install().map_err(|error| OperatorError::new("cannot count metrics", error))?;
    let endpoints = Endpoints {
        ready: Arc::new(AtomicBool::new(false)),
        metrics,
    };
    for address in [
        args.metrics_bind_address.0,
        args.health_probe_bind_address.0,
    ]
    .into_iter()
    .flatten()
    {
        let told = |error| OperatorError::new(&format!("cannot listen on {address}"), error);
        endpoints.clone().serve(address).await.map_err(told)?;
    }
    if args.enable_webhook {
        serve_webhook(&args, &client, &own_namespace).await?;
    }
    let stop =
        stop_signal().map_err(|error| OperatorError::new("cannot listen for signals", error))?;
    let controllers = Controllers::new(&args, client.clone());
    let ready = endpoints.ready;
    if !args.leader_elect {
        controllers.run(stop.child_token(), ready).await;
        return Ok(());
    }
    // A replica that waits is healthy: its webhook works.
    ready.store(true, Ordering::Relaxed);
    let mut candidate = Candidate::new(client, args.lease_namespace(&own_namespace), identity());
    tokio::select! {
        () = candidate.acquire() => {}
        () = stop.cancelled() => return Ok(()),
    }
    tracing::info!("this replica leads");
    // The lease is released after the last reconcile has ended.
    let released = CancellationToken::new();
    let mut lease = tokio::spawn(candidate.hold(released.clone()));
    tokio::select! {
        // Another replica may be reconciling already: end without waiting.
        ended = &mut lease => return lost(ended),
        () = controllers.run(stop.child_token(), ready) => {}
    }
    released.cancel();
    lost(lease.await)
}

/// The result of the lease's renewal.
fn lost(ended: Result<Result<(), LostLease>, tokio::task::JoinError>) -> Result<(), OperatorError> {
    match ended {
        Ok(Ok(())) => Ok(()),
        Ok(Err(lost)) => Err(OperatorError(lost.to_string())),
        Err(error) => Err(OperatorError::new("the renewal of the lease ended", error)),
    }
}

async fn serve_webhook(
    args: &OperatorArgs,
    client: &Client,
    own_namespace: &str,
) -> Result<(), OperatorError> {
    let told =
        |error: &dyn std::fmt::Display| OperatorError::new("cannot serve the webhook", error);
    let certificates = webhook::Certificates::new(
        client.clone(),
        args.webhook_namespace(own_namespace),
        args.conversion(own_namespace),
        Duration::from_secs(args.webhook_certificate_lifetime),
    );
    let served = certificates.start().await.map_err(|error| told(&error))?;
    webhook::serve(args.webhook_port, served)
        .await
        .map_err(|error| told(&error))
}

/// The name of this replica in the lease.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "shoal".to_owned());
    let mut random = [0; 8];
    // Without randomness, the process id tells replicas of one machine apart.
    if getrandom::fill(&mut random).is_err() {
        random = u64::from(std::process::id()).to_be_bytes();
    }
    format!("{host}_{:016x}", u64::from_be_bytes(random))
}

/// Cancelled by the first SIGTERM or SIGINT.
fn stop_signal() -> std::io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let (mut term, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    let told = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
        told.cancel();
    });
    Ok(stop)
}

/// The watches and controllers of a leader.
struct Controllers {
    args: OperatorArgs,
    client: Client,
}

/// Drops what no controller reads of a sandbox: its v1alpha1 form. That there is one matters.
fn trim_sandbox(sandbox: &mut Sandbox) {
    if let Some(annotations) = &mut sandbox.metadata.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        if let Some(form) = annotations.get_mut(ALPHA_SANDBOX) {
            *form = String::new();
        }
    }
}

/// Watches a kind whose objects have the label of sandboxes. Their controllers are reconciled.
fn watch_children<K: Kind>(
    client: &Client,
    tasks: &mut JoinSet<()>,
    sandboxes: &Queue<Sandbox>,
) -> Arc<Cache<K>> {
    let sandboxes = sandboxes.clone();
    let config = watcher::Config::default().labels(label::SANDBOX_NAME_HASH);
    let (cache, watch) = watch_kind(
        Api::<K>::all(client.clone()),
        config,
        |_| {},
        move |change| {
            let (Change::Applied(child) | Change::Deleted(child)) = change;
            let of_sandbox = owner::controller(child.meta())
                .filter(|owner| owner::is_of_kind(owner, shoal_crds::names::GROUP, "Sandbox"));
            if let Some(owner) = of_sandbox {
                sandboxes.add(
                    child.meta().namespace.as_deref().unwrap_or_default(),
                    &owner.name,
                );
            }
        },
    );
    tasks.spawn(watch);
    cache
}

impl Controllers {
    fn new(args: &OperatorArgs, client: Client) -> Self {
        Self {
            args: args.clone(),
            client,
        }
    }

    /// Runs until `stop`.
    async fn run(self, stop: CancellationToken, ready: Arc<AtomicBool>) {
        let mut watches = JoinSet::new();
        let (sandbox_queue, sandbox_requests) = Queue::<Sandbox>::new();
        let notify = sandbox_queue.clone();
        let (sandboxes, watch) = watch_kind(
            Api::<Sandbox>::all(self.client.clone()),
            watcher::Config::default(),
            trim_sandbox,
            move |change| {
                if let Change::Applied(sandbox) = change {
                    notify.add_key(&crate::cache::key(sandbox));
                }
            },
        );
        watches.spawn(watch);
        let pods = watch_children::<Pod>(&self.client, &mut watches, &sandbox_queue);
        let services = watch_children::<Service>(&self.client, &mut watches, &sandbox_queue);
        let volume_claims =
            watch_children::<PersistentVolumeClaim>(&self.client, &mut watches, &sandbox_queue);
        let synced = async {
            sandboxes.synced().await;
            pods.synced().await;
            services.synced().await;
            volume_claims.synced().await;
        };
        tokio::select! {
            () = synced => {}
            () = stop.cancelled() => return,
        }
        tracing::info!(sandboxes = sandboxes.all().len(), "synced");
        ready.store(true, Ordering::Relaxed);
        let controller = Arc::new(SandboxController {
            cluster: Cluster::new(self.client.clone(), "sandbox-controller"),
            sandboxes: sandboxes.clone(),
            pods,
            services,
            volume_claims,
            cluster_domain: self.args.cluster_domain.clone(),
            held: Mutex::default(),
        });
        let mut running = JoinSet::new();
        running.spawn(queue::run(
            "sandbox",
            sandboxes.store(),
            sandbox_requests,
            self.args.sandbox_concurrent_workers,
            stop.clone(),
            move |sandbox| controller.clone().reconcile(sandbox),
        ));
        stop.cancelled().await;
        if tokio::time::timeout(STOP, async { while running.join_next().await.is_some() {} })
            .await
            .is_err()
        {
            tracing::warn!("reconciles did not end in time");
        }
    }
}
