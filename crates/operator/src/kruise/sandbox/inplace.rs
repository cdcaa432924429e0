//! Changes of a running pod: labels, annotations, images and resources.
//!
//! Resources are changed through the pod's `resize` subresource, upwards and downwards, without a restart.

mod progress;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Map, Value, json};
use shoal_checkpoint::template_image;
use shoal_crds::kruise::names::{annotation, label, reason};
use shoal_crds::kruise::quantity::nano_of;
use shoal_crds::kruise::{Sandbox, revision};

use self::progress::{progress, update_state};
use super::phase::Input;
use crate::kruise::Pod;
use crate::kruise::slim::Container;

/// Reasons of events.
pub(super) const FORBIDDEN: &str = "InplaceUpdateForbidden";
pub(super) const FAILED: &str = "InplaceUpdateFailed";

/// The resources that can change in a running container.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];

/// A change of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    /// The strategic merge patch of the `resize` subresource, if resources change.
    pub(super) resize: Option<Value>,
    /// The strategic merge patch of the pod: images and metadata.
    pub(super) pod: Value,
}

/// The next step of an update.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// The pod has the template.
    Nothing,
    /// The pod cannot have the template.
    Forbidden(String),
    /// Only labels and annotations change.
    Metadata(Change),
    /// Images or resources change.
    Begin(Change),
    /// The node has not carried it out yet.
    Wait(String),
    /// It is carried out.
    Done,
    /// It was given up.
    Failed(String),
}

/// Compares a running pod with its template.
pub(super) fn step(input: &Input<'_>, pod: &Pod, known: Option<&Condition>) -> Step {
    let (sandbox, blueprint) = (input.sandbox, input.blueprint);
    if let Some(change) = internet(input, pod) {
        return Step::Metadata(change);
    }
    let under_way = known.is_some_and(|known| known.reason == reason::INPLACE_UPDATING);
    if pod.label(label::POD_TEMPLATE_HASH) == Some(&blueprint.revision) {
        // A failure may be temporary: the node may report the former resize for a moment.
        let failed = known.is_some_and(|known| known.reason == reason::FAILED);
        return if under_way || failed {
            progress(pod)
        } else {
            Step::Nothing
        };
    }
    let failed_before = known.is_some_and(|known| {
        known.reason == reason::FAILED && known.observed_generation == sandbox.metadata.generation
    });
    if failed_before {
        return Step::Nothing;
    }
    if pod.label(label::POD_TEMPLATE_HASH).is_none() {
        return Step::Forbidden("the pod has no label pod-template-hash".to_owned());
    }
    if let Some(stored) = stored_hash(sandbox)
        && stored != revision::of_immutable_part(&blueprint.template)
    {
        return Step::Forbidden(
            "only labels, annotations, images and resources can change in place".to_owned(),
        );
    }
    // New images follow each other. A resize that waits may be replaced by another.
    if under_way
        && update_state(pod)["updateImages"] == true
        && let Step::Wait(message) = progress(pod)
    {
        return Step::Wait(format!("an earlier update is under way: {message}"));
    }
    begin(input, pod)
}

/// The label that says whether the pod reaches the internet. It does not wait for the rest of an update, which may be
/// refused.
fn internet(input: &Input<'_>, pod: &Pod) -> Option<Change> {
    let key = label::ALLOW_INTERNET_ACCESS;
    let wanted = input.blueprint.template.metadata.labels.get(key)?;
    if pod.label(key) == Some(wanted) {
        return None;
    }
    let metadata = json!({"uid": pod.metadata.uid, "labels": {key: wanted}});
    Some(Change {
        resize: None,
        pod: json!({"metadata": metadata}),
    })
}

fn stored_hash(sandbox: &Sandbox) -> Option<&str> {
    let annotations = sandbox.metadata.annotations.as_ref()?;
    annotations
        .get(annotation::HASH_IMMUTABLE_PART)
        .map(String::as_str)
}

fn begin(input: &Input<'_>, pod: &Pod) -> Step {
    let template = &input.blueprint.template.spec;
    let resized = resized(template, pod);
    let images = images(template, pod);
    if !resized.is_empty() && !input.resizes {
        return Step::Forbidden(
            "the feature gate SandboxInPlaceResourceResize is turned off".to_owned(),
        );
    }
    let all = pod.spec.containers.iter().chain(&pod.spec.init_containers);
    let before = quality(all.map(|container| &container.resources));
    let after_resize: Vec<Value> = pod
        .spec
        .containers
        .iter()
        .map(|container| match resized.get(&container.name) {
            Some(change) => merged(&container.resources, change),
            None => container.resources.clone(),
        })
        .collect();
    let inits = pod.spec.init_containers.iter().map(|c| &c.resources);
    let after = quality(after_resize.iter().chain(inits));
    if before != after {
        return Step::Failed(format!(
            "would change QoS class from {before} to {after}, resize rejected"
        ));
    }
    change(input, pod, &images, &resized)
}

