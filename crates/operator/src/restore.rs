//! Pods that start from a checkpoint.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use shoal_checkpoint::{DAEMON, DAEMON_VOLUME, IMAGES, RESTORE_FROM, hints};
use shoal_crds::kruise::names::{RUNTIME_CLASS, annotation};
use shoal_crds::kruise::{Checkpoint, CheckpointPhase, InitRequest};

/// The requirements of a pod that starts from a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    id: String,
    node: String,
    source: Source,
    /// Whether its processes continue.
    memory: bool,
    /// Whether the sandbox itself was paused.
    of_pause: bool,
    /// The token of the daemon in the memory, if there is one.
    daemon_token: Option<String>,
    /// Whether other nodes can fetch it.
    elsewhere: bool,
}

/// The pod that was saved.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Source {
    containers: Vec<String>,
    service_account_token: bool,
    /// The images that came from a registry, by container.
    #[serde(default)]
    images: BTreeMap<String, SavedImage>,
}

/// An image that is the same on every node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct SavedImage {
    /// As the template of the pod named it.
    image: String,
    digest: String,
}

/// Whether a checkpoint has this name, or this id.
pub(crate) fn is_called(checkpoint: &Checkpoint, name: &str) -> bool {
    let status = checkpoint.status.as_ref();
    checkpoint.metadata.name.as_deref() == Some(name)
        || status.is_some_and(|status| status.checkpoint_id == name)
}

/// The requirements of a checkpoint, or why it cannot be restored.
pub(crate) fn origin(name: &str, checkpoint: Option<&Checkpoint>) -> Result<Origin, String> {
    let checkpoint = checkpoint.ok_or_else(|| format!("checkpoint {name:?} not found"))?;
    let status = checkpoint.status.clone().unwrap_or_default();
    if checkpoint.metadata.deletion_timestamp.is_some() {
        return Err(format!("checkpoint {name:?} is being deleted"));
    }
    if status.phase != Some(CheckpointPhase::Succeeded) {
        let phase = status.phase.unwrap_or_default();
        return Err(format!("checkpoint {name:?} is not complete: {phase:?}"));
    }
    let source = checkpoint.annotation(annotation::CHECKPOINT_SOURCE);
    let source = source.and_then(|source| serde_json::from_str(source).ok());
    match (source, checkpoint.node()) {
        (Some(source), Some(node)) if !status.checkpoint_id.is_empty() => Ok(Origin {
            id: status.checkpoint_id,
            node: node.to_owned(),
            source,
            memory: checkpoint.spec.has_memory(),
            of_pause: checkpoint.annotation(annotation::PAUSED_POD).is_some(),
            daemon_token: daemon_token(checkpoint),
            elsewhere: [annotation::CHECKPOINT_STORED, annotation::CHECKPOINT_SERVED]
                .iter()
                .any(|mark| checkpoint.annotation(mark).is_some()),
        }),
        _ => Err(format!(
            "checkpoint {name:?} keeps neither memory nor files"
        )),
    }
}

impl Origin {
    /// The token that the daemon of a new pod requires, until it gets another.
    pub(crate) fn daemon_token(&self) -> Option<&str> {
        self.daemon_token.as_deref()
    }
}

impl Origin {
    /// The digests of a pod's images by container, if the pod can start on any node: the checkpoint can be fetched there, and
    /// the images of the pod are the saved ones.
    fn digests(&self, spec: &Value) -> Option<BTreeMap<String, String>> {
        let containers = spec["containers"].as_array().filter(|_| self.elsewhere)?;
        let digests = containers.iter().map(|container| {
            let name = container["name"].as_str()?;
            let saved = self.source.images.get(name)?;
            let same = container["image"] == saved.image.as_str();
            same.then(|| (name.to_owned(), saved.digest.clone()))
        });
        digests.collect()
    }
}

fn daemon_token(checkpoint: &Checkpoint) -> Option<String> {
    let settings = checkpoint.annotation(annotation::INIT_RUNTIME_REQUEST)?;
    let settings: InitRequest = serde_json::from_str(settings).ok()?;
    let token = Some(settings.access_token).filter(|token| !token.is_empty());
    token.filter(|_| checkpoint.spec.has_memory())
}

