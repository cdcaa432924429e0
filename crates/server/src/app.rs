//! Wiring: builds all components, from the leaves up.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use shoal_core::audit::{AuditEvent, AuditResult, AuditSource};
use shoal_core::driver::{Driver, Isolation};
use shoal_core::ports::Ports;
use shoal_core::resources::Mib;
use shoal_core::routes::RouteTable;
use shoal_engine::{
    Engine, EngineConfig, EngineParts, EnvdGuest, Limits, SqliteStore, SystemClock,
};
use shoal_gateway::{Gateway, GatewayConfig};
use shoal_images::{ImageStore, SandboxLayers, StoreConfig};
use shoal_mcp::Mcp;
use shoal_node::NetworkConfig;
use shoal_oci::{OciConfig, OciDriver, RuntimeConfig};
use shoal_tasks::Tasks;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::announce;
use crate::api;
use crate::api_key::{self, FirstKey};
use crate::audit::{Audit, AuditedPreviews, AuditedRoutes};
use crate::builtin;
use crate::config::Config;
use crate::descriptors::{self, Shares};
use crate::doctor::MachineDoctor;
use crate::export_key;
use crate::listen::{self, Dispatch};
use crate::memory;
use crate::privilege;
use crate::session_contents;
use crate::sessions::with_sessions;
use crate::stop::{StopSignals, until_signal};
use crate::telemetry::Telemetry;
use crate::templates_file::TemplatesFile;
use crate::tls::{self, Certificates};

/// Serves until a signal.
///
/// # Errors
/// When a component cannot be set up; the message says what to do.
pub(crate) async fn run(config: Config, telemetry: &Telemetry) -> anyhow::Result<()> {
    let oci = oci_config(&config)?;
    OciDriver::check(&oci)?;
    // Bound early to detect a used port before creating anything; served late.
    let listener = listen::bind(config.listen).await?;
    let metrics = match config.metrics_listen {
        Some(address) => Some(listen::bind(address).await?),
        None => None,
    };
    std::fs::create_dir_all(&config.data)
        .with_context(|| format!("cannot create the data directory {}", config.data.display()))?;
    let certificates = load_certificates(&config)?;
    let users = Arc::new(SandboxLayers::of(&config.data));
    let mut store = StoreConfig::at(config.data.join("images"));
    store
        .registry
        .plain_http
        .clone_from(&config.templates.plain_http);
    store
        .registry
        .private
        .clone_from(&config.templates.private_registries);
    store
        .bootstrap
        .ubuntu_mirror
        .clone_from(&config.templates.ubuntu_mirror);
    store.recipes = builtin::recipes()?;
    store.registry.denied = vec![config.network.range.into()];
    let images = Arc::new(ImageStore::open(store, users)?);
    let driver = OciDriver::open(oci, images.clone())?;
    let served = serve(
        &config,
        telemetry,
        &driver,
        images,
        Listeners { listener, metrics },
        certificates,
    )
    .await;
    // After a failure, too: it removes created files.
    let closed = driver.close().await;
    served?;
    Ok(closed?)
}

/// The bound listeners.
struct Listeners {
    listener: TcpListener,
    metrics: Option<TcpListener>,
}