/// The patches of an update.
fn change(
    input: &Input<'_>,
    pod: &Pod,
    images: &BTreeMap<String, String>,
    resized: &BTreeMap<String, Value>,
) -> Step {
    let (sandbox, blueprint) = (input.sandbox, input.blueprint);
    let name = sandbox.metadata.name.as_deref().unwrap_or_default();
    let (labels, annotations) = (blueprint.labels(name), blueprint.annotations());
    let mut metadata =
        json!({"uid": pod.metadata.uid, "labels": labels, "annotations": annotations});
    if resized.is_empty() && images.is_empty() {
        return Step::Metadata(Change {
            resize: None,
            pod: json!({"metadata": metadata}),
        });
    }
    let statuses: Map<String, Value> = pod
        .status
        .container_statuses
        .iter()
        .filter(|status| images.contains_key(&status.name))
        .map(|status| {
            let state = json!({"imageID": status.image_id, "containerID": status.container_id});
            (status.name.clone(), state)
        })
        .collect();
    let state = json!({
        "revision": blueprint.revision,
        "updateTimestamp": input.now.to_string(),
        "lastContainerStatuses": statuses,
        "updateImages": !images.is_empty(),
        "updateResources": !resized.is_empty(),
    });
    metadata["annotations"][annotation::INPLACE_UPDATE_STATE] = state.to_string().into();
    let mut change = json!({"metadata": metadata});
    if !images.is_empty() {
        let containers: Vec<Value> = images
            .iter()
            .map(|(name, image)| json!({"name": name, "image": image}))
            .collect();
        change["spec"] = json!({"containers": containers});
    }
    let resize = (!resized.is_empty()).then(|| {
        let containers: Vec<Value> = resized
            .iter()
            .map(|(name, resources)| json!({"name": name, "resources": resources}))
            .collect();
        json!({"metadata": {"uid": pod.metadata.uid}, "spec": {"containers": containers}})
    });
    Step::Begin(Change {
        resize,
        pod: change,
    })
}

fn templates(spec: &Map<String, Value>) -> impl Iterator<Item = (&str, &Value)> {
    let containers = spec.get("containers").and_then(Value::as_array);
    containers
        .into_iter()
        .flatten()
        .filter_map(|container| Some((container.get("name")?.as_str()?, container)))
}

fn of_pod<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    pod.spec
        .containers
        .iter()
        .find(|container| container.name == name)
}

/// The images that differ, by container.
pub(super) fn images(spec: &Map<String, Value>, pod: &Pod) -> BTreeMap<String, String> {
    templates(spec)
        .filter_map(|(name, template)| {
            let image = template.get("image")?.as_str()?;
            let annotations = pod.metadata.annotations.as_ref();
            let differs = of_pod(pod, name)
                .is_some_and(|container| template_image(annotations, &container.image) != image);
            differs.then(|| (name.to_owned(), image.to_owned()))
        })
        .collect()
}

/// The resources that differ, by container. Resources that the template leaves out stay as they are.
fn resized(spec: &Map<String, Value>, pod: &Pod) -> BTreeMap<String, Value> {
    templates(spec)
        .filter_map(|(name, template)| {
            let container = of_pod(pod, name)?;
            let mut change = Map::new();
            for kind in ["limits", "requests"] {
                let wanted = wanted(template, kind);
                let differing: Map<String, Value> = wanted
                    .into_iter()
                    .filter(|(resource, value)| {
                        amount(&container.resources, kind, resource) != nano_of(value)
                    })
                    .collect();
                if !differing.is_empty() {
                    change.insert(kind.to_owned(), differing.into());
                }
            }
            (!change.is_empty()).then(|| (name.to_owned(), change.into()))
        })
        .collect()
}

/// The requests or limits of a template. A limit without a request is the request, too.
fn wanted(template: &Value, kind: &str) -> Map<String, Value> {
    let given = |kind: &str| {
        let given = template
            .get("resources")
            .and_then(|resources| resources.get(kind));
        let mut given = given
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        given.retain(|resource, _| RESIZABLE.contains(&resource.as_str()));
        given
    };
    if kind == "limits" {
        return given("limits");
    }
    let mut requests = given("limits");
    requests.extend(given("requests"));
    requests
}

fn amount(resources: &Value, kind: &str, resource: &str) -> Option<i128> {
    nano_of(resources.get(kind)?.get(resource)?)
}

/// Resources after a change.
fn merged(resources: &Value, change: &Value) -> Value {
    let mut merged = resources.clone();
    for (kind, values) in change.as_object().into_iter().flatten() {
        for (resource, value) in values.as_object().into_iter().flatten() {
            if !merged.is_object() {
                merged = json!({});
            }
            merged[kind.as_str()][resource.as_str()] = value.clone();
        }
    }
    merged
}

/// The quality of service of a pod with these containers.
fn quality<'a>(containers: impl Iterator<Item = &'a Value>) -> &'static str {
    let (mut guaranteed, mut any) = (true, false);
    for resources in containers {
        for resource in RESIZABLE {
            let request = amount(resources, "requests", resource).filter(|amount| *amount != 0);
            let limit = amount(resources, "limits", resource).filter(|amount| *amount != 0);
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && request.is_none_or(|request| Some(request) == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
