//! The pod of a sandbox and its volume claims, at the API server.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;
use shoal_crds::kruise::names::{annotation, condition, reason};
use shoal_crds::kruise::{InitRequest, Sandbox, SandboxPhase, SandboxStatus};

use super::inplace::Change;
use super::phase::Seen;
use super::pod::{self, Blueprint};
use super::{SandboxController, phase_of};
use crate::cache::key;
use crate::conditions::{self, State, Truth};
use crate::failure::{Failure, code, is_conflict, is_missing};
use crate::kruise::Pod;
use crate::owner::{self, Owner};
use crate::restore::{self, Origin};
use crate::saves;
use crate::slim::PersistentVolumeClaim;
use crate::write;

/// The pod as the phases see it. `foreign` is the owner of a pod that no watch shows.
pub(super) fn seen<'a>(
    sandbox: &Sandbox,
    pod: Option<&'a Arc<Pod>>,
    foreign: &'a Option<String>,
) -> Seen<'a> {
    let uid = sandbox.metadata.uid.as_deref().unwrap_or_default();
    match pod {
        Some(pod) if owner::owner(&pod.metadata, uid) == Owner::Own => Seen::Own(pod),
        Some(_) => Seen::Foreign("it belongs to another object"),
        None => foreign.as_deref().map_or(Seen::Absent, Seen::Foreign),
    }
}

/// Whether the next pod of a sandbox starts from its checkpoint, if there is one: after a pause, and in an upgrade that
/// keeps files.
fn continues(sandbox: &Sandbox) -> bool {
    let step = sandbox.condition(condition::UPGRADING);
    let step = step.map(|step| step.reason.as_str());
    match phase_of(sandbox) {
        SandboxPhase::Resuming => is_paused_with(sandbox),
        // A paused sandbox is resumed before it is upgraded.
        SandboxPhase::Upgrading if is_paused_with(sandbox) => true,
        SandboxPhase::Upgrading => {
            let replaces = [reason::UPGRADE_POD, reason::UPGRADE_POD_FAILED];
            step.is_some_and(|step| replaces.contains(&step))
                && sandbox.spec.keeps_files_in_upgrades()
        }
        _ => false,
    }
}

/// Whether a checkpoint keeps the paused sandbox.
fn is_paused_with(sandbox: &Sandbox) -> bool {
    let paused = sandbox.condition(condition::SANDBOX_PAUSED);
    paused.is_some_and(|paused| paused.reason == reason::SNAPSHOT_PAUSE_SUCCEED)
}

impl SandboxController {
    /// The pod with the sandbox's name. One whose absence would end the sandbox is looked up.
    pub(super) async fn pod(&self, sandbox: &Sandbox) -> Result<Option<Arc<Pod>>, Failure> {
        let key = key(sandbox);
        if let Some(pod) = self.pods.get(&key) {
            return Ok(Some(pod));
        }
        let matters = sandbox.metadata.deletion_timestamp.is_some()
            || phase_of(sandbox) == SandboxPhase::Running;
        if !matters {
            return Ok(None);
        }
        let found = self.cluster.get::<Pod>(&key.0, &key.1).await?;
        Ok(found.map(|pod| self.pods.learn(pod)))
    }

