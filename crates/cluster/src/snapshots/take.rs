//! Saving a sandbox: a Checkpoint of its pod, and a SandboxTemplate from which clones are made.

use std::time::Duration;

use jiff::Timestamp as Time;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use serde_json::{Value, json};
use shoal_core::auth::Principal;
use shoal_core::ports::NotServed;
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::ports::snapshots::TakeError;
use shoal_core::snapshot::Contents;
use shoal_core::state::{InputKind, Refused};
use shoal_core::store::StoreError;
use shoal_core::template::TemplateRef;
use shoal_crds::kruise::names::{GROUP, VERSION, annotation, content, label, label_value};
use shoal_crds::kruise::{
    Checkpoint, CheckpointPhase, Sandbox, SandboxState, SandboxTemplate, SandboxTemplateSpec,
    generate_name,
};
use shoal_crds::parts::PodTemplate;

use crate::identity::{Key, key, sandbox_id};
use crate::pause::{SAVABLE_INSTEAD, is_savable};
use crate::sandboxes::Sandboxes;
use crate::saves::{SavedSandbox, is_id};
use crate::{failure, record, versions};

/// Annotations of a sandbox that its clones keep.
const KEPT_PREFIX: &str = "security.agents.kruise.io/";

/// A checkpoint to make.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Its name, if it has one.
    pub(crate) name: Option<TemplateRef>,
    /// Its contents; the sandbox's default if absent.
    pub(crate) contents: Option<Contents>,
    pub(crate) keep_running: bool,
    pub(crate) ttl: Option<Duration>,
    pub(crate) wait: Duration,
    /// Whether it is the copy of a fork, which is not listed.
    pub(crate) of_fork: bool,
}

impl Sandboxes {
    /// Saves a sandbox that runs, and waits until that is done.
    ///
    /// # Errors
    /// See [`TakeError`]. The Checkpoint stays and says why.
    pub(crate) async fn save(
        &self,
        principal: &Principal,
        at: &Key,
        wanted: &Wanted,
    ) -> Result<SavedSandbox, TakeError> {
        let sandbox = self.fresh(at).await?;
        let now = Time::now();
        if SandboxState::of(&sandbox, now).0 != SandboxState::Running {
            let state = record::of(&sandbox, now).state.kind();
            let input = InputKind::Snapshot;
            return Err(SandboxError::Refused(Refused { input, state }).into());
        }
        let template = self.template_of(&sandbox).await?;
        if !is_savable(&template) {
            let refused = NotServed {
                what: "a snapshot or a fork of this sandbox",
                instead: SAVABLE_INSTEAD,
            };
            return Err(SandboxError::from(refused).into());
        }
        let tags = wanted
            .name
            .as_ref()
            .map(|name| (&name.name, self.first_tags(&at.0, name)));
        let named = tags.map(|(name, tags)| versions::metadata(name, &tags));
        let made = manifest(principal, &sandbox, wanted, named.as_ref());
        let made: Checkpoint = serde_json::from_value(made)
            .map_err(StoreError::failed)
            .map_err(SandboxError::Store)?;
        let api = self.checkpoints_of(&at.0);
        let made = api.create(&PostParams::default(), &made).await;
        let made = self
            .saves
            .checkpoints
            .put(made.map_err(|error| store(&error))?);
        let template = template_manifest(&made, template)?;
        let templates = self.templates_of(&at.0);
        match templates.create(&PostParams::default(), &template).await {
            Ok(template) => drop(self.saves.templates.put(template)),
            Err(error) => {
                // No clone could be created from it.
                if let Err(error) = self.forget_save(&made).await {
                    tracing::warn!(%error, "cannot delete a Checkpoint without a template");
                }
                return Err(store(&error).into());
            }
        }
        let saved = self.await_save(&made, wanted.wait).await?;
        if let Some(name) = &wanted.name {
            self.settle(&at.0, &name.name).await;
        }
        Ok(saved)
    }

    /// Looks for a checkpoint that the watch has not shown yet: another replica may have answered with its id a moment
    /// ago.
    pub(crate) async fn look_up_save(
        &self,
        namespace: &str,
        reference: &TemplateRef,
    ) -> Result<(), StoreError> {
        let of_team = reference.namespace.as_deref();
        if of_team.is_some_and(|of| of != namespace)
            || self.saves.find_meant(namespace, reference).is_some()
        {
            return Ok(());
        }
        let told = |error: kube::Error| failure::store(&error);
        let text = reference.name.as_str();
        let (label, value) = if is_id(text) {
            (label::CHECKPOINT_ID, text.to_owned())
        } else {
            (label::SNAPSHOT, label_value(text))
        };
        let labelled = ListParams::default().labels(&format!("{label}={value}"));
        let found = self.checkpoints_of(namespace).list(&labelled).await;
        for checkpoint in found.map_err(told)? {
            let (_, name) = key(&checkpoint.metadata);
            let template = self.templates_of(namespace).get_opt(&name).await;
            if let Some(template) = template.map_err(told)? {
                self.saves.templates.put(template);
            }
            self.saves.checkpoints.put(checkpoint);
        }
        Ok(())
    }

