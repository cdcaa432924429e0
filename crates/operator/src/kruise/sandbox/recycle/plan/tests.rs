//! Returns of a claimed sandbox, step by step.

use shoal_crds::kruise::Claiming;

use super::*;

const NOW: &str = "2026-01-02T03:04:05Z";

fn next(sandbox: &Sandbox, set: Option<&SandboxSet>, pod: Seen<'_>, now: Timestamp) -> Next {
    super::next(sandbox, set, pod, now, Duration::from_secs(60))
}

fn at(seconds: i64) -> Timestamp {
    let now: Timestamp = NOW.parse().unwrap();
    now + SignedDuration::from_secs(seconds)
}

fn set() -> SandboxSet {
    serde_json::from_value(json!({
        "metadata": {"name": "code", "namespace": "ns", "uid": "set"},
        "spec": {"replicas": 1, "template": {
            "metadata": {"annotations": {annotation::CLEANUP_ENABLED: "true"}},
            "spec": {"containers": [{"name": "main", "image": "i"}]},
        }},
    }))
    .unwrap()
}

/// A claimed sandbox whose user is done with it.
fn claimed() -> Sandbox {
    let set = set();
    let mut sandbox = set.member(&revision::of_set(&set.spec));
    let claiming = Claiming {
        id: Some("iabc".to_owned()),
        labels: [("user".to_owned(), "u".to_owned())].into(),
        shutdown_time: Some(at(600)),
        init: Some(Default::default()),
        ..Claiming::default()
    };
    claiming.claim(&mut sandbox);
    sandbox.metadata.name = Some("code-1".to_owned());
    let annotations = sandbox.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::CLEANUP.to_owned(), "true".to_owned());
    in_phase(sandbox, "Running", None)
}

fn in_phase(mut sandbox: Sandbox, phase: &str, step: Option<&str>) -> Sandbox {
    let conditions: Vec<Value> = step
        .map(|step| {
            json!({
                "type": "Recycling", "status": "False", "reason": step, "message": "", "lastTransitionTime": NOW,
            })
        })
        .into_iter()
        .collect();
    sandbox.status = serde_json::from_value(json!({
        "phase": phase, "podInfo": {"podUID": "former"}, "conditions": conditions,
    }))
    .unwrap();
    sandbox
}

fn pod(uid: &str, ready: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "code-1", "uid": uid},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
    }))
    .unwrap()
}

fn after(sandbox: &Sandbox, patch: &Value) -> Sandbox {
    let mut object = json!(sandbox);
    merge(&mut object, patch);
    serde_json::from_value(object).unwrap()
}

/// Applies a JSON merge patch, as the API server does.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        target.clone_from(patch);
        return;
    };
    for (field, change) in fields {
        if change.is_null() {
            target.as_object_mut().unwrap().remove(field);
        } else {
            merge(&mut target[field.as_str()], change);
        }
    }
}

#[test]
fn both_annotations_ask_for_it() {
    let (set, former) = (set(), pod("former", "True"));
    let next = |sandbox: &Sandbox| next(sandbox, Some(&set), Seen::Own(&former), at(0));
    assert_eq!(next(&claimed()), Next::Begin);
    for key in [annotation::CLEANUP, annotation::CLEANUP_ENABLED] {
        let mut other = claimed();
        other.metadata.annotations.as_mut().unwrap().remove(key);
        assert_eq!(next(&other), Next::Nothing, "{key}");
    }
}

#[test]
fn what_cannot_return_is_rejected() {
    let (set, former) = (set(), pod("former", "True"));
    let why = |sandbox: &Sandbox, set: Option<&SandboxSet>, pod: Seen<'_>| match next(
        sandbox,
        set,
        pod,
        at(0),
    ) {
        Next::Reject(why) => why,
        other => panic!("{other:?}"),
    };
    let own = Seen::Own(&former);
    assert!(why(&claimed(), None, own).contains("SandboxSet is gone"));
    let mut changed = set.clone();
    changed.spec.replicas = 1;
    changed.spec.runtimes = serde_json::from_value(json!([{"name": "agent-runtime"}])).unwrap();
    assert!(why(&claimed(), Some(&changed), own).contains("revision"));
    let mut with_volume = claimed();
    with_volume.spec.volume_claim_templates = vec![Default::default()];
    assert!(why(&with_volume, Some(&set), own).contains("volumes"));
    assert!(why(&claimed(), Some(&set), Seen::Absent).contains("no running pod"));
    let paused = in_phase(claimed(), "Paused", None);
    assert!(why(&paused, Some(&set), Seen::Absent).contains("paused"));
}

#[test]
fn nothing_of_the_user_comes_back_with_a_sandbox() {
    let set = set();
    let begun = in_phase(claimed(), "Recycling", Some("RecyclingStarted"));
    let former = pod("former", "True");
    let of = |sandbox: &Sandbox, pod: Seen<'_>| next(sandbox, Some(&set), pod, at(1));
    assert_eq!(of(&begun, Seen::Own(&former)), Next::DeletePod);
    let Next::Reset(patch) = of(&begun, Seen::Absent) else {
        panic!("no reset")
    };
    let reset = after(&begun, &patch);
    assert_eq!(reset.label("user"), None);
    assert_eq!(reset.label(label::SANDBOX_ID), None);
    assert_eq!(
        reset.label(label::SANDBOX_CLAIMED),
        Some("true"),
        "nobody takes it yet"
    );
    assert_eq!(reset.annotation(annotation::INIT_RUNTIME_REQUEST), None);
    assert_eq!(reset.spec.shutdown_time, None);
    assert_eq!(of(&reset, Seen::Absent), Next::CreatePod);
    assert_eq!(of(&reset, Seen::Own(&pod("new", "False"))), Next::Wait);
    assert_eq!(of(&reset, Seen::Own(&pod("new", "True"))), Next::Complete);
    let complete = in_phase(reset, "Recycling", Some("RecyclingCompleted"));
    let Next::Return(patch) = of(&complete, Seen::Own(&pod("new", "True"))) else {
        panic!("no return")
    };
    let mut returned = after(&complete, &patch);
    assert!(returned.is_pooled());
    assert_eq!(of(&returned, Seen::Own(&pod("new", "True"))), Next::Succeed);
    returned.metadata.owner_references = None;
    let mut new = set.member(&revision::of_set(&set.spec));
    new.metadata.name.clone_from(&returned.metadata.name);
    new.status.clone_from(&returned.status);
    assert_eq!(json!(returned), json!(new), "it is as its pool makes them");
}

#[test]
fn a_return_that_takes_too_long_is_given_up() {
    let begun = in_phase(claimed(), "Recycling", Some("RecyclingStarted"));
    let new = pod("new", "False");
    let late = next(&begun, Some(&set()), Seen::Own(&new), at(61));
    assert!(matches!(late, Next::Fail(reason::RECYCLING_TIMEOUT, _)));
    let gone = next(&begun, None, Seen::Own(&new), at(1));
    assert!(matches!(gone, Next::Fail(reason::RECYCLING_FAILED, _)));
    let failed = in_phase(claimed(), "Recycling", Some("RecyclingTimeout"));
    assert_eq!(
        next(&failed, Some(&set()), Seen::Own(&new), at(99)),
        Next::Rest
    );
}
