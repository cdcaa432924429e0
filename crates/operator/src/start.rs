//! Starts and stops the operator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::{Client, Config};
use metrics_exporter_prometheus::PrometheusHandle;
use shoal_protocol::pass::{InitSecret, SECRET_NAME};
use shoal_tasks::{TaskEnded, Tasks};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::args::OperatorArgs;
use crate::controllers::Controllers;
use crate::endpoints::Endpoints;
use crate::kruise::ensure_init_secret;
use crate::lease::{Candidate, LostLease};
use crate::{measures, webhook};

/// The interval at which histograms are merged.
const UPKEEP: Duration = Duration::from_secs(5);

/// Why the operator ended.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OperatorError(String);

impl OperatorError {
    fn new(what: &str, error: impl std::fmt::Display) -> Self {
        Self(format!("{what}: {error}"))
    }
}

impl From<TaskEnded> for OperatorError {
    fn from(ended: TaskEnded) -> Self {
        Self::new("the operator cannot continue", ended)
    }
}

/// Runs the operator until a signal ends it, or until another replica leads.
///
/// # Errors
/// When the cluster cannot be reached at the start, an address cannot be bound, the lease is lost, or a
/// long-lived task ends.
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
        gauges: Arc::default(),
    };
    let mut tasks = Tasks::default();
    tasks.spawn("metrics", keep_up(endpoints.metrics.clone()));
    serve_endpoints(&args, &endpoints, &mut tasks).await?;
    if args.enable_webhook {
        serve_webhook(&args, &client, &own_namespace, &mut tasks).await?;
    }
    let stop = CancellationToken::new();
    spawn_signals(&stop, &mut tasks)
        .map_err(|error| OperatorError::new("cannot listen for signals", error))?;
    tokio::select! {
        ended = lead(&args, client, &own_namespace, &stop, &endpoints) => ended,
        ended = tasks.ended() => Err(ended.into()),
    }
}

/// Merges the samples of the histograms. Otherwise they grow until a scrape.
async fn keep_up(metrics: PrometheusHandle) {
    loop {
        tokio::time::sleep(UPKEEP).await;
        metrics.run_upkeep();
    }
}

/// Waits for the lease, and reconciles while this replica holds it.
async fn lead(
    args: &OperatorArgs,
    client: Client,
    own_namespace: &str,
    stop: &CancellationToken,
    endpoints: &Endpoints,
) -> Result<(), OperatorError> {
    let controllers = async {
        let secret = init_secret(args, &client, own_namespace).await?;
        Ok::<_, OperatorError>(Controllers::new(args, client.clone(), secret))
    };
    if !args.leader_elect {
        return Ok(controllers
            .await?
            .run(stop.child_token(), endpoints)
            .await?);
    }
    // A replica that waits is healthy: its webhook works.
    endpoints.ready.store(true, Ordering::Relaxed);
    let mut candidate = Candidate::new(
        client.clone(),
        args.lease_namespace(own_namespace),
        identity(),
    );
    tokio::select! {
        () = candidate.acquire() => {}
        () = stop.cancelled() => return Ok(()),
    }
    tracing::info!("this replica leads");
    // A leader before may have made it, or a user has deleted it.
    let controllers = controllers.await?;
    // The lease is released after the last reconcile has ended.
    let released = CancellationToken::new();
    let mut lease = tokio::spawn(candidate.hold(released.clone()));
    let ended = tokio::select! {
        // Another replica may be reconciling already: end without waiting.
        ended = &mut lease => return lost(ended),
        ended = controllers.run(stop.child_token(), endpoints) => ended,
    };
    released.cancel();
    let released = lost(lease.await);
    ended?;
    released
}

/// The secret of the pods' runtime, if this operator adds one to pods.
async fn init_secret(
    args: &OperatorArgs,
    client: &Client,
    own_namespace: &str,
) -> Result<Option<InitSecret>, OperatorError> {
    if args.kruise.runtime_image.is_empty() {
        return Ok(None);
    }
    let secret = ensure_init_secret(client.clone(), own_namespace).await;
    let what = format!("cannot use the Secret {own_namespace}/{SECRET_NAME}");
    secret
        .map(Some)
        .map_err(|error| OperatorError::new(&what, error))
}

/// The result of the lease's renewal.
fn lost(ended: Result<Result<(), LostLease>, tokio::task::JoinError>) -> Result<(), OperatorError> {
    match ended {
        Ok(Ok(())) => Ok(()),
        Ok(Err(lost)) => Err(OperatorError(lost.to_string())),
        Err(error) => Err(OperatorError::new("the renewal of the lease ended", error)),
    }
}

async fn serve_endpoints(
    args: &OperatorArgs,
    endpoints: &Endpoints,
    tasks: &mut Tasks,
) -> Result<(), OperatorError> {
    for address in [
        args.metrics_bind_address.0,
        args.health_probe_bind_address.0,
    ]
    .into_iter()
    .flatten()
    {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| OperatorError::new(&format!("cannot listen on {address}"), error))?;
        tasks.spawn("health and metrics", endpoints.clone().serve(listener));
    }
    Ok(())
}

async fn serve_webhook(
    args: &OperatorArgs,
    client: &Client,
    own_namespace: &str,
    tasks: &mut Tasks,
) -> Result<(), OperatorError> {
    let told =
        |error: &dyn std::fmt::Display| OperatorError::new("cannot serve the webhook", error);
    let certificates = webhook::Certificates::new(
        client.clone(),
        args.webhook_namespace(own_namespace),
        args.conversion(own_namespace),
        Duration::from_secs(args.webhook_certificate_lifetime),
    );
    let (served, renewal) = certificates.start().await.map_err(|error| told(&error))?;
    let listener = webhook::bind(args.webhook_port)
        .await
        .map_err(|error| told(&error))?;
    tasks.spawn("webhook certificate", renewal);
    tasks.spawn("webhook", webhook::serve(listener, served));
    Ok(())
}

/// The name of this replica in the lease.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "shoal".to_owned());
    let mut random = [0; 8];
    // Without randomness, the process id distinguishes replicas on one machine.
    if getrandom::fill(&mut random).is_err() {
        random = u64::from(std::process::id()).to_be_bytes();
    }
    format!("{host}_{:016x}", u64::from_be_bytes(random))
}

/// Cancels `stop` at the first SIGTERM or SIGINT. Later ones are ignored.
fn spawn_signals(stop: &CancellationToken, tasks: &mut Tasks) -> std::io::Result<()> {
    let (mut term, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    let told = stop.clone();
    tasks.spawn("signals", async move {
        loop {
            tokio::select! {
                _ = term.recv() => {}
                _ = interrupt.recv() => {}
            }
            told.cancel();
        }
    });
    Ok(())
}