    /// Creates the volume claims and the pod. If another object's pod has the name: its owner.
    pub(super) async fn create_pod(
        &self,
        sandbox: &Sandbox,
        blueprint: &Blueprint,
    ) -> Result<Option<String>, Failure> {
        for template in &blueprint.volume_claim_templates {
            self.create_volume_claim(sandbox, template).await?;
        }
        let origin = self.origin_of(sandbox, blueprint);
        let origin = origin.map_err(Failure::Refused)?;
        if let Some(token) = origin.as_ref().and_then(Origin::daemon_token) {
            self.tell_token(sandbox, token).await?;
        }
        let savable = origin.is_some() || blueprint.is_savable();
        let mut manifest = pod::manifest(sandbox, blueprint, &self.injection, savable)
            .map_err(Failure::Refused)?;
        if let Some(origin) = &origin {
            restore::apply(&mut manifest, origin).map_err(Failure::Refused)?;
        }
        restore::keep_volumes(&mut manifest);
        let (namespace, name) = key(sandbox);
        match self.cluster.create::<Pod>(&namespace, &manifest).await {
            Ok(created) => {
                self.pods.learn(created);
                Ok(None)
            }
            Err(error) if is_conflict(&error) => {
                let Some(present) = self.cluster.get::<Pod>(&namespace, &name).await? else {
                    return Err(error.into());
                };
                let uid = sandbox.metadata.uid.as_deref().unwrap_or_default();
                Ok(match owner::owner(&present.metadata, uid) {
                    Owner::Own => {
                        self.pods.learn(present);
                        None
                    }
                    Owner::Nobody => Some("it has no controller".to_owned()),
                    Owner::Other(other) => {
                        Some(format!("it belongs to {}", owner::describe(other)))
                    }
                })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Records in an unclaimed sandbox the token that its daemon will require: a claim needs it.
    async fn tell_token(&self, sandbox: &Sandbox, token: &str) -> Result<(), Failure> {
        let known = sandbox.annotation(annotation::FORMER_TOKEN) == Some(token);
        if known || InitRequest::of(sandbox).is_some() {
            return Ok(());
        }
        let patch = json!({"metadata": {
            "uid": sandbox.metadata.uid, "annotations": {annotation::FORMER_TOKEN: token},
        }});
        self.patch(sandbox, &patch).await?;
        Ok(())
    }

    /// The checkpoint for a new pod of the sandbox, if any: of its own last pause, or of the original of a clone.
    fn origin_of(
        &self,
        sandbox: &Sandbox,
        blueprint: &Blueprint,
    ) -> Result<Option<Origin>, String> {
        if continues(sandbox) {
            let uid = sandbox.metadata.uid.as_deref().unwrap_or_default();
            let saved = saves::complete(&self.saves.of(uid));
            // An upgrade whose pod had ended has nothing to keep.
            if saved.is_some() || is_paused_with(sandbox) {
                return restore::origin(&saves::name(saved.as_deref()), saved.as_deref()).map(Some);
            }
        }
        let named = blueprint.restored_from(sandbox);
        named.map(|name| self.origin(sandbox, name)).transpose()
    }

    /// The checkpoint `name`, by name or id, in the sandbox's namespace.
    fn origin(&self, sandbox: &Sandbox, name: &str) -> Result<Origin, String> {
        let (namespace, _) = key(sandbox);
        let named = self
            .saves
            .checkpoints
            .get(&(namespace.clone(), name.to_owned()));
        let named = named.or_else(|| {
            let all = self.saves.checkpoints.group(&namespace);
            all.into_iter()
                .find(|checkpoint| restore::is_called(checkpoint, name))
        });
        restore::origin(name, named.as_deref())
    }

    pub(super) async fn create_volume_claim(
        &self,
        sandbox: &Sandbox,
        template: &shoal_crds::parts::VolumeClaimTemplate,
    ) -> Result<(), Failure> {
        let (namespace, name) = key(sandbox);
        let claim = pod::claim_name(template, &name);
        // A paused sandbox has them already.
        let create = async {
            let manifest = pod::volume_claim(sandbox, template);
            self.cluster
                .create::<PersistentVolumeClaim>(&namespace, &manifest)
                .await
        };
        match create.await {
            Ok(_) => Ok(()),
            Err(error) if is_conflict(&error) => {
                let present = self
                    .cluster
                    .get::<PersistentVolumeClaim>(&namespace, &claim)
                    .await?;
                let uid = sandbox.metadata.uid.as_deref().unwrap_or_default();
                match present.map(|present| owner::owner(&present.metadata, uid) == Owner::Own) {
                    Some(true) => Ok(()),
                    Some(false) => Err(Failure::Refused(format!(
                        "PVC {claim:?} is not the sandbox's"
                    ))),
                    None => Err(error.into()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Changes images and metadata of a pod.
    pub(super) async fn update_pod(&self, pod: &Pod, change: &Change) -> Result<(), Failure> {
        let (namespace, name) = key(pod);
        let patched = self
            .cluster
            .patch_strategic::<Pod>(&namespace, &name, None, &change.pod)
            .await?;
        self.pods.learn(patched);
        Ok(())
    }

    /// Changes resources first: if the node refuses, nothing else changes. The status reports a refusal.
    pub(super) async fn update_in_place(
        &self,
        sandbox: &Arc<Sandbox>,
        status: &SandboxStatus,
        pod: &Pod,
        change: &Change,
    ) -> Result<(), Failure> {
        if let Some(resize) = &change.resize
            && let Err(error) = self.resize(pod, resize).await
        {
            // A conflict or an outage passes. A refusal by the API server does not.
            if !matches!(code(&error), Some(400 | 403 | 404 | 422)) {
                return Err(error.into());
            }
            return self.resize_refused(sandbox, status, &error).await;
        }
        self.update_pod(pod, change).await
    }

    async fn resize(&self, pod: &Pod, patch: &serde_json::Value) -> kube::Result<()> {
        let (namespace, name) = key(pod);
        let resized = self
            .cluster
            .patch_strategic::<Pod>(&namespace, &name, Some("resize"), patch)
            .await;
        // Before Kubernetes 1.33 the pod itself takes the change.
        let resized = match resized {
            Err(error) if is_missing(&error) => {
                self.cluster
                    .patch_strategic::<Pod>(&namespace, &name, None, patch)
                    .await
            }
            resized => resized,
        };
        self.pods.learn(resized?);
        Ok(())
    }

    async fn resize_refused(
        &self,
        sandbox: &Arc<Sandbox>,
        status: &SandboxStatus,
        error: &kube::Error,
    ) -> Result<(), Failure> {
        let message = match error {
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        };
        let message = format!("resize rejected: {message}");
        self.cluster
            .event(&**sandbox, true, super::inplace::FAILED, message.clone());
        let mut status = status.clone();
        conditions::set(
            &mut status.conditions,
            &State::new(
                condition::INPLACE_UPDATE,
                Truth::False,
                reason::FAILED,
                message,
            ),
            sandbox.metadata.generation,
            Timestamp::now(),
        );
        // The newest status shows when the update began.
        let now = self.sandboxes.get(&key(&**sandbox));
        let before = now.as_ref().and_then(|now| now.status.as_ref());
        write::status(&self.cluster, &self.sandboxes, &**sandbox, before, &status).await?;
        Ok(())
    }
}

impl Change {
    /// Whether only labels and annotations change.
    pub(super) fn is_metadata(&self) -> bool {
        self.resize.is_none() && self.pod.get("spec").is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_continues_after_a_pause_and_in_an_upgrade_that_keeps_files() {
        let of = |phase: &str, kind: &str, reason: &str, policy: &str| {
            let condition = json!({
                "type": kind, "status": "False", "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            });
            let sandbox = json!({
                "metadata": {"name": "s"}, "spec": {"upgradePolicy": {"type": policy}},
                "status": {"phase": phase, "conditions": [condition]},
            });
            continues(&serde_json::from_value(sandbox).unwrap())
        };
        let (saved, stopped) = ("SnapshotPauseSucceed", "StopPauseSucceed");
        assert!(of("Resuming", "SandboxPaused", saved, "Recreate"));
        assert!(!of("Resuming", "SandboxPaused", stopped, "Recreate"));
        // It is resumed before it is upgraded.
        assert!(of("Upgrading", "SandboxPaused", saved, "Recreate"));
        assert!(!of("Upgrading", "Upgrading", "UpgradePod", "Recreate"));
        assert!(of(
            "Upgrading",
            "Upgrading",
            "UpgradePod",
            "CheckpointRestore"
        ));
        assert!(of(
            "Upgrading",
            "Upgrading",
            "UpgradePodFailed",
            "CheckpointRestore"
        ));
        assert!(!of(
            "Upgrading",
            "Upgrading",
            "Checkpointing",
            "CheckpointRestore"
        ));
        assert!(!of("Pending", "SandboxPaused", saved, "CheckpointRestore"));
    }
}
