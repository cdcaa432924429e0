use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use shoal_crds::hash;
use shoal_crds::v1beta1::{Sandbox, SandboxStatus};

use super::super::model::{PodState, Saving, Seen, Wanted};
use super::super::{is_progress, status};
use super::{alpha, pod_with, ready_pod, sandbox};
use crate::slim::Service;

fn status_of(
    sandbox: &Sandbox,
    pod: PodState,
    service: bool,
    error: Option<&str>,
) -> SandboxStatus {
    let seen = Seen {
        pod,
        service: service.then(|| Arc::new(Service::default())),
        error: error.map(str::to_owned),
        saving: None,
    };
    status::of(
        &Wanted::of(sandbox).unwrap(),
        &seen,
        Timestamp::UNIX_EPOCH,
        "cluster.local",
    )
}

/// Each condition as `type status reason message`.
fn told(status: &SandboxStatus) -> Vec<String> {
    let each = status.conditions.iter();
    each.map(|c| format!("{} {} {} {}", c.type_, c.status, c.reason, c.message))
        .collect()
}

fn ready(status: &SandboxStatus) -> String {
    told(status)
        .into_iter()
        .find(|condition| condition.starts_with("Ready"))
        .unwrap()
}

#[test]
fn a_ready_pod_makes_the_sandbox_ready() {
    let status = status_of(
        &sandbox(&json!({})),
        PodState::Owned(ready_pod()),
        false,
        None,
    );
    assert_eq!(
        told(&status),
        [
            "Suspended False NotSuspended Sandbox is not suspended",
            "PodScheduled True PodScheduled ",
            "Ready True DependenciesReady Pod is Ready",
        ]
    );
    assert_eq!(
        (status.node_name.as_str(), status.pod_ips.as_slice()),
        ("n", &["10.0.0.1".to_owned()][..])
    );
    assert_eq!(
        status.selector,
        format!("agents.x-k8s.io/sandbox-name-hash={}", hash::of_name("a"))
    );
    assert!(
        status
            .conditions
            .iter()
            .all(|condition| condition.observed_generation == Some(2))
    );
}

#[test]
fn v1alpha1_shows_only_the_conditions_of_its_time() {
    let sandbox = alpha(sandbox(&json!({})));
    let status = status_of(&sandbox, PodState::Owned(ready_pod()), true, None);
    assert_eq!(
        told(&status),
        ["Ready True DependenciesReady Pod is Ready; Service Exists"]
    );
    assert_eq!(status.service_fqdn, "a.ns.svc.cluster.local");
    let status = status_of(&sandbox, PodState::Absent, false, None);
    assert_eq!(
        told(&status),
        ["Ready False DependenciesNotReady Pod does not exist; Service does not exist"]
    );
}

#[test]
fn readiness_tells_what_is_missing() {
    let current = sandbox(&json!({}));
    let phase = |phase: &str, conditions: Value| {
        PodState::Owned(pod_with(
            json!({}),
            json!({"phase": phase, "conditions": conditions}),
        ))
    };
    let is_ready = json!([{"type": "Ready", "status": "True"}]);
    for (pod, expected) in [
        (
            PodState::Absent,
            "Ready False DependenciesNotReady Pod does not exist",
        ),
        (
            phase("Pending", json!([])),
            "Ready False DependenciesNotReady Pod exists with phase: Pending",
        ),
        (
            phase("Running", json!([])),
            "Ready False DependenciesNotReady Pod is Running but not Ready",
        ),
        (
            phase("Running", is_ready),
            "Ready False DependenciesNotReady Pod is Ready but has no podIPs yet",
        ),
        (
            phase("Failed", json!([])),
            "Ready False PodFailed Pod failed",
        ),
        (
            phase("Succeeded", json!([])),
            "Ready False PodSucceeded Pod completed successfully",
        ),
        (
            PodState::Several(3),
            "Ready False MultiplePods multiple Pods (3) are controlled by this Sandbox; refusing to choose or create a Pod",
        ),
    ] {
        assert_eq!(ready(&status_of(&current, pod, false, None)), expected);
    }
    let status = status_of(&current, PodState::Owned(ready_pod()), false, Some("quota"));
    assert_eq!(
        ready(&status),
        "Ready False ReconcilerError Error seen: quota"
    );
    let with_service = sandbox(&json!({"service": true}));
    let status = status_of(&with_service, PodState::Owned(ready_pod()), false, None);
    assert_eq!(
        ready(&status),
        "Ready False DependenciesNotReady Pod is Ready; Service does not exist"
    );
}

