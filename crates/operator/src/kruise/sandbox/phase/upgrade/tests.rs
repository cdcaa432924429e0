//! The steps of an upgrade, each from the state that the one before has written.

use serde_json::{Value, json};
use shoal_crds::kruise::{Sandbox, revision};

use super::super::{Input, Next, next};
use super::*;
use crate::kruise::sandbox::pod::{self, Blueprint};
use crate::kruise::sandbox::runtime::RuntimeInjection;

const NOW: &str = "2026-01-02T03:04:05Z";

fn template(image: &str) -> Value {
    json!({"spec": {"containers": [{"name": "main", "image": image}]}})
}

/// A sandbox that runs the first image and is upgraded to the second one.
fn sandbox(change: &Value) -> Sandbox {
    let mut full = json!({
        "metadata": {"name": "s", "namespace": "ns", "uid": "u", "generation": 2},
        "spec": {"template": template("two"), "upgradePolicy": {"type": "Recreate"}},
        "status": {"phase": "Running", "conditions": [condition("Ready", "True", "PodReady")]},
    });
    shoal_crds::kruise::strategic::apply(&mut full, change);
    serde_json::from_value(full).unwrap()
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": NOW,
        "observedGeneration": 2,
    })
}

fn at(step: &str) -> Value {
    let status = if step == "Succeeded" { "True" } else { "False" };
    json!({"status": {"phase": "Upgrading", "conditions": [condition("Upgrading", status, step)]}})
}

/// A ready pod with this image.
fn pod_with(image: &str) -> Pod {
    let of = sandbox(&json!({"spec": {"template": template(image)}}));
    let blueprint = Blueprint::inline(&of).unwrap();
    let mut pod = pod::manifest(&of, &blueprint, &RuntimeInjection::default(), false).unwrap();
    pod["status"] = json!({
        "phase": "Running", "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "main", "containerID": "c", "state": {"running": {}}}],
    });
    serde_json::from_value(pod).unwrap()
}

fn stuck(mut pod: Pod) -> Pod {
    pod.status.conditions.clear();
    pod.status.container_statuses = serde_json::from_value(json!([
        {"name": "main", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}},
    ]))
    .unwrap();
    pod
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

fn reason_of(next: &Next) -> &str {
    let known = conditions::find(&next.status.conditions, condition::UPGRADING);
    known.map_or("", |known| &known.reason)
}

fn hooks() -> Value {
    let hook = |word: &str| json!({"exec": {"command": [word]}, "timeoutSeconds": 7});
    json!({"spec": {"lifecycle": {"preUpgrade": hook("before"), "postUpgrade": hook("after")}}})
}

fn with(mut one: Value, other: &Value) -> Value {
    shoal_crds::kruise::strategic::apply(&mut one, other);
    one
}

#[test]
fn a_new_template_replaces_the_pod_only_with_a_policy() {
    let old = pod_with("one");
    let next = step(&sandbox(&json!({})), Seen::Own(&old));
    assert_eq!(next.status.phase, Some(SandboxPhase::Upgrading));
    assert_eq!(reason_of(&next), "PreUpgrade");
    let ready = conditions::find(&next.status.conditions, condition::READY).unwrap();
    assert_eq!((&*ready.status, &*ready.reason), ("False", "Upgrading"));
    let in_place = sandbox(&json!({"spec": {"upgradePolicy": null}}));
    let next = step(&in_place, Seen::Own(&old));
    assert_eq!(next.status.phase, Some(SandboxPhase::Running));
}

#[test]
fn an_upgrade_comes_before_a_pause() {
    let paused = sandbox(&json!({"spec": {"paused": true}}));
    let next = step(&paused, Seen::Own(&pod_with("one")));
    assert_eq!(next.status.phase, Some(SandboxPhase::Upgrading));
}

#[test]
fn the_pod_is_deleted_created_and_waited_for() {
    let (old, new) = (pod_with("one"), pod_with("two"));
    let preparing = sandbox(&at("PreUpgrade"));
    let deleting = step(&preparing, Seen::Own(&old));
    assert_eq!(
        (reason_of(&deleting), &deleting.action),
        ("UpgradePod", &Action::DeletePod)
    );
    let replacing = sandbox(&at("UpgradePod"));
    assert_eq!(step(&replacing, Seen::Absent).action, Action::CreatePod);
    let mut starting = new.clone();
    starting.status.conditions.clear();
    let waiting = step(&replacing, Seen::Own(&starting));
    assert_eq!(
        (reason_of(&waiting), &waiting.action),
        ("UpgradePod", &Action::Nothing)
    );
    assert_eq!(reason_of(&step(&replacing, Seen::Own(&new))), "PostUpgrade");
    let ended = step(&sandbox(&at("PostUpgrade")), Seen::Own(&new));
    assert_eq!(reason_of(&ended), "Succeeded");
    let runs = step(&sandbox(&at("Succeeded")), Seen::Own(&new));
    assert_eq!(runs.status.phase, Some(SandboxPhase::Running));
    let ready = conditions::find(&runs.status.conditions, condition::READY).unwrap();
    assert_eq!(&*ready.status, "True");
}

