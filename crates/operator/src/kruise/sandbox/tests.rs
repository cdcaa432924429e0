//! The phases, from objects as the API server has them.

use serde_json::{Value, json};

use super::inplace::{self, Change};
use super::phase::{Action, Input, Next, POD_OWNER_MISMATCH, Seen, next};
use super::*;
use crate::conditions;

const NOW: &str = "2026-01-02T03:04:05Z";

fn sandbox(spec: Value, status: Value) -> Sandbox {
    let mut full = json!({"template": template("1")});
    full.as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "metadata": {"name": "s", "namespace": "ns", "uid": "u", "generation": 3},
        "spec": full, "status": status,
    }))
    .unwrap()
}

fn template(cpu: &str) -> Value {
    let amounts = json!({"cpu": cpu, "memory": "1Gi"});
    json!({"spec": {"containers": [{
        "name": "main", "image": "one", "resources": {"limits": amounts, "requests": amounts},
    }]}})
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": NOW,
        "observedGeneration": 2,
    })
}

/// The pod that a sandbox has, with changes.
fn pod(of: &Sandbox, change: impl FnOnce(&mut Value)) -> Pod {
    let blueprint = Blueprint::inline(of).unwrap();
    let mut pod = pod::manifest(of, &blueprint, &RuntimeInjection::default(), false).unwrap();
    pod["spec"]["nodeName"] = "node".into();
    pod["metadata"]["uid"] = "p".into();
    pod["status"] = json!({
        "phase": "Running", "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{
            "name": "main", "imageID": "i", "containerID": "c", "state": {"running": {}},
            "resources": pod["spec"]["containers"][0]["resources"],
        }],
    });
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

fn step(sandbox: &Sandbox, pod: Seen<'_>) -> Next {
    next(&Input {
        sandbox,
        blueprint: &Blueprint::inline(sandbox).unwrap(),
        pod,
        saved: None,
        resizes: true,
        now: NOW.parse().unwrap(),
    })
}

fn found<'a>(next: &'a Next, kind: &str) -> (&'a str, &'a str, &'a str) {
    let known = conditions::find(&next.status.conditions, kind).unwrap();
    (&known.status, &known.reason, &known.message)
}

fn running() -> Value {
    json!({"phase": "Running", "conditions": [condition("Ready", "True", "PodReady")]})
}

fn paused(status: &str) -> Value {
    json!({"phase": "Paused", "conditions": [condition("SandboxPaused", status, "Pending")]})
}

#[test]
fn a_new_sandbox_gets_a_pod() {
    let sandbox = sandbox(json!({}), Value::Null);
    let next = step(&sandbox, Seen::Absent);
    assert_eq!(next.action, Action::CreatePod);
    assert_eq!(next.status.phase, Some(SandboxPhase::Pending));
}

#[test]
fn a_sandbox_runs_when_its_pod_does() {
    let sandbox = sandbox(json!({}), json!({"phase": "Pending"}));
    let ready = pod(&sandbox, |_| {});
    let next = step(&sandbox, Seen::Own(&ready));
    assert_eq!(next.status.phase, Some(SandboxPhase::Running));
    assert_eq!(found(&next, "Ready"), ("True", "PodReady", ""));
    assert_eq!(next.status.sandbox_ip, "10.0.0.1");
    assert_eq!(next.status.pod_info.pod_uid, "p");
    let starting = pod(&sandbox, |pod| {
        pod["status"] = json!({"phase": "Pending"});
    });
    let next = step(&sandbox, Seen::Own(&starting));
    assert_eq!(next.status.phase, Some(SandboxPhase::Pending));
    assert_eq!(found(&next, "Ready").0, "False");
}

#[test]
fn an_image_that_cannot_be_pulled_is_told() {
    let sandbox = sandbox(json!({}), json!({"phase": "Pending"}));
    let waiting = json!({"reason": "ErrImagePull", "message": "no such image"});
    let stuck = pod(&sandbox, |pod| {
        pod["status"] = json!({
            "phase": "Pending", "containerStatuses": [{"name": "main", "state": {"waiting": waiting}}],
        });
    });
    let next = step(&sandbox, Seen::Own(&stuck));
    let (_, reason, message) = found(&next, "Ready");
    assert_eq!(reason, "StartContainerFailed");
    assert!(message.contains("no such image"), "{message}");
    assert_eq!(next.status.message, message);
}

