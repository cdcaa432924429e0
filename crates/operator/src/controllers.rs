//! The watches and controllers of a leader, and which change asks for which reconcile.

mod changes;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::runtime::watcher;
use kube::{Api, Client};
use parking_lot::Mutex;
use shoal_crds::convert::Requested;
use shoal_crds::names::{EXTENSIONS_GROUP, GROUP, label};
use shoal_crds::v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::args::OperatorArgs;
use crate::cache::{Cache, Change, Kind, watch_kind};
use crate::claim::{Candidates, ClaimController};
use crate::cluster::Cluster;
use crate::pool::PoolController;
use crate::queue::{self, Queue};
use crate::sandbox::SandboxController;
use crate::slim::{NetworkPolicy, PersistentVolumeClaim, Pod, Service};
use crate::template::TemplateController;

use self::changes::{ChangedPools, add_controller, pool_group, trim_sandbox, wake};

/// How long reconciles under way may take after a stop.
const STOP: Duration = Duration::from_secs(10);

type Requests<K> = UnboundedReceiver<kube::runtime::reflector::ObjectRef<K>>;

/// The queues of all controllers.
#[derive(Clone)]
struct Queues {
    sandboxes: Queue<Sandbox>,
    claims: Queue<SandboxClaim>,
    pools: Queue<SandboxWarmPool>,
    templates: Queue<SandboxTemplate>,
}

/// The other ends of the queues.
struct AllRequests {
    sandboxes: Requests<Sandbox>,
    claims: Requests<SandboxClaim>,
    pools: Requests<SandboxWarmPool>,
    templates: Requests<SandboxTemplate>,
}

fn queues() -> (Queues, AllRequests) {
    let (sandboxes, sandbox_requests) = Queue::new();
    let (claims, claim_requests) = Queue::new();
    let (pools, pool_requests) = Queue::new();
    let (templates, template_requests) = Queue::new();
    (
        Queues {
            sandboxes,
            claims,
            pools,
            templates,
        },
        AllRequests {
            sandboxes: sandbox_requests,
            claims: claim_requests,
            pools: pool_requests,
            templates: template_requests,
        },
    )
}

/// The watches and controllers of a leader.
pub(crate) struct Controllers {
    args: OperatorArgs,
    client: Client,
}

/// The caches of the Sandbox controller.
struct Core {
    sandboxes: Arc<Cache<Sandbox>>,
    pods: Arc<Cache<Pod>>,
    services: Arc<Cache<Service>>,
    volume_claims: Arc<Cache<PersistentVolumeClaim>>,
}

/// The caches of the other controllers.
struct Extensions {
    claims: Arc<Cache<SandboxClaim>>,
    pools: Arc<Cache<SandboxWarmPool>>,
    templates: Arc<Cache<SandboxTemplate>>,
    policies: Arc<Cache<NetworkPolicy>>,
}

impl Controllers {
    pub(crate) fn new(args: &OperatorArgs, client: Client) -> Self {
        Self {
            args: args.clone(),
            client,
        }
    }

