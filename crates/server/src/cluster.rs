//! `shoal serve --backend kubernetes`: the API and the gateway over the custom resources of a cluster.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use shoal_cluster::{Backend, BackendConfig, CatalogueFiles, TemplatesConfig};
use shoal_core::auth::TeamSlug;
use shoal_core::ports::Ports;
use shoal_engine::{CustomImages, SqliteStore, SystemClock};
use shoal_node::{lock, modes};
use shoal_tasks::Tasks;
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::audit::Audit;
use crate::config::Config;
use crate::descriptors::{self, Shares};
use crate::sessions::with_sessions;
use crate::telemetry::Telemetry;
use crate::{app, listen, session_contents, stop};

/// After this time without an answer of the API server, the log says so again.
const SYNCING: Duration = Duration::from_secs(10);

/// The address of this replica.
pub(crate) struct Cluster {
    pub(crate) namespace: TeamSlug,
    pub(crate) team: TeamSlug,
    pub(crate) config_map: String,
    pub(crate) pool_namespaces: Vec<String>,
    pub(crate) blueprint_file: PathBuf,
    pub(crate) sessions: bool,
}

/// Serves until a signal. Replicas share nothing but the cluster.
///
/// # Errors
/// When the cluster cannot be found, or a component cannot be set up.
pub(crate) async fn run(
    cluster: Cluster,
    config: &Config,
    telemetry: &Telemetry,
) -> anyhow::Result<()> {
    // Bound early, to detect a used port; served when all sandboxes are known.
    let listener = listen::bind(config.listen).await?;
    let metrics = match config.metrics_listen {
        Some(address) => Some(listen::bind(address).await?),
        None => None,
    };
    let certificates = app::load_certificates(config)?;
    let audit = Audit::open(config)?;
    let mut tasks = Tasks::default();
    let backend = BackendConfig {
        system_namespace: cluster.namespace.to_string(),
        first_team: cluster.team,
        max_timeout: config.limits.max_timeout,
        config_map: cluster.config_map,
        files: CatalogueFiles {
            entries: config.data.join(&config.templates.file),
            blueprint: config.data.join(cluster.blueprint_file),
        },
        pool_namespaces: cluster.pool_namespaces,
        templates: TemplatesConfig {
            default: config.templates.defaults.template.clone(),
            default_image: config.templates.defaults.image.clone(),
            custom_images: config.templates.custom_images == CustomImages::Everyone,
        },
    };
    let backend = Backend::connect(backend, Arc::new(SystemClock), &mut tasks).await?;
    if let Some(secret) = backend.first_key() {
        tracing::info!(secret, "the first API key is in a Secret");
    }
    synced(&backend).await;
    if let Some(metrics) = metrics {
        telemetry.serve_metrics(metrics, || {}, &mut tasks);
    }
    let shares = Shares::of(descriptors::raise(), 0);
    let stopping = CancellationToken::new();
    let (ports, routes) = (backend.ports(), backend.routes());
    let (ports, _lock) = match cluster.sessions {
        true => serve_sessions(config, ports, &mut tasks).await?,
        false => (ports, None),
    };
    let (dispatch, mcp) = app::dispatch(config, ports, routes, &shares, &audit, &stopping);
    let acceptor = certificates.map(|certificates| certificates.acceptor);
    // Requests have their state in the cluster: only MCP sessions end here.
    let work = api::drained(mcp, std::future::ready(()));
    let signals = stop::StopSignals::handle()?;
    let served = listen::serve(listener, acceptor, dispatch, shares.clients, work);
    let mut served = tokio::spawn(served);
    tracing::info!(listen = %config.listen, "serving");
    let early = stop::until_signal(signals, &mut tasks, &mut served)
        .await
        .err();
    stopping.cancel();
    let ended = match early {
        Some(early) => Err(early.context("the server cannot continue: start it again")),
        None => served.await.map_err(anyhow::Error::from),
    };
    // Flushes the last events.
    tokio::task::spawn_blocking(move || audit.end()).await?;
    ended
}

/// The ports with sessions, whose records and contents are in the data directory, and its lock. Their machines are sandboxes
/// of the cluster.
async fn serve_sessions(
    config: &Config,
    ports: Ports,
    tasks: &mut Tasks,
) -> anyhow::Result<(Ports, Option<File>)> {
    modes::make(&config.data).context("the data directory")?;
    let lock = lock::take(&config.data)?;
    let contents = session_contents::open(&config.data, config.templates.contents.as_ref()).await?;
    let store = Arc::new(SqliteStore::open(&config.data.join("shoal.db"))?);
    let ports = with_sessions(config, ports, store, contents, tasks).await?;
    Ok((ports, Some(lock)))
}

/// Waits until the watches have shown everything.
async fn synced(backend: &Backend) {
    let mut synced = std::pin::pin!(backend.synced());
    while tokio::time::timeout(SYNCING, &mut synced).await.is_err() {
        tracing::warn!(
            "the custom resources of agents.kruise.io are not known yet: the log says why a watch fails"
        );
    }
}
