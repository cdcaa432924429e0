//! The plan of a pool: which members to create, adopt and delete.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use shoal_crds::hash;
use shoal_crds::names::label;
use shoal_crds::parts::UpdateStrategyKind;
use shoal_crds::v1beta1::{Sandbox, SandboxTemplate, SandboxWarmPool};

use crate::blueprint::Blueprint;
use crate::conditions;
use crate::owner::{self, Owner};

/// The actions.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// How many members to create.
    pub(super) create: usize,
    /// Members without a controller to take over.
    pub(super) adopt: Vec<Arc<Sandbox>>,
    /// Members to delete.
    pub(super) delete: Vec<Arc<Sandbox>>,
    /// Members that stay.
    pub(super) replicas: usize,
    /// Members that stay and are ready.
    pub(super) ready: usize,
    /// When the oldest member that is not ready has waited too long.
    pub(super) look_again: Option<Duration>,
}

/// Plans for the sandboxes that carry the pool's label, of which each has an age. Without a template nothing is created, and no
/// member counts as outdated.
pub(super) fn plan(
    pool: &SandboxWarmPool,
    template: Option<&SandboxTemplate>,
    labelled: &[Arc<Sandbox>],
    grace: Duration,
    age: impl Fn(&Sandbox) -> Duration,
) -> Plan {
    let uid = pool.metadata.uid.as_deref().unwrap_or_default();
    let desired = usize::try_from(pool.spec.replicas.unwrap_or(1)).unwrap_or(0);
    let strategy = pool
        .spec
        .update_strategy
        .as_ref()
        .and_then(|strategy| strategy.kind);
    let recreate = strategy == Some(UpdateStrategyKind::Recreate);
    let current = template.map(|template| Current::of(pool, template));
    let mut plan = Plan::default();
    let mut terminating = 0;
    let mut members = Vec::new();
    for sandbox in labelled {
        let owned = owner::owner(&sandbox.metadata, uid);
        if matches!(owned, Owner::Other(_)) {
            continue;
        }
        if sandbox.metadata.deletion_timestamp.is_some() {
            terminating += 1;
            continue;
        }
        let outdated = current.as_ref().is_some_and(|current| !current.is(sandbox));
        match owned {
            Owner::Nobody if outdated => {
                plan.delete.push(sandbox.clone());
                continue;
            }
            Owner::Nobody => plan.adopt.push(sandbox.clone()),
            _ if recreate && outdated => {
                plan.delete.push(sandbox.clone());
                continue;
            }
            _ => {}
        }
        match waited_too_long(sandbox, grace, &age) {
            Waiting::TooLong => plan.delete.push(sandbox.clone()),
            Waiting::Left(left) => {
                plan.look_again = Some(plan.look_again.map_or(left, |known| known.min(left)));
                members.push(sandbox.clone());
            }
            Waiting::Ready => members.push(sandbox.clone()),
        }
    }
    if members.len() > desired {
        // Members that are not ready first, then the newest.
        members.sort_by_key(|member| (is_ready(member), std::cmp::Reverse(created(member))));
        plan.delete.extend(members.drain(..members.len() - desired));
    } else if template.is_some() {
        plan.create = desired.saturating_sub(members.len() + terminating);
    }
    plan.adopt.retain(|adopted| {
        !plan
            .delete
            .iter()
            .any(|deleted| Arc::ptr_eq(adopted, deleted))
    });
    plan.replicas = members.len();
    plan.ready = members.iter().filter(|member| is_ready(member)).count();
    plan
}

/// The expected member of the current template.
struct Current {
    template_hash: String,
    blueprint_hash: String,
    blueprint: Blueprint,
}

impl Current {
    fn of(pool: &SandboxWarmPool, template: &SandboxTemplate) -> Self {
        let blueprint = Blueprint::of(template);
        Self {
            template_hash: hash::of_name(&pool.spec.sandbox_template_ref.name),
            blueprint_hash: blueprint.hash(),
            blueprint,
        }
    }

    /// Equal hashes suffice. Where they differ, the contents decide: other controllers compute other
    /// hashes.
    fn is(&self, sandbox: &Sandbox) -> bool {
        let label = |key: &str| {
            sandbox
                .metadata
                .labels
                .as_ref()
                .and_then(|labels| labels.get(key))
        };
        label(label::TEMPLATE_REF_HASH) == Some(&self.template_hash)
            && (label(label::TEMPLATE_HASH) == Some(&self.blueprint_hash)
                || self.blueprint.matches(&sandbox.spec))
    }
}

enum Waiting {
    Ready,
    /// It is not ready, and may take this long.
    Left(Duration),
    TooLong,
}

/// A member whose pod no node can take is kept: a new one would not fit either.
fn waited_too_long(
    sandbox: &Sandbox,
    grace: Duration,
    age: impl Fn(&Sandbox) -> Duration,
) -> Waiting {
    if is_ready(sandbox) {
        return Waiting::Ready;
    }
    let scheduled = sandbox
        .status
        .as_ref()
        .and_then(|status| conditions::find(&status.conditions, "PodScheduled"));
    if scheduled.is_some_and(|state| state.status == "False" && state.reason == "Unschedulable") {
        return Waiting::Left(Duration::from_secs(60));
    }
    match grace.checked_sub(age(sandbox)) {
        Some(left) if !left.is_zero() => Waiting::Left(left + Duration::from_secs(2)),
        _ => Waiting::TooLong,
    }
}

pub(crate) fn is_ready(sandbox: &Sandbox) -> bool {
    sandbox.status.as_ref().is_some_and(|status| {
        conditions::find(&status.conditions, "Ready").is_some_and(|ready| ready.status == "True")
    })
}

fn created(sandbox: &Sandbox) -> Timestamp {
    sandbox
        .metadata
        .creation_timestamp
        .as_ref()
        .map_or(Timestamp::MAX, |time| time.0)
}

/// The status as JSON.
pub(super) fn status(pool: &SandboxWarmPool, plan: &Plan) -> Value {
    let hash = hash::of_name(pool.metadata.name.as_deref().unwrap_or_default());
    serde_json::json!({
        "replicas": plan.replicas,
        "readyReplicas": plan.ready,
        "selector": format!("{}={hash}", label::WARM_POOL),
        "observedGeneration": pool.metadata.generation,
    })
}

#[cfg(test)]
mod tests;
