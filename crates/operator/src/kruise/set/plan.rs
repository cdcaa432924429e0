//! The plan of a pool: how many sandboxes to create, and which to delete.

use std::cmp::Reverse;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use shoal_crds::kruise::names::{SCALE_DOWN_LOCK, annotation, label};
use shoal_crds::kruise::{Sandbox, SandboxPhase, SandboxSet, SandboxState};

/// The limit of an update, where a set has none.
const DEFAULT_UPDATE: &str = "20%";

/// The actions, and the counts for the status.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// How many sandboxes to create.
    pub(super) create: usize,
    /// Sandboxes that will never be ready.
    pub(super) dead: Vec<Arc<Sandbox>>,
    /// Sandboxes that an earlier pass has locked and not deleted.
    pub(super) locked: Vec<Arc<Sandbox>>,
    /// Sandboxes beyond the wanted number.
    pub(super) surplus: Vec<Arc<Sandbox>>,
    /// Sandboxes of an old revision.
    pub(super) outdated: Vec<Arc<Sandbox>>,
    /// Sandboxes that stay.
    pub(super) replicas: usize,
    /// The available members.
    pub(super) available: usize,
    /// The members of the newest revision.
    pub(super) updated: usize,
    /// The available members of the newest revision.
    pub(super) updated_available: usize,
}

/// A sandbox of the pool.
struct Member {
    sandbox: Arc<Sandbox>,
    available: bool,
    updated: bool,
    /// Whether a claim holds it at this moment.
    held: bool,
}

/// Plans for the sandboxes that the set controls. A claim takes a sandbox away from it.
pub(super) fn plan(
    set: &SandboxSet,
    revision: &str,
    owned: &[Arc<Sandbox>],
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    let mut members = Vec::new();
    for sandbox in owned {
        if sandbox.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let lock = annotation_of(sandbox, annotation::LOCK);
        if lock == SCALE_DOWN_LOCK {
            plan.locked.push(sandbox.clone());
            continue;
        }
        let (state, _) = SandboxState::of(sandbox, now);
        if state == SandboxState::Dead {
            plan.dead.push(sandbox.clone());
            continue;
        }
        members.push(Member {
            sandbox: sandbox.clone(),
            available: state == SandboxState::Available,
            updated: is_of(sandbox, revision),
            held: !lock.is_empty(),
        });
    }
    let wanted = usize::try_from(set.spec.replicas).unwrap_or_default();
    if members.len() < wanted {
        plan.create = (wanted - members.len()).min(room(set, wanted, &members));
    } else if members.len() > wanted {
        let surplus = members.len() - wanted;
        plan.surplus = take(&mut members, surplus);
    } else {
        plan.outdated = outdated(set, &mut members);
    }
    let count = |which: fn(&Member) -> bool| members.iter().filter(|one| which(one)).count();
    plan.replicas = members.len();
    plan.available = count(|one| one.available);
    plan.updated = count(|one| one.updated);
    plan.updated_available = count(|one| one.updated && one.available);
    plan
}

/// Whether a sandbox is of a revision.
pub(super) fn is_of(sandbox: &Sandbox, revision: &str) -> bool {
    let labels = sandbox.metadata.labels.as_ref();
    let hash = labels.and_then(|labels| labels.get(label::TEMPLATE_HASH));
    hash.is_some_and(|hash| hash == revision)
}

fn annotation_of<'a>(sandbox: &'a Sandbox, key: &str) -> &'a str {
    let annotations = sandbox.metadata.annotations.as_ref();
    annotations
        .and_then(|known| known.get(key))
        .map_or("", String::as_str)
}

/// How many more sandboxes may be on their way.
fn room(set: &SandboxSet, wanted: usize, members: &[Member]) -> usize {
    let limit = set
        .spec
        .scale_strategy
        .as_ref()
        .and_then(|strategy| strategy.max_unavailable.as_ref());
    let Some(limit) = limit else {
        return usize::MAX;
    };
    let creating = members.iter().filter(|one| !one.available).count();
    resolve(limit, wanted).saturating_sub(creating)
}

