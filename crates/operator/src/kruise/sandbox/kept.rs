//! Sandboxes whose pods are made by ReplicaSets of one, as Agent-Sandbox makes them.
//!
//! The sandbox stays the record. Its ReplicaSet has the sandbox's name and always its newest pod template; this
//! controller is the only writer of its size, which is one, and zero for a paused sandbox. It follows the ReplicaSet's
//! pod and creates none.

use std::sync::Arc;

use serde_json::{Value, json};
use shoal_crds::kruise::names::{label, label_value};
use shoal_crds::kruise::{Sandbox, SandboxPhase};

use super::phase::{Action, Seen};
use super::pod::{self, Blueprint};
use super::{SandboxController, Step, phase_of};
use crate::cache::key;
use crate::failure::{Failure, is_conflict, is_missing};
use crate::kruise::Pod;
use crate::kruise::slim::ReplicaSet;
use crate::owner::{self, Owner};
use crate::restore;
use crate::write;

/// Labels that Agent-Sandbox's tools select by, beside those of the template.
const OWNER: &str = "owner";
const OWNER_NAME: &str = "agent-sandbox";
const SANDBOX: &str = "sandbox";

/// The longest name of a sandbox with a ReplicaSet: it is the value of a label.
const LONGEST_NAME: usize = 63;

/// The existing objects of a kept sandbox.
#[derive(Debug, Default)]
pub(super) struct Kept {
    set: Option<Arc<ReplicaSet>>,
    pod: Option<Arc<Pod>>,
    /// Why no pod comes, if that is known.
    why: String,
    /// The other object with the name, if there is one.
    foreign: Option<String>,
}

impl Kept {
    fn of(sandbox: &Sandbox, set: Option<Arc<ReplicaSet>>, pods: Vec<Arc<Pod>>) -> Self {
        let uid = sandbox.metadata.uid.as_deref().unwrap_or_default();
        let Some(set) = set else {
            return Self::default();
        };
        match owner::owner(&set.metadata, uid) {
            Owner::Own => {}
            Owner::Nobody => return Self::foreign("a ReplicaSet without a controller".to_owned()),
            Owner::Other(other) => {
                let told = format!("a ReplicaSet of {}", owner::describe(other));
                return Self::foreign(told);
            }
        }
        Self {
            pod: current(pods),
            why: set.failure().unwrap_or_default(),
            foreign: None,
            set: Some(set),
        }
    }

    fn foreign(told: String) -> Self {
        Self {
            foreign: Some(told),
            ..Self::default()
        }
    }

    /// The pod as the phases see it.
    pub(super) fn seen(&self) -> Seen<'_> {
        match (&self.foreign, &self.set, &self.pod) {
            (Some(foreign), ..) => Seen::Foreign(foreign),
            (None, _, Some(pod)) => Seen::Own(pod),
            (None, Some(set), None) if !set.is_down() => Seen::Coming(&self.why),
            _ => Seen::Absent,
        }
    }

    pub(super) fn pod(&self) -> Option<&Pod> {
        self.pod.as_deref()
    }
}

/// The pod that the sandbox uses: of several, one that does not end, is ready, and is the newest. Those that have
/// ended, as after an eviction, are not used again.
fn current(pods: Vec<Arc<Pod>>) -> Option<Arc<Pod>> {
    let uses = |pod: &Arc<Pod>| !matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
    pods.into_iter().filter(uses).max_by_key(|pod| {
        let created = pod.metadata.creation_timestamp.as_ref();
        (
            !pod.is_terminating(),
            pod.is_ready(),
            created.map(|at| at.0),
        )
    })
}

