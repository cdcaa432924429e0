//! The watches and controllers of a leader.

mod changes;
mod kruise;
mod watches;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kube::Client;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use shoal_crds::v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool};
use shoal_protocol::pass::InitSecret;
use shoal_tasks::{TaskEnded, Tasks};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use crate::adoptions::Adoptions;
use crate::args::OperatorArgs;
use crate::cache::{Cache, Kind};
use crate::claim::ClaimController;
use crate::cluster::Cluster;
use crate::endpoints::Endpoints;
use crate::failure::Failure;
use crate::held::{Held, Paced};
use crate::pool::{Ages, PoolController, Refill};
use crate::population;
use crate::queue::{self, Queue};
use crate::sandbox::SandboxController;
use crate::saves::SharedSaves;
use crate::template::TemplateController;

use self::watches::{Core, Extensions};

/// How long reconciles under way may take after a stop.
const STOP: Duration = Duration::from_secs(10);

type Requests<K> = UnboundedReceiver<ObjectRef<K>>;

/// The queues of all controllers.
#[derive(Clone)]
struct Queues {
    sandboxes: Queue<Sandbox>,
    claims: Queue<SandboxClaim>,
    pools: Queue<SandboxWarmPool>,
    templates: Queue<SandboxTemplate>,
}

/// The link from the controllers of `agents.kruise.io` to those of `agents.x-k8s.io`.
struct Shared {
    /// Asks for reconciles of the sandboxes whose checkpoints change.
    sandboxes: Queue<Sandbox>,
    saves: SharedSaves,
}

/// The other ends of the queues of the extensions.
struct ExtensionRequests {
    claims: Requests<SandboxClaim>,
    pools: Requests<SandboxWarmPool>,
    templates: Requests<SandboxTemplate>,
}

fn queues(sandboxes: Queue<Sandbox>) -> (Queues, ExtensionRequests) {
    let (claims, claim_requests) = Queue::new();
    let (pools, pool_requests) = Queue::new();
    let (templates, template_requests) = Queue::new();
    let queues = Queues {
        sandboxes,
        claims,
        pools,
        templates,
    };
    let extensions = ExtensionRequests {
        claims: claim_requests,
        pools: pool_requests,
        templates: template_requests,
    };
    (queues, extensions)
}

/// The controllers that run.
struct Running {
    tasks: Tasks,
    stop: CancellationToken,
}

impl Running {
    fn new(stop: &CancellationToken) -> Self {
        Self {
            tasks: Tasks::default(),
            stop: stop.clone(),
        }
    }

    /// Waits until `stop`, and for the reconciles that are under way then.
    async fn finish(mut self, mut watches: Tasks) -> Result<(), TaskEnded> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            ended = watches.ended() => return Err(ended),
            ended = self.tasks.ended() => if !self.stop.is_cancelled() {
                return Err(ended);
            }
        }
        match tokio::time::timeout(STOP, self.tasks.finish()).await {
            Ok(ended) => ended,
            Err(_) => {
                tracing::warn!("reconciles did not end in time");
                Ok(())
            }
        }
    }

    /// Starts the controller of a kind.
    fn start<K, F, R>(
        &mut self,
        name: &'static str,
        cache: &Cache<K>,
        requests: Requests<K>,
        workers: u16,
        reconcile: F,
    ) where
        K: Kind,
        F: Fn(Arc<K>) -> R + Send + 'static,
        R: Future<Output = Result<Action, Failure>> + Send + 'static,
    {
        let (store, stop) = (cache.store(), self.stop.clone());
        let controller = queue::run(name, store, requests, workers, stop, reconcile);
        self.tasks.spawn(name, controller);
    }
}

/// Starts the watches and controllers of a leader.
pub(crate) struct Controllers {
    args: OperatorArgs,
    client: Client,
    init_secret: Option<InitSecret>,
}

impl Controllers {
    pub(crate) fn new(
        args: &OperatorArgs,
        client: Client,
        init_secret: Option<InitSecret>,
    ) -> Self {
        Self {
            args: args.clone(),
            client,
            init_secret,
        }
    }

    /// Runs until `stop`.
    ///
    /// # Errors
    /// When a watch or a controller ends before.
    pub(crate) async fn run(
        self,
        stop: CancellationToken,
        endpoints: &Endpoints,
    ) -> Result<(), TaskEnded> {
        let (sandbox_queue, sandboxes) = Queue::new();
        let shared = Shared {
            sandboxes: sandbox_queue,
            saves: SharedSaves::new(self.args.kruise.kruise),
        };
        // Where the definitions of one group are missing, the controllers of the other run.
        tokio::try_join!(
            self.run_community(stop.clone(), endpoints, &shared, sandboxes),
            self.run_kruise(stop, endpoints, &shared),
        )?;
        Ok(())
    }

