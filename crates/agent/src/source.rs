//! The pod that is saved: the properties that a save needs, and whether it can be saved at all.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ContainerState, Pod};
use kube::ResourceExt;
use shoal_checkpoint::{
    ContainerRecord, DAEMON, DAEMON_INIT, Records, SandboxRecord, SavedContainer, template_image,
};
use shoal_crds::kruise::Checkpoint;
use shoal_crds::kruise::names::annotation;

use crate::failure::Unsaved;

/// The mount point of a service account's token.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A pod of this node that can be saved.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) uid: String,
    /// The sandbox, which has all containers.
    pub(crate) sandbox: String,
    pub(crate) record: SandboxRecord,
    /// The ids of the containers.
    pub(crate) ids: BTreeSet<String>,
    pub(crate) containers: Vec<SavedContainer>,
    /// Whether containers have the token of a service account.
    pub(crate) token: bool,
}

/// A sandbox of this node, and its pod.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) sandbox: String,
}

impl Place {
    /// The sandbox of a pod of which a container still runs.
    pub(crate) fn of(pod: &Pod, records: &Records) -> Option<Self> {
        let statuses = pod.status.as_ref()?.container_statuses.iter().flatten();
        let running = |state: &ContainerState| state.running.is_some();
        let mut states = statuses.filter_map(|status| status.state.as_ref());
        states.any(running).then_some(())?;
        Some(Self {
            namespace: pod.metadata.namespace.clone()?,
            pod: pod.metadata.name.clone()?,
            uid: pod.metadata.uid.clone()?,
            sandbox: sandbox(pod, records)?,
        })
    }
}

impl Source {
    pub(crate) fn place(&self) -> Place {
        Place {
            namespace: self.namespace.clone(),
            pod: self.pod.clone(),
            uid: self.uid.clone(),
            sandbox: self.sandbox.clone(),
        }
    }

    /// Reads a pod, and the records that the runtime wrote when it started the pod.
    pub(crate) fn of(
        pod: &Pod,
        node: &str,
        records: &Records,
        then: Then,
    ) -> Result<Self, Unsaved> {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let ids = running_containers(pod).ok_or_else(|| Unsaved::Gone(name.clone()))?;
        let spec = pod.spec.clone().unwrap_or_default();
        let of = spec.node_name.unwrap_or_default();
        if of != node {
            return Err(Unsaved::Elsewhere { pod: name, of });
        }
        if then == Then::Ends && restarts(pod) {
            return Err(Unsaved::Restarts);
        }
        let known = ids.iter().map(|(_, id, image)| {
            let record = records.container(id).ok()?;
            Some((record, image.clone()))
        });
        let known: Option<Vec<(ContainerRecord, String)>> = known.collect();
        let runtime = || Unsaved::Runtime(name.clone());
        let known = known.ok_or_else(runtime)?;
        let sandbox = known.first().ok_or_else(runtime)?.0.sandbox.clone();
        let record = records.sandbox(&sandbox).map_err(|_| runtime())?;
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        if record.namespace != namespace || record.pod != name {
            return Err(runtime());
        }
        if let Some(sidecar) = sidecar(pod) {
            return Err(Unsaved::Sidecar(sidecar));
        }
        if let Some(debugger) = debugger(pod) {
            return Err(Unsaved::Ephemeral(debugger));
        }
        let bare = known.iter().find(|(record, _)| record.layers.is_empty());
        if let Some((bare, _)) = bare {
            return Err(Unsaved::Layers(bare.name.clone().unwrap_or_default()));
        }
        if let Some((volume, first)) = filled_first(pod) {
            return Err(Unsaved::Filled(volume, first));
        }
        let inside = |volume: &&String| !record.volumes.contains(*volume);
        if let Some(outside) = empty_directories(pod).iter().find(inside) {
            return Err(Unsaved::Volume(outside.clone()));
        }
        Ok(Self {
            namespace,
            pod: name,
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            sandbox,
            record,
            ids: ids.into_iter().map(|(_, id, _)| id).collect(),
            containers: saved_containers(pod, known),
            token: has_token(pod),
        })
    }

    /// Whether the pod still has the containers that were saved.
    pub(crate) fn check_same(&self, pod: Option<&Pod>) -> Result<(), Unsaved> {
        let now = pod.filter(|pod| pod.metadata.uid.as_ref() == Some(&self.uid));
        let now = now.and_then(running_containers);
        let now = now.ok_or_else(|| Unsaved::Gone(self.pod.clone()))?;
        match now.iter().find(|(_, id, _)| !self.ids.contains(id)) {
            Some((name, _, _)) => Err(Unsaved::Ended(name.clone())),
            None => Ok(()),
        }
    }
}

/// The fate of a pod after its save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It runs on.
    Runs,
    /// It ends.
    Ends,
    /// Its sandbox is paused: the operator deletes the pod, and it ends when nothing starts it again.
    IsDeleted,
}

