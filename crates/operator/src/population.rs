//! The gauge of sandboxes. It is counted at each scrape, so that no series outlives its sandboxes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use shoal_crds::names::{EXTENSIONS_GROUP, annotation, label};
use shoal_crds::v1beta1::Sandbox;

use crate::conditions;
use crate::owner;

const NAMES: [&str; 7] = [
    "namespace",
    "ready_condition",
    "expired",
    "launch_type",
    "sandbox_template",
    "owned_by",
    "created_by",
];

/// The clients that a label may name. Others would make a series for each value.
const CREATORS: [&str; 3] = ["controller", "go-client", "python-client"];

fn values(sandbox: &Sandbox) -> [&str; 7] {
    let metadata = &sandbox.metadata;
    let of_label = |key: &str| metadata.labels.as_ref()?.get(key).map(String::as_str);
    let template = metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(annotation::TEMPLATE_REF))
        .filter(|template| !template.is_empty());
    let ready = sandbox
        .status
        .as_ref()
        .and_then(|status| conditions::find(&status.conditions, "Ready"));
    let text = |holds: bool| if holds { "true" } else { "false" };
    let owner = ["SandboxClaim", "SandboxWarmPool"]
        .into_iter()
        .find(|kind| {
            owner::controller(metadata)
                .is_some_and(|owner| owner::is_of_kind(owner, EXTENSIONS_GROUP, kind))
        });
    let creator = of_label(label::CREATED_BY);
    [
        metadata.namespace.as_deref().unwrap_or_default(),
        text(ready.is_some_and(|ready| ready.status == "True")),
        text(ready.is_some_and(|ready| ready.reason == "SandboxExpired")),
        if of_label(label::LAUNCH_TYPE) == Some("warm") {
            "warm"
        } else {
            "cold"
        },
        template.map_or("unknown", String::as_str),
        owner.unwrap_or("None"),
        creator
            .filter(|creator| CREATORS.contains(creator))
            .unwrap_or("unknown"),
    ]
}

/// The gauge `agent_sandboxes`, in the text format of Prometheus.
pub(crate) fn render(sandboxes: &[Arc<Sandbox>]) -> String {
    let mut counts: BTreeMap<[&str; 7], u64> = BTreeMap::new();
    for sandbox in sandboxes {
        *counts.entry(values(sandbox)).or_default() += 1;
    }
    let mut text = String::from("# TYPE agent_sandboxes gauge\n");
    for (values, count) in counts {
        let labels: Vec<String> = NAMES
            .iter()
            .zip(values)
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "agent_sandboxes{{{}}} {count}", labels.join(","));
    }
    text
}

/// A value of a label. The template's name comes from an annotation, which holds any text.
pub(crate) fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn sandbox(annotations: Value, labels: Value, owner: Value, ready: &str) -> Arc<Sandbox> {
        let sandbox = json!({
            "metadata": {"name": "s", "namespace": "ns", "annotations": annotations, "labels": labels,
                         "ownerReferences": owner},
            "spec": {"podTemplate": {"spec": {}}},
            "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "SandboxExpired", "message": "",
                                       "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        });
        Arc::new(serde_json::from_value(sandbox).unwrap())
    }

    #[test]
    fn sandboxes_are_counted_by_their_labels() {
        let plain = sandbox(json!({}), json!({}), json!([]), "True");
        let owner = json!([{"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool", "name": "p",
                            "uid": "u", "controller": true}]);
        let member = sandbox(
            json!({annotation::TEMPLATE_REF: "a\"b\n"}),
            json!({label::LAUNCH_TYPE: "warm", label::CREATED_BY: "controller"}),
            owner,
            "False",
        );
        let foreign = json!({label::CREATED_BY: "someone"});
        let foreign = sandbox(json!({}), foreign, json!([]), "True");
        assert_eq!(
            render(&[plain, member, foreign]),
            "# TYPE agent_sandboxes gauge\n\
             agent_sandboxes{namespace=\"ns\",ready_condition=\"false\",expired=\"true\",launch_type=\"warm\",\
             sandbox_template=\"a\\\"b\\n\",owned_by=\"SandboxWarmPool\",created_by=\"controller\"} 1\n\
             agent_sandboxes{namespace=\"ns\",ready_condition=\"true\",expired=\"true\",launch_type=\"cold\",\
             sandbox_template=\"unknown\",owned_by=\"None\",created_by=\"unknown\"} 2\n"
        );
        assert_eq!(render(&[]), "# TYPE agent_sandboxes gauge\n");
    }
}
