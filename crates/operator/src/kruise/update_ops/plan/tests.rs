//! Passes of an update over sandboxes in every state.

use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-02T03:04:05Z";

fn merged(mut target: Value, change: &Value) -> Value {
    strategic::apply(&mut target, change);
    target
}

fn ops(spec: &Value) -> SandboxUpdateOps {
    let spec = merged(
        json!({
            "selector": {"matchLabels": {"app": "x"}},
            "patch": {"spec": {"containers": [{"name": "main", "image": "two"}]}},
        }),
        spec,
    );
    serde_json::from_value(json!({"metadata": {"name": "up", "namespace": "ns"}, "spec": spec}))
        .unwrap()
}

fn template(image: &str) -> Value {
    json!({"spec": {"containers": [{"name": "main", "image": image}]}})
}

/// A claimed sandbox that runs the first image.
fn sandbox(name: &str, change: &Value) -> Arc<Sandbox> {
    let base = json!({
        "metadata": {"name": name, "namespace": "ns", "labels": {"app": "x"}},
        "spec": {"template": template("one")},
        "status": {"phase": "Running", "conditions": [condition("Ready", "True", "PodReady")]},
    });
    Arc::new(serde_json::from_value(merged(base, change)).unwrap())
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": NOW,
    })
}

fn marked(change: &Value) -> Value {
    let mark = json!({"metadata": {"labels": {label::UPDATE_OPS: "up"}}});
    merged(mark, change)
}

fn upgrading(step: &str) -> Value {
    json!({"status": {"phase": "Upgrading", "conditions": [condition("Upgrading", "False", step)]}})
}

fn planned(ops: &SandboxUpdateOps, sandboxes: &[Arc<Sandbox>]) -> Plan {
    let candidates: Vec<Candidate> = sandboxes
        .iter()
        .filter(|sandbox| concerns(ops, sandbox, NOW.parse().unwrap()))
        .map(|sandbox| Candidate {
            sandbox: sandbox.clone(),
            template: sandbox.spec.template.clone().unwrap(),
        })
        .collect();
    plan(ops, &candidates).unwrap()
}

/// The sandbox after a change.
fn after(change: &Change) -> Sandbox {
    let mut object = json!(*change.sandbox);
    json_patch(&mut object, &change.patch);
    serde_json::from_value(object).unwrap()
}

/// Applies a JSON merge patch, as the API server does.
fn json_patch(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (field, change) in fields {
        if change.is_null() {
            target.as_object_mut().unwrap().remove(field);
        } else {
            json_patch(&mut target[field.as_str()], change);
        }
    }
}

fn three() -> Vec<Arc<Sandbox>> {
    ["a", "b", "c"]
        .map(|name| sandbox(name, &json!({})))
        .to_vec()
}

#[test]
fn one_sandbox_after_the_other_begins_unless_more_may_be_unavailable() {
    let one = planned(&ops(&json!({})), &three());
    assert_eq!((one.changes.len(), one.updating, one.waiting), (1, 1, 2));
    let begun = after(&one.changes[0]);
    assert_eq!(begun.metadata.name.as_deref(), Some("a"));
    assert_eq!(begun.label(label::UPDATE_OPS), Some("up"));
    assert_eq!(json!(begun.spec.template)["spec"], template("two")["spec"]);
    assert_eq!(
        begun.spec.upgrade_policy.unwrap().kind,
        Some(UpgradePolicyKind::Recreate)
    );
    for (allowed, begun) in [
        (json!(2), 2),
        (json!("34%"), 2),
        (json!("100%"), 3),
        (json!(0), 0),
    ] {
        let ops = ops(&json!({"updateStrategy": {"maxUnavailable": allowed}}));
        assert_eq!(planned(&ops, &three()).changes.len(), begun, "{allowed}");
    }
}

#[test]
fn a_paused_update_begins_nothing() {
    let plan = planned(&ops(&json!({"paused": true})), &three());
    assert_eq!((plan.changes.len(), plan.waiting), (0, 3));
    assert!(!plan.is_finished());
}