#[test]
fn commands_run_before_and_after() {
    let before = step(
        &sandbox(&with(at("PreUpgrade"), &hooks())),
        Seen::Own(&pod_with("one")),
    );
    let Action::Run(hook) = &before.action else {
        panic!("{:?}", before.action)
    };
    assert_eq!(
        (hook.when, &*hook.command[0], hook.timeout.as_secs()),
        (HookTime::Before, "before", 7)
    );
    let after = step(
        &sandbox(&with(at("PostUpgrade"), &hooks())),
        Seen::Own(&pod_with("two")),
    );
    assert!(matches!(&after.action, Action::Run(hook) if hook.when == HookTime::After));
}

#[test]
fn a_command_that_fails_stops_the_upgrade_until_the_specification_changes() {
    let failing = sandbox(&with(at("PreUpgradeFailed"), &hooks()));
    let old = pod_with("one");
    let rests = step(&failing, Seen::Own(&old));
    assert_eq!(
        (reason_of(&rests), &rests.action),
        ("PreUpgradeFailed", &Action::Nothing)
    );
    assert!(!rests.again);
    let changed = with(
        at("PreUpgradeFailed"),
        &json!({"metadata": {"generation": 3}}),
    );
    assert_eq!(
        reason_of(&step(&sandbox(&changed), Seen::Own(&old))),
        "PreUpgrade"
    );
    let after = with(
        at("PostUpgradeFailed"),
        &json!({"metadata": {"generation": 3}}),
    );
    assert_eq!(
        reason_of(&step(&sandbox(&after), Seen::Own(&pod_with("two")))),
        "PostUpgrade"
    );
    // Another template needs another pod first.
    assert_eq!(
        reason_of(&step(&sandbox(&at("PostUpgrade")), Seen::Own(&old))),
        "UpgradePod"
    );
}

#[test]
fn the_former_template_keeps_the_pod() {
    let back = json!({"spec": {"template": template("one")}, "metadata": {"generation": 3}});
    let reverted = sandbox(&with(at("PreUpgrade"), &back));
    let next = step(&reverted, Seen::Own(&pod_with("one")));
    assert_eq!(
        (reason_of(&next), &next.action),
        ("Succeeded", &Action::Nothing)
    );
}

#[test]
fn a_pod_that_cannot_start_fails_the_upgrade_and_may_recover() {
    let replacing = sandbox(&at("UpgradePod"));
    let failed = step(&replacing, Seen::Own(&stuck(pod_with("two"))));
    assert_eq!(reason_of(&failed), "UpgradePodFailed");
    assert!(failed.status.message.contains("no such image"));
    let failed = sandbox(&at("UpgradePodFailed"));
    assert_eq!(
        reason_of(&step(&failed, Seen::Own(&pod_with("two")))),
        "PostUpgrade"
    );
    let corrected = step(&failed, Seen::Own(&stuck(pod_with("wrong"))));
    assert_eq!(corrected.action, Action::DeletePod);
}

/// A sandbox in a step of an upgrade that keeps files.
fn restoring(step: &str) -> Value {
    let mut template = template("one");
    template["spec"]["runtimeClassName"] = "shoal".into();
    template["spec"]["containers"][0]["env"] = json!([{"name": "NEW", "value": "1"}]);
    let spec = json!({"upgradePolicy": {"type": "CheckpointRestore"}, "template": template});
    with(at(step), &json!({"spec": spec}))
}

/// The next step with a checkpoint of the pod.
fn saved(sandbox: &Sandbox, pod: Seen<'_>, phase: &str, marks: &Value) -> Next {
    let mut checkpoint = json!({
        "metadata": {"name": "kept", "annotations": marks}, "spec": {},
        "status": {"phase": phase, "message": "why"},
    });
    checkpoint["metadata"]["annotations"][annotation::PAUSED_POD] = "p".into();
    next(&Input {
        sandbox,
        blueprint: &Blueprint::inline(sandbox).unwrap(),
        pod,
        saved: Some(&serde_json::from_value(checkpoint).unwrap()),
        resizes: true,
        now: NOW.parse().unwrap(),
    })
}

