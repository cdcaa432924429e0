use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-02T03:04:05Z";

fn record(change: &Value) -> SandboxRecord {
    of(&sandbox(change), NOW.parse().unwrap())
}

fn sandbox(change: &Value) -> Sandbox {
    let mut object = json!({
        "metadata": {
            "name": "s", "namespace": "team", "uid": "u",
            "labels": {"agents.kruise.io/sandbox-template": "code", "tier": "gold"},
            "annotations": {
                "purpose": "test",
                "agents.kruise.io/claim-timestamp": NOW,
                "agents.kruise.io/runtime-access-token": "secret",
                "agents.kruise.io/init-runtime-request": "{\"envVars\":{\"A\":\"b\"}}",
            },
        },
        "spec": {
            "shutdownTime": "2026-01-02T03:09:05Z",
            "template": {"spec": {"containers": [{"name": "m", "image": "i"}]}},
        },
        "status": {
            "phase": "Running", "sandboxIp": "10.0.0.7",
            "conditions": [condition("Ready", "True")],
        },
    });
    merge(&mut object, change);
    serde_json::from_value(object).unwrap()
}

fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change.clone(),
    }
}

fn condition(kind: &str, status: &str) -> Value {
    json!({"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": NOW})
}

#[test]
fn a_claimed_sandbox_is_what_its_claim_wrote() {
    let record = record(&json!({}));
    assert_eq!(record.state, State::Running);
    assert_eq!(record.spec.template_key.as_deref(), Some("code"));
    assert_eq!(record.spec.env["A"], "b");
    assert_eq!(record.created_at.to_string(), "2026-01-02T03:04:05Z");
    assert_eq!(
        record.ends_at().unwrap().to_string(),
        "2026-01-02T03:09:05Z"
    );
    assert_eq!(record.spec.lifecycle.timeout, Duration::from_secs(300));
    assert_eq!(record.spec.lifecycle.on_timeout, OnTimeout::Kill);
    let expected = json!({
        "tier": "gold", "purpose": "test",
        "e2b.agents.kruise.io/sandbox-resource": "team/s",
    });
    assert_eq!(json!(record.spec.metadata), expected);
    assert!(record.spec.secure);
}

#[test]
fn metadata_that_is_no_annotation_is_read_from_one() {
    let others = json!({"odd key&=": "value", "purpose": "another"}).to_string();
    let change = json!({"metadata": {"annotations": {annotation::OTHER_METADATA: others}}});
    let metadata = record(&change).spec.metadata;
    assert_eq!(metadata["odd key&="], "value");
    assert_eq!(metadata["purpose"], "test");
    assert_eq!(metadata.len(), 4);
}

#[test]
fn a_deadline_of_a_hundred_years_is_none() {
    let forever = json!({"spec": {"shutdownTime": "2126-01-02T03:04:05Z"}});
    assert_eq!(record(&forever).ends_at(), None);
    let none = json!({"spec": {"shutdownTime": null}});
    assert_eq!(record(&none).ends_at(), None);
    // A sandbox that pauses ends its run then, whenever it is deleted.
    let pauses = json!({"spec": {
        "pauseTime": "2026-01-02T03:05:05Z", "shutdownTime": "2126-01-02T03:05:05Z",
    }});
    let record = record(&pauses);
    assert_eq!(record.spec.lifecycle.on_timeout, OnTimeout::Pause);
    assert_eq!(
        record.ends_at().unwrap().to_string(),
        "2026-01-02T03:05:05Z"
    );
}

#[test]
fn each_phase_is_a_state() {
    let phase = |phase: &str, paused: bool, done: &str| {
        let conditions = json!([
            condition("Ready", "False"),
            condition("SandboxPaused", done)
        ]);
        let change = json!({
            "spec": {"paused": paused},
            "status": {"phase": phase, "conditions": conditions},
        });
        record(&change).state.kind().to_string()
    };
    assert_eq!(phase("Pending", false, "False"), "creating");
    assert_eq!(phase("Running", true, "False"), "pausing");
    assert_eq!(phase("Paused", true, "False"), "pausing");
    assert_eq!(phase("Paused", true, "True"), "paused");
    assert_eq!(phase("Paused", false, "True"), "resuming");
    assert_eq!(phase("Resuming", false, "False"), "resuming");
    assert_eq!(phase("Failed", false, "False"), "failed");
    assert_eq!(phase("Succeeded", false, "False"), "failed");
    let mut failed = condition("SandboxPaused", "False");
    failed["reason"] = "CheckpointFailed".into();
    for paused in [true, false] {
        let change = json!({
            "spec": {"paused": paused}, "status": {"phase": "Paused", "conditions": [failed]},
        });
        assert_eq!(record(&change).state.kind().to_string(), "running");
    }
    let expired = json!({"spec": {"shutdownTime": NOW}});
    assert_eq!(record(&expired).state.kind().to_string(), "terminating");
}

#[test]
fn members_of_pools_and_kept_failures_are_hidden() {
    assert!(is_claimed(&sandbox(&json!({}))));
    for (key, value) in [
        ("agents.kruise.io/sandbox-claimed", "false"),
        ("agents.kruise.io/reserved-failed-sandbox", "true"),
    ] {
        let hidden = sandbox(&json!({"metadata": {"labels": {key: value}}}));
        assert!(!is_claimed(&hidden), "{key}");
    }
}
