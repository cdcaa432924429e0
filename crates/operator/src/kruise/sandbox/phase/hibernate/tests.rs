use serde_json::{Value, json};
use shoal_crds::kruise::{Checkpoint, Sandbox, SandboxPhase};

use super::super::{Action, Input, Next, Seen, next};
use crate::conditions;
use crate::kruise::Pod;
use crate::kruise::sandbox::pod::Blueprint;

const NOW: &str = "2026-01-02T03:04:05Z";

fn sandbox(spec: &Value) -> Sandbox {
    let paused = json!([{
        "type": "SandboxPaused", "status": "False", "reason": "Pending", "message": "", "lastTransitionTime": NOW,
    }]);
    let mut made = json!({
        "metadata": {"name": "s", "namespace": "ns", "uid": "u"},
        "spec": {
            "paused": true, "persistentContents": ["memory", "filesystem"],
            "template": {"spec": {"runtimeClassName": "shoal", "containers": [{"name": "main"}]}},
        },
        "status": {"phase": "Paused", "sandboxIp": "10.0.0.1", "podInfo": {"podUID": "p"}, "conditions": paused},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        made["spec"][key] = value.clone();
    }
    serde_json::from_value(made).unwrap()
}

fn pod(change: &Value) -> Pod {
    let mut made = json!({
        "metadata": {"name": "s", "uid": "p"}, "spec": {},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    for (pointer, value) in change.as_object().into_iter().flatten() {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        made.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    serde_json::from_value(made).unwrap()
}

fn saved(phase: &str, annotations: &Value) -> Checkpoint {
    serde_json::from_value(json!({
        "metadata": {"name": "c", "annotations": annotations}, "spec": {},
        "status": {"phase": phase, "message": "no room", "completionTime": NOW},
    }))
    .unwrap()
}

fn step(sandbox: &Sandbox, pod: Seen<'_>, saved: Option<&Checkpoint>, now: &str) -> Next {
    next(&Input {
        sandbox,
        blueprint: &Blueprint::inline(sandbox).unwrap(),
        pod,
        saved,
        resizes: true,
        now: now.parse().unwrap(),
    })
}

fn paused(next: &Next) -> (&str, &str) {
    let found = conditions::find(&next.status.conditions, "SandboxPaused");
    found.map_or(("", ""), |found| (&found.status, &found.reason))
}

#[test]
fn a_pause_saves_the_pod_before_it_deletes_it() {
    let pausing = sandbox(&json!({}));
    let running = pod(&json!({}));
    let begins = step(&pausing, Seen::Own(&running), None, NOW);
    assert_eq!(begins.action, Action::Save(&["memory", "filesystem"]));
    assert_eq!(paused(&begins), ("False", "CheckpointCreating"));
    let creating = saved("Creating", &json!({}));
    let waits = step(&pausing, Seen::Own(&running), Some(&creating), NOW);
    assert_eq!(waits.action, Action::Nothing);
    // It is complete, and nothing runs in the pod any more.
    let ending = saved("Creating", &json!({"shoal.dev/ending": NOW}));
    let ends = step(&pausing, Seen::Own(&running), Some(&ending), NOW);
    assert_eq!(ends.action, Action::DeletePod);
    let complete = saved("Succeeded", &json!({}));
    let ends = step(&pausing, Seen::Own(&running), Some(&complete), NOW);
    assert_eq!(ends.action, Action::DeletePod);
    let done = step(&pausing, Seen::Absent, Some(&complete), NOW);
    assert_eq!(paused(&done), ("True", "SnapshotPauseSucceed"));
    assert_eq!(done.status.sandbox_ip, "");
}

#[test]
fn a_pod_that_is_not_ready_is_waited_for_and_one_that_is_lost_is_not_forgotten() {
    let pausing = sandbox(&json!({}));
    let starting = pod(&json!({"/status/conditions": []}));
    let waits = step(&pausing, Seen::Own(&starting), None, NOW);
    assert_eq!(
        (&waits.action, paused(&waits)),
        (&Action::Nothing, ("False", "Pending"))
    );
    let lost = step(&pausing, Seen::Absent, None, NOW);
    assert_eq!(lost.status.phase, Some(SandboxPhase::Failed));
    assert!(lost.status.message.contains("before it was saved"));
}

#[test]
fn a_save_that_fails_leaves_the_pod_running_and_is_tried_again() {
    let pausing = sandbox(&json!({}));
    let running = pod(&json!({}));
    let failed = saved("Failed", &json!({}));
    let kept = step(&pausing, Seen::Own(&running), Some(&failed), NOW);
    assert_eq!(paused(&kept), ("False", "CheckpointFailed"));
    assert_eq!(kept.action, Action::Nothing);
    assert!(
        kept.status
            .message
            .contains("no room; the pod keeps running")
    );
    assert!(kept.wait.is_some() && kept.event.is_some());
    let later = step(
        &pausing,
        Seen::Own(&running),
        Some(&failed),
        "2026-01-02T03:06:05Z",
    );
    assert_eq!(later.action, Action::ForgetSave);
    let resumed = sandbox(&json!({"paused": false}));
    let goes_on = step(&resumed, Seen::Own(&running), Some(&failed), NOW);
    assert_eq!(goes_on.status.phase, Some(SandboxPhase::Running));
    assert_eq!(goes_on.action, Action::ForgetSave);
}

#[test]
fn a_resume_takes_back_what_no_agent_has_begun() {
    let resumed = sandbox(&json!({"paused": false}));
    let running = pod(&json!({}));
    let pending = saved("Pending", &json!({}));
    let given_up = step(&resumed, Seen::Own(&running), Some(&pending), NOW);
    assert_eq!(given_up.action, Action::ForgetSave);
    assert_eq!(given_up.status.phase, Some(SandboxPhase::Paused));
    // A checkpoint that an agent works on ends the pod, and is resumed from.
    let creating = saved("Creating", &json!({}));
    let waits = step(&resumed, Seen::Own(&running), Some(&creating), NOW);
    assert_eq!(waits.action, Action::Nothing);
    let complete = saved("Succeeded", &json!({}));
    let done = step(&resumed, Seen::Absent, Some(&complete), NOW);
    assert!(done.again && paused(&done).0 == "True");
    let free = step(&resumed, Seen::Own(&running), None, NOW);
    assert_eq!(free.status.phase, Some(SandboxPhase::Running));
    assert_eq!(paused(&free), ("", ""));
}

#[test]
fn a_sandbox_without_contents_or_another_pod_is_stopped() {
    let running = pod(&json!({}));
    let plain = json!({"spec": {"containers": [{"name": "main"}]}});
    for spec in [
        json!({"persistentContents": []}),
        json!({"pauseStrategy": {"type": "Stop"}}),
        json!({"template": plain}),
    ] {
        let stopped = step(&sandbox(&spec), Seen::Own(&running), None, NOW);
        assert_eq!(stopped.action, Action::DeletePod, "{spec}");
    }
    let asked = json!({"template": plain, "pauseStrategy": {"type": "Hibernate"}});
    let saves = step(&sandbox(&asked), Seen::Own(&running), None, NOW);
    assert!(matches!(saves.action, Action::Save(_)));
}

#[test]
fn a_pod_that_waits_for_its_node_says_which() {
    let mut resuming = sandbox(&json!({"paused": false}));
    resuming.status.as_mut().unwrap().phase = Some(SandboxPhase::Resuming);
    let unscheduled = pod(&json!({"/status": {"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available",
    }]}}));
    let complete = saved("Succeeded", &json!({"shoal.dev/node": "n7"}));
    let waits = step(&resuming, Seen::Own(&unscheduled), Some(&complete), NOW);
    let told = conditions::find(&waits.status.conditions, "SandboxResumed").unwrap();
    assert!(
        told.message.contains("node n7") && told.message.contains("0/1 nodes"),
        "{}",
        told.message
    );
    assert!(told.message.contains("room for the pod"));
    // Another node fetches it from there.
    let served = saved(
        "Succeeded",
        &json!({"shoal.dev/node": "n7", "shoal.dev/served": "true"}),
    );
    let waits = step(&resuming, Seen::Own(&unscheduled), Some(&served), NOW);
    let told = conditions::find(&waits.status.conditions, "SandboxResumed").unwrap();
    assert!(told.message.contains("n7, which must be ready: 0/1 nodes"));
}