async fn serve(
    config: &Config,
    telemetry: &Telemetry,
    driver: &OciDriver,
    images: Arc<ImageStore>,
    listeners: Listeners,
    certificates: Option<Certificates>,
) -> anyhow::Result<()> {
    let Listeners { listener, metrics } = listeners;
    let shares = Shares::of(descriptors::raise(), config.limits.sandboxes);
    // Before anything is recovered: it may belong to another installation.
    let contents = session_contents::open(&config.data, config.templates.contents.as_ref()).await?;
    let store = Arc::new(SqliteStore::open(&config.data.join("shoal.db"))?);
    let engine = Engine::open(EngineParts {
        config: engine_config(config)?,
        store: store.clone(),
        drivers: vec![Arc::new(driver.clone())],
        images: images.clone(),
        guest: Arc::new(EnvdGuest),
        clock: Arc::new(SystemClock),
    })
    .await?;
    // Before recovery, which needs the definitions of built-in templates.
    builtin::offer(&engine)?;
    let going_on = engine.recover().await?;
    builtin::ensure(&engine, &images).await?;
    // Relative to the data directory, not to the working directory.
    let mut templates = TemplatesFile::new(config.data.join(&config.templates.file));
    templates.load(&engine).await;
    let api_key = api_key::ensure(&engine, &config.data).await?;
    let audit = Audit::open(config)?;
    if matches!(api_key, FirstKey::Made(_)) {
        let made = AuditEvent::new(engine.now(), "key.create", AuditResult::Ok);
        audit.log().record(AuditSource::Server, made);
    }
    let stopping = CancellationToken::new();
    let routes = Arc::new(engine.routes());
    let mut tasks = Tasks::default();
    let ports = machine_ports(config, &engine)?;
    let ports = with_sessions(config, ports, store, contents, &mut tasks).await?;
    let (dispatch, mcp) = dispatch(config, ports, routes, &shares, &audit, &stopping);
    engine.spawn_tasks(&mut tasks);
    tasks.spawn("template catalogue", templates.follow(engine.clone()));
    tasks.spawn("memory", memory::give_back());
    if let Some(metrics) = metrics {
        let counted = engine.clone();
        telemetry.serve_metrics(metrics, move || counted.count_states(), &mut tasks);
    }
    let acceptor = certificates.as_ref().map(|of| of.acceptor.clone());
    let work = engine.clone();
    let work = api::drained(mcp, async move { work.drained().await });
    let signals = StopSignals::handle()?;
    let served = listen::serve(listener, acceptor, dispatch, shares.clients, work);
    let mut served = tokio::spawn(served);
    log_start(config, driver, going_on);
    let authority = certificates.as_ref().and_then(|c| c.authority.as_ref());
    let authority = authority.map(|file| driver.publish_authority(file));
    announce::print(config, &api_key, authority.transpose()?.as_deref());
    let early = until_signal(signals, &mut tasks, &mut served).await.err();
    stopping.cancel();
    engine.stop();
    tracing::info!("stopping; sandboxes continue to run");
    let ended = match early {
        Some(early) => Err(cannot_continue(early)),
        None => served.await.map_err(anyhow::Error::from),
    };
    // Flushes the last events.
    tokio::task::spawn_blocking(move || audit.end()).await?;
    ended
}

/// The ports of the engine and of the machine it is on.
fn machine_ports(config: &Config, engine: &Engine) -> anyhow::Result<Ports> {
    Ok(Ports {
        doctor: Arc::new(MachineDoctor::of(config)?),
        ..engine.ports()
    })
}

/// Never serve partially: the next start recovers the sandboxes.
fn cannot_continue(early: anyhow::Error) -> anyhow::Error {
    tracing::error!(error = %format_args!("{early:#}"), "a task failed; the server stops");
    early.context("the server cannot continue: start it again")
}

/// The gateway and the API of a backend, and its MCP server, if it has one.
pub(crate) fn dispatch(
    config: &Config,
    ports: Ports,
    routes: Arc<dyn RouteTable>,
    shares: &Shares,
    audit: &Audit,
    stopping: &CancellationToken,
) -> (Dispatch, Option<Mcp>) {
    let gateway = Gateway::new(
        GatewayConfig {
            domain: config.domain.clone(),
            connections: config.network.connections,
            upstreams: shares.upstreams,
            trusted_proxies: config.network.trusted_proxies.clone(),
        },
        Arc::new(AuditedRoutes::new(routes, audit.log())),
    );
    let previews = AuditedPreviews::new(ports.previews.clone(), audit.log());
    let gateway = gateway.with_previews(Arc::new(previews));
    let mcp = api::mcp(config, ports.clone(), audit.log(), stopping);
    let api_config = api::config(
        config,
        shares.calls,
        audit.log(),
        stopping.clone(),
        mcp.clone(),
    );
    let api = shoal_api::router(ports, api_config);
    let dispatch = Dispatch::new(gateway, api, audit.log(), stopping.clone());
    (dispatch, mcp)
}