/// The ReplicaSet of a sandbox.
fn manifest(
    sandbox: &Sandbox,
    blueprint: &Blueprint,
    controller: &SandboxController,
) -> Result<Value, String> {
    let name = sandbox.metadata.name.as_deref().unwrap_or_default();
    if name.len() > LONGEST_NAME {
        return Err(format!(
            "the name of a sandbox with a ReplicaSet has at most {LONGEST_NAME} characters"
        ));
    }
    if let Some(checkpoint) = blueprint.restored_from(sandbox) {
        return Err(format!(
            "a sandbox with a ReplicaSet is not restored from checkpoint {checkpoint:?}: leave out the annotation \
             agents.kruise.io/kept-by"
        ));
    }
    let savable = blueprint.is_savable();
    let mut pod = pod::manifest(sandbox, blueprint, &controller.injection, savable)?;
    restore::keep_volumes(&mut pod);
    for (key, value) in [(OWNER, OWNER_NAME), (SANDBOX, name)] {
        pod["metadata"]["labels"][key] = value.into();
    }
    let metadata = json!({
        "labels": pod["metadata"]["labels"],
        "annotations": pod["metadata"]["annotations"],
    });
    Ok(json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": sandbox.metadata.namespace,
            "labels": metadata["labels"],
            "ownerReferences": pod["metadata"]["ownerReferences"],
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {label::SANDBOX_NAME: label_value(name)}},
            "template": {"metadata": metadata, "spec": pod["spec"]},
        },
    }))
}

impl SandboxController {
    /// One step through the phases where a ReplicaSet makes the pod.
    pub(super) async fn step_kept(
        &self,
        sandbox: &Arc<Sandbox>,
        blueprint: &Blueprint,
        foreign: &mut Option<String>,
    ) -> Result<Step, Failure> {
        let kept = self.kept(sandbox).await?;
        self.renew_template(sandbox, blueprint, &kept).await?;
        let mut next = self.next(sandbox, blueprint, kept.seen());
        let action = next.action.clone();
        if !matches!(action, Action::CreatePod | Action::DeletePod) {
            return self
                .act(sandbox, blueprint, kept.pod(), next, foreign)
                .await;
        }
        // The status says it first. The next pass does the rest.
        next.action = Action::Nothing;
        let refused = next.clone();
        let rest = self
            .act(sandbox, blueprint, kept.pod(), next, foreign)
            .await?;
        let Some(sandbox) = self.sandboxes.get(&key(&**sandbox)) else {
            return Ok(rest);
        };
        let done = self.act_on_kept(&sandbox, blueprint, &kept, &action).await;
        match done {
            Ok(step) => Ok(step.unwrap_or(rest)),
            Err(failure) => self.not_created(&sandbox, refused, failure).await,
        }
    }

    /// The ReplicaSet of a sandbox, and its pod. One whose absence would change much is looked up.
    pub(super) async fn kept(&self, sandbox: &Sandbox) -> Result<Kept, Failure> {
        let key = key(sandbox);
        let mut set = self.replica_sets.get(&key);
        let matters = sandbox.metadata.deletion_timestamp.is_some()
            || phase_of(sandbox) == SandboxPhase::Running;
        if set.is_none() && matters {
            let found = self.cluster.get::<ReplicaSet>(&key.0, &key.1).await?;
            set = found.map(|found| self.replica_sets.learn(found));
        }
        let uid = set.as_ref().and_then(|set| set.metadata.uid.clone());
        let pods = uid.map(|uid| self.pods.owned_by(&uid)).unwrap_or_default();
        Ok(Kept::of(sandbox, set, pods))
    }

    /// Gives the ReplicaSet the newest template as a whole, so that a pod which is replaced is the same. The pod that
    /// runs is changed in place, beside this.
    pub(super) async fn renew_template(
        &self,
        sandbox: &Sandbox,
        blueprint: &Blueprint,
        kept: &Kept,
    ) -> Result<(), Failure> {
        let Some(set) = kept
            .set
            .as_ref()
            .filter(|set| !set.is_of(&blueprint.revision))
        else {
            return Ok(());
        };
        // A pod that could not be made does not matter before one is made.
        let Ok(manifest) = manifest(sandbox, blueprint, self) else {
            return Ok(());
        };
        self.replace(set, &manifest, None).await
    }