/// A number, or a percentage of a whole, rounded up. One that cannot be read blocks.
pub(in crate::kruise) fn resolve(limit: &IntOrString, of: usize) -> usize {
    match limit {
        IntOrString::Int(number) => usize::try_from(*number).unwrap_or_default(),
        IntOrString::String(text) => match text.strip_suffix('%') {
            Some(percentage) => percentage
                .parse::<usize>()
                .map_or(0, |percentage| of.saturating_mul(percentage).div_ceil(100)),
            None => text.parse().unwrap_or_default(),
        },
    }
}

/// Takes the members that are the least loss. Those that a claim holds stay.
fn take(members: &mut Vec<Member>, count: usize) -> Vec<Arc<Sandbox>> {
    members.sort_by_key(|one| {
        let status = one.sandbox.status.as_ref();
        let phase = status.and_then(|status| status.phase).unwrap_or_default();
        let recycled = status.map_or(0, |status| status.recycled_count);
        (
            one.held,
            one.updated,
            phase != SandboxPhase::Pending,
            Reverse(recycled),
            one.available,
            created(&one.sandbox),
        )
    });
    let free = members.iter().filter(|one| !one.held).count();
    members
        .drain(..count.min(free))
        .map(|one| one.sandbox)
        .collect()
}

/// Members of an old revision that may be replaced now: all that are not available yet, and as many others as
/// the limit admits, the oldest first.
fn outdated(set: &SandboxSet, members: &mut Vec<Member>) -> Vec<Arc<Sandbox>> {
    let limit = set
        .spec
        .update_strategy
        .as_ref()
        .and_then(|strategy| strategy.max_unavailable.clone())
        .unwrap_or_else(|| IntOrString::String(DEFAULT_UPDATE.to_owned()));
    let creating = members.iter().filter(|one| one.updated && !one.available);
    let mut room = resolve(&limit, members.len()).saturating_sub(creating.count());
    members.sort_by_key(|one| created(&one.sandbox));
    let mut outdated = Vec::new();
    members.retain(|one| {
        if one.updated || one.held {
            return true;
        }
        if one.available {
            if room == 0 {
                return true;
            }
            room -= 1;
        }
        outdated.push(one.sandbox.clone());
        false
    });
    outdated
}