#[test]
fn a_foreign_pod_is_told_once() {
    let first = sandbox(json!({}), Value::Null);
    let next = step(&first, Seen::Foreign("it belongs to another"));
    assert_eq!(next.action, Action::Nothing);
    assert_eq!(next.event.as_ref().unwrap().1, POD_OWNER_MISMATCH);
    let again = sandbox(
        json!({}),
        json!({"phase": "Pending", "message": next.status.message}),
    );
    assert!(
        step(&again, Seen::Foreign("it belongs to another"))
            .event
            .is_none()
    );
}

#[test]
fn a_running_sandbox_without_a_pod_failed() {
    let sandbox = sandbox(json!({}), running());
    let terminating = pod(&sandbox, |pod| {
        pod["metadata"]["deletionTimestamp"] = NOW.into();
    });
    for seen in [Seen::Absent, Seen::Own(&terminating)] {
        let next = step(&sandbox, seen);
        assert_eq!(next.status.phase, Some(SandboxPhase::Failed));
        assert_eq!(next.status.message, "pod not found");
        assert_eq!(found(&next, "Ready").0, "False");
    }
}

#[test]
fn a_pod_that_ended_ends_its_sandbox() {
    let sandbox = sandbox(json!({}), running());
    for (phase, expected) in [
        ("Succeeded", SandboxPhase::Succeeded),
        ("Failed", SandboxPhase::Failed),
    ] {
        let ended = pod(&sandbox, |pod| {
            pod["status"] = json!({"phase": phase, "reason": "Evicted", "message": "no room"});
        });
        let next = step(&sandbox, Seen::Own(&ended));
        assert_eq!(next.status.phase, Some(expected));
        assert_eq!(next.status.message, "Evicted: no room");
        assert!(!next.again);
    }
}

#[test]
fn a_pause_is_written_before_the_pod_is_deleted() {
    let sandbox = sandbox(json!({"paused": true}), running());
    let own = pod(&sandbox, |_| {});
    let next = step(&sandbox, Seen::Own(&own));
    assert_eq!(next.status.phase, Some(SandboxPhase::Paused));
    assert_eq!(found(&next, "SandboxPaused"), ("False", "Pending", ""));
    assert_eq!(found(&next, "Ready").0, "False");
    assert_eq!(next.action, Action::Nothing);
    assert!(next.again);
}

#[test]
fn a_paused_sandbox_loses_its_pod_and_its_address() {
    let mut pausing = sandbox(json!({"paused": true}), paused("False"));
    pausing.status.as_mut().unwrap().sandbox_ip = "10.0.0.1".to_owned();
    let own = pod(&pausing, |_| {});
    assert_eq!(step(&pausing, Seen::Own(&own)).action, Action::DeletePod);
    let next = step(&pausing, Seen::Absent);
    assert_eq!(
        found(&next, "SandboxPaused"),
        ("True", "StopPauseSucceed", "")
    );
    assert_eq!(next.status.sandbox_ip, "");
    let still = sandbox(json!({"paused": true}), paused("True"));
    let next = step(&still, Seen::Absent);
    assert_eq!(next.action, Action::Nothing);
}

#[test]
fn a_resumed_sandbox_gets_a_new_pod() {
    let resumed = sandbox(json!({}), paused("True"));
    let next = step(&resumed, Seen::Absent);
    assert_eq!(next.status.phase, Some(SandboxPhase::Resuming));
    assert_eq!(found(&next, "SandboxResumed"), ("False", "CreatePod", ""));
    let resuming = sandbox(json!({}), serde_json::to_value(&next.status).unwrap());
    assert_eq!(step(&resuming, Seen::Absent).action, Action::CreatePod);
    let own = pod(&resuming, |_| {});
    let next = step(&resuming, Seen::Own(&own));
    assert_eq!(next.status.phase, Some(SandboxPhase::Running));
    assert_eq!(found(&next, "SandboxResumed"), ("True", "ResumePod", ""));
    assert!(conditions::find(&next.status.conditions, "SandboxPaused").is_none());
}

