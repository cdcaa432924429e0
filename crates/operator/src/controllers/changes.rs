//! The reconciles that a change of an object asks for.

use std::collections::{HashMap, HashSet};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_crds::convert::{Requested, requested};
use shoal_crds::names::annotation::ALPHA_SANDBOX;
use shoal_crds::names::label;
use shoal_crds::v1beta1::{Sandbox, SandboxClaim};

use crate::cache::{Cache, Key, Kind};
use crate::owner;
use crate::pool::members_group;
use crate::queue::Queue;

/// How often pools whose members have changed are reconciled. One pass then counts many changes, and refilling
/// a pool leaves the API server to the claims that emptied it.
const POOL_INTERVAL: Duration = Duration::from_millis(100);

/// Drops what no controller reads of a sandbox: its v1alpha1 form. That there is one matters. Sandboxes of one template
/// share its pod.
pub(super) fn trim_sandbox(sandbox: &mut Sandbox) {
    trim(sandbox);
    sandbox.spec.pod_template.spec.share();
    if let Some(annotations) = &mut sandbox.metadata.annotations
        && let Some(form) = annotations.get_mut(ALPHA_SANDBOX)
    {
        *form = String::new();
    }
}

/// Drops what no controller reads of any object.
pub(super) fn trim<K: Kind>(object: &mut K) {
    if let Some(annotations) = &mut object.meta_mut().annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
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
pub(super) struct ChangedPools<P: Kind> {
    changed: Arc<Mutex<HashSet<Key>>>,
    /// The pool of each member: a claim takes a member away from it.
    pools: HashMap<Key, Key>,
    group: &'static str,
    kind: PhantomData<fn() -> P>,
}

impl<P: Kind> ChangedPools<P> {
    /// For the pools of a group.
    pub(super) fn new(group: &'static str) -> Self {
        Self {
            changed: Arc::default(),
            pools: HashMap::new(),
            group,
            kind: PhantomData,
        }
    }

    pub(super) fn applied<K: Kind>(&mut self, member: &K) {
        let key = crate::cache::key(member);
        let pool = owner::controller(member.meta())
            .filter(|owner| owner::is_of_kind(owner, self.group, &P::kind(&())))
            .map(|owner| (key.0.clone(), owner.name.clone()));
        let before = match &pool {
            Some(pool) => self.pools.insert(key, pool.clone()),
            None => self.pools.remove(&key),
        };
        self.changed.lock().extend(before.into_iter().chain(pool));
    }

    pub(super) fn deleted<K: Kind>(&mut self, member: &K) {
        let before = self.pools.remove(&crate::cache::key(member));
        self.changed.lock().extend(before);
    }

    /// Asks for the reconciles.
    pub(super) fn forward(&self, queue: Queue<P>) -> impl Future<Output = ()> + Send + use<P> {
        let changed = self.changed.clone();
        async move {
            loop {
                tokio::time::sleep(POOL_INTERVAL).await;
                let changed = std::mem::take(&mut *changed.lock());
                for pool in changed {
                    queue.add_key(&pool);
                }
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
