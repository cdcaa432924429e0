use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use shoal_crds::kruise::Checkpoint;
use shoal_crds::v1beta1::Sandbox;

use super::super::model::Wanted;
use super::{Step, next, reason};
use crate::saves::tests::saved;
use crate::slim::Pod;

const NOW: &str = "2026-01-02T03:05:00Z";

fn sandbox(mode: &str, annotations: &Value) -> Sandbox {
    serde_json::from_value(json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "own", "annotations": annotations},
        "spec": {
            "operatingMode": mode,
            "podTemplate": {"spec": {"containers": [{"name": "main", "image": "i"}]}},
        },
    }))
    .unwrap()
}

fn suspended(annotations: &Value) -> Sandbox {
    sandbox("Suspended", annotations)
}

fn running(annotations: &Value) -> Sandbox {
    sandbox("Running", annotations)
}

fn with_memory() -> Value {
    json!({"shoal.dev/pause-contents": "memory"})
}

fn remembers() -> Value {
    json!({"shoal.dev/pause-contents": "memory", "shoal.dev/saved-by": "c"})
}

fn pod(phase: &str, ready: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "a", "uid": "p"},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    }))
    .unwrap()
}

fn ready() -> Pod {
    pod("Running", "True")
}

fn with(saved: &Arc<Checkpoint>, key: &str, value: &str) -> Arc<Checkpoint> {
    let mut changed = Checkpoint::clone(saved);
    let annotations = changed.metadata.annotations.get_or_insert_default();
    annotations.insert(key.to_owned(), value.to_owned());
    Arc::new(changed)
}

fn step(sandbox: &Sandbox, pod: Option<&Pod>, own: &[Arc<Checkpoint>]) -> Step {
    let now: Timestamp = NOW.parse().unwrap();
    next(&Wanted::of(sandbox).unwrap(), pod, own, now)
}

#[test]
fn without_a_word_nothing_is_saved() {
    let ready = ready();
    for sandbox in [suspended(&json!({})), running(&with_memory())] {
        assert_eq!(step(&sandbox, Some(&ready), &[]), Step::Plain(None));
    }
    let unknown = suspended(&json!({"shoal.dev/pause-contents": "everything"}));
    let Step::Wait(told) = step(&unknown, Some(&ready), &[]) else {
        panic!("the pod would end");
    };
    assert!(told.message.contains("everything"), "{told:?}");
}

#[test]
fn the_template_may_say_it_and_the_sandbox_decides() {
    let mut of_template = suspended(&json!({}));
    let annotations = &mut of_template.spec.pod_template.metadata.annotations;
    annotations.insert(
        "shoal.dev/pause-contents".to_owned(),
        "filesystem".to_owned(),
    );
    let ready = ready();
    assert_eq!(
        step(&of_template, Some(&ready), &[]),
        Step::Save(&["filesystem"])
    );
    of_template.metadata.annotations = suspended(&with_memory()).metadata.annotations;
    assert_eq!(
        step(&of_template, Some(&ready), &[]),
        Step::Save(&["memory", "filesystem"])
    );
}

#[test]
fn a_pod_is_saved_when_it_is_ready_and_one_that_does_not_run_has_nothing() {
    let sandbox = suspended(&with_memory());
    let starting = step(&sandbox, Some(&pod("Running", "False")), &[]);
    assert!(matches!(starting, Step::Wait(_)), "{starting:?}");
    for phase in ["Pending", "Succeeded", "Failed"] {
        assert_eq!(
            step(&sandbox, Some(&pod(phase, "False")), &[]),
            Step::Plain(None),
            "{phase}"
        );
    }
    assert_eq!(step(&sandbox, None, &[]), Step::Plain(None));
}

#[test]
fn the_pod_ends_only_when_its_agent_or_its_checkpoint_says_so() {
    let sandbox = suspended(&with_memory());
    let ready = ready();
    for phase in ["Pending", "Creating"] {
        let made = saved("c", "p", phase, false);
        let waits = step(&sandbox, Some(&ready), &[made]);
        assert!(matches!(waits, Step::Wait(_)), "{phase}: {waits:?}");
    }
    let ending = with(&saved("c", "p", "Creating", false), "shoal.dev/ending", NOW);
    assert_eq!(
        step(&sandbox, Some(&ready), std::slice::from_ref(&ending)),
        Step::End
    );
    // Its pod is gone, and the agent has not completed it.
    let waits = step(&sandbox, None, &[ending]);
    assert!(matches!(waits, Step::Wait(_)), "{waits:?}");
    let complete = saved("c", "p", "Succeeded", false);
    assert_eq!(
        step(&sandbox, Some(&ready), std::slice::from_ref(&complete)),
        Step::Remember("c".to_owned())
    );
    let remembers = suspended(&remembers());
    assert_eq!(
        step(&remembers, Some(&ready), std::slice::from_ref(&complete)),
        Step::End
    );
    assert_eq!(step(&remembers, None, &[complete]), Step::Plain(None));
}