    /// Runs the controllers of `agents.x-k8s.io` and its extensions.
    async fn run_community(
        &self,
        stop: CancellationToken,
        endpoints: &Endpoints,
        shared: &Shared,
        sandboxes: Requests<Sandbox>,
    ) -> Result<(), TaskEnded> {
        let mut watches = Tasks::default();
        let (queues, requests) = queues(shared.sandboxes.clone());
        let core = self.watch_core(&mut watches, &queues);
        let extensions = self
            .args
            .extensions
            .then(|| self.watch_extensions(&mut watches, &queues));
        let synced = async {
            core.synced().await;
            if let Some(extensions) = &extensions {
                extensions.synced().await;
            }
        };
        tokio::select! {
            () = synced => {}
            () = stop.cancelled() => return Ok(()),
            ended = watches.ended() => return Err(ended),
        }
        tracing::info!(sandboxes = core.sandboxes.all().len(), "synced");
        endpoints.ready.store(true, Ordering::Relaxed);
        // A process leads at most once.
        let counted = core.sandboxes.clone();
        let gauge = move || population::render(&counted.all());
        endpoints.gauges.write().push(Box::new(gauge));
        let mut running = Running::new(&stop);
        if let Some(extensions) = extensions {
            self.start_extensions(&mut running, &core, extensions, requests);
        }
        self.start_core(&mut running, core, sandboxes, shared.saves.clone());
        running.finish(watches).await
    }

    fn cluster(&self, manager: &'static str) -> Cluster {
        Cluster::new(self.client.clone(), manager)
    }

    fn start_core(
        &self,
        running: &mut Running,
        core: Core,
        requests: Requests<Sandbox>,
        saves: SharedSaves,
    ) {
        let sandboxes = core.sandboxes.clone();
        let controller = Arc::new(SandboxController {
            cluster: self.cluster("sandbox-controller"),
            sandboxes: core.sandboxes,
            pods: core.pods,
            services: core.services,
            volume_claims: core.volume_claims,
            cluster_domain: self.args.cluster_domain.clone(),
            held: Held::default(),
            saves,
        });
        let workers = self.args.sandbox_concurrent_workers;
        let reconcile = move |sandbox| controller.clone().reconcile(sandbox);
        running.start("sandbox", &sandboxes, requests, workers, reconcile);
    }

    fn start_extensions(
        &self,
        running: &mut Running,
        core: &Core,
        extensions: Extensions,
        requests: ExtensionRequests,
    ) {
        let args = &self.args;
        let Extensions {
            claims,
            pools,
            templates,
            policies,
            startups,
        } = extensions;
        let controller = Arc::new(TemplateController {
            cluster: self.cluster("sandboxtemplate-controller"),
            templates: templates.clone(),
            policies,
        });
        let workers = args.sandbox_template_concurrent_workers;
        let reconcile = move |template| controller.clone().reconcile(template);
        running.start(
            "sandboxtemplate",
            &templates,
            requests.templates,
            workers,
            reconcile,
        );
        let adoptions = Adoptions::default();
        let controller = Arc::new(PoolController {
            cluster: self.cluster("warmpool-controller"),
            pools: pools.clone(),
            templates: templates.clone(),
            sandboxes: core.sandboxes.clone(),
            grace: args.sandbox_warm_pool_readiness_grace_period,
            batch: args.sandbox_warm_pool_max_batch_size.into(),
            evictable: args.enable_warm_pool_eviction,
            refill: Refill::new(
                args.sandbox_warm_pool_max_refill_rate,
                args.sandbox_warm_pool_replenish_delay,
            ),
            ages: Ages::default(),
            paced: Paced::default(),
            adoptions: adoptions.clone(),
        });
        let (queue, workers) = (requests.pools, args.sandbox_warm_pool_concurrent_workers);
        let reconcile = move |pool| controller.clone().reconcile(pool);
        running.start("sandboxwarmpool", &pools, queue, workers, reconcile);
        let controller = Arc::new(ClaimController {
            cluster: self.cluster("sandboxclaim-controller"),
            claims: claims.clone(),
            sandboxes: core.sandboxes.clone(),
            pools,
            templates,
            candidates: core.candidates.clone(),
            startups,
            adoptions,
            events: !args.disable_claim_events,
        });
        let workers = args.sandbox_claim_concurrent_workers;
        let reconcile = move |claim| controller.clone().reconcile(claim);
        running.start("sandboxclaim", &claims, requests.claims, workers, reconcile);
    }
}