    pub(super) fn checkpoints_of(&self, namespace: &str) -> Api<Checkpoint> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn templates_of(&self, namespace: &str) -> Api<SandboxTemplate> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn await_save(
        &self,
        made: &Checkpoint,
        wait: Duration,
    ) -> Result<SavedSandbox, TakeError> {
        let (checkpoints, at) = (&self.saves.checkpoints, key(&made.metadata));
        let not_saved = |why: String| TakeError::Sandbox(SandboxError::NotSaved(why));
        let ended = checkpoints.wait_for(&at, wait, || {
            let Some(known) = checkpoints.get(&at) else {
                return Some(Err(not_saved("its Checkpoint was deleted".to_owned())));
            };
            let status = known.status.clone().unwrap_or_default();
            match status.phase {
                Some(CheckpointPhase::Succeeded) => Some(Ok(status.checkpoint_id)),
                Some(CheckpointPhase::Failed) => Some(Err(not_saved(status.message))),
                _ => None,
            }
        });
        let id = ended.await.ok_or(TakeError::TooLong(wait))??;
        let found = self.saves.find(&at.0, &id);
        found.ok_or_else(|| not_saved("its Checkpoint is gone again".to_owned()))
    }

    /// Deletes a checkpoint. Its template and its files go with it.
    pub(crate) async fn forget_save(&self, checkpoint: &Checkpoint) -> kube::Result<()> {
        self.forget_version(checkpoint, None).await
    }

    /// The same, unless the checkpoint has changed meanwhile: another replica may have given it a tag.
    pub(super) async fn forget_unchanged(&self, checkpoint: &Checkpoint) -> kube::Result<()> {
        let version = checkpoint.metadata.resource_version.clone();
        self.forget_version(checkpoint, version).await
    }

    async fn forget_version(
        &self,
        checkpoint: &Checkpoint,
        resource_version: Option<String>,
    ) -> kube::Result<()> {
        let (namespace, name) = key(&checkpoint.metadata);
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: checkpoint.metadata.uid.clone(),
                resource_version,
            }),
            ..DeleteParams::background()
        };
        let deleted = self.checkpoints_of(&namespace).delete(&name, &params).await;
        match deleted {
            Ok(deleted) => {
                if let Some(deleting) = deleted.left() {
                    self.saves.checkpoints.put(deleting);
                }
                Ok(())
            }
            Err(error) if failure::is_gone(&error) || failure::is_conflict(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The template of a sandbox, also if the sandbox only refers to it, without the labels of its claim.
    pub(crate) async fn template_of(
        &self,
        sandbox: &Sandbox,
    ) -> Result<SandboxTemplateSpec, SandboxError> {
        let spec = &sandbox.spec;
        let mut made = SandboxTemplateSpec {
            template: spec.template.clone(),
            volume_claim_templates: spec.volume_claim_templates.clone(),
            persistent_contents: spec.persistent_contents.clone(),
            runtimes: spec.runtimes.clone(),
            pause_strategy: spec.pause_strategy.clone(),
        };
        if made.template.is_none()
            && let Some(reference) = &spec.template_ref
        {
            let (namespace, _) = key(&sandbox.metadata);
            let referred = self.templates_of(&namespace).get_opt(&reference.name).await;
            let referred = referred.map_err(|error| store(&error))?;
            let referred = referred.map(|found| found.spec).unwrap_or_default();
            made.template = referred.template;
            if made.runtimes.is_empty() {
                made.runtimes = referred.runtimes;
            }
            if made.volume_claim_templates.is_empty() {
                made.volume_claim_templates = referred.volume_claim_templates;
            }
        }
        if let Some(template) = &mut made.template {
            drop_claimed(template, sandbox);
        }
        Ok(made)
    }
}

fn store(error: &kube::Error) -> SandboxError {
    match failure::refusal(error) {
        Some(message) => SandboxError::NotSaved(message),
        None => SandboxError::Store(failure::store(error)),
    }
}

/// Removes what the claim of the source has added to its pod: clones have labels of their own. That the internet is closed
/// stays.
fn drop_claimed(template: &mut PodTemplate, sandbox: &Sandbox) {
    let updated = sandbox.annotation(annotation::UPDATED_METADATA_IN_CLAIM);
    let updated = updated.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let claimed: Vec<String> = updated
        .and_then(|updated| serde_json::from_value(updated.get("labels")?.clone()).ok())
        .unwrap_or_default();
    template.metadata.labels.retain(|key, _| {
        let of_claim = claimed.contains(key) && key != label::ALLOW_INTERNET_ACCESS;
        !of_claim && !key.starts_with("sbx-")
    });
}

/// The Checkpoint.
fn manifest(
    principal: &Principal,
    sandbox: &Sandbox,
    wanted: &Wanted,
    named: Option<&Value>,
) -> Value {
    let (namespace, name) = key(&sandbox.metadata);
    let contents = match wanted.contents {
        None => sandbox.saved_by_snapshot(),
        Some(contents) if contents.has_memory() => &[content::MEMORY, content::FILESYSTEM],
        Some(_) => &[content::FILESYSTEM],
    };
    let owner = principal.key.to_string();
    let mut annotations = json!({
        annotation::OWNER: owner,
        annotation::SANDBOX_ID: sandbox_id(sandbox),
    });
    let all = sandbox.metadata.annotations.iter().flatten();
    let kept = all.filter(|(key, _)| {
        key.starts_with(KEPT_PREFIX)
            || [
                annotation::INIT_RUNTIME_REQUEST,
                annotation::CSI_VOLUME_CONFIG,
            ]
            .contains(&key.as_str())
    });
    for (key, value) in kept {
        annotations[key] = value.as_str().into();
    }
    if wanted.of_fork {
        annotations[annotation::COPY_OF_FORK] = "true".into();
    }
    let mut labels =
        json!({label::OWNER: label_value(&owner), label::SANDBOX_NAME: label_value(&name)});
    for (key, value) in entries(named, "labels") {
        labels[key] = value.clone();
    }
    for (key, value) in entries(named, "annotations") {
        annotations[key] = value.clone();
    }
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "Checkpoint",
        "metadata": {
            "generateName": generate_name(&name),
            "namespace": namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            "podName": sandbox.pod_name(),
            "keepRunning": wanted.keep_running,
            "persistentContents": contents,
            "ttlAfterFinished": wanted.ttl.map(|ttl| format!("{}s", ttl.as_secs())),
        },
    })
}