#[test]
fn only_claimed_sandboxes_in_the_right_state_are_concerned() {
    let owner = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "agents.kruise.io/v1alpha1", "kind": "SandboxSet", "name": "p", "uid": "p", "controller": true,
    }]}});
    let paused = json!({"spec": {"paused": true}, "status": {
        "phase": "Paused", "conditions": [condition("SandboxPaused", "True", "StopPauseSucceed")],
    }});
    let deleted = json!({"metadata": {"deletionTimestamp": NOW}});
    let all = [
        sandbox("pooled", &owner),
        sandbox("paused", &paused),
        sandbox("deleted", &deleted),
        sandbox("failed", &json!({"status": {"phase": "Failed"}})),
    ];
    assert_eq!(planned(&ops(&json!({})), &all).all, 0);
    let both = ops(&json!({"stateFilter": {"states": ["Running", "Paused"]}}));
    let plan = planned(&both, &all);
    assert_eq!(plan.all, 1);
    // It is resumed with its former template.
    let begun = after(&plan.changes[0]);
    assert_eq!(
        begun.annotation(annotation::UPGRADE_RESUME_TRIGGER),
        Some("true")
    );
    assert_eq!(json!(begun.spec.template)["spec"], template("one")["spec"]);
}

#[test]
fn a_resumed_sandbox_gets_the_template() {
    let trigger = json!({"metadata": {"annotations": {annotation::UPGRADE_RESUME_TRIGGER: "true"}}, "spec": {"paused": true}});
    let resumed = marked(&merged(trigger, &upgrading("ResumeSucceed")));
    let plan = planned(&ops(&json!({})), &[sandbox("a", &resumed)]);
    let begun = after(&plan.changes[0]);
    assert_eq!(begun.annotation(annotation::UPGRADE_RESUME_TRIGGER), None);
    assert_eq!(json!(begun.spec.template)["spec"], template("two")["spec"]);
    assert_eq!(plan.updating, 1);
}

#[test]
fn what_is_updated_is_cleaned_and_counted() {
    let done = json!({
        "spec": {"template": template("two"), "upgradePolicy": {"type": "Recreate"}},
        "status": {"conditions": [condition("Ready", "True", "PodReady"), condition("Upgrading", "True", "Succeeded")]},
    });
    let mut unseen = merged(json!({}), &marked(&done));
    let waiting = planned(&ops(&json!({})), &[sandbox("a", &unseen)]);
    assert_eq!((waiting.updated, waiting.updating), (0, 1));
    let revision = revision::of_sandbox(&sandbox("a", &unseen).spec).unwrap();
    unseen["status"]["updateRevision"] = json!(revision);
    let plan = planned(&ops(&json!({})), &[sandbox("a", &unseen)]);
    assert_eq!((plan.updated, plan.is_finished()), (1, false));
    let cleaned = Arc::new(after(&plan.changes[0]));
    assert_eq!(cleaned.label(label::UPDATE_OPS), None);
    assert_eq!(cleaned.spec.upgrade_policy, None);
    let plan = planned(&ops(&json!({})), &[cleaned]);
    assert_eq!((plan.updated, plan.is_finished()), (1, true));
}

#[test]
fn a_sandbox_that_is_paused_again_is_updated_when_it_rests() {
    let spec = json!({"spec": {"paused": true, "template": template("two")}});
    let of = |phase: &str, paused: &str| {
        let conditions = json!([
            condition("Ready", "True", "PodReady"),
            condition("Upgrading", "True", "Succeeded"),
            condition("SandboxPaused", paused, "Pending"),
        ]);
        let revision = revision::of_sandbox(&sandbox("a", &spec).spec);
        let status = json!({"phase": phase, "updateRevision": revision, "conditions": conditions});
        let mut object = json!(*sandbox("a", &marked(&spec)));
        object["status"] = status;
        Arc::new(serde_json::from_value::<Sandbox>(object).unwrap())
    };
    let paused = ops(&json!({"stateFilter": {"states": ["Paused"]}}));
    assert_eq!(planned(&paused, &[of("Running", "False")]).updating, 1);
    assert_eq!(planned(&paused, &[of("Paused", "False")]).updating, 1);
    assert_eq!(planned(&paused, &[of("Paused", "True")]).updated, 1);
}

