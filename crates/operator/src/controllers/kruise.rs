//! The watches and controllers of `agents.kruise.io`.

use std::sync::Arc;

use kube::Api;
use kube::runtime::watcher;
use parking_lot::Mutex;
use shoal_crds::kruise::names::{GROUP, label};
use shoal_crds::kruise::{
    Checkpoint, Picks, Sandbox, SandboxClaim, SandboxSet, SandboxTemplate, TrafficPolicy,
};
use shoal_tasks::{TaskEnded, Tasks};
use tokio_util::sync::CancellationToken;

use super::changes::{ChangedPools, add_controller, trim};
use super::{Controllers, Requests, Running};
use crate::args::InjectRuntime;
use crate::cache::{Cache, Change, Kind, key, watch_kind};
use crate::held::Held;
use crate::kruise::{
    CREATOR, CheckpointController, NoInternet, Pod, RuntimeInjection, SandboxClaimController,
    SandboxController, SandboxSetController, TrafficPolicyController, checkpoint_group,
    claim_group,
};
use crate::queue::Queue;
use crate::slim::NetworkPolicy;

/// How many checkpoints are reconciled at once.
const CHECKPOINT_WORKERS: u16 = 10;
/// How many traffic policies are reconciled at once.
const TRAFFIC_WORKERS: u16 = 10;

/// The queues of the controllers.
#[derive(Clone)]
struct Queues {
    sandboxes: Queue<Sandbox>,
    sets: Queue<SandboxSet>,
    claims: Queue<SandboxClaim>,
    checkpoints: Queue<Checkpoint>,
    traffic: Queue<TrafficPolicy>,
}

/// The caches.
struct Caches {
    sandboxes: Arc<Cache<Sandbox>>,
    sets: Arc<Cache<SandboxSet>>,
    claims: Arc<Cache<SandboxClaim>>,
    templates: Arc<Cache<SandboxTemplate>>,
    pods: Arc<Cache<Pod>>,
    policies: Arc<Cache<NetworkPolicy>>,
    checkpoints: Arc<Cache<Checkpoint>>,
    traffic: Arc<Cache<TrafficPolicy>>,
}

impl Caches {
    /// Waits until all objects are listed.
    async fn synced(&self) {
        self.sandboxes.synced().await;
        self.sets.synced().await;
        self.claims.synced().await;
        self.templates.synced().await;
        self.pods.synced().await;
        self.policies.synced().await;
        self.checkpoints.synced().await;
        self.traffic.synced().await;
    }
}

impl Controllers {
    /// Runs the controllers of `agents.kruise.io`, if they are turned on.
    pub(super) async fn run_kruise(&self, stop: CancellationToken) -> Result<(), TaskEnded> {
        if !self.args.kruise.kruise {
            return Ok(());
        }
        let mut watches = Tasks::default();
        let (sandboxes, sandbox_requests) = Queue::new();
        let (sets, set_requests) = Queue::new();
        let (claims, claim_requests) = Queue::new();
        let (checkpoints, checkpoint_requests) = Queue::new();
        let (traffic, traffic_requests) = Queue::new();
        let queues = Queues {
            sandboxes,
            sets,
            claims,
            checkpoints,
            traffic,
        };
        let caches = self.watch_kruise(&mut watches, &queues);
        tokio::select! {
            () = caches.synced() => {}
            () = stop.cancelled() => return Ok(()),
            ended = watches.ended() => return Err(ended),
        }
        tracing::info!(
            sandboxes = caches.sandboxes.all().len(),
            "synced agents.kruise.io"
        );
        let mut running = Running::new(&stop);
        // A receiver that nobody reads would keep every request: it is dropped.
        let gates = self.args.kruise.feature_gates;
        if let Some(requests) = gates.sandbox.then_some(sandbox_requests) {
            self.start_kruise_sandboxes(&mut running, &caches, requests);
        }
        if let Some(requests) = gates.sandbox_set.then_some(set_requests) {
            self.start_sets(&mut running, &caches, requests);
        }
        if let Some(requests) = gates.sandbox_claim.then_some(claim_requests) {
            self.start_claims(&mut running, &caches, requests);
        }
        self.start_checkpoints(&mut running, &caches, checkpoint_requests);
        self.start_traffic(&mut running, &caches, traffic_requests);
        running.finish(watches).await
    }