#[test]
fn a_resume_waits_for_the_end_of_the_pause() {
    let resumed = sandbox(json!({}), paused("False"));
    let own = pod(&resumed, |_| {});
    assert_eq!(step(&resumed, Seen::Own(&own)).action, Action::DeletePod);
    let next = step(&resumed, Seen::Absent);
    assert_eq!(found(&next, "SandboxPaused").0, "True");
    assert!(next.again);
}

/// A sandbox whose template has changed since its pod was created.
fn changed(change: impl FnOnce(&mut Value)) -> (Sandbox, Pod) {
    let before = sandbox(json!({}), running());
    let pod = pod(&before, |_| {});
    let mut after = template("1");
    change(&mut after);
    let mut sandbox = sandbox(json!({"template": after}), running());
    let stored = revision::of_immutable_part(before.spec.template.as_ref().unwrap());
    sandbox.metadata.annotations =
        Some([(annotation::HASH_IMMUTABLE_PART.to_owned(), stored)].into());
    (sandbox, pod)
}

fn update(next: Next) -> Change {
    match next.action {
        Action::Update(change) => change,
        other => panic!("{other:?}"),
    }
}

#[test]
fn labels_change_without_a_word() {
    let (sandbox, pod) = changed(|template| {
        template["metadata"] = json!({"labels": {"a": "b"}});
    });
    let next = step(&sandbox, Seen::Own(&pod));
    assert_eq!(found(&next, "Ready").0, "True");
    let change = update(next);
    assert!(change.is_metadata());
    assert_eq!(change.pod["metadata"]["labels"]["a"], "b");
    assert_eq!(
        change.pod["metadata"]["labels"]["pod-template-hash"],
        Blueprint::inline(&sandbox).unwrap().revision
    );
}

fn set_cpu(template: &mut Value, cpu: &str) {
    for kind in ["limits", "requests"] {
        template["spec"]["containers"][0]["resources"][kind]["cpu"] = cpu.into();
    }
}

#[test]
fn more_and_less_cpu_is_a_resize() {
    for cpu in ["4", "500m"] {
        let (sandbox, pod) = changed(|template| set_cpu(template, cpu));
        let next = step(&sandbox, Seen::Own(&pod));
        assert_eq!(
            found(&next, "InplaceUpdate"),
            ("False", "InplaceUpdating", "")
        );
        assert_eq!(found(&next, "Ready"), ("False", "InplaceUpdating", ""));
        let change = update(next);
        let amounts = json!({"limits": {"cpu": cpu}, "requests": {"cpu": cpu}});
        assert_eq!(
            change.resize.unwrap()["spec"]["containers"],
            json!([{"name": "main", "resources": amounts}])
        );
        assert_eq!(change.pod.get("spec"), None);
    }
}

#[test]
fn an_equal_amount_is_no_resize() {
    let (sandbox, pod) = changed(|template| set_cpu(template, "1000m"));
    assert!(update(step(&sandbox, Seen::Own(&pod))).is_metadata());
}