fn created(sandbox: &Sandbox) -> Timestamp {
    let time = sandbox.metadata.creation_timestamp.as_ref();
    time.map_or(Timestamp::MAX, |time| time.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-01-02T00:00:00Z";

    fn set(replicas: usize, more: Value) -> SandboxSet {
        let mut spec = json!({"replicas": replicas});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec}))
            .unwrap()
    }

    /// A sandbox: its name, its age in seconds, its revision, its phase, and whether it is ready.
    fn member(name: &str, age: i64, revision: &str, phase: &str, ready: bool) -> Arc<Sandbox> {
        let now: Timestamp = NOW.parse().unwrap();
        let created = Timestamp::from_second(now.as_second() - age).unwrap();
        let owner = json!({
            "apiVersion": "agents.kruise.io/v1alpha1", "kind": "SandboxSet", "name": "p", "uid": "u",
            "controller": true,
        });
        let ready = json!({
            "type": "Ready", "status": if ready { "True" } else { "False" }, "reason": "PodReady", "message": "",
            "lastTransitionTime": NOW,
        });
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {
                    "name": name, "ownerReferences": [owner], "labels": {label::TEMPLATE_HASH: revision},
                    "creationTimestamp": created.to_string(),
                },
                "spec": {}, "status": {"phase": phase, "conditions": [ready]},
            }))
            .unwrap(),
        )
    }

    fn ready(name: &str, age: i64, revision: &str) -> Arc<Sandbox> {
        member(name, age, revision, "Running", true)
    }

    fn of(set: &SandboxSet, members: &[Arc<Sandbox>]) -> Plan {
        plan(set, "new", members, NOW.parse().unwrap())
    }

    fn names(sandboxes: &[Arc<Sandbox>]) -> Vec<&str> {
        sandboxes
            .iter()
            .filter_map(|one| one.metadata.name.as_deref())
            .collect()
    }

    #[test]
    fn missing_sandboxes_are_created_up_to_the_limit() {
        let one = [member("a", 1, "new", "Pending", false)];
        assert_eq!(of(&set(10, json!({})), &one).create, 9);
        let limited = |limit: Value| {
            let limited = set(10, json!({"scaleStrategy": {"maxUnavailable": limit}}));
            of(&limited, &one).create
        };
        assert_eq!(limited(json!(3)), 2);
        assert_eq!(limited(json!("25%")), 2);
        assert_eq!(limited(json!(0)), 0);
        assert_eq!(limited(json!("100%")), 9);
    }

    #[test]
    fn the_least_useful_sandboxes_go_first() {
        let members = [
            ready("ready", 9, "new"),
            ready("old", 1, "before"),
            member("pending", 1, "new", "Pending", false),
            member("unready", 1, "new", "Running", false),
            ready("older", 99, "new"),
        ];
        let order = ["old", "pending", "unready", "older", "ready"];
        for count in 0..=5 {
            let plan = of(&set(5 - count, json!({})), &members);
            assert_eq!(names(&plan.surplus), order[..count]);
        }
    }

    #[test]
    fn recycled_sandboxes_go_before_those_that_are_not_ready() {
        let mut recycled = (*ready("recycled", 1, "new")).clone();
        recycled.status.as_mut().unwrap().recycled_count = 2;
        let members = [
            member("unready", 1, "new", "Running", false),
            Arc::new(recycled),
        ];
        let plan = of(&set(1, json!({})), &members);
        assert_eq!(names(&plan.surplus), ["recycled"]);
    }

    #[test]
    fn what_a_claim_holds_stays_and_what_we_locked_goes() {
        let locked = |name: &str, by: &str| {
            let mut sandbox = (*ready(name, 1, "before")).clone();
            let lock = [(annotation::LOCK.to_owned(), by.to_owned())];
            sandbox.metadata.annotations = Some(lock.into());
            Arc::new(sandbox)
        };
        let members = [locked("held", "claim"), locked("ours", SCALE_DOWN_LOCK)];
        let plan = of(&set(0, json!({})), &members);
        assert_eq!(names(&plan.surplus), Vec::<&str>::new());
        assert_eq!(names(&plan.locked), ["ours"]);
        let plan = of(&set(1, json!({})), &members);
        assert_eq!(names(&plan.outdated), Vec::<&str>::new());
    }

    #[test]
    fn dead_sandboxes_are_deleted_and_replaced() {
        let members = [
            member("dead", 1, "new", "Failed", false),
            ready("a", 1, "new"),
        ];
        let plan = of(&set(2, json!({})), &members);
        assert_eq!(names(&plan.dead), ["dead"]);
        assert_eq!((plan.create, plan.replicas), (1, 1));
    }

    #[test]
    fn an_update_replaces_the_oldest_up_to_the_limit() {
        let members: Vec<_> = (0..10)
            .map(|n| ready(&format!("s{n}"), n, "before"))
            .collect();
        let plan = of(&set(10, json!({})), &members);
        assert_eq!(names(&plan.outdated), ["s9", "s8"]);
        assert_eq!((plan.replicas, plan.create), (8, 0));
        let half = json!({"updateStrategy": {"maxUnavailable": "45%"}});
        assert_eq!(of(&set(10, half), &members).outdated.len(), 5);
        let none = json!({"updateStrategy": {"maxUnavailable": 0}});
        assert_eq!(of(&set(10, none), &members).outdated.len(), 0);
    }

    #[test]
    fn an_update_waits_for_new_sandboxes_but_not_for_old_ones_that_start() {
        let members = [
            ready("available", 5, "before"),
            member("starts", 1, "before", "Pending", false),
            member("new", 1, "new", "Pending", false),
        ];
        let one = json!({"updateStrategy": {"maxUnavailable": 1}});
        let plan = of(&set(3, one), &members);
        assert_eq!(names(&plan.outdated), ["starts"]);
    }

    #[test]
    fn an_update_begins_when_the_number_is_right() {
        let members = [ready("a", 1, "before"), ready("b", 1, "before")];
        let plan = of(&set(3, json!({})), &members);
        assert_eq!((plan.create, plan.outdated.len()), (1, 0));
    }
}
