//! Starts and stops the operator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::{Client, Config};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::args::OperatorArgs;
use crate::controllers::Controllers;
use crate::endpoints::Endpoints;
use crate::lease::{Candidate, LostLease};
use crate::{measures, webhook};

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