#[test]
fn a_pod_is_saved_before_it_is_replaced_by_one_with_its_files() {
    let old = pod_with("one");
    let begun = step(&sandbox(&restoring("PreUpgrade")), Seen::Own(&old));
    let files: &[&str] = &["filesystem"];
    assert_eq!(
        (reason_of(&begun), &begun.action),
        ("Checkpointing", &Action::Save(files))
    );
    let saving = sandbox(&restoring("Checkpointing"));
    let waits = saved(&saving, Seen::Own(&old), "Creating", &json!({}));
    assert_eq!(
        (reason_of(&waits), &waits.action),
        ("Checkpointing", &Action::Nothing)
    );
    let ending = json!({annotation::CHECKPOINT_ENDING: NOW});
    let ends = saved(&saving, Seen::Own(&old), "Creating", &ending);
    assert_eq!(ends.action, Action::DeletePod);
    let complete = saved(&saving, Seen::Absent, "Succeeded", &json!({}));
    assert_eq!((reason_of(&complete), complete.again), ("UpgradePod", true));
    let replacing = sandbox(&restoring("UpgradePod"));
    assert_eq!(step(&replacing, Seen::Absent).action, Action::CreatePod);
}

#[test]
fn a_save_that_fails_leaves_the_pod_until_the_specification_changes() {
    let old = pod_with("one");
    let saving = sandbox(&restoring("Checkpointing"));
    let failed = saved(&saving, Seen::Own(&old), "Failed", &json!({}));
    assert_eq!(
        (reason_of(&failed), &failed.action),
        ("CheckpointFailed", &Action::Nothing)
    );
    assert!(failed.status.message.contains("why; the pod keeps running"));
    let same = sandbox(&restoring("CheckpointFailed"));
    let same = saved(&same, Seen::Own(&old), "Failed", &json!({}));
    assert_eq!(same.action, Action::Nothing);
    let change = json!({"metadata": {"generation": 3}});
    let changed = sandbox(&with(restoring("CheckpointFailed"), &change));
    let again = saved(&changed, Seen::Own(&old), "Failed", &json!({}));
    assert_eq!(
        (reason_of(&again), &again.action),
        ("PreUpgrade", &Action::ForgetSave)
    );
}

#[test]
fn files_are_kept_for_the_same_images_in_pods_that_can_be_saved() {
    let old = pod_with("one");
    let image =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "two"}]}}}});
    let class = json!({"spec": {"template": {"spec": {"runtimeClassName": "gvisor"}}}});
    for (change, why) in [(image, "cannot change images"), (class, "runtimeClassName")] {
        let refused = sandbox(&with(restoring("PreUpgrade"), &change));
        let refused = step(&refused, Seen::Own(&old));
        assert_eq!(
            (reason_of(&refused), &refused.action),
            ("CheckpointFailed", &Action::Nothing)
        );
        assert!(refused.status.message.contains(why), "{why}");
    }
}

#[test]
fn the_command_before_an_upgrade_runs_before_the_save() {
    let hooked = sandbox(&with(restoring("PreUpgrade"), &hooks()));
    let first = step(&hooked, Seen::Own(&pod_with("one")));
    assert!(matches!(
        first.action,
        Action::Run(Hook {
            when: HookTime::Before,
            ..
        })
    ));
    let mut status = first.status;
    after_hook(
        &mut status,
        &hooked.spec,
        HookTime::Before,
        None,
        Some(2),
        NOW.parse().unwrap(),
    );
    let known = conditions::find(&status.conditions, condition::UPGRADING).unwrap();
    assert_eq!(known.reason, "Checkpointing");
}

