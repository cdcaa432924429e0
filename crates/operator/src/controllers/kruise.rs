//! The controllers of `agents.kruise.io`.

mod watches;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_crds::kruise::{
    Checkpoint, Picks, PoolAutoscaler, Sandbox, SandboxClaim, SandboxSet, SandboxTemplate,
    SandboxUpdateOps, TrafficPolicy,
};
use shoal_tasks::{TaskEnded, Tasks};
use tokio_util::sync::CancellationToken;

use super::{Controllers, Requests, Running, Shared};
use crate::args::InjectRuntime;
use crate::cache::Cache;
use crate::endpoints::{Endpoints, Gauges};
use crate::held::Held;
use crate::kruise::{
    AutoscalerController, AutoscalerTimes, CheckpointController, NoInternet, Pod, ReplicaSet,
    RuntimeInjection, SandboxClaimController, SandboxController, SandboxSetController,
    TrafficPolicyController, UpdateOpsController, render_gauges,
};
use crate::queue::Queue;
use crate::saves::Saves;
use crate::slim::NetworkPolicy;

/// How many checkpoints are reconciled at once.
const CHECKPOINT_WORKERS: u16 = 10;
/// How many traffic policies are reconciled at once.
const TRAFFIC_WORKERS: u16 = 10;

/// How many autoscalers are reconciled at once.
const AUTOSCALER_WORKERS: u16 = 10;

/// The queues of the controllers.
#[derive(Clone)]
struct Queues {
    sandboxes: Queue<Sandbox>,
    sets: Queue<SandboxSet>,
    claims: Queue<SandboxClaim>,
    checkpoints: Queue<Checkpoint>,
    traffic: Queue<TrafficPolicy>,
    updates: Queue<SandboxUpdateOps>,
    scalers: Queue<PoolAutoscaler>,
}

/// The caches.
struct Caches {
    sandboxes: Arc<Cache<Sandbox>>,
    sets: Arc<Cache<SandboxSet>>,
    claims: Arc<Cache<SandboxClaim>>,
    templates: Arc<Cache<SandboxTemplate>>,
    pods: Arc<Cache<Pod>>,
    replica_sets: Arc<Cache<ReplicaSet>>,
    policies: Arc<Cache<NetworkPolicy>>,
    checkpoints: Arc<Cache<Checkpoint>>,
    traffic: Arc<Cache<TrafficPolicy>>,
    updates: Arc<Cache<SandboxUpdateOps>>,
    scalers: Arc<Cache<PoolAutoscaler>>,
}

impl Caches {
    /// The gauges of the objects.
    fn gauges(&self) -> Gauges {
        let (sandboxes, sets) = (self.sandboxes.clone(), self.sets.clone());
        let claims = self.claims.clone();
        Box::new(move || render_gauges(&sandboxes.all(), &sets.all(), &claims.all()))
    }

    /// Waits until all objects are listed.
    async fn synced(&self) {
        self.sandboxes.synced().await;
        self.sets.synced().await;
        self.claims.synced().await;
        self.templates.synced().await;
        self.pods.synced().await;
        self.replica_sets.synced().await;
        self.policies.synced().await;
        self.checkpoints.synced().await;
        self.traffic.synced().await;
        self.updates.synced().await;
        self.scalers.synced().await;
    }
}

impl Controllers {
    /// Runs the controllers of `agents.kruise.io`, if they are turned on.
    pub(super) async fn run_kruise(
        &self,
        stop: CancellationToken,
        endpoints: &Endpoints,
        shared: &Shared,
    ) -> Result<(), TaskEnded> {
        if !self.args.kruise.kruise {
            return Ok(());
        }
        let mut watches = Tasks::default();
        let (sandboxes, sandbox_requests) = Queue::new();
        let (sets, set_requests) = Queue::new();
        let (claims, claim_requests) = Queue::new();
        let (checkpoints, checkpoint_requests) = Queue::new();
        let (traffic, traffic_requests) = Queue::new();
        let (updates, update_requests) = Queue::new();
        let (scalers, scaler_requests) = Queue::new();
        let queues = Queues {
            sandboxes,
            sets,
            claims,
            checkpoints,
            traffic,
            updates,
            scalers,
        };
        let caches = self.watch_kruise(&mut watches, &queues, shared);
        tokio::select! {
            () = caches.synced() => {}
            () = stop.cancelled() => return Ok(()),
            ended = watches.ended() => return Err(ended),
        }
        tracing::info!(
            sandboxes = caches.sandboxes.all().len(),
            "synced agents.kruise.io"
        );
        endpoints.gauges.write().push(caches.gauges());
        shared.saves.offer(self.saves(&caches));
        let mut running = Running::new(&stop);
        // An unread receiver would keep every request, so it is dropped.
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
        self.start_updates(&mut running, &caches, update_requests);
        if let Some(requests) = gates.pool_autoscaler.then_some(scaler_requests) {
            self.start_autoscalers(&mut running, &caches, requests);
        }
        running.finish(watches).await
    }

    /// The checkpoints of pauses.
    fn saves(&self, caches: &Caches) -> Saves {
        Saves {
            cluster: self.cluster("sandbox-controller"),
            checkpoints: caches.checkpoints.clone(),
        }
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

    fn start_updates(
        &self,
        running: &mut Running,
        caches: &Caches,
        requests: Requests<SandboxUpdateOps>,
    ) {
        let controller = Arc::new(UpdateOpsController {
            cluster: self.cluster("sandboxupdateops-controller"),
            updates: caches.updates.clone(),
            sandboxes: caches.sandboxes.clone(),
            templates: caches.templates.clone(),
        });
        let reconcile = move |ops| controller.clone().reconcile(ops);
        let (updates, workers) = (&caches.updates, self.args.kruise.sandboxupdateops_workers);
        running.start("sandboxupdateops", updates, requests, workers, reconcile);
    }

    fn start_autoscalers(
        &self,
        running: &mut Running,
        caches: &Caches,
        requests: Requests<PoolAutoscaler>,
    ) {
        let args = &self.args.kruise;
        let seconds = |seconds: u16| Duration::from_secs(seconds.into());
        let controller = Arc::new(AutoscalerController::new(
            self.cluster("poolautoscaler-controller"),
            caches.scalers.clone(),
            caches.sets.clone(),
            caches.sandboxes.clone(),
            AutoscalerTimes {
                interval: seconds(args.poolautoscaler_sampling_interval_seconds),
                window: seconds(args.poolautoscaler_observation_window_seconds),
                pending: seconds(args.max_pending_timeout),
            },
        ));
        let reconcile = move |scaler| controller.clone().reconcile(scaler);
        let (scalers, workers) = (&caches.scalers, AUTOSCALER_WORKERS);
        running.start("poolautoscaler", scalers, requests, workers, reconcile);
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
            saves: self.saves(caches),
            replica_sets: caches.replica_sets.clone(),
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