#[test]
fn a_failed_save_leaves_the_pod_and_is_tried_again() {
    let sandbox = suspended(&with_memory());
    let ready = ready();
    let failed = |at: &str| {
        let mut failed = Checkpoint::clone(&saved("c", "p", "Failed", false));
        let status = failed.status.as_mut().unwrap();
        status.message = "no room".to_owned();
        status.completion_time = serde_json::from_value(json!(at)).unwrap();
        Arc::new(failed)
    };
    let Step::Wait(told) = step(&sandbox, Some(&ready), &[failed(NOW)]) else {
        panic!("too soon");
    };
    assert_eq!(told.reason, reason::CHECKPOINT_FAILED);
    assert_eq!(told.message, "no room; the pod keeps running");
    assert_eq!(told.wait.map(|wait| wait.as_secs()), Some(60));
    let old = failed("2026-01-02T03:03:00Z");
    assert_eq!(
        step(&sandbox, Some(&ready), std::slice::from_ref(&old)),
        Step::Forget
    );
    // The sandbox is not suspended any more.
    assert_eq!(
        step(&running(&with_memory()), Some(&ready), &[old]),
        Step::Forget
    );
}

#[test]
fn a_suspension_is_cancelled_before_an_agent_begins_and_completed_after_that() {
    let sandbox = running(&with_memory());
    let ready = ready();
    let pending = saved("c", "p", "Pending", false);
    assert_eq!(step(&sandbox, Some(&ready), &[pending]), Step::Forget);
    let given_up = saved("c", "p", "Pending", true);
    let waits = step(&sandbox, Some(&ready), &[given_up]);
    assert!(matches!(waits, Step::Wait(_)), "{waits:?}");
    let creating = saved("c", "p", "Creating", false);
    let waits = step(&sandbox, Some(&ready), &[creating]);
    assert!(matches!(waits, Step::Wait(_)), "{waits:?}");
    let complete = saved("c", "p", "Succeeded", false);
    let remembered = step(&sandbox, Some(&ready), std::slice::from_ref(&complete));
    assert_eq!(remembered, Step::Remember("c".to_owned()));
    assert_eq!(
        step(&running(&remembers()), Some(&ready), &[complete]),
        Step::End
    );
}

fn restorable() -> Arc<Checkpoint> {
    let complete = saved("c", "before", "Succeeded", false);
    let complete = with(&complete, "shoal.dev/node", "n");
    let source = r#"{"containers": ["main"], "serviceAccountToken": true}"#;
    let mut complete = Checkpoint::clone(&with(&complete, "shoal.dev/source", source));
    complete.status.as_mut().unwrap().checkpoint_id = "id".to_owned();
    Arc::new(complete)
}

#[test]
fn the_next_pod_starts_from_the_checkpoint_which_goes_when_it_is_ready() {
    let sandbox = running(&remembers());
    let own = [restorable()];
    let made = step(&sandbox, None, &own);
    assert!(matches!(made, Step::Plain(Some(_))), "{made:?}");
    let starts = pod("Pending", "False");
    assert_eq!(step(&sandbox, Some(&starts), &own), Step::Plain(None));
    assert_eq!(step(&sandbox, Some(&ready()), &own), Step::Forget);
    // One that is suspended again before it is ready ends, and its checkpoint stays.
    let again = suspended(&remembers());
    assert_eq!(step(&again, Some(&starts), &own), Step::Plain(None));
    assert_eq!(step(&again, Some(&ready()), &own), Step::Forget);
}

#[test]
fn nothing_starts_without_the_memory_that_it_remembers() {
    let sandbox = running(&remembers());
    let Step::Refuse(why) = step(&sandbox, None, &[]) else {
        panic!("it would start anew");
    };
    assert!(
        why.contains("not found") && why.contains("shoal.dev/saved-by"),
        "{why}"
    );
}
