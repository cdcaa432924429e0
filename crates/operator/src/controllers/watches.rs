//! The watches, and which change asks for which reconcile.

use std::collections::HashMap;
use std::sync::Arc;

use kube::Api;
use kube::runtime::watcher;
use shoal_crds::convert::Requested;
use shoal_crds::names::{EXTENSIONS_GROUP, GROUP, label};
use shoal_crds::v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool};
use shoal_tasks::Tasks;

use super::changes::{ChangedPools, add_controller, pool_group, trim_sandbox, wake};
use super::{Controllers, Queues};
use crate::cache::{Cache, Change, Kind, key, watch_kind};
use crate::claim::{Candidates, Startups};
use crate::slim::{NetworkPolicy, PersistentVolumeClaim, Pod, Service};

/// The caches of the Sandbox controller, and the members of pools among the sandboxes.
pub(super) struct Core {
    pub(super) sandboxes: Arc<Cache<Sandbox>>,
    pub(super) pods: Arc<Cache<Pod>>,
    pub(super) services: Arc<Cache<Service>>,
    pub(super) volume_claims: Arc<Cache<PersistentVolumeClaim>>,
    pub(super) candidates: Arc<Candidates>,
}

impl Core {
    /// Waits until all objects are listed.
    pub(super) async fn synced(&self) {
        self.sandboxes.synced().await;
        self.pods.synced().await;
        self.services.synced().await;
        self.volume_claims.synced().await;
    }
}

/// The caches of the other controllers.
pub(super) struct Extensions {
    pub(super) claims: Arc<Cache<SandboxClaim>>,
    pub(super) pools: Arc<Cache<SandboxWarmPool>>,
    pub(super) templates: Arc<Cache<SandboxTemplate>>,
    pub(super) policies: Arc<Cache<NetworkPolicy>>,
    pub(super) startups: Arc<Startups>,
}

impl Extensions {
    /// Waits until all objects are listed.
    pub(super) async fn synced(&self) {
        self.claims.synced().await;
        self.pools.synced().await;
        self.templates.synced().await;
        self.policies.synced().await;
    }
}

impl Controllers {
    fn watch<K: Kind>(
        &self,
        tasks: &mut Tasks,
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
        tasks.spawn("watch", watch);
        cache
    }

    pub(super) fn watch_core(&self, tasks: &mut Tasks, queues: &Queues) -> Core {
        let candidates = Arc::new(Candidates::default());
        let (to, offered) = (queues.clone(), candidates.clone());
        let mut pools = ChangedPools::new(EXTENSIONS_GROUP);
        tasks.spawn("changed pools", pools.forward(queues.pools.clone()));
        let (sandboxes, watch) = watch_kind(
            Api::<Sandbox>::all(self.client.clone()),
            watcher::Config::default(),
            trim_sandbox,
            pool_group,
            move |change| {
                let (Change::Applied(sandbox) | Change::Deleted(sandbox)) = change;
                if let Change::Applied(_) = change {
                    offered.applied(sandbox);
                    pools.applied(sandbox);
                    to.sandboxes.add_key(&key(sandbox));
                } else {
                    offered.deleted(sandbox);
                    pools.deleted(sandbox);
                }
                add_controller(&to.claims, sandbox, EXTENSIONS_GROUP);
            },
        );
        tasks.spawn("watch", watch);
        Core {
            sandboxes,
            pods: self.watch_children(tasks, queues),
            services: self.watch_children(tasks, queues),
            volume_claims: self.watch_children(tasks, queues),
            candidates,
        }
    }

    /// Watches a kind whose objects have the label of sandboxes. Their controllers are reconciled.
    fn watch_children<K: Kind>(&self, tasks: &mut Tasks, queues: &Queues) -> Arc<Cache<K>> {
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

    pub(super) fn watch_extensions(&self, tasks: &mut Tasks, queues: &Queues) -> Extensions {
        let all = watcher::Config::default;
        let startups = Arc::new(Startups::default());
        let (to, seen) = (queues.claims.clone(), startups.clone());
        let claims = self.watch(tasks, all(), move |change: Change<'_, SandboxClaim>| {
            if let Change::Deleted(claim) = change
                && let Some(uid) = &claim.metadata.uid
            {
                seen.forget(uid);
            }
            let (Change::Applied(claim) | Change::Deleted(claim)) = change;
            to.add_key(&key(claim));
        });
        let (to, waiting) = (queues.clone(), claims.clone());
        let mut generations = HashMap::new();
        let pools = self.watch(tasks, all(), move |change: Change<'_, SandboxWarmPool>| {
            let (Change::Applied(pool) | Change::Deleted(pool)) = change;
            let pool_key = key(pool);
            to.pools.add_key(&pool_key);
            // A change of the status concerns no claim.
            let generation = pool.metadata.generation;
            let before = match change {
                Change::Applied(_) => generations.insert(pool_key.clone(), generation),
                Change::Deleted(_) => generations.remove(&pool_key).and(None),
            };
            if before != Some(generation) {
                wake(
                    &to.claims,
                    &waiting,
                    &pool_key.0,
                    |requested| match requested {
                        Requested::Pool(pool) | Requested::TemplateAndPool { pool, .. } => {
                            *pool == pool_key.1
                        }
                        Requested::AnyPool { template } => {
                            *template == pool.spec.sandbox_template_ref.name
                        }
                        Requested::NoPool { .. } => false,
                    },
                );
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
            startups,
        }
    }

    /// A change of a template concerns its pools, and the claims that wait for it.
    fn watch_templates(
        &self,
        tasks: &mut Tasks,
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
                let template_key = key(template);
                to.templates.add_key(&template_key);
                let uses = |pool: &SandboxWarmPool| {
                    pool.metadata.namespace.as_deref() == Some(&template_key.0)
                        && pool.spec.sandbox_template_ref.name == template_key.1
                };
                let pools: Vec<_> = of_template
                    .all()
                    .into_iter()
                    .filter(|pool| uses(pool))
                    .collect();
                for pool in &pools {
                    to.pools.add_key(&key(&**pool));
                }
                wake(
                    &to.claims,
                    &waiting,
                    &template_key.0,
                    |requested| match requested {
                        Requested::Pool(name) => pools
                            .iter()
                            .any(|pool| pool.metadata.name.as_ref() == Some(name)),
                        Requested::TemplateAndPool { template, .. }
                        | Requested::AnyPool { template }
                        | Requested::NoPool { template } => *template == template_key.1,
                    },
                );
            },
        )
    }
}