#[test]
fn suspension_shows_in_both_versions() {
    let suspended = sandbox(&json!({"operatingMode": "Suspended"}));
    for (pod, expected) in [
        (
            PodState::Owned(ready_pod()),
            "False PodTerminating Pod is terminating. Sandbox is suspending",
        ),
        (
            PodState::Absent,
            "True PodTerminated Pod has been terminated. Sandbox is suspended",
        ),
        (
            PodState::NotOwned,
            "False PodNotOwned Refused to delete pod because it is not owned by this sandbox",
        ),
        (
            PodState::Unknown,
            "Unknown PodStateUnknown Pod state is unknown. Sandbox suspension cannot be confirmed",
        ),
    ] {
        assert_eq!(
            told(&status_of(&suspended, pod, false, None))[0],
            format!("Suspended {expected}")
        );
    }
    let status = status_of(&suspended, PodState::Absent, false, None);
    assert_eq!(
        ready(&status),
        "Ready False SandboxSuspended Sandbox is suspended"
    );
    let status = status_of(&alpha(suspended), PodState::Absent, true, None);
    assert_eq!(
        ready(&status),
        "Ready True DependenciesReady Pod does not exist, replicas is 0; Service Exists"
    );
}

#[test]
fn conditions_do_not_accumulate_and_go_with_the_pod() {
    let mut current = sandbox(&json!({}));
    let failed = PodState::Owned(pod_with(json!({}), json!({"phase": "Failed"})));
    for _ in 0..20 {
        current.status = Some(status_of(&current, failed.clone(), false, None));
    }
    assert_eq!(current.status.as_ref().unwrap().conditions.len(), 4);
    let status = status_of(&current, PodState::Absent, false, None);
    let kinds: Vec<&str> = status
        .conditions
        .iter()
        .map(|condition| condition.type_.as_str())
        .collect();
    assert_eq!(kinds, ["Suspended", "Ready"]);
    assert!(!status.selector.is_empty(), "v1beta1 keeps the selector");
}

#[test]
fn expiry_keeps_how_the_pod_finished() {
    let mut expired = sandbox(&json!({}));
    let failed = PodState::Owned(pod_with(json!({}), json!({"phase": "Failed"})));
    expired.status = Some(status_of(&expired, failed, false, None));
    let marked = status::expired(&Wanted::of(&expired).unwrap(), false, Timestamp::UNIX_EPOCH);
    assert_eq!(
        ready(&marked),
        "Ready False SandboxExpired Sandbox has expired"
    );
    assert!(!marked.selector.is_empty());
    expired.status = Some(marked);
    assert!(status::is_marked_expired(&Wanted::of(&expired).unwrap()));
    let cleared = status::expired(&Wanted::of(&expired).unwrap(), true, Timestamp::UNIX_EPOCH);
    assert!(cleared.selector.is_empty());
    assert!(
        told(&cleared)
            .iter()
            .any(|condition| condition.starts_with("Finished True PodFailed"))
    );
}

#[test]
fn only_progress_is_held_back() {
    let current = sandbox(&json!({}));
    let pending = PodState::Owned(pod_with(json!({}), json!({"phase": "Pending"})));
    let first = status_of(&current, pending, false, None);
    assert!(is_progress(&SandboxStatus::default(), &first));
    assert!(!is_progress(
        &first,
        &status_of(&current, PodState::Owned(ready_pod()), false, None)
    ));
    assert!(!is_progress(
        &first,
        &status_of(&current, PodState::Absent, false, Some("quota"))
    ));
    let failed = PodState::Owned(pod_with(json!({}), json!({"phase": "Failed"})));
    assert!(!is_progress(
        &first,
        &status_of(&current, failed, false, None)
    ));
}

#[test]
fn a_save_under_way_is_told_and_the_checkpoint_is_named_after_it() {
    let mut suspended = sandbox(&json!({"operatingMode": "Suspended"}));
    let mut seen = Seen {
        pod: PodState::Owned(ready_pod()),
        service: None,
        error: None,
        saving: Some(Saving {
            reason: "CheckpointFailed",
            message: "no room; the pod keeps running".to_owned(),
            wait: None,
        }),
    };
    let status_of = |sandbox: &Sandbox, seen: &Seen| {
        let wanted = Wanted::of(sandbox).unwrap();
        told(&status::of(
            &wanted,
            seen,
            Timestamp::UNIX_EPOCH,
            "cluster.local",
        ))
    };
    assert_eq!(
        status_of(&suspended, &seen)[0],
        "Suspended False CheckpointFailed no room; the pod keeps running"
    );
    // A suspension that completes although its sandbox must run again.
    let running = status_of(&sandbox(&json!({})), &seen);
    assert!(
        running[0].starts_with("Suspended False NotSuspended"),
        "{running:?}"
    );
    assert!(
        running.last().unwrap().starts_with("Ready False"),
        "{running:?}"
    );
    let annotations = suspended.metadata.annotations.get_or_insert_default();
    annotations.insert("shoal.dev/saved-by".to_owned(), "kept".to_owned());
    (seen.pod, seen.saving) = (PodState::Absent, None);
    let done = status_of(&suspended, &seen);
    assert!(
        done[0].starts_with("Suspended True PodTerminated"),
        "{done:?}"
    );
    assert!(done[0].contains("Checkpoint kept keeps it"), "{done:?}");
}
