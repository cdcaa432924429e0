//! A sandbox of either API, as the commands show it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::Serialize;
use serde_json::{Value, json};
use shoal_crds::kruise::names::condition;
use shoal_crds::kruise::{self, SandboxState};
use shoal_crds::names::annotation;
use shoal_crds::v1beta1;

use super::Family;
use crate::output;

/// A sandbox of either API.
pub(crate) struct Sandbox {
    pub(super) family: Family,
    pub(super) namespace: String,
    pub(super) name: String,
    /// `running`, `paused`, …
    pub(super) state: String,
    /// Why it is not running.
    pub(super) why: String,
    pub(super) pod: String,
    pub(super) address: String,
    pub(super) node: String,
    created: Option<Timestamp>,
    /// The whole object.
    pub(super) object: Value,
}

impl Sandbox {
    fn new<K: Serialize>(family: Family, meta: &ObjectMeta, object: &K) -> Self {
        let kind = json!({"apiVersion": format!("{}/{}", family.group(), version(family)), "kind": "Sandbox"});
        let mut object = json!(object);
        if let (Some(object), Value::Object(kind)) = (object.as_object_mut(), kind) {
            object.extend(kind);
        }
        let name = meta.name.clone().unwrap_or_default();
        Self {
            family,
            namespace: meta.namespace.clone().unwrap_or_default(),
            pod: name.clone(),
            name,
            state: String::new(),
            why: String::new(),
            address: String::new(),
            node: String::new(),
            created: meta.creation_timestamp.as_ref().map(|at| at.0),
            object,
        }
    }

    /// A sandbox of `agents.x-k8s.io`.
    pub(super) fn of_community(sandbox: &v1beta1::Sandbox) -> Self {
        let mut seen = Self::new(Family::Community, &sandbox.metadata, sandbox);
        let annotations = sandbox.metadata.annotations.as_ref();
        if let Some(pod) = annotations.and_then(|known| known.get(annotation::POD_NAME)) {
            seen.pod.clone_from(pod);
        }
        let status = sandbox.status.clone().unwrap_or_default();
        let (state, why) = community_state(&sandbox.metadata, &status.conditions);
        (seen.state, seen.why) = (state.to_owned(), why);
        seen.address = status.pod_ips.first().cloned().unwrap_or_default();
        seen.node = status.node_name;
        seen
    }

    /// A sandbox of `agents.kruise.io`.
    pub(super) fn of_kruise(sandbox: &kruise::Sandbox) -> Self {
        let mut seen = Self::new(Family::Kruise, &sandbox.metadata, sandbox);
        sandbox.pod_name().clone_into(&mut seen.pod);
        let (state, reason) = SandboxState::of(sandbox, Timestamp::now());
        state.as_str().clone_into(&mut seen.state);
        if !matches!(state, SandboxState::Running | SandboxState::Available) {
            let ready = sandbox.condition(condition::READY);
            let message = ready
                .map(|ready| ready.message.as_str())
                .unwrap_or_default();
            seen.why = told(reason, message);
        }
        let status = sandbox.status.clone().unwrap_or_default();
        seen.address = status.sandbox_ip;
        seen.node = status.node_name;
        seen
    }

    /// How long ago it was created.
    pub(super) fn age(&self) -> String {
        self.created
            .map_or_else(String::new, |created| output::ago(&created.to_string()))
    }
}

fn version(family: Family) -> &'static str {
    match family {
        Family::Community => "v1beta1",
        Family::Kruise => kruise::names::VERSION,
    }
}

fn told(reason: &str, message: &str) -> String {
    match message {
        "" => reason.to_owned(),
        message => format!("{reason}: {message}"),
    }
}

/// The state of a sandbox of `agents.x-k8s.io`, from its conditions.
fn community_state(meta: &ObjectMeta, conditions: &[Condition]) -> (&'static str, String) {
    let find = |kind: &str| conditions.iter().find(|known| known.type_ == kind);
    let holds = |kind: &str| find(kind).filter(|known| known.status == "True");
    let why = |known: &Condition| told(&known.reason, &known.message);
    if meta.deletion_timestamp.is_some() {
        return ("terminating", String::new());
    }
    if let Some(finished) = holds("Finished") {
        return ("finished", why(finished));
    }
    if holds("Suspended").is_some() {
        return ("suspended", String::new());
    }
    match (holds("Ready"), find("Ready")) {
        (Some(_), _) => ("running", String::new()),
        (None, Some(ready)) => ("pending", why(ready)),
        (None, None) => ("pending", "the operator has not seen it yet".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn community(conditions: &Value) -> Sandbox {
        let sandbox = serde_json::from_value(json!({
            "metadata": {"name": "s", "namespace": "ns", "annotations": {"agents.x-k8s.io/pod-name": "other"}},
            "spec": {"podTemplate": {"spec": {"containers": []}}},
            "status": {"conditions": conditions, "podIPs": ["10.0.0.1"], "nodeName": "n"},
        }));
        Sandbox::of_community(&sandbox.unwrap())
    }

    fn condition(kind: &str, status: &str, reason: &str) -> Value {
        json!({
            "type": kind, "status": status, "reason": reason, "message": "m",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        })
    }

    #[test]
    fn conditions_of_the_community_are_states() {
        let ready = condition("Ready", "True", "R");
        let unready = condition("Ready", "False", "R");
        for (conditions, state, why) in [
            (json!([ready]), "running", ""),
            (json!([unready]), "pending", "R: m"),
            (json!([]), "pending", "the operator has not seen it yet"),
            (
                json!([unready, condition("Suspended", "True", "S")]),
                "suspended",
                "",
            ),
            (
                json!([condition("Finished", "True", "PodFailed"), ready]),
                "finished",
                "PodFailed: m",
            ),
        ] {
            let seen = community(&conditions);
            assert_eq!(
                (seen.state.as_str(), seen.why.as_str()),
                (state, why),
                "{conditions}"
            );
        }
        let seen = community(&json!([ready]));
        assert_eq!(
            (seen.pod.as_str(), seen.address.as_str(), seen.node.as_str()),
            ("other", "10.0.0.1", "n")
        );
        assert_eq!(seen.object["apiVersion"], "agents.x-k8s.io/v1beta1");
    }

    #[test]
    fn a_sandbox_of_kruise_tells_why_it_does_not_run() {
        let sandbox = serde_json::from_value(json!({
            "metadata": {"name": "s", "namespace": "ns"}, "spec": {},
            "status": {"phase": "Pending", "conditions": [condition("Ready", "False", "R")]},
        }));
        let seen = Sandbox::of_kruise(&sandbox.unwrap());
        assert_eq!(
            (seen.state.as_str(), seen.why.as_str()),
            ("creating", "ResourcePending: m")
        );
        assert_eq!(seen.object["kind"], "Sandbox");
    }
}