impl Then {
    pub(crate) fn of(checkpoint: &Checkpoint) -> Self {
        let paused = checkpoint.annotation(annotation::PAUSED_POD);
        match checkpoint.spec.keep_running {
            Some(false) if paused.is_some() => Self::IsDeleted,
            Some(false) => Self::Ends,
            _ => Self::Runs,
        }
    }
}

/// Whether containers of a pod that end are started again.
pub(crate) fn restarts(pod: &Pod) -> bool {
    let policy = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.restart_policy.as_deref());
    let always = matches!(policy, None | Some("Always"));
    always && pod.metadata.deletion_timestamp.is_none()
}

/// The sandbox of a pod, if the runtime of this node has started it. The pod may be in any state.
pub(crate) fn sandbox(pod: &Pod, records: &Records) -> Option<String> {
    let statuses = pod
        .status
        .iter()
        .flat_map(|status| &status.container_statuses);
    let ids = statuses
        .flatten()
        .filter_map(|status| Some(container_id(status.container_id.as_deref()?)));
    let ours = |id: &str| {
        let sandbox = records.container(id).ok()?.sandbox;
        let record = records.sandbox(&sandbox).ok()?;
        let known = (Some(&record.namespace), Some(&record.pod));
        let meta = &pod.metadata;
        (known == (meta.namespace.as_ref(), meta.name.as_ref())).then_some(sandbox)
    };
    ids.filter_map(ours).next()
}

/// A debugging container that runs: it is in the memory of the sandbox, and in no pod that is restored.
fn debugger(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let mut all = status.ephemeral_container_statuses.iter().flatten();
    let running = all.find(|one| {
        let state = one.state.as_ref();
        state.is_some_and(|state| state.running.is_some())
    });
    running.map(|one| one.name.clone())
}

/// The id that containerd, and so its runtime, knows a container by.
fn container_id(reported: &str) -> &str {
    reported.strip_prefix("containerd://").unwrap_or(reported)
}

/// Name, id and image of each container, if all of them run.
fn running_containers(pod: &Pod) -> Option<Vec<(String, String, String)>> {
    let status = pod.status.as_ref()?;
    if status.phase.as_deref() != Some("Running") || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let wanted = pod.spec.as_ref()?.containers.len();
    let found: Option<Vec<_>> = status
        .container_statuses
        .iter()
        .flatten()
        .map(|container| {
            container.state.as_ref()?.running.as_ref()?;
            let id = container_id(container.container_id.as_deref()?).to_owned();
            Some((container.name.clone(), id, container.image_id.clone()))
        })
        .collect();
    found.filter(|found| found.len() == wanted && wanted > 0)
}

fn saved_containers(pod: &Pod, known: Vec<(ContainerRecord, String)>) -> Vec<SavedContainer> {
    let saved = known.into_iter().map(|(container, image)| {
        let name = container.name.unwrap_or_default();
        SavedContainer {
            named: named_image(pod, &name),
            name,
            image,
            layers: container.layers,
        }
    });
    saved.collect()
}

/// The image of a container, as the template of its pod names it.
fn named_image(pod: &Pod, container: &str) -> String {
    let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let image = containers
        .find(|one| one.name == container)
        .and_then(|one| one.image.as_deref());
    template_image(pod.metadata.annotations.as_ref(), image.unwrap_or_default()).to_owned()
}

/// The volumes of the kind `emptyDir` that containers mount.
fn empty_directories(pod: &Pod) -> Vec<String> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let mounted: BTreeSet<&str> = spec
        .containers
        .iter()
        .flat_map(|container| container.volume_mounts.iter().flatten())
        .map(|mount| mount.name.as_str())
        .collect();
    let volumes = spec.volumes.iter().flatten();
    volumes
        .filter(|volume| volume.empty_dir.is_some() && mounted.contains(&*volume.name))
        .map(|volume| volume.name.clone())
        .collect()
}

/// A container that Kubernetes starts before the others, and does not wait for.
fn sidecar(pod: &Pod) -> Option<String> {
    let mut first = pod.spec.as_ref()?.init_containers.iter().flatten();
    let found = first.find(|one| one.restart_policy.as_deref() == Some("Always"));
    found.map(|one| one.name.clone())
}

/// A volume that containers share with an init container which mounts it first, and that container. The daemon's own is known
/// to the runtime.
fn filled_first(pod: &Pod) -> Option<(String, String)> {
    let kept = empty_directories(pod);
    let daemon = pod.annotations().contains_key(DAEMON);
    let first = pod.spec.as_ref()?.init_containers.iter().flatten();
    let mut mounts = first
        .filter(|one| !(daemon && one.name == DAEMON_INIT))
        .flat_map(|one| {
            let mounts = one.volume_mounts.iter().flatten();
            mounts.map(|mount| (mount.name.clone(), one.name.clone()))
        });
    mounts.find(|(volume, _)| kept.contains(volume))
}

fn has_token(pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers
        .flat_map(|container| container.volume_mounts.iter().flatten())
        .any(|mount| mount.mount_path == TOKEN)
}

#[cfg(test)]
mod tests;