#[test]
fn a_paused_sandbox_is_resumed_first() {
    let trigger = json!({
        "metadata": {"annotations": {annotation::UPGRADE_RESUME_TRIGGER: "true"}},
        "spec": {"paused": true, "template": template("one")},
    });
    let paused = json!({"status": {"phase": "Paused", "conditions": [condition("SandboxPaused", "True", "StopPauseSucceed")]}});
    let next = step(&sandbox(&with(trigger.clone(), &paused)), Seen::Absent);
    assert_eq!(
        (next.status.phase, reason_of(&next)),
        (Some(SandboxPhase::Upgrading), "Resuming")
    );
    let resuming = sandbox(&with(trigger.clone(), &at("Resuming")));
    assert_eq!(step(&resuming, Seen::Absent).action, Action::CreatePod);
    let old = pod_with("one");
    assert_eq!(
        reason_of(&step(&resuming, Seen::Own(&old))),
        "ResumeSucceed"
    );
    let failed = step(&resuming, Seen::Own(&stuck(pod_with("one"))));
    assert_eq!(reason_of(&failed), "UpgradePodFailed");
    let recovers = sandbox(&with(trigger.clone(), &at("UpgradePodFailed")));
    assert_eq!(
        reason_of(&step(&recovers, Seen::Own(&old))),
        "ResumeSucceed"
    );
    let resumed = sandbox(&with(trigger.clone(), &at("ResumeSucceed")));
    assert_eq!(reason_of(&step(&resumed, Seen::Own(&old))), "ResumeSucceed");
    let patched = json!({
        "metadata": {"annotations": {annotation::UPGRADE_RESUME_TRIGGER: null}},
        "spec": {"template": template("two")},
    });
    let patched = with(with(trigger.clone(), &at("ResumeSucceed")), &patched);
    assert_eq!(
        reason_of(&step(&sandbox(&patched), Seen::Own(&old))),
        "PreUpgrade"
    );
    let given_up = json!({"metadata": {"annotations": {annotation::UPGRADE_RESUME_TRIGGER: null}}});
    let given_up = with(with(trigger, &at("ResumeSucceed")), &given_up);
    let next = step(&sandbox(&given_up), Seen::Own(&old));
    assert_eq!(
        (next.status.phase, reason_of(&next)),
        (Some(SandboxPhase::Running), "")
    );
}

#[test]
fn a_pod_that_is_gone_is_replaced_without_the_first_command() {
    let next = step(&sandbox(&with(at("PreUpgrade"), &hooks())), Seen::Absent);
    assert_eq!(
        (reason_of(&next), &next.action, next.again),
        ("UpgradePod", &Action::Nothing, true)
    );
}

#[test]
fn revisions_differ_by_template() {
    let of = |image: &str| {
        revision::of_sandbox(&sandbox(&json!({"spec": {"template": template(image)}})).spec)
    };
    assert_ne!(of("one"), of("two"));
}

/// A sandbox at a step, whose daemon has refused its settings for so many seconds at this generation.
fn refused(step: &str, seconds: i64, generation: i64) -> Sandbox {
    let now: Timestamp = NOW.parse().unwrap();
    let mut initialized = condition("RuntimeInitialized", "False", "Failed");
    initialized["lastTransitionTime"] = json!(now - SignedDuration::from_secs(seconds));
    initialized["observedGeneration"] = json!(generation);
    initialized["message"] = json!("status 500");
    let request = json!({"agents.kruise.io/init-runtime-request": "{}"});
    let mut change = at(step);
    change["metadata"] = json!({"annotations": request});
    change["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .push(initialized);
    sandbox(&change)
}

#[test]
fn a_daemon_that_takes_no_settings_fails_the_upgrade_after_a_minute() {
    let new = pod_with("two");
    let early = step(&refused("UpgradePod", 59, 2), Seen::Own(&new));
    assert!(matches!(early.action, Action::Initialize(_)));
    assert_eq!(reason_of(&early), "UpgradePod");
    let late = step(&refused("UpgradePod", 60, 2), Seen::Own(&new));
    assert_eq!((late.action, late.again), (Action::Nothing, false));
    let known = conditions::find(&late.status.conditions, condition::UPGRADING).unwrap();
    assert_eq!(known.reason, "UpgradePodFailed");
    assert!(
        known.message.contains("60 s: status 500"),
        "{}",
        known.message
    );
    assert!(
        late.status.message.contains("60 s"),
        "{}",
        late.status.message
    );
    // It stays so until the specification changes, which asks the daemon again.
    let still = step(&refused("UpgradePodFailed", 600, 2), Seen::Own(&new));
    assert_eq!(reason_of(&still), "UpgradePodFailed");
    assert_eq!(still.action, Action::Nothing);
    let asked = step(&refused("UpgradePodFailed", 600, 1), Seen::Own(&new));
    assert!(matches!(asked.action, Action::Initialize(_)));
}

#[test]
fn a_new_pod_has_a_minute_of_its_own() {
    let old = pod_with("one");
    let replaced = step(&refused("UpgradePod", 600, 2), Seen::Own(&old));
    assert_eq!(replaced.action, Action::DeletePod);
    let known = conditions::find(&replaced.status.conditions, condition::RUNTIME_INITIALIZED);
    assert!(known.is_none());
}