    /// Watches a kind. `notify` learns of each change.
    fn watch_all<K: Kind>(
        &self,
        tasks: &mut Tasks,
        config: watcher::Config,
        group: fn(&K) -> Option<String>,
        notify: impl FnMut(Change<'_, K>) + Send + 'static,
    ) -> Arc<Cache<K>> {
        let api = Api::<K>::all(self.client.clone());
        let (cache, watch) = watch_kind(api, config, trim, group, notify);
        tasks.spawn("watch", watch);
        cache
    }

    fn watch_kruise(&self, tasks: &mut Tasks, queues: &Queues) -> Caches {
        let all = watcher::Config::default;
        let sandboxes = self.watch_sandboxes(tasks, queues);
        let to = queues.sets.clone();
        let sets = self.watch_all(
            tasks,
            all(),
            |_| None,
            move |change: Change<'_, SandboxSet>| {
                let (Change::Applied(set) | Change::Deleted(set)) = change;
                to.add_key(&key(set));
            },
        );
        let to = queues.claims.clone();
        let claims = self.watch_all(
            tasks,
            all(),
            |_| None,
            move |change: Change<'_, SandboxClaim>| {
                if let Change::Applied(claim) = change {
                    to.add_key(&key(claim));
                }
            },
        );
        let (to, known) = (queues.sandboxes.clone(), sandboxes.clone());
        let templates = self.watch_all(
            tasks,
            all(),
            |_| None,
            move |change: Change<'_, SandboxTemplate>| {
                let (Change::Applied(template) | Change::Deleted(template)) = change;
                wake(&to, &known, template);
            },
        );
        let to = queues.sandboxes.clone();
        let pods = self.watch_all(
            tasks,
            all().labels(label::SANDBOX_NAME),
            |_| None,
            move |change: Change<'_, Pod>| {
                let (Change::Applied(pod) | Change::Deleted(pod)) = change;
                add_controller(&to, pod, GROUP);
            },
        );
        let policies = self.watch_policies(tasks, queues, &sets);
        let checkpoints = self.watch_checkpoints(tasks, queues);
        let traffic = self.watch_traffic(tasks, queues);
        Caches {
            sandboxes,
            sets,
            claims,
            templates,
            pods,
            policies,
            checkpoints,
            traffic,
        }
    }

    fn watch_sandboxes(&self, tasks: &mut Tasks, queues: &Queues) -> Arc<Cache<Sandbox>> {
        let (to, claims) = (queues.sandboxes.clone(), queues.claims.clone());
        let mut changed = ChangedPools::new(GROUP);
        tasks.spawn("changed sets", changed.forward(queues.sets.clone()));
        self.watch_all(
            tasks,
            watcher::Config::default(),
            claim_group,
            move |change: Change<'_, Sandbox>| match change {
                Change::Applied(sandbox) => {
                    changed.applied(sandbox);
                    to.add_key(&key(sandbox));
                    wake_claim(&claims, sandbox);
                }
                Change::Deleted(sandbox) => {
                    changed.deleted(sandbox);
                    wake_claim(&claims, sandbox);
                }
            },
        )
    }

    fn watch_policies(
        &self,
        tasks: &mut Tasks,
        queues: &Queues,
        sets: &Arc<Cache<SandboxSet>>,
    ) -> Arc<Cache<NetworkPolicy>> {
        let (to, known) = (queues.sets.clone(), sets.clone());
        let traffic = queues.traffic.clone();
        let ours = format!("{}={CREATOR}", label::CREATED_BY);
        self.watch_all(
            tasks,
            watcher::Config::default().labels(&ours),
            |_| None,
            move |change: Change<'_, NetworkPolicy>| {
                let (Change::Applied(policy) | Change::Deleted(policy)) = change;
                wake_sets(&to, &known, policy);
                add_controller(&traffic, policy, GROUP);
            },
        )
    }

    fn watch_traffic(&self, tasks: &mut Tasks, queues: &Queues) -> Arc<Cache<TrafficPolicy>> {
        let to = queues.traffic.clone();
        self.watch_all(
            tasks,
            watcher::Config::default(),
            |_| None,
            move |change: Change<'_, TrafficPolicy>| {
                if let Change::Applied(policy) = change {
                    to.add_key(&key(policy));
                }
            },
        )
    }

    fn watch_checkpoints(&self, tasks: &mut Tasks, queues: &Queues) -> Arc<Cache<Checkpoint>> {
        let to = queues.checkpoints.clone();
        self.watch_all(
            tasks,
            watcher::Config::default(),
            checkpoint_group,
            move |change: Change<'_, Checkpoint>| {
                if let Change::Applied(checkpoint) = change {
                    to.add_key(&key(checkpoint));
                }
            },
        )
    }

    fn start_sets(&self, running: &mut Running, caches: &Caches, requests: Requests<SandboxSet>) {
        let args = &self.args.kruise;
        let controller = Arc::new(SandboxSetController::new(
            self.cluster("sandboxset-controller"),
            caches.sets.clone(),
            caches.templates.clone(),
            caches.sandboxes.clone(),
            args.sandboxset_initial_batch_size.into(),
            NoInternet {
                cluster: self.cluster("sandboxset-controller"),
                policies: caches.policies.clone(),
            },
        ));
        let reconcile = move |set| controller.clone().reconcile(set);
        running.start(
            "sandboxset",
            &caches.sets,
            requests,
            args.sandboxset_workers,
            reconcile,
        );
    }

    fn start_claims(
        &self,
        running: &mut Running,
        caches: &Caches,
        requests: Requests<SandboxClaim>,
    ) {
        let args = &self.args.kruise;
        let controller = Arc::new(SandboxClaimController {
            cluster: self.cluster("sandboxclaim-controller"),
            claims: caches.claims.clone(),
            sets: caches.sets.clone(),
            templates: caches.templates.clone(),
            sandboxes: caches.sandboxes.clone(),
            resizes: args.feature_gates.in_place_resize,
            injected: args.inject_runtime == InjectRuntime::Always,
            picks: Picks::default(),
            uncertain: Mutex::default(),
            slow: Mutex::default(),
        });
        let reconcile = move |claim| controller.clone().reconcile(claim);
        running.start(
            "kruise sandboxclaim",
            &caches.claims,
            requests,
            args.sandboxclaim_workers,
            reconcile,
        );
    }

    fn start_traffic(
        &self,
        running: &mut Running,
        caches: &Caches,
        requests: Requests<TrafficPolicy>,
    ) {
        let controller = Arc::new(TrafficPolicyController {
            cluster: self.cluster("trafficpolicy-controller"),
            traffic: caches.traffic.clone(),
            policies: caches.policies.clone(),
        });
        let reconcile = move |policy| controller.clone().reconcile(policy);
        let workers = TRAFFIC_WORKERS;
        running.start(
            "trafficpolicy",
            &caches.traffic,
            requests,
            workers,
            reconcile,
        );
    }

    fn start_checkpoints(
        &self,
        running: &mut Running,
        caches: &Caches,
        requests: Requests<Checkpoint>,
    ) {
        let controller = Arc::new(CheckpointController {
            cluster: self.cluster("checkpoint-controller"),
            checkpoints: caches.checkpoints.clone(),
            sandboxes: caches.sandboxes.clone(),
            templates: caches.templates.clone(),
            pods: caches.pods.clone(),
        });
        let reconcile = move |checkpoint| controller.clone().reconcile(checkpoint);
        let (checkpoints, workers) = (&caches.checkpoints, CHECKPOINT_WORKERS);
        running.start("checkpoint", checkpoints, requests, workers, reconcile);
    }

    fn start_kruise_sandboxes(
        &self,
        running: &mut Running,
        caches: &Caches,
        requests: Requests<Sandbox>,
    ) {
        let args = &self.args.kruise;
        let controller = Arc::new(SandboxController {
            cluster: self.cluster("sandbox-controller"),
            sandboxes: caches.sandboxes.clone(),
            templates: caches.templates.clone(),
            pods: caches.pods.clone(),
            injection: RuntimeInjection {
                always: args.inject_runtime == InjectRuntime::Always,
                image: args.runtime_image.clone(),
                secret: self.init_secret.clone(),
            },
            resizes: args.feature_gates.in_place_resize,
            held: Held::default(),
        });
        let reconcile = move |sandbox| controller.clone().reconcile(sandbox);
        running.start(
            "kruise sandbox",
            &caches.sandboxes,
            requests,
            args.sandbox_workers,
            reconcile,
        );
    }
}