fn entries<'a>(
    metadata: Option<&'a Value>,
    field: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let found = metadata.and_then(|metadata| metadata.get(field));
    found.and_then(Value::as_object).into_iter().flatten()
}

/// The SandboxTemplate of a Checkpoint, which goes with it.
fn template_manifest(
    checkpoint: &Checkpoint,
    spec: SandboxTemplateSpec,
) -> Result<SandboxTemplate, TakeError> {
    let meta = &checkpoint.metadata;
    let owner = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Checkpoint", "name": meta.name, "uid": meta.uid,
        "controller": true, "blockOwnerDeletion": true,
    });
    let made = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "SandboxTemplate",
        "metadata": {"name": meta.name, "namespace": meta.namespace, "ownerReferences": [owner]},
        "spec": spec,
    });
    let made = serde_json::from_value(made).map_err(StoreError::failed);
    Ok(made.map_err(SandboxError::Store)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox() -> Sandbox {
        serde_json::from_value(json!({
            "metadata": {
                "name": "code-abc", "namespace": "team", "uid": "u",
                "annotations": {
                    "agents.kruise.io/init-runtime-request": "{}", "purpose": "test",
                    "security.agents.kruise.io/agent-name": "a",
                    "agents.kruise.io/updated-metadata-in-claim":
                        r#"{"labels": ["tier", "agents.kruise.io/allow-internet-access"], "annotations": []}"#,
                },
            },
            "spec": {
                "persistentContents": ["ip", "filesystem"],
                "template": {
                    "metadata": {"labels": {
                        "app": "code", "tier": "gold", "sbx-id": "i", "agents.kruise.io/allow-internet-access": "false",
                    }},
                    "spec": {},
                },
            },
        }))
        .unwrap()
    }

    fn wanted(contents: Option<Contents>) -> Wanted {
        Wanted {
            name: None,
            contents,
            keep_running: false,
            ttl: Some(Duration::from_secs(1800)),
            wait: Duration::from_secs(1),
            of_fork: false,
        }
    }

    #[test]
    fn a_checkpoint_says_what_clones_need() {
        let made = manifest(&Principal::installation(), &sandbox(), &wanted(None), None);
        assert_eq!(made["metadata"]["generateName"], "code-abc-");
        let annotations = &made["metadata"]["annotations"];
        assert_eq!(annotations["agents.kruise.io/init-runtime-request"], "{}");
        assert_eq!(annotations["security.agents.kruise.io/agent-name"], "a");
        assert_eq!(annotations.get("purpose"), None);
        let spec = &made["spec"];
        assert_eq!(spec["podName"], "code-abc");
        assert_eq!(spec["keepRunning"], false);
        assert_eq!(spec["ttlAfterFinished"], "1800s");
        // Inherited, but for the address.
        assert_eq!(spec["persistentContents"], json!(["filesystem"]));
        let memory = wanted(Some(Contents::Memory));
        let made = manifest(&Principal::installation(), &sandbox(), &memory, None);
        assert_eq!(
            made["spec"]["persistentContents"],
            json!(["memory", "filesystem"])
        );
    }

    #[test]
    fn a_clone_has_no_labels_of_its_sources_claim() {
        let source = sandbox();
        let mut template = source.spec.template.clone().unwrap();
        drop_claimed(&mut template, &source);
        let labels: Vec<_> = template.metadata.labels.into_keys().collect();
        assert_eq!(labels, ["agents.kruise.io/allow-internet-access", "app"]);
    }
}