    /// Carries out the actions of a phase on the pod of a kept sandbox. Whether something changed.
    pub(super) async fn act_on_kept(
        &self,
        sandbox: &Sandbox,
        blueprint: &Blueprint,
        kept: &Kept,
        action: &Action,
    ) -> Result<Option<Step>, Failure> {
        match (action, &kept.set) {
            (Action::CreatePod, None) => {
                self.create_replica_set(sandbox, blueprint).await?;
            }
            (Action::CreatePod, Some(set)) => {
                let manifest = manifest(sandbox, blueprint, self).map_err(Failure::Refused)?;
                self.replace(set, &manifest, Some(1)).await?;
            }
            (Action::DeletePod, Some(set)) if set.spec.replicas != 0 => {
                self.scale_down(set).await?
            }
            // The ReplicaSet ends its pod.
            (Action::DeletePod, _) => return Ok(Some(Step::Rest(None))),
            _ => return Ok(None),
        }
        Ok(Some(Step::Again))
    }

    async fn create_replica_set(
        &self,
        sandbox: &Sandbox,
        blueprint: &Blueprint,
    ) -> Result<(), Failure> {
        for template in &blueprint.volume_claim_templates {
            self.create_volume_claim(sandbox, template).await?;
        }
        let manifest = manifest(sandbox, blueprint, self).map_err(Failure::Refused)?;
        let (namespace, name) = key(sandbox);
        match self
            .cluster
            .create::<ReplicaSet>(&namespace, &manifest)
            .await
        {
            Ok(created) => drop(self.replica_sets.learn(created)),
            Err(error) if is_conflict(&error) => {
                let Some(present) = self.cluster.get::<ReplicaSet>(&namespace, &name).await? else {
                    return Err(error.into());
                };
                self.replica_sets.learn(present);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Replaces labels and pod template: a merge would keep what the new ones leave out.
    async fn replace(
        &self,
        set: &ReplicaSet,
        manifest: &Value,
        replicas: Option<i32>,
    ) -> Result<(), Failure> {
        let mut changes = vec![
            json!({"op": "replace", "path": "/metadata/labels", "value": manifest["metadata"]["labels"]}),
            json!({"op": "replace", "path": "/spec/template", "value": manifest["spec"]["template"]}),
        ];
        if let Some(replicas) = replicas {
            changes.push(json!({"op": "replace", "path": "/spec/replicas", "value": replicas}));
        }
        self.change(set, changes).await
    }

    async fn scale_down(&self, set: &ReplicaSet) -> Result<(), Failure> {
        let none = json!({"op": "replace", "path": "/spec/replicas", "value": 0});
        self.change(set, vec![none]).await
    }

    async fn change(&self, set: &ReplicaSet, changes: Vec<Value>) -> Result<(), Failure> {
        let same = json!({"op": "test", "path": "/metadata/uid", "value": set.metadata.uid});
        let all: Vec<Value> = std::iter::once(same).chain(changes).collect();
        let (namespace, name) = key(set);
        match self.cluster.patch_json(&namespace, &name, &all).await {
            Ok(changed) => drop(self.replica_sets.learn(changed)),
            Err(error) if is_missing(&error) => self.replica_sets.forget(&(namespace, name)),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Deletes the ReplicaSet of a deleted sandbox. Whether it is gone, with its pods.
    pub(super) async fn end_kept(&self, sandbox: &Sandbox) -> Result<bool, Failure> {
        let kept = self.kept(sandbox).await?;
        let Some(set) = &kept.set else {
            return Ok(true);
        };
        if set.metadata.deletion_timestamp.is_none() {
            write::delete_foreground(&self.cluster, &self.replica_sets, &**set).await?;
        }
        Ok(self.replica_sets.get(&key(&**set)).is_none())
    }
}

#[cfg(test)]
mod tests;
