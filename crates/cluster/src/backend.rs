//! The backend: its watches, and the ports over them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use shoal_core::auth::TeamSlug;
use shoal_core::clock::Clock;
use shoal_core::ports::Ports;
use shoal_core::ports::access::KeyError;
use shoal_core::ports::doctor::NoDoctor;
use shoal_core::ports::installation::InstallationLimits;
use shoal_core::ports::sessions::NoSessions;
use shoal_core::ports::sessions::preview::NoPreviews;
use shoal_core::routes::RouteTable;
use shoal_crds::kruise::{Sandbox, SandboxSet};
use shoal_tasks::Tasks;

use crate::access::Access;
use crate::catalogue::{Catalogue, CatalogueFiles};
use crate::claim::Claims;
use crate::config_map::SharedConfigMap;
use crate::elsewhere::Elsewhere;
use crate::entry_pools::EntryPools;
use crate::follow;
use crate::initialize::Passes;
use crate::installation::Cluster;
use crate::keys::{FIRST_KEY, Keys, STORE};
use crate::nodes::NodeAddresses;
use crate::pools::{PoolHistory, Pools};
use crate::quotas::Quotas;
use crate::routes::Routes;
use crate::sandboxes::{self, Port, Sandboxes};
use crate::saves::Saves;
use crate::snapshots;
use crate::teams::TeamsPort;
use crate::telemetry::Telemetry;
use crate::templates::{self, Templates};

pub use crate::templates::TemplatesConfig;
use crate::watched::Watched;

/// The settings of the backend.
#[derive(Debug, Clone)]
pub struct BackendConfig {
    /// The namespace of its own objects: the Secrets with API keys.
    pub system_namespace: String,
    /// The namespace, and team, of the first key.
    pub first_team: TeamSlug,
    /// The longest timeout of a sandbox.
    pub max_timeout: Duration,
    /// The ConfigMap with the template catalogue, in the system namespace.
    pub config_map: String,
    /// Files with the first catalogue and the first blueprint.
    pub files: CatalogueFiles,
    /// The namespaces in which entries have pools; that of the first key if empty.
    pub pool_namespaces: Vec<String>,
    /// Templates and images of requests.
    pub templates: TemplatesConfig,
}

/// Why the backend does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No cluster is configured, or its certificate or credentials cannot be read.
    #[error("cannot find the cluster: {0}")]
    Configuration(#[source] kube::Error),
    /// The first API key was not made.
    #[error("cannot make the first API key in Secret {FIRST_KEY}")]
    FirstKey(#[source] KeyError),
}

/// The ports over a cluster's custom resources.
pub struct Backend {
    ports: Ports,
    routes: Arc<Routes>,
    sandboxes: Arc<Watched<Sandbox>>,
    sets: Arc<Watched<SandboxSet>>,
    /// The Secret and its namespace, if this replica has made the first key.
    first_key: Option<String>,
}

impl Backend {
    /// Connects to the cluster of the environment, and starts the watches.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect(
        config: BackendConfig,
        clock: Arc<dyn Clock>,
        tasks: &mut Tasks,
    ) -> Result<Self, ConnectError> {
        let client = Client::try_default().await;
        let client = client.map_err(ConnectError::Configuration)?;
        let watched = Arc::new(Watched::sharing(sandboxes::index, sandboxes::share));
        let sets = Arc::new(Watched::new(templates::index));
        let all = watcher::Config::default;
        follow::spawn(tasks, client.clone(), all(), watched.clone());
        follow::spawn(tasks, client.clone(), all(), sets.clone());
        let saves = Arc::new(Saves::new());
        follow::spawn(tasks, client.clone(), all(), saves.checkpoints.clone());
        follow::spawn(tasks, client.clone(), all(), saves.templates.clone());
        let keys = Arc::new(Keys::new(client.clone(), &config.system_namespace));
        let first = keys.ensure_first(&config.first_team).await;
        let first = first.map_err(ConnectError::FirstKey)?;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &config.system_namespace);
        tasks.spawn("watch of keys", follow_keys(secrets, keys.clone()));
        let limits = InstallationLimits {
            max_timeout: config.max_timeout,
            sandboxes: usize::MAX,
        };
        let catalogue = catalogue(&client, &config, &sets);
        catalogue.bootstrap(&config.files).await;
        tasks.spawn("watch of templates", catalogue.clone().follow());
        let pools = EntryPools {
            client: client.clone(),
            catalogue: catalogue.clone(),
            sets: sets.clone(),
            saves: saves.clone(),
        };
        tasks.spawn("pools of templates", pools.keep());
        let installation = Cluster::of(client.clone(), limits).await;
        let watches = Watches {
            sandboxes: watched,
            sets,
            saves,
            keys,
            quotas: follow_quotas(&client, &config.system_namespace, tasks),
            nodes: follow_nodes(&client, tasks).await,
            catalogue,
        };
        let passes = Passes::new(Api::namespaced(client.clone(), &config.system_namespace));
        let (ports, routes) = assemble(
            client,
            &watches,
            installation,
            passes,
            &config,
            clock,
            tasks,
        );
        Ok(Self {
            ports,
            routes,
            sandboxes: watches.sandboxes,
            sets: watches.sets,
            first_key: first.then(|| format!("{}/{FIRST_KEY}", config.system_namespace)),
        })
    }

    /// The ports of the API layer.
    #[must_use]
    pub fn ports(&self) -> Ports {
        self.ports.clone()
    }

    /// The port of the gateway.
    #[must_use]
    pub fn routes(&self) -> Arc<dyn RouteTable> {
        self.routes.clone()
    }

    /// The Secret of the first API key, as `namespace/name`, if this replica has made it.
    #[must_use]
    pub fn first_key(&self) -> Option<&str> {
        self.first_key.as_deref()
    }

    /// Waits until all sandboxes and templates are known.
    pub async fn synced(&self) {
        self.sandboxes.synced().await;
        self.sets.synced().await;
    }
}