pub(crate) fn oci_config(config: &Config) -> anyhow::Result<OciConfig> {
    Ok(OciConfig {
        data: config.data.clone(),
        envd: match &config.runtime.envd {
            Some(path) => path.clone(),
            None => envd_beside_this_program()?,
        },
        runtimes: RuntimeConfig {
            runsc: config.runtime.runsc.clone(),
            runc: config.runtime.runc.clone(),
            default: config.runtime.default,
            platform: config.runtime.platform.clone(),
            ..RuntimeConfig::default()
        },
        network: NetworkConfig {
            range: config.network.range,
            dns: config.network.dns.clone(),
            warm: config.network.warm_slots,
        },
        disk: config.disk.clone(),
        starts: config.runtime.starts.unwrap_or_else(starts_at_once),
    })
}

/// The default of parallel starts. Each uses a processor for most of its time, and more of them slow
/// each other down.
fn starts_at_once() -> usize {
    1 + std::thread::available_parallelism().map_or(1, usize::from)
}

fn envd_beside_this_program() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    let beside = own.with_file_name("shoal-envd");
    anyhow::ensure!(
        beside.is_file(),
        "the daemon {} is missing: build it with `make`, or set `envd`",
        beside.display()
    );
    Ok(beside)
}

fn engine_config(config: &Config) -> anyhow::Result<EngineConfig> {
    let export_key = config.export_key.as_deref().map(export_key::read);
    Ok(EngineConfig {
        limits: Limits {
            max_timeout: config.limits.max_timeout,
            sandboxes: config.limits.sandboxes,
            sandboxes_per_team: config.limits.sandboxes_per_team,
            cpu_per_team: config.limits.cpu_per_team,
            endless: config.limits.never_timeout,
            memory_per_team: config.limits.memory_per_team,
            disk_per_team: config.limits.disk_per_team,
            snapshots_per_team: config.limits.snapshots_per_team,
            per_sandbox: config.limits.per_sandbox,
            free_memory: config.limits.free_memory,
            forks: config.limits.forks,
        },
        defaults: config.templates.defaults.clone(),
        custom_images: config.templates.custom_images,
        build_on_demand: config.templates.build_on_demand,
        runtimes: config.runtime.allowed.clone(),
        privileged: config.templates.privileged,
        uploads_per_team: config.limits.uploads_per_team.map(Mib::bytes),
        uploads_of_all: config.limits.uploads.map(Mib::bytes),
        logs_per_team: config.limits.logs_per_team.bytes(),
        keep_ended: config.limits.keep_ended,
        parking: config.parking,
        export_key: export_key.transpose()?,
        ..EngineConfig::new(&config.data)
    })
}

pub(crate) fn load_certificates(config: &Config) -> anyhow::Result<Option<Certificates>> {
    let Some(tls) = &config.tls else {
        return Ok(None);
    };
    let domain = config.domain.as_deref().unwrap_or("localhost");
    tls::load(tls, domain, &config.data).map(Some)
}

fn log_start(config: &Config, driver: &OciDriver, going_on: usize) {
    let runtimes = &driver.capabilities().runtimes;
    let names: Vec<String> = runtimes
        .iter()
        .map(|r| format!("{} ({})", r.name, r.isolation))
        .collect();
    // The first runtime is the default.
    let isolation = runtimes.first().map(|r| r.isolation);
    if isolation == Some(Isolation::Namespaces) {
        tracing::warn!(
            "the default runtime shares the kernel of this machine: for trusted code only"
        );
    }
    tracing::info!(
        listen = %config.listen,
        runtimes = names.join(", "),
        isolation = isolation.map(|isolation| isolation.to_string()),
        capabilities = privilege::KEPT.len(),
        refused_calls = privilege::REFUSED.len(),
        disk = driver.capabilities().disk_limit,
        sandboxes = going_on,
        "serving"
    );
}