    /// Runs until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken, ready: Arc<AtomicBool>) {
        let mut watches = JoinSet::new();
        let (queues, requests) = queues();
        let candidates = Arc::new(Candidates::default());
        let core = self.watch_core(&mut watches, &queues, &candidates);
        let extensions = self
            .args
            .extensions
            .then(|| self.watch_extensions(&mut watches, &queues));
        let synced = async {
            core.sandboxes.synced().await;
            core.pods.synced().await;
            core.services.synced().await;
            core.volume_claims.synced().await;
            if let Some(extensions) = &extensions {
                extensions.claims.synced().await;
                extensions.pools.synced().await;
                extensions.templates.synced().await;
                extensions.policies.synced().await;
            }
        };
        tokio::select! {
            () = synced => {}
            () = stop.cancelled() => return,
        }
        tracing::info!(sandboxes = core.sandboxes.all().len(), "synced");
        ready.store(true, Ordering::Relaxed);
        let mut running = JoinSet::new();
        if let Some(extensions) = extensions {
            self.spawn_extensions(
                &mut running,
                &stop,
                &core,
                extensions,
                candidates,
                requests.claims,
                requests.pools,
                requests.templates,
            );
        }
        self.spawn_core(&mut running, &stop, core, requests.sandboxes);
        stop.cancelled().await;
        if tokio::time::timeout(STOP, async { while running.join_next().await.is_some() {} })
            .await
            .is_err()
        {
            tracing::warn!("reconciles did not end in time");
        }
    }

    fn watch<K: Kind>(
        &self,
        tasks: &mut JoinSet<()>,
        config: watcher::Config,
        notify: impl FnMut(Change<'_, K>) + Send + 'static,
    ) -> Arc<Cache<K>> {
        let (cache, watch) = watch_kind(
            Api::<K>::all(self.client.clone()),
            config,
            |_| {},
            |_| None,
            notify,
        );
        tasks.spawn(watch);
        cache
    }

    fn watch_core(
        &self,
        tasks: &mut JoinSet<()>,
        queues: &Queues,
        candidates: &Arc<Candidates>,
    ) -> Core {
        let (to, candidates) = (queues.clone(), candidates.clone());
        let mut pools = ChangedPools::default();
        tasks.spawn(pools.clone().forward(queues.pools.clone()));
        let (sandboxes, watch) = watch_kind(
            Api::<Sandbox>::all(self.client.clone()),
            watcher::Config::default(),
            trim_sandbox,
            pool_group,
            move |change| {
                let (Change::Applied(sandbox) | Change::Deleted(sandbox)) = change;
                if let Change::Applied(_) = change {
                    candidates.applied(sandbox);
                    pools.applied(sandbox);
                    to.sandboxes.add_key(&crate::cache::key(sandbox));
                } else {
                    candidates.deleted(sandbox);
                    pools.deleted(sandbox);
                }
                add_controller(&to.claims, sandbox, EXTENSIONS_GROUP);
            },
        );
        tasks.spawn(watch);
        Core {
            sandboxes,
            pods: self.watch_children(tasks, queues),
            services: self.watch_children(tasks, queues),
            volume_claims: self.watch_children(tasks, queues),
        }
    }

    /// Watches a kind whose objects have the label of sandboxes. Their controllers are reconciled.
    fn watch_children<K: Kind>(&self, tasks: &mut JoinSet<()>, queues: &Queues) -> Arc<Cache<K>> {
        let to = queues.sandboxes.clone();
        self.watch(
            tasks,
            watcher::Config::default().labels(label::SANDBOX_NAME_HASH),
            move |change| {
                let (Change::Applied(child) | Change::Deleted(child)) = change;
                add_controller(&to, child, GROUP);
            },
        )
    }

    fn watch_extensions(&self, tasks: &mut JoinSet<()>, queues: &Queues) -> Extensions {
        let all = watcher::Config::default;
        let to = queues.claims.clone();
        let claims = self.watch(tasks, all(), move |change: Change<'_, SandboxClaim>| {
            let (Change::Applied(claim) | Change::Deleted(claim)) = change;
            to.add_key(&crate::cache::key(claim));
        });
        let (to, waiting) = (queues.clone(), claims.clone());
        let mut generations = HashMap::new();
        let pools = self.watch(tasks, all(), move |change: Change<'_, SandboxWarmPool>| {
            let (Change::Applied(pool) | Change::Deleted(pool)) = change;
            let key = crate::cache::key(pool);
            to.pools.add_key(&key);
            // A change of the status concerns no claim.
            if generations.insert(key.clone(), pool.metadata.generation)
                != Some(pool.metadata.generation)
            {
                wake(&to.claims, &waiting, &key.0, |requested| match requested {
                    Requested::Pool(pool) | Requested::TemplateAndPool { pool, .. } => {
                        *pool == key.1
                    }
                    Requested::AnyPool { template } => {
                        *template == pool.spec.sandbox_template_ref.name
                    }
                    Requested::NoPool { .. } => false,
                });
            }
        });
        let templates = self.watch_templates(tasks, queues, &pools, &claims);
        let to = queues.templates.clone();
        let policies = self.watch(tasks, all(), move |change: Change<'_, NetworkPolicy>| {
            let (Change::Applied(policy) | Change::Deleted(policy)) = change;
            add_controller(&to, policy, EXTENSIONS_GROUP);
        });
        Extensions {
            claims,
            pools,
            templates,
            policies,
        }
    }

    /// A change of a template concerns its pools, and the claims that wait for it.
    fn watch_templates(
        &self,
        tasks: &mut JoinSet<()>,
        queues: &Queues,
        pools: &Arc<Cache<SandboxWarmPool>>,
        claims: &Arc<Cache<SandboxClaim>>,
    ) -> Arc<Cache<SandboxTemplate>> {
        let (to, of_template, waiting) = (queues.clone(), pools.clone(), claims.clone());
        self.watch(
            tasks,
            watcher::Config::default(),
            move |change: Change<'_, SandboxTemplate>| {
                let (Change::Applied(template) | Change::Deleted(template)) = change;
                let key = crate::cache::key(template);
                to.templates.add_key(&key);
                let uses = |pool: &SandboxWarmPool| {
                    pool.metadata.namespace.as_deref() == Some(&key.0)
                        && pool.spec.sandbox_template_ref.name == key.1
                };
                let pools: Vec<_> = of_template
                    .all()
                    .into_iter()
                    .filter(|pool| uses(pool))
                    .collect();
                for pool in &pools {
                    to.pools.add_key(&crate::cache::key(&**pool));
                }
                wake(&to.claims, &waiting, &key.0, |requested| match requested {
                    Requested::Pool(name) => pools
                        .iter()
                        .any(|pool| pool.metadata.name.as_ref() == Some(name)),
                    Requested::TemplateAndPool { template, .. }
                    | Requested::AnyPool { template }
                    | Requested::NoPool { template } => *template == key.1,
                });
            },
        )
    }

    fn spawn_core(
        &self,
        running: &mut JoinSet<()>,
        stop: &CancellationToken,
        core: Core,
        requests: Requests<Sandbox>,
    ) {
        let store = core.sandboxes.store();
        let controller = Arc::new(SandboxController {
            cluster: Cluster::new(self.client.clone(), "sandbox-controller"),
            sandboxes: core.sandboxes,
            pods: core.pods,
            services: core.services,
            volume_claims: core.volume_claims,
            cluster_domain: self.args.cluster_domain.clone(),
            held: Mutex::default(),
        });
        let workers = self.args.sandbox_concurrent_workers;
        running.spawn(queue::run(
            "sandbox",
            store,
            requests,
            workers,
            stop.clone(),
            move |sandbox| controller.clone().reconcile(sandbox),
        ));
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "each is used once, and a struct of them has no other use"
    )]
    fn spawn_extensions(
        &self,
        running: &mut JoinSet<()>,
        stop: &CancellationToken,
        core: &Core,
        extensions: Extensions,
        candidates: Arc<Candidates>,
        claims: Requests<SandboxClaim>,
        pools: Requests<SandboxWarmPool>,
        templates: Requests<SandboxTemplate>,
    ) {
        let args = &self.args;
        let cluster = |manager| Cluster::new(self.client.clone(), manager);
        let of_templates = Arc::new(TemplateController {
            cluster: cluster("sandboxtemplate-controller"),
            templates: extensions.templates.clone(),
            policies: extensions.policies,
        });
        let of_pools = Arc::new(PoolController {
            cluster: cluster("warmpool-controller"),
            pools: extensions.pools.clone(),
            templates: extensions.templates.clone(),
            sandboxes: core.sandboxes.clone(),
            grace: Duration::from_secs(args.sandbox_warm_pool_readiness_grace_seconds),
            batch: args.sandbox_warm_pool_max_batch_size.into(),
            evictable: args.enable_warm_pool_eviction,
        });
        let of_claims = Arc::new(ClaimController {
            cluster: cluster("sandboxclaim-controller"),
            claims: extensions.claims.clone(),
            sandboxes: core.sandboxes.clone(),
            pools: extensions.pools.clone(),
            templates: extensions.templates.clone(),
            candidates,
            first_seen: Mutex::default(),
            events: !args.disable_claim_events,
        });
        let store = extensions.templates.store();
        let workers = args.sandbox_template_concurrent_workers;
        running.spawn(queue::run(
            "sandboxtemplate",
            store,
            templates,
            workers,
            stop.clone(),
            move |template| of_templates.clone().reconcile(template),
        ));
        let workers = args.sandbox_warm_pool_concurrent_workers;
        running.spawn(queue::run(
            "sandboxwarmpool",
            extensions.pools.store(),
            pools,
            workers,
            stop.clone(),
            move |pool| of_pools.clone().reconcile(pool),
        ));
        let workers = args.sandbox_claim_concurrent_workers;
        running.spawn(queue::run(
            "sandboxclaim",
            extensions.claims.store(),
            claims,
            workers,
            stop.clone(),
            move |claim| of_claims.clone().reconcile(claim),
        ));
    }
}
