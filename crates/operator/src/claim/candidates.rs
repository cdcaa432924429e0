//! The members of pools that a claim could take, in the order of their age.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use parking_lot::Mutex;
use shoal_crds::names::{EXTENSIONS_GROUP, label};
use shoal_crds::v1beta1::Sandbox;

use crate::cache::Key;
use crate::owner;
use crate::pool::is_ready;

/// A pool: its namespace and the hash of its name.
pub(super) type PoolKey = (String, String);

/// How far a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its pod has no address yet.
    Pending,
    /// Its pod has an address.
    Networked,
    /// It is ready.
    Ready,
}

/// A member that waits.
struct Member {
    stage: Stage,
    node: String,
}

/// The members of a pool.
#[derive(Default)]
struct Members {
    /// By age, and by name.
    waiting: BTreeMap<(Timestamp, String), Member>,
    /// The node of the one that was taken last.
    last: String,
}

impl Members {
    /// The oldest member in this stage: of another node than the last one, if there is such.
    fn best(&self, stage: Stage) -> Option<(&String, &Member)> {
        let found = self
            .waiting
            .iter()
            .filter(|(_, member)| member.stage == stage);
        let mut found = found.map(|((_, name), member)| (name, member));
        let oldest = found.next()?;
        if oldest.1.node != self.last {
            return Some(oldest);
        }
        found
            .find(|(_, member)| member.node != self.last)
            .or(Some(oldest))
    }
}

/// The members that wait.
#[derive(Default)]
pub(crate) struct Candidates {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pools: HashMap<PoolKey, Members>,
    /// The place of each member, so that a change finds it.
    places: HashMap<Key, (PoolKey, Timestamp)>,
}

impl State {
    fn remove(&mut self, key: &Key) {
        if let Some((pool, created)) = self.places.remove(key)
            && let Some(members) = self.pools.get_mut(&pool)
        {
            members.waiting.remove(&(created, key.1.clone()));
            if members.waiting.is_empty() {
                self.pools.remove(&pool);
            }
        }
    }
}

/// The pool of a sandbox that a claim may take.
pub(super) fn pool_of(sandbox: &Sandbox) -> Option<PoolKey> {
    let metadata = &sandbox.metadata;
    let label = |key: &str| metadata.labels.as_ref().and_then(|labels| labels.get(key));
    let owned = owner::controller(metadata)
        .is_some_and(|owner| owner::is_of_kind(owner, EXTENSIONS_GROUP, "SandboxWarmPool"));
    if metadata.deletion_timestamp.is_some() || !owned || label(label::TEMPLATE_REF_HASH).is_none()
    {
        return None;
    }
    Some((
        metadata.namespace.clone()?,
        label(label::WARM_POOL)?.clone(),
    ))
}

fn waiting(sandbox: &Sandbox) -> Member {
    let node = sandbox
        .status
        .as_ref()
        .map(|status| status.node_name.clone());
    Member {
        stage: stage(sandbox),
        node: node.unwrap_or_default(),
    }
}

fn stage(sandbox: &Sandbox) -> Stage {
    if is_ready(sandbox) {
        return Stage::Ready;
    }
    let networked = sandbox
        .status
        .as_ref()
        .is_some_and(|status| !status.pod_ips.is_empty());
    if networked {
        Stage::Networked
    } else {
        Stage::Pending
    }
}

/// The result of a search.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A member, which no other claim gets until it is offered again.
    Taken(Key),
    /// Only members without an address.
    Pending,
    /// None.
    Empty,
}

