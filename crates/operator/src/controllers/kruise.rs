//! The watches and controllers of `agents.kruise.io`.

use std::sync::Arc;

use kube::Api;
use kube::runtime::watcher;
use parking_lot::Mutex;
use shoal_crds::kruise::names::{GROUP, label};
use shoal_crds::kruise::{Picks, Sandbox, SandboxClaim, SandboxSet, SandboxTemplate};
use shoal_tasks::{TaskEnded, Tasks};
use tokio_util::sync::CancellationToken;

use super::changes::{ChangedPools, add_controller, trim};
use super::{Controllers, Requests, Running};
use crate::args::InjectRuntime;
use crate::cache::{Cache, Change, Kind, key, watch_kind};
use crate::held::Held;
use crate::kruise::{
    Pod, RuntimeInjection, SandboxClaimController, SandboxController, SandboxSetController,
    claim_group,
};
use crate::queue::Queue;

/// The queues of the controllers.
#[derive(Clone)]
struct Queues {
    sandboxes: Queue<Sandbox>,
    sets: Queue<SandboxSet>,
    claims: Queue<SandboxClaim>,
}

/// The caches.
struct Caches {
    sandboxes: Arc<Cache<Sandbox>>,
    sets: Arc<Cache<SandboxSet>>,
    claims: Arc<Cache<SandboxClaim>>,
    templates: Arc<Cache<SandboxTemplate>>,
    pods: Arc<Cache<Pod>>,
}

impl Caches {
    /// Waits until all objects are listed.
    async fn synced(&self) {
        self.sandboxes.synced().await;
        self.sets.synced().await;
        self.claims.synced().await;
        self.templates.synced().await;
        self.pods.synced().await;
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
        let queues = Queues {
            sandboxes,
            sets,
            claims,
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
        if self.args.kruise.feature_gates.sandbox {
            self.start_kruise_sandboxes(&mut running, &caches, sandbox_requests);
        }
        if self.args.kruise.feature_gates.sandbox_set {
            self.start_sets(&mut running, &caches, set_requests);
        }
        if self.args.kruise.feature_gates.sandbox_claim {
            self.start_claims(&mut running, &caches, claim_requests);
        }
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
        Caches {
            sandboxes,
            sets,
            claims,
            templates,
            pods,
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

    fn start_sets(&self, running: &mut Running, caches: &Caches, requests: Requests<SandboxSet>) {
        let args = &self.args.kruise;
        let controller = Arc::new(SandboxSetController::new(
            self.cluster("sandboxset-controller"),
            caches.sets.clone(),
            caches.templates.clone(),
            caches.sandboxes.clone(),
            args.sandboxset_initial_batch_size.into(),
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
