//! `shoal router`: a listener, probes and a runtime around the router.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use axum::body::Body;
use clap::Args;
use http::{Request, Response};
use hyper::body::Incoming;
use shoal_gateway::{Client, GatewayConfig};
use shoal_operator::{Endpoints, Listen};
use shoal_router::{Authentication, Router, RouterConfig};
use shoal_tasks::Tasks;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::descriptors::{self, Shares};
use crate::listen::{self, Answer, DrainBody, close_after};
use crate::{in_cluster, stop, telemetry, trace_context};

/// The flags. Names and values are those of the reference router where it has them.
#[derive(Debug, Args)]
pub(crate) struct RouterArgs {
    /// Address of the proxy: HOST:PORT, or :PORT.
    #[arg(long, value_name = "ADDRESS", default_value = ":8080")]
    http_bind_address: Listen,
    /// Address of `/metrics`: HOST:PORT, :PORT, or 0 for none.
    #[arg(long, value_name = "ADDRESS", default_value = ":9090")]
    metrics_bind_address: Listen,
    /// Address of `/healthz` and `/readyz`: HOST:PORT, :PORT, or 0 for none.
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    health_probe_bind_address: Listen,
    /// Domain of the cluster's DNS.
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    cluster_domain: String,
    /// The longest wait for the beginning of an answer; clients may ask for less.
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..))]
    proxy_timeout_seconds: u64,
    /// Admit callers with a token of this file, one on each line, to all sandboxes. By default, callers
    /// send a token of the cluster, of a user who may create `sandboxes/proxy` in agents.x-k8s.io.
    #[arg(long, value_name = "FILE", conflicts_with = "allow_unauthenticated")]
    token_file: Option<PathBuf>,
    /// Admit all callers. Every client that reaches the router may run commands in every sandbox of the
    /// cluster, and read and change its files.
    #[arg(long)]
    allow_unauthenticated: bool,
    /// Log level: error, warn, info, debug or trace, or a filter by module.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: String,
}

impl RouterArgs {
    fn authentication(&self) -> Authentication {
        match &self.token_file {
            _ if self.allow_unauthenticated => Authentication::Open,
            Some(file) => Authentication::TokenFile(file.clone()),
            None => Authentication::Cluster,
        }
    }
}

/// Serves until a signal.
pub(crate) fn run(args: &RouterArgs) -> ExitCode {
    in_cluster::run(&args.log_level, serve(args))
}

async fn serve(args: &RouterArgs) -> anyhow::Result<()> {
    let address = args.http_bind_address.0;
    let address = address.context("--http-bind-address: the proxy needs an address")?;
    let listener = listen::bind(address).await?;
    let mut tasks = Tasks::default();
    let endpoints = Endpoints {
        ready: Arc::new(AtomicBool::new(false)),
        metrics: telemetry::count(&mut tasks)?,
        gauges: Arc::default(),
    };
    serve_endpoints(args, &endpoints, &mut tasks).await?;
    // Half of the descriptors are for clients, and half for connections to pods.
    let shares = Shares::of(descriptors::raise(), 0);
    let authentication = args.authentication();
    if authentication == Authentication::Open {
        tracing::warn!("callers are not authenticated: --allow-unauthenticated");
    }
    let (router, watching) = Router::connect(RouterConfig {
        cluster_domain: args.cluster_domain.clone(),
        proxy_timeout: Duration::from_secs(args.proxy_timeout_seconds),
        authentication,
        gateway: GatewayConfig {
            upstreams: shares.upstreams,
            ..GatewayConfig::default()
        },
    })
    .await?;
    let mut synced = watching.synced();
    let ready = endpoints.ready.clone();
    tokio::spawn(async move {
        if synced.wait_for(|synced| *synced).await.is_ok() {
            ready.store(true, Ordering::Relaxed);
            tracing::info!("all sandboxes are known");
        }
    });
    // The router would answer from an ever older table.
    tasks.spawn("watch of sandboxes", watching.run());
    let stopping = CancellationToken::new();
    let routed = Routed {
        router,
        stopping: stopping.clone(),
    };
    let work = std::future::ready(());
    let signals = stop::StopSignals::handle()?;
    let mut served = tokio::spawn(listen::serve(listener, None, routed, shares.clients, work));
    tracing::info!(%address, "serving");
    let early = stop::until_signal(signals, &mut tasks, &mut served)
        .await
        .err();
    endpoints.ready.store(false, Ordering::Relaxed);
    stopping.cancel();
    match early {
        Some(early) => Err(early),
        None => Ok(served.await?),
    }
}

async fn serve_endpoints(
    args: &RouterArgs,
    endpoints: &Endpoints,
    tasks: &mut Tasks,
) -> anyhow::Result<()> {
    for address in [
        args.metrics_bind_address.0,
        args.health_probe_bind_address.0,
    ]
    .into_iter()
    .flatten()
    {
        let told = || format!("cannot listen on {address}");
        let listener = TcpListener::bind(address).await.with_context(told)?;
        tasks.spawn("health and metrics", endpoints.clone().serve(listener));
    }
    Ok(())
}

/// Passes requests to the router until it stops.
#[derive(Clone)]
struct Routed {
    router: Router,
    stopping: CancellationToken,
}

impl Answer for Routed {
    async fn answer(
        self,
        mut request: Request<DrainBody<Incoming>>,
        client: Client,
    ) -> Response<Body> {
        if self.stopping.is_cancelled() {
            return close_after(self.router.stopping().map(Body::new), request.version());
        }
        let span = trace_context::continue_trace(request.headers_mut());
        let answer = self.router.answer(request, client);
        answer.instrument(span).await.map(Body::new)
    }

    fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Given {
        #[command(flatten)]
        router: RouterArgs,
    }

    fn given(flags: &[&str]) -> Result<Authentication, clap::Error> {
        let words = std::iter::once("router").chain(flags.iter().copied());
        Given::try_parse_from(words).map(|given| given.router.authentication())
    }

    #[test]
    fn callers_are_authenticated_unless_a_flag_says_otherwise() {
        assert_eq!(given(&[]).unwrap(), Authentication::Cluster);
        let file = given(&["--token-file", "/t"]).unwrap();
        assert_eq!(file, Authentication::TokenFile("/t".into()));
        let open = given(&["--allow-unauthenticated"]).unwrap();
        assert_eq!(open, Authentication::Open);
        assert!(given(&["--allow-unauthenticated", "--token-file", "/t"]).is_err());
    }
}