#[test]
fn failures_are_marked_and_use_up_what_may_be_unavailable() {
    let mut all = three();
    let failed = json!({"spec": {"template": template("two")}});
    all[0] = sandbox(
        "a",
        &marked(&merged(failed, &upgrading("UpgradePodFailed"))),
    );
    let plan = planned(&ops(&json!({})), &all);
    assert_eq!((plan.failed, plan.waiting, plan.updating), (1, 2, 0));
    let marked = Arc::new(after(&plan.changes[0]));
    assert_eq!(marked.label(label::UPGRADE_FAILED), Some("true"));
    all[0] = marked;
    let plan = planned(&ops(&json!({})), &all);
    assert!(plan.is_blocked() && !plan.is_finished());
    let alone = planned(&ops(&json!({})), &all[..1]);
    assert!(alone.is_finished() && !alone.is_blocked());
}

#[test]
fn a_corrected_update_begins_with_what_failed() {
    let failed = json!({"spec": {"template": template("wrong")}});
    let left = sandbox("a", &merged(failed, &upgrading("UpgradePodFailed")));
    let plan = planned(&ops(&json!({})), &[left]);
    assert_eq!((plan.all, plan.updating), (1, 1));
}

#[test]
fn what_failed_before_comes_first_and_is_unavailable_already() {
    let mut all = three();
    let failed = json!({"spec": {"template": template("wrong")}});
    all[1] = sandbox("b", &merged(failed, &upgrading("UpgradePodFailed")));
    for (most, begun) in [(1, &["b"][..]), (2, &["b", "a"])] {
        let ops = ops(&json!({"updateStrategy": {"maxUnavailable": most}}));
        let plan = planned(&ops, &all);
        let names = plan.changes.iter();
        let names: Vec<&str> = names
            .map(|change| change.sandbox.metadata.name.as_deref().unwrap())
            .collect();
        assert_eq!((names, plan.waiting), (begun.to_vec(), 3 - begun.len()));
    }
}

#[test]
fn a_failure_of_an_older_specification_is_not_of_this_update() {
    let old = json!({"spec": {"template": template("two")}, "metadata": {"generation": 2}});
    let begun = marked(&merged(old, &upgrading("UpgradePodFailed")));
    let plan = planned(&ops(&json!({})), &[sandbox("a", &begun)]);
    assert_eq!(
        (plan.failed, plan.updating, plan.is_finished()),
        (0, 1, false)
    );
}

#[test]
fn hooks_need_a_command_and_checkpoints_keep_images() {
    assert_eq!(refusal(&ops(&json!({}))), None);
    let hook = ops(&json!({"lifecycle": {"preUpgrade": {"timeoutSeconds": 5}}}));
    assert!(refusal(&hook).unwrap().contains("exec.command"));
    let restore = ops(&json!({"updateStrategy": {"type": "CheckpointRestore"}}));
    assert!(refusal(&restore).unwrap().contains("images"));
    let mut restore = ops(&json!({"updateStrategy": {"type": "CheckpointRestore"}}));
    restore.spec.patch.clear();
    assert_eq!(refusal(&restore), None);
    let mut long = ops(&json!({}));
    long.metadata.name = Some("a".repeat(64));
    assert!(refusal(&long).unwrap().contains("63"));
    let broken = ops(&json!({"patch": {"$patch": "replace", "spec": "none"}}));
    let candidate = Candidate {
        sandbox: sandbox("a", &json!({})),
        template: serde_json::from_value(template("one")).unwrap(),
    };
    assert!(plan(&broken, std::slice::from_ref(&candidate)).is_err());
    let mut nameless = ops(&json!({}));
    let patch = json!({"spec": {"containers": [{"image": "x"}]}});
    nameless.spec.patch = serde_json::from_value(patch).unwrap();
    assert!(plan(&nameless, &[candidate]).unwrap_err().contains("name"));
}