#[test]
fn another_quality_of_service_is_refused() {
    let (sandbox, pod) = changed(|template| {
        template["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "2".into();
    });
    let next = step(&sandbox, Seen::Own(&pod));
    let (status, reason, message) = found(&next, "InplaceUpdate");
    assert_eq!((status, reason), ("False", "Failed"));
    assert!(
        message.contains("from Guaranteed to Burstable"),
        "{message}"
    );
    assert_eq!(found(&next, "Ready").0, "True");
    assert_eq!(next.event.unwrap().1, inplace::FAILED);
}

#[test]
fn other_changes_are_forbidden() {
    let (sandbox, pod) = changed(|template| {
        template["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "b"}]);
    });
    let next = step(&sandbox, Seen::Own(&pod));
    assert_eq!(next.action, Action::Nothing);
    assert_eq!(next.event.unwrap().1, inplace::FORBIDDEN);
}

#[test]
fn a_new_image_is_patched() {
    let (sandbox, pod) = changed(|template| {
        template["spec"]["containers"][0]["image"] = "two".into();
    });
    let change = update(step(&sandbox, Seen::Own(&pod)));
    assert_eq!(change.resize, None);
    assert_eq!(
        change.pod["spec"]["containers"],
        json!([{"name": "main", "image": "two"}])
    );
    let state = change.pod["metadata"]["annotations"][annotation::INPLACE_UPDATE_STATE]
        .as_str()
        .unwrap();
    let state: Value = serde_json::from_str(state).unwrap();
    assert_eq!(state["lastContainerStatuses"]["main"]["imageID"], "i");
}

/// A pod whose resize to 4 CPUs is requested.
fn resizing(change: impl FnOnce(&mut Value)) -> Next {
    let mut status = running();
    status["conditions"] = json!([condition("InplaceUpdate", "False", "InplaceUpdating")]);
    let sandbox = sandbox(json!({"template": template("4")}), status);
    let state = json!({"updateResources": true, "updateImages": false}).to_string();
    let old = template("1")["spec"]["containers"][0]["resources"].clone();
    let pod = pod(&sandbox, |pod| {
        pod["metadata"]["annotations"][annotation::INPLACE_UPDATE_STATE] = state.into();
        pod["status"]["containerStatuses"][0]["resources"] = old;
        change(pod);
    });
    step(&sandbox, Seen::Own(&pod))
}

#[test]
fn a_resize_ends_when_the_node_reports_the_resources() {
    let next = resizing(|_| {});
    assert_eq!(found(&next, "InplaceUpdate").1, "InplaceUpdating");
    assert_eq!(found(&next, "Ready").1, "InplaceUpdating");
    let next = resizing(|pod| {
        pod["status"]["containerStatuses"][0]["resources"] =
            pod["spec"]["containers"][0]["resources"].clone();
    });
    assert_eq!(found(&next, "InplaceUpdate"), ("True", "Succeeded", ""));
    assert_eq!(found(&next, "Ready").0, "True");
}

#[test]
fn an_infeasible_resize_fails_and_a_deferred_one_waits() {
    let pending = |reason: &str| {
        let pending = json!({"type": "PodResizePending", "status": "True", "reason": reason, "message": "too much"});
        resizing(|pod| {
            pod["status"]["conditions"]
                .as_array_mut()
                .unwrap()
                .push(pending)
        })
    };
    let next = pending("Infeasible");
    let (_, reason, message) = found(&next, "InplaceUpdate");
    assert_eq!(reason, "Failed");
    assert!(message.contains("infeasible"), "{message}");
    assert_eq!(found(&next, "Ready").0, "True");
    let next = pending("Deferred");
    let (_, reason, message) = found(&next, "InplaceUpdate");
    assert_eq!(reason, "InplaceUpdating");
    assert!(message.contains("Deferred"), "{message}");
}

/// A claimed sandbox that runs, with another state of its daemon.
fn claimed(initialized: &[Value]) -> Sandbox {
    let mut status = running();
    let conditions = status["conditions"].as_array_mut().unwrap();
    conditions.extend_from_slice(initialized);
    let mut sandbox = sandbox(json!({}), status);
    let settings = json!({"envVars": {"A": "b"}, "accessToken": "t"}).to_string();
    let annotations = sandbox.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::INIT_RUNTIME_REQUEST.to_owned(), settings);
    sandbox
}

fn initialized(status: &str, message: &str) -> Value {
    let mut known = condition(condition::RUNTIME_INITIALIZED, status, "Succeeded");
    known["message"] = message.into();
    known
}

#[test]
fn a_daemon_gets_its_settings_once_for_each_container() {
    let due = |sandbox: &Sandbox, change: fn(&mut Value)| {
        let pod = pod(sandbox, change);
        step(sandbox, Seen::Own(&pod)).action
    };
    let initialize = Action::Initialize("c".to_owned());
    assert_eq!(due(&claimed(&[]), |_| {}), initialize);
    let former = claimed(&[initialized("True", "former")]);
    assert_eq!(due(&former, |_| {}), initialize);
    let failed = claimed(&[initialized("False", "c")]);
    assert_eq!(due(&failed, |_| {}), initialize);
    let done = claimed(&[initialized("True", "c")]);
    assert_eq!(due(&done, |_| {}), Action::Nothing);
    // A container that starts has no daemon yet.
    let starts = |pod: &mut Value| pod["status"]["conditions"] = json!([]);
    assert_eq!(due(&former, starts), Action::Nothing);
    let unclaimed = sandbox(json!({}), running());
    assert_eq!(due(&unclaimed, |_| {}), Action::Nothing);
}
