//! Which change of an object asks for which reconcile.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_crds::convert::{Requested, requested};
use shoal_crds::names::annotation::ALPHA_SANDBOX;
use shoal_crds::names::{EXTENSIONS_GROUP, label};
use shoal_crds::v1beta1::{Sandbox, SandboxClaim, SandboxWarmPool};

use crate::cache::{Cache, Key, Kind};
use crate::owner;
use crate::pool::members_group;
use crate::queue::Queue;

/// How often pools whose members have changed are reconciled. One pass then counts many changes, and refilling
/// a pool leaves the API server to the claims that emptied it.
const POOL_INTERVAL: Duration = Duration::from_millis(100);

/// Drops what no controller reads of a sandbox: its v1alpha1 form. That there is one matters.
pub(super) fn trim_sandbox(sandbox: &mut Sandbox) {
    if let Some(annotations) = &mut sandbox.metadata.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        if let Some(form) = annotations.get_mut(ALPHA_SANDBOX) {
            *form = String::new();
        }
    }
}

/// The group of pool members.
pub(super) fn pool_group(sandbox: &Sandbox) -> Option<String> {
    let hash = sandbox.metadata.labels.as_ref()?.get(label::WARM_POOL)?;
    Some(members_group(sandbox.metadata.namespace.as_deref()?, hash))
}

/// Asks for a reconcile of the object's controller, if it is of a kind.
pub(super) fn add_controller<C: Kind, K: Kind>(queue: &Queue<C>, object: &K, group: &str) {
    let of_kind = owner::controller(object.meta())
        .filter(|owner| owner::is_of_kind(owner, group, &C::kind(&())));
    if let Some(owner) = of_kind {
        queue.add(
            object.meta().namespace.as_deref().unwrap_or_default(),
            &owner.name,
        );
    }
}

/// The pools whose members have changed since their last reconcile.
#[derive(Clone, Default)]
pub(super) struct ChangedPools {
    changed: Arc<Mutex<HashSet<Key>>>,
    /// The pool of each member: a claim takes a member away from it.
    pools: HashMap<Key, Key>,
}

impl ChangedPools {
    pub(super) fn applied(&mut self, sandbox: &Sandbox) {
        let key = crate::cache::key(sandbox);
        let pool = owner::controller(&sandbox.metadata)
            .filter(|owner| owner::is_of_kind(owner, EXTENSIONS_GROUP, "SandboxWarmPool"))
            .map(|owner| (key.0.clone(), owner.name.clone()));
        let before = match &pool {
            Some(pool) => self.pools.insert(key, pool.clone()),
            None => self.pools.remove(&key),
        };
        self.changed.lock().extend(before.into_iter().chain(pool));
    }

    pub(super) fn deleted(&mut self, sandbox: &Sandbox) {
        let before = self.pools.remove(&crate::cache::key(sandbox));
        self.changed.lock().extend(before);
    }

    pub(super) async fn forward(self, queue: Queue<SandboxWarmPool>) {
        loop {
            tokio::time::sleep(POOL_INTERVAL).await;
            let changed = std::mem::take(&mut *self.changed.lock());
            for pool in changed {
                queue.add_key(&pool);
            }
        }
    }
}

/// Asks for a reconcile of the claims of a namespace that have no sandbox yet and request a certain source.
pub(super) fn wake(
    queue: &Queue<SandboxClaim>,
    claims: &Cache<SandboxClaim>,
    namespace: &str,
    concerns: impl Fn(&Requested) -> bool,
) {
    for claim in claims.all() {
        let waits = claim
            .status
            .as_ref()
            .is_none_or(|status| status.sandbox.name.is_empty());
        if waits
            && claim.metadata.namespace.as_deref() == Some(namespace)
            && concerns(&requested(&claim))
        {
            queue.add_key(&crate::cache::key(&*claim));
        }
    }
}
