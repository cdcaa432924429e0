//! How far the node is with an update.

use serde_json::Value;
use shoal_crds::kruise::names::annotation;

use super::{RESIZABLE, Step, amount};
use crate::kruise::Pod;
use crate::kruise::slim::Container;
use crate::slim::PodCondition;

/// How far the node is with an update.
pub(super) fn progress(pod: &Pod) -> Step {
    if let Some(failed) = resize_error(pod) {
        return Step::Failed(failed);
    }
    if let Some(message) = resize_pending(pod) {
        return Step::Wait(message);
    }
    let state = update_state(pod);
    let must_report = state["updateResources"] == true;
    let mut containers = pod.spec.containers.iter();
    if let Some(waits) = containers.find(|one| !is_resized(one, pod, must_report)) {
        return Step::Wait(format!("container {:?} is being resized", waits.name));
    }
    let before = state["lastContainerStatuses"].as_object();
    for (name, before) in before.into_iter().flatten() {
        let now = pod
            .status
            .container_statuses
            .iter()
            .find(|status| status.name == *name);
        let started = now.is_some_and(|now| {
            now.state.running.is_some()
                && (before["imageID"] != now.image_id.as_str()
                    || before["containerID"] != now.container_id.as_str())
        });
        if !started {
            return Step::Wait(format!("container {name:?} is being restarted"));
        }
    }
    Step::Done
}

/// The update in the pod's annotation.
pub(super) fn update_state(pod: &Pod) -> Value {
    pod.annotation(annotation::INPLACE_UPDATE_STATE)
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// Whether the node reports the resources of the specification. Old nodes report none, which is well unless
/// `must_report`.
fn is_resized(container: &Container, pod: &Pod, must_report: bool) -> bool {
    let status = pod
        .status
        .container_statuses
        .iter()
        .find(|status| status.name == container.name);
    let Some(status) = status.filter(|status| !status.resources.is_null()) else {
        return !must_report;
    };
    ["limits", "requests"].into_iter().all(|kind| {
        RESIZABLE.into_iter().all(|resource| {
            let wanted = amount(&container.resources, kind, resource);
            wanted.is_none() || amount(&status.resources, kind, resource) == wanted
        })
    })
}

/// A condition, unless it is about an earlier specification.
fn current<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    let generation = pod.metadata.generation;
    pod.condition(kind).filter(|known| {
        known.observed_generation.is_none() || known.observed_generation >= generation
    })
}

fn resize_error(pod: &Pod) -> Option<String> {
    let holds = |kind: &str, reason: &str| {
        current(pod, kind).filter(|known| known.status == "True" && known.reason == reason)
    };
    if let Some(infeasible) = holds("PodResizePending", "Infeasible") {
        return Some(format!("resize is infeasible: {}", infeasible.message));
    }
    if let Some(error) = holds("PodResizeInProgress", "Error") {
        return Some(format!("resize failed: {}", error.message));
    }
    (pod.status.resize == "Infeasible").then(|| "resize is infeasible".to_owned())
}

/// A resize that the node will carry out later, or is carrying out.
fn resize_pending(pod: &Pod) -> Option<String> {
    for kind in ["PodResizePending", "PodResizeInProgress"] {
        if let Some(known) = current(pod, kind).filter(|known| known.status == "True") {
            let text = [&known.reason, &known.message]
                .into_iter()
                .filter(|text| !text.is_empty())
                .cloned()
                .collect::<Vec<_>>()
                .join(": ");
            return Some(format!("{kind}: {text}"));
        }
    }
    let waits = ["Deferred", "Proposed", "InProgress"].contains(&pod.status.resize.as_str());
    waits.then(|| format!("resize is {}", pod.status.resize))
}
