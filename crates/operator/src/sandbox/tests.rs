//! Objects for the tests of what to do.

mod children;
mod pods;
mod states;

use std::sync::Arc;

use serde_json::{Value, json};
use shoal_crds::hash;
use shoal_crds::v1beta1::Sandbox;

use crate::slim::Pod;

const ALPHA: &str = "api.agents.x-k8s.io/v1alpha1-sandbox-state";

fn sandbox(spec: &Value) -> Sandbox {
    let mut object = json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "own", "generation": 2},
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "i"}]}}},
    });
    for (field, value) in spec.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

/// The same sandbox, written in v1alpha1.
fn alpha(mut sandbox: Sandbox) -> Sandbox {
    sandbox
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(ALPHA.to_owned(), String::new());
    sandbox
}

fn owner(uid: &str) -> Value {
    json!([{"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "name": "o", "uid": uid, "controller": true}])
}

fn pod_with(metadata: Value, status: Value) -> Arc<Pod> {
    let mut metadata = metadata;
    metadata["name"] = "a".into();
    metadata["uid"] = "pod-1".into();
    let pod = json!({"metadata": metadata, "spec": {"nodeName": "n"}, "status": status});
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn ready_pod() -> Arc<Pod> {
    let conditions = json!([
        {"type": "PodScheduled", "status": "True"},
        {"type": "Ready", "status": "True"},
    ]);
    pod_with(
        json!({"ownerReferences": owner("own"), "labels": {"agents.x-k8s.io/sandbox-name-hash": hash::of_name("a")}}),
        json!({"phase": "Running", "conditions": conditions, "podIPs": [{"ip": "10.0.0.1"}]}),
    )
}