impl Candidates {
    /// Learns of a sandbox.
    pub(crate) fn applied(&self, sandbox: &Sandbox) {
        let key = crate::cache::key(sandbox);
        let created = sandbox
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::MAX, |time| time.0);
        let mut state = self.state.lock();
        state.remove(&key);
        if let Some(pool) = pool_of(sandbox) {
            state
                .pools
                .entry(pool.clone())
                .or_default()
                .waiting
                .insert((created, key.1.clone()), waiting(sandbox));
            state.places.insert(key, (pool, created));
        }
    }

    /// Learns that a sandbox is gone.
    pub(crate) fn deleted(&self, sandbox: &Sandbox) {
        self.state.lock().remove(&crate::cache::key(sandbox));
    }

    /// Takes the oldest member that is ready, or else the oldest with an address. Members of other nodes than the last
    /// one's come first, so that claims at one time are spread over nodes.
    pub(super) fn take(&self, pool: &PoolKey) -> Found {
        let mut state = self.state.lock();
        let Some(members) = state.pools.get(pool) else {
            return Found::Empty;
        };
        let best = members
            .best(Stage::Ready)
            .or_else(|| members.best(Stage::Networked));
        let Some((name, member)) = best else {
            return Found::Pending;
        };
        let (key, node) = ((pool.0.clone(), name.clone()), member.node.clone());
        if let Some(members) = state.pools.get_mut(pool) {
            members.last = node;
        }
        state.remove(&key);
        Found::Taken(key)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn member(name: &str, second: i64, ready: &str, owner: &str) -> Sandbox {
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "namespace": "ns",
                "creationTimestamp": Timestamp::from_second(second).unwrap().to_string(),
                "labels": {label::WARM_POOL: "p", label::TEMPLATE_REF_HASH: "t"},
                "ownerReferences": [{"apiVersion": "extensions.agents.x-k8s.io/v1alpha1", "kind": owner, "name": "p",
                                     "uid": "u", "controller": true}],
            },
            "spec": {"podTemplate": {"spec": {}}},
            "status": {
                "podIPs": if ready == "pending" { json!([]) } else { json!(["10.0.0.1"]) },
                "conditions": [{"type": "Ready", "status": if ready == "ready" { "True" } else { "False" },
                                "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            },
        }))
        .unwrap()
    }

    fn pool() -> PoolKey {
        ("ns".to_owned(), "p".to_owned())
    }

    fn taken(name: &str) -> Found {
        Found::Taken(("ns".to_owned(), name.to_owned()))
    }

    #[test]
    fn the_oldest_ready_member_is_taken_once() {
        let candidates = Candidates::default();
        assert_eq!(candidates.take(&pool()), Found::Empty);
        candidates.applied(&member("pending", 1, "pending", "SandboxWarmPool"));
        assert_eq!(candidates.take(&pool()), Found::Pending);
        candidates.applied(&member("networked", 2, "networked", "SandboxWarmPool"));
        candidates.applied(&member("young", 4, "ready", "SandboxWarmPool"));
        candidates.applied(&member("old", 3, "ready", "SandboxWarmPool"));
        for name in ["old", "young", "networked"] {
            assert_eq!(candidates.take(&pool()), taken(name));
        }
        assert_eq!(candidates.take(&pool()), Found::Pending);
    }

    #[test]
    fn claims_are_spread_over_nodes() {
        let candidates = Candidates::default();
        for (second, (name, node)) in [
            ("a", "n1"),
            ("b", "n1"),
            ("c", "n1"),
            ("d", "n2"),
            ("e", "n2"),
        ]
        .into_iter()
        .enumerate()
        {
            let second = i64::try_from(second).unwrap();
            let mut waiting = member(name, second, "ready", "SandboxWarmPool");
            node.clone_into(&mut waiting.status.get_or_insert_default().node_name);
            candidates.applied(&waiting);
        }
        for name in ["a", "d", "b", "e", "c"] {
            assert_eq!(candidates.take(&pool()), taken(name));
        }
        assert_eq!(candidates.take(&pool()), Found::Empty);
    }

    #[test]
    fn a_member_leaves_when_it_is_claimed_or_deleted() {
        let candidates = Candidates::default();
        candidates.applied(&member("a", 1, "ready", "SandboxWarmPool"));
        candidates.applied(&member("a", 1, "ready", "SandboxClaim"));
        candidates.applied(&member("b", 1, "ready", "SandboxWarmPool"));
        candidates.deleted(&member("b", 1, "ready", "SandboxWarmPool"));
        assert_eq!(candidates.take(&pool()), Found::Empty);
    }
}