/// Asks for a reconcile of one set of the policy's namespace, which keeps the policy.
fn wake_sets(queue: &Queue<SandboxSet>, sets: &Cache<SandboxSet>, policy: &NetworkPolicy) {
    let all = sets.all();
    let mut here = all
        .iter()
        .filter(|set| set.metadata.namespace == policy.metadata.namespace)
        .filter(|set| set.metadata.deletion_timestamp.is_none());
    if let Some(set) = here.next() {
        queue.add_key(&key(&**set));
    }
}

/// Asks for a reconcile of the claim of a sandbox.
fn wake_claim(queue: &Queue<SandboxClaim>, sandbox: &Sandbox) {
    if let Some(claim) = sandbox.label(label::CLAIM_NAME) {
        queue.add(
            sandbox.metadata.namespace.as_deref().unwrap_or_default(),
            claim,
        );
    }
}

/// Asks for a reconcile of the sandboxes without a pod that refer to a template.
fn wake(queue: &Queue<Sandbox>, sandboxes: &Cache<Sandbox>, template: &SandboxTemplate) {
    for sandbox in sandboxes.all() {
        let refers =
            sandbox.metadata.namespace == template.metadata.namespace
                && sandbox.spec.template.is_none()
                && sandbox.spec.template_ref.as_ref().is_some_and(|reference| {
                    Some(&reference.name) == template.metadata.name.as_ref()
                });
        if refers {
            queue.add_key(&key(&*sandbox));
        }
    }
}
