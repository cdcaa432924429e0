//! The watches of `agents.kruise.io`, and which change asks for which reconcile.

use std::sync::Arc;

use kube::Api;
use kube::runtime::watcher;
use shoal_crds::kruise::names::{GROUP, label};
use shoal_crds::kruise::{
    Checkpoint, PoolAutoscaler, Sandbox, SandboxClaim, SandboxSet, SandboxTemplate,
    SandboxUpdateOps, TrafficPolicy,
};
use shoal_tasks::Tasks;

use super::{Caches, Queues};
use crate::cache::{Cache, Change, Kind, key, watch_kind};
use crate::controllers::changes::{ChangedPools, add_controller, trim};
use crate::controllers::{Controllers, Shared};
use crate::kruise::{
    CREATOR, Pod, ReplicaSet, autoscaler_group, checkpoint_group, claim_group, update_of,
    update_ops_group,
};
use crate::queue::Queue;
use crate::slim::NetworkPolicy;

impl Controllers {
    /// Watches a kind. `notify` learns of each change.
    fn watch_all<K: Kind>(
        &self,
        tasks: &mut Tasks,
        config: watcher::Config,
        group: fn(&K) -> Option<String>,
        notify: impl FnMut(Change<'_, K>) + Send + 'static,
    ) -> Arc<Cache<K>> {
        self.watch_trimmed(tasks, config, trim, group, notify)
    }

    /// The same, with a `trim` of the kind's own.
    fn watch_trimmed<K: Kind>(
        &self,
        tasks: &mut Tasks,
        config: watcher::Config,
        trim: fn(&mut K),
        group: fn(&K) -> Option<String>,
        notify: impl FnMut(Change<'_, K>) + Send + 'static,
    ) -> Arc<Cache<K>> {
        let api = Api::<K>::all(self.client.clone());
        let (cache, watch) = watch_kind(api, config, trim, group, notify);
        tasks.spawn("watch", watch);
        cache
    }

    pub(super) fn watch_kruise(
        &self,
        tasks: &mut Tasks,
        queues: &Queues,
        shared: &Shared,
    ) -> Caches {
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
        let pods = self.watch_pods(tasks, queues);
        let replica_sets = self.watch_replica_sets(tasks, queues);
        let policies = self.watch_policies(tasks, queues, &sets);
        let checkpoints = self.watch_checkpoints(tasks, queues, shared);
        let traffic = self.watch_traffic(tasks, queues);
        let updates = self.watch_updates(tasks, queues);
        let scalers = self.watch_autoscalers(tasks, queues);
        Caches {
            sandboxes,
            sets,
            claims,
            templates,
            pods,
            replica_sets,
            policies,
            checkpoints,
            traffic,
            updates,
            scalers,
        }
    }

    fn watch_pods(&self, tasks: &mut Tasks, queues: &Queues) -> Arc<Cache<Pod>> {
        let to = queues.sandboxes.clone();
        self.watch_all(
            tasks,
            watcher::Config::default().labels(label::SANDBOX_NAME),
            |_| None,
            move |change: Change<'_, Pod>| {
                let (Change::Applied(pod) | Change::Deleted(pod)) = change;
                add_controller(&to, pod, GROUP);
                // The pod of a ReplicaSet. Names of such sandboxes are values of labels.
                if let Some(name) = pod.label(label::SANDBOX_NAME) {
                    to.add(pod.metadata.namespace.as_deref().unwrap_or_default(), name);
                }
            },
        )
    }

    fn watch_replica_sets(&self, tasks: &mut Tasks, queues: &Queues) -> Arc<Cache<ReplicaSet>> {
        let to = queues.sandboxes.clone();
        self.watch_all(
            tasks,
            watcher::Config::default().labels(label::SANDBOX_NAME),
            |_| None,
            move |change: Change<'_, ReplicaSet>| {
                let (Change::Applied(set) | Change::Deleted(set)) = change;
                add_controller(&to, set, GROUP);
            },
        )
    }

    fn watch_sandboxes(&self, tasks: &mut Tasks, queues: &Queues) -> Arc<Cache<Sandbox>> {
        let (to, claims) = (queues.sandboxes.clone(), queues.claims.clone());
        let updates = queues.updates.clone();
        let mut changed = ChangedPools::new(GROUP);
        tasks.spawn("changed sets", changed.forward(queues.sets.clone()));
        self.watch_trimmed(
            tasks,
            watcher::Config::default(),
            trim_sandbox,
            claim_group,
            move |change: Change<'_, Sandbox>| match change {
                Change::Applied(sandbox) => {
                    changed.applied(sandbox);
                    to.add_key(&key(sandbox));
                    wake_claim(&claims, sandbox);
                    wake_update(&updates, sandbox);
                }
                Change::Deleted(sandbox) => {
                    changed.deleted(sandbox);
                    wake_claim(&claims, sandbox);
                    wake_update(&updates, sandbox);
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

    fn watch_updates(&self, tasks: &mut Tasks, queues: &Queues) -> Arc<Cache<SandboxUpdateOps>> {
        let to = queues.updates.clone();
        self.watch_all(
            tasks,
            watcher::Config::default(),
            update_ops_group,
            move |change: Change<'_, SandboxUpdateOps>| {
                if let Change::Applied(ops) = change {
                    to.add_key(&key(ops));
                }
            },
        )
    }

    fn watch_autoscalers(&self, tasks: &mut Tasks, queues: &Queues) -> Arc<Cache<PoolAutoscaler>> {
        let to = queues.scalers.clone();
        self.watch_all(
            tasks,
            watcher::Config::default(),
            autoscaler_group,
            move |change: Change<'_, PoolAutoscaler>| {
                if let Change::Applied(scaler) = change {
                    to.add_key(&key(scaler));
                }
            },
        )
    }

    fn watch_checkpoints(
        &self,
        tasks: &mut Tasks,
        queues: &Queues,
        shared: &Shared,
    ) -> Arc<Cache<Checkpoint>> {
        let (to, sandboxes) = (queues.checkpoints.clone(), queues.sandboxes.clone());
        let of_community = shared.sandboxes.clone();
        self.watch_all(
            tasks,
            watcher::Config::default(),
            checkpoint_group,
            move |change: Change<'_, Checkpoint>| {
                // A sandbox waits for the checkpoint of its pause.
                let (Change::Applied(checkpoint) | Change::Deleted(checkpoint)) = change;
                add_controller(&sandboxes, checkpoint, GROUP);
                add_controller(&of_community, checkpoint, shoal_crds::names::GROUP);
                if let Change::Applied(checkpoint) = change {
                    to.add_key(&key(checkpoint));
                }
            },
        )
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

/// Queues the update that has started with a sandbox.
fn wake_update(queue: &Queue<SandboxUpdateOps>, sandbox: &Sandbox) {
    if let Some(update) = update_of(sandbox) {
        queue.add(
            sandbox.metadata.namespace.as_deref().unwrap_or_default(),
            update,
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

/// Drops what no controller reads of a sandbox. Sandboxes of one template share its pod.
fn trim_sandbox(sandbox: &mut Sandbox) {
    trim(sandbox);
    if let Some(template) = &mut sandbox.spec.template {
        template.spec.share();
    }
}