/// Makes a pod start from a checkpoint.
pub(crate) fn apply(pod: &mut Value, origin: &Origin) -> Result<(), String> {
    let spec = &mut pod["spec"];
    let names = spec["containers"].as_array().into_iter().flatten();
    let mut names: Vec<&str> = names.filter_map(|one| one["name"].as_str()).collect();
    let mut saved: Vec<&str> = origin
        .source
        .containers
        .iter()
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    saved.sort_unstable();
    if names != saved {
        return Err(format!(
            "the checkpoint has the containers {}, and the template {}: they must be the same",
            saved.join(", "),
            names.join(", ")
        ));
    }
    match spec["runtimeClassName"].as_str() {
        None | Some(RUNTIME_CLASS) => spec["runtimeClassName"] = RUNTIME_CLASS.into(),
        Some(other) => {
            return Err(format!(
                "runtimeClassName {other}: only pods of the RuntimeClass {RUNTIME_CLASS} can be restored"
            ));
        }
    }
    // They had ended before the pod was saved.
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("initContainers");
    }
    if origin.memory {
        drop_hooks(spec);
    }
    if origin.memory && pod["metadata"]["annotations"][DAEMON].is_string() {
        drop_daemon_volume(&mut pod["spec"]);
    }
    let spec = &mut pod["spec"];
    if origin.of_pause {
        // The checkpoint is deleted once the pod runs: a container cannot be restarted from it.
        spec["restartPolicy"] = "Never".into();
    }
    // The mounts of both pods must be the same, and the token is one.
    spec["automountServiceAccountToken"] = origin.source.service_account_token.into();
    match origin.digests(spec) {
        Some(digests) => {
            name_images(spec, &digests);
            prefer(spec, &origin.node);
            let digests = Value::from_iter(digests).to_string();
            pod["metadata"]["annotations"][IMAGES] = digests.into();
        }
        None => stay_on(spec, &origin.node),
    }
    pod["metadata"]["annotations"][RESTORE_FROM] = origin.id.as_str().into();
    Ok(())
}

/// Removes the hooks after the start of containers: they ran before the pod was saved.
fn drop_hooks(spec: &mut Value) {
    let containers = spec["containers"].as_array_mut().into_iter().flatten();
    for container in containers {
        if let Some(lifecycle) = container
            .get_mut("lifecycle")
            .and_then(Value::as_object_mut)
        {
            lifecycle.remove("postStart");
        }
    }
}

/// Removes the volume of the daemon: the checkpoint contains it, and the runtime mounts it. The kubelet looks for mounted volumes every
/// 300 ms, so a pod without volumes starts that much earlier.
fn drop_daemon_volume(spec: &mut Value) {
    let others = |volumes: &mut Vec<Value>| volumes.retain(|one| one["name"] != DAEMON_VOLUME);
    if let Some(volumes) = spec["volumes"].as_array_mut() {
        others(volumes);
    }
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        if let Some(mounts) = container["volumeMounts"].as_array_mut() {
            others(mounts);
        }
    }
}

/// Adds the digests of the saved images to those of a pod, so that each node takes the same ones.
fn name_images(spec: &mut Value, digests: &BTreeMap<String, String>) {
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        let digest = container["name"]
            .as_str()
            .and_then(|name| digests.get(name));
        if let (Some(image), Some(digest)) = (container["image"].as_str(), digest)
            && !image.contains('@')
        {
            container["image"] = format!("{image}@{digest}").into();
        }
    }
}

/// Prefers a node, which need not fetch the checkpoint.
fn prefer(spec: &mut Value, node: &str) {
    let preferred =
        &mut spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    let term = json!({"weight": 100, "preference": {"matchFields": [is_node(node)]}});
    match preferred.as_array_mut() {
        Some(terms) => terms.push(term),
        None => *preferred = json!([term]),
    }
}

fn is_node(node: &str) -> Value {
    json!({"key": "metadata.name", "operator": "In", "values": [node]})
}

/// Requires a node, in addition to the pod's own requirements.
fn stay_on(spec: &mut Value, node: &str) {
    let field = is_node(node);
    let required =
        &mut spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    match required["nodeSelectorTerms"].as_array_mut() {
        // One of the terms must hold: each gets the node.
        Some(terms) if !terms.is_empty() => {
            for term in terms {
                match term["matchFields"].as_array_mut() {
                    Some(fields) => fields.push(field.clone()),
                    None => term["matchFields"] = json!([field]),
                }
            }
        }
        _ => required["nodeSelectorTerms"] = json!([{"matchFields": [field]}]),
    }
}