/// The quotas of keys. A task removes what other replicas have left of them.
fn follow_quotas(client: &Client, namespace: &str, tasks: &mut Tasks) -> Arc<Quotas> {
    let quotas = Arc::new(Quotas::new(client.clone(), namespace));
    let swept = quotas.clone();
    tasks.spawn("reservations of quotas", async move { swept.sweep().await });
    quotas
}

/// The addresses of nodes, and a task that keeps them up to date.
async fn follow_nodes(client: &Client, tasks: &mut Tasks) -> Arc<NodeAddresses> {
    let nodes = Arc::new(NodeAddresses::default());
    nodes.load(client).await;
    let (known, client) = (nodes.clone(), client.clone());
    tasks.spawn(
        "addresses of nodes",
        async move { known.follow(client).await },
    );
    nodes
}

/// Keeps the API keys up to date.
async fn follow_keys(secrets: Api<Secret>, keys: Arc<Keys>) {
    let named = watcher::Config::default().fields(&format!("metadata.name={STORE}"));
    let mut events = pin!(watcher(secrets, named).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(secret) | Event::InitApply(secret)) => keys.load(&secret),
            Ok(Event::Delete(_)) => keys.clear(),
            Ok(Event::Init | Event::InitDone) => {}
            Err(error) => tracing::warn!(%error, "cannot watch API keys"),
        }
    }
}

/// The state that watches and other tasks keep up to date.
struct Watches {
    sandboxes: Arc<Watched<Sandbox>>,
    sets: Arc<Watched<SandboxSet>>,
    saves: Arc<Saves>,
    keys: Arc<Keys>,
    quotas: Arc<Quotas>,
    nodes: Arc<NodeAddresses>,
    catalogue: Arc<Catalogue>,
}

/// The catalogue of the installation.
fn catalogue(
    client: &Client,
    config: &BackendConfig,
    sets: &Arc<Watched<SandboxSet>>,
) -> Arc<Catalogue> {
    let map = SharedConfigMap::new(client.clone(), &config.system_namespace, &config.config_map);
    let mut pools = config.pool_namespaces.clone();
    if pools.is_empty() {
        pools.push(config.first_team.to_string());
    }
    Arc::new(Catalogue::new(map, sets.clone(), pools))
}

/// The ports over the watches.
fn assemble(
    client: Client,
    watches: &Watches,
    installation: Cluster,
    passes: Passes,
    config: &BackendConfig,
    clock: Arc<dyn Clock>,
    tasks: &mut Tasks,
) -> (Ports, Arc<Routes>) {
    let templates = Arc::new(Templates::new(
        watches.sets.clone(),
        watches.catalogue.clone(),
        watches.saves.clone(),
        config.templates.clone(),
    ));
    let sandboxes = Arc::new(Sandboxes {
        keys: watches.keys.clone(),
        quotas: watches.quotas.clone(),
        nodes: watches.nodes.clone(),
        claims: Claims::new(client.clone(), watches.sandboxes.clone()),
        client,
        watched: watches.sandboxes.clone(),
        templates: templates.clone(),
        saves: watches.saves.clone(),
        passes,
        pools: PoolHistory::default(),
        max_timeout: config.max_timeout,
    });
    let routes = Arc::new(Routes::new(sandboxes.clone(), watches.keys.clone()));
    let elsewhere = Arc::new(Elsewhere);
    let pools = Arc::new(Pools {
        sets: watches.sets.clone(),
        sandboxes: sandboxes.clone(),
        clock: clock.clone(),
    });
    tasks.spawn("history of pools", pools.clone().record());
    let ports = Ports {
        sandboxes: Arc::new(Port(sandboxes.clone())),
        access: Arc::new(Access {
            sandboxes: sandboxes.clone(),
            routes: routes.clone(),
        }),
        snapshots: Arc::new(snapshots::Port(sandboxes.clone())),
        templates,
        builds: elsewhere.clone(),
        uploads: elsewhere.clone(),
        catalogue: watches.catalogue.clone(),
        pools,
        keys: watches.keys.clone(),
        teams: Arc::new(TeamsPort {
            keys: watches.keys.clone(),
            sandboxes: watches.sandboxes.clone(),
        }),
        sessions: Arc::new(NoSessions),
        session_secrets: Arc::new(NoSessions),
        session_memories: Arc::new(NoSessions),
        session_files: Arc::new(NoSessions),
        previews: Arc::new(NoPreviews),
        doctor: Arc::new(NoDoctor),
        sandbox_events: Arc::new(Telemetry(sandboxes.clone())),
        telemetry: Arc::new(Telemetry(sandboxes)),
        images: elsewhere,
        installation: Arc::new(installation),
        clock,
    };
    (ports, routes)
}