/// Keeps the empty directories of a pod that can be saved inside of its sandbox.
pub(crate) fn keep_volumes(pod: &mut Value) {
    if pod["spec"]["runtimeClassName"] != RUNTIME_CLASS {
        return;
    }
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let kept: Vec<(String, String)> = volumes
        .filter(|volume| volume["emptyDir"].is_object())
        .filter_map(|volume| {
            let in_memory = volume["emptyDir"]["medium"] == "Memory";
            Some(hints(volume["name"].as_str()?, in_memory))
        })
        .flatten()
        .collect();
    for (key, value) in kept {
        pod["metadata"]["annotations"][key] = value.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(phase: &str, source: &str) -> Checkpoint {
        serde_json::from_value(json!({
            "metadata": {"name": "c", "annotations": {"shoal.dev/node": "n", "shoal.dev/source": source}},
            "spec": {}, "status": {"phase": phase, "checkpointId": "id"},
        }))
        .unwrap()
    }

    fn pod() -> Value {
        json!({
            "metadata": {"annotations": {"a": "b"}},
            "spec": {"containers": [{"name": "side"}, {"name": "main"}], "initContainers": [{"name": "first"}]},
        })
    }

    const SOURCE: &str = r#"{"containers": ["main", "side"], "serviceAccountToken": true}"#;

    #[test]
    fn a_clone_is_like_its_source_and_on_its_node() {
        let saved = checkpoint("Succeeded", SOURCE);
        assert!(is_called(&saved, "c") && is_called(&saved, "id") && !is_called(&saved, "x"));
        let origin = origin("c", Some(&saved)).unwrap();
        let mut made = pod();
        apply(&mut made, &origin).unwrap();
        assert_eq!(
            made["metadata"]["annotations"],
            json!({"a": "b", "shoal.dev/restore-from": "id"})
        );
        let spec = &made["spec"];
        assert_eq!(spec["runtimeClassName"], "shoal");
        assert_eq!(spec["automountServiceAccountToken"], true);
        assert_eq!(spec.get("initContainers"), None);
        let terms = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            ["nodeSelectorTerms"];
        let node = json!({"key": "metadata.name", "operator": "In", "values": ["n"]});
        assert_eq!(*terms, json!([{"matchFields": [node]}]));
    }

    #[test]
    fn the_pod_of_a_clone_has_no_volume_for_the_daemon_in_its_memory() {
        let of = |memory: bool, by_runtime: bool| {
            let mut saved = checkpoint("Succeeded", SOURCE);
            let contents = if memory { "memory" } else { "filesystem" };
            saved.spec.persistent_contents = vec![contents.to_owned()];
            let mut made = pod();
            if by_runtime {
                made["metadata"]["annotations"][DAEMON] = "main".into();
            }
            let mounts = json!([{"name": DAEMON_VOLUME, "mountPath": "/shoal-runtime"}, {"name": "own", "mountPath": "/own"}]);
            made["spec"]["containers"][1]["volumeMounts"] = mounts;
            made["spec"]["volumes"] =
                json!([{"name": DAEMON_VOLUME, "emptyDir": {}}, {"name": "own", "emptyDir": {}}]);
            apply(&mut made, &origin("c", Some(&saved)).unwrap()).unwrap();
            let spec = &made["spec"];
            let mounts = spec["containers"][1]["volumeMounts"].as_array().unwrap();
            (spec["volumes"].as_array().unwrap().len(), mounts.len())
        };
        assert_eq!(of(true, true), (1, 1));
        assert_eq!(
            of(false, true),
            (2, 2),
            "its files are not saved in their place"
        );
        assert_eq!(of(true, false), (2, 2), "the template has put it there");
    }

    #[test]
    fn a_clone_of_a_checkpoint_that_other_nodes_can_fetch_may_start_anywhere_with_the_saved_images()
    {
        let (one, two) = ("sha256:1", "sha256:2");
        let source = json!({
            "containers": ["main", "side"], "serviceAccountToken": false, "images": {
                "main": {"image": "agent:1", "digest": one}, "side": {"image": "side@sha256:2", "digest": two},
            },
        });
        let saved = checkpoint("Succeeded", &source.to_string());
        let of = |saved: &Checkpoint, image: &str| {
            let mut made = pod();
            made["spec"]["containers"][0]["image"] = "side@sha256:2".into();
            made["spec"]["containers"][1]["image"] = image.into();
            apply(&mut made, &origin("c", Some(saved)).unwrap()).unwrap();
            made
        };
        let affinity = "/spec/affinity/nodeAffinity";
        let required = format!("{affinity}/requiredDuringSchedulingIgnoredDuringExecution");
        assert!(
            of(&saved, "agent:1").pointer(&required).is_some(),
            "there is no copy yet"
        );
        let with = |mark: &str| {
            let mut saved = saved.clone();
            let annotations = saved.metadata.annotations.get_or_insert_default();
            annotations.insert(mark.to_owned(), "now".to_owned());
            saved
        };
        let saved = with(annotation::CHECKPOINT_STORED);
        let made = of(&saved, "agent:1");
        assert_eq!(made, of(&with(annotation::CHECKPOINT_SERVED), "agent:1"));
        assert!(made.pointer(&required).is_none());
        let preferred = format!("{affinity}/preferredDuringSchedulingIgnoredDuringExecution");
        let node = &made.pointer(&preferred).unwrap()[0]["preference"]["matchFields"][0];
        assert_eq!(node["values"], json!(["n"]));
        let containers = &made["spec"]["containers"];
        assert_eq!(containers[0]["image"], "side@sha256:2");
        assert_eq!(containers[1]["image"], "agent:1@sha256:1");
        let digests = made["metadata"]["annotations"][IMAGES].as_str().unwrap();
        let digests: Value = serde_json::from_str(digests).unwrap();
        assert_eq!(digests, json!({"main": one, "side": two}));
        // With another image it starts nowhere: the runtime of its node says so.
        let made = of(&saved, "agent:2");
        assert!(made.pointer(&required).is_some());
        assert_eq!(made["spec"]["containers"][1]["image"], "agent:2");
    }

    #[test]
    fn what_goes_on_runs_no_hook_again() {
        let hooked = || {
            let mut made = pod();
            made["spec"]["containers"][0]["lifecycle"] =
                json!({"postStart": {"exec": {}}, "preStop": {}});
            made
        };
        let mut saved = checkpoint("Succeeded", SOURCE);
        let mut made = hooked();
        apply(&mut made, &origin("c", Some(&saved)).unwrap()).unwrap();
        assert_eq!(
            made["spec"]["containers"][0]["lifecycle"],
            json!({"preStop": {}})
        );
        assert_eq!(made["spec"].get("restartPolicy"), None);
        saved.spec.persistent_contents = vec!["filesystem".to_owned()];
        let annotations = saved.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::PAUSED_POD.to_owned(), "p".to_owned());
        let mut made = hooked();
        apply(&mut made, &origin("c", Some(&saved)).unwrap()).unwrap();
        assert_eq!(
            made["spec"]["containers"][0]["lifecycle"]["postStart"],
            json!({"exec": {}})
        );
        assert_eq!(made["spec"]["restartPolicy"], "Never");
    }

    #[test]
    fn the_daemon_in_restored_memory_has_its_former_token() {
        let mut saved = checkpoint("Succeeded", SOURCE);
        let token = |saved: &Checkpoint| {
            let origin = origin("c", Some(saved)).unwrap();
            origin.daemon_token().map(str::to_owned)
        };
        assert_eq!(token(&saved), None);
        let annotations = saved.metadata.annotations.get_or_insert_default();
        annotations.insert(
            annotation::INIT_RUNTIME_REQUEST.to_owned(),
            r#"{"accessToken": "old"}"#.to_owned(),
        );
        assert_eq!(token(&saved).as_deref(), Some("old"));
        saved.spec.persistent_contents = vec!["filesystem".to_owned()];
        assert_eq!(token(&saved), None, "its daemon starts anew");
    }

    #[test]
    fn required_nodes_stay_required() {
        let mut spec = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [1]}, {"matchFields": [2]}],
        }}}});
        stay_on(&mut spec, "n");
        let terms = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            ["nodeSelectorTerms"];
        assert_eq!(terms[0]["matchExpressions"], json!([1]));
        assert_eq!(terms[0]["matchFields"][0]["values"], json!(["n"]));
        assert_eq!(terms[1]["matchFields"][1]["values"], json!(["n"]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let of = |phase: &str, source: &str| origin("c", Some(&checkpoint(phase, source)));
        assert!(origin("c", None).unwrap_err().contains("not found"));
        assert!(of("Creating", SOURCE).unwrap_err().contains("not complete"));
        assert!(of("Succeeded", "").unwrap_err().contains("neither"));
        let fits = of("Succeeded", SOURCE).unwrap();
        let mut other = pod();
        other["spec"]["runtimeClassName"] = "gvisor".into();
        assert!(
            apply(&mut other, &fits)
                .unwrap_err()
                .contains("RuntimeClass")
        );
        let mut other = pod();
        other["spec"]["containers"][0]["name"] = "other".into();
        assert!(
            apply(&mut other, &fits)
                .unwrap_err()
                .contains("must be the same")
        );
    }

    #[test]
    fn empty_directories_stay_inside_of_pods_that_can_be_saved() {
        let mut made = json!({
            "metadata": {"annotations": {}},
            "spec": {"volumes": [
                {"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {"medium": "Memory"}}, {"name": "c", "configMap": {}},
            ]},
        });
        keep_volumes(&mut made);
        assert_eq!(made["metadata"]["annotations"], json!({}));
        made["spec"]["runtimeClassName"] = "shoal".into();
        keep_volumes(&mut made);
        let annotations = made["metadata"]["annotations"].as_object().unwrap();
        assert_eq!(annotations.len(), 6);
        assert_eq!(annotations["dev.gvisor.spec.mount.a.share"], "pod");
        assert_eq!(annotations["dev.gvisor.spec.mount.b.type"], "tmpfs");
    }
}
