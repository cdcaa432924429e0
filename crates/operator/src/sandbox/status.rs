//! Computes the status of a sandbox from the observed objects.

use jiff::Timestamp;
use shoal_crds::v1beta1::SandboxStatus;

use super::model::{PodState, Seen, Wanted};
use super::{service, suspend};
use crate::conditions::{self, State, Truth};
use crate::slim::Pod;

/// The reason of an expired sandbox.
pub(super) const EXPIRED: &str = "SandboxExpired";
/// The reason of a sandbox with several pods.
pub(super) const SEVERAL_PODS: &str = "MultiplePods";

/// The new status.
pub(super) fn of(
    wanted: &Wanted<'_>,
    seen: &Seen,
    now: Timestamp,
    cluster_domain: &str,
) -> SandboxStatus {
    let mut status = wanted.sandbox.status.clone().unwrap_or_default();
    let generation = wanted.sandbox.metadata.generation;
    let pod = match &seen.pod {
        PodState::Owned(pod) => Some(pod),
        _ => None,
    };
    if seen.service.is_some() {
        wanted.name.clone_into(&mut status.service);
        status.service_fqdn = format!("{}.{}.svc.{cluster_domain}", wanted.name, wanted.namespace);
    } else {
        status.service.clear();
        status.service_fqdn.clear();
    }
    status.pod_ips = pod.map(|pod| pod.ips()).unwrap_or_default();
    if pod.is_some() {
        status.selector = wanted.selector();
    } else if wanted.is_v1alpha1() {
        status.selector.clear();
    }
    for (kind, state) in states(wanted, seen) {
        match state {
            Some(state) => conditions::set(&mut status.conditions, &state, generation, now),
            None => conditions::remove(&mut status.conditions, kind),
        }
    }
    status.node_name = node_name(
        &status,
        pod.map(|pod| pod.spec.node_name.as_str())
            .unwrap_or_default(),
    );
    status
}

/// The node, once the sandbox is ready: before that, the scheduler's choice alone is not worth a write.
fn node_name(status: &SandboxStatus, of_pod: &str) -> String {
    let ready =
        conditions::find(&status.conditions, "Ready").is_some_and(|ready| ready.status == "True");
    if ready || of_pod.is_empty() || !status.node_name.is_empty() {
        return of_pod.to_owned();
    }
    String::new()
}

/// The status of a sandbox that has expired: first with everything that is still there, and without it
/// once the pod and the service are deleted.
pub(super) fn expired(wanted: &Wanted<'_>, cleared: bool, now: Timestamp) -> SandboxStatus {
    let before = wanted.sandbox.status.clone().unwrap_or_default();
    let mut status = if cleared {
        SandboxStatus {
            conditions: before.conditions,
            ..SandboxStatus::default()
        }
    } else {
        before
    };
    conditions::remove(&mut status.conditions, "PodScheduled");
    let state = State::new("Ready", Truth::False, EXPIRED, "Sandbox has expired");
    conditions::set(
        &mut status.conditions,
        &state,
        wanted.sandbox.metadata.generation,
        now,
    );
    status
}

/// Whether the sandbox says that it is expired.
pub(super) fn is_marked_expired(wanted: &Wanted<'_>) -> bool {
    let conditions = wanted
        .sandbox
        .status
        .as_ref()
        .map(|status| status.conditions.as_slice());
    conditions::find(conditions.unwrap_or_default(), "Ready")
        .is_some_and(|ready| ready.reason == EXPIRED)
}

/// The conditions, in the order in which they are added. Absent ones are removed.
fn states(wanted: &Wanted<'_>, seen: &Seen) -> [(&'static str, Option<State>); 4] {
    let current = !wanted.is_v1alpha1();
    [
        ("Suspended", current.then(|| suspended(wanted, seen))),
        ("Finished", finished(seen)),
        ("PodScheduled", current.then(|| scheduled(seen)).flatten()),
        ("Ready", Some(ready(wanted, seen))),
    ]
}

fn suspended(wanted: &Wanted<'_>, seen: &Seen) -> State {
    let state = |status, reason, message: &str| State::new("Suspended", status, reason, message);
    if !wanted.is_suspended() {
        return state(Truth::False, "NotSuspended", "Sandbox is not suspended");
    }
    if let Some(saving) = &seen.saving {
        return state(Truth::False, saving.reason, &saving.message);
    }
    match &seen.pod {
        PodState::Owned(_) | PodState::Several(_) => state(
            Truth::False,
            "PodTerminating",
            "Pod is terminating. Sandbox is suspending",
        ),
        PodState::NotOwned => state(
            Truth::False,
            "PodNotOwned",
            "Refused to delete pod because it is not owned by this sandbox",
        ),
        PodState::Absent => {
            let mut message = "Pod has been terminated. Sandbox is suspended".to_owned();
            if let Some(saved) = suspend::saved_by(wanted) {
                message.push_str(&format!(". Checkpoint {saved} keeps it"));
            }
            state(Truth::True, "PodTerminated", &message)
        }
        PodState::Unknown => state(
            Truth::Unknown,
            "PodStateUnknown",
            "Pod state is unknown. Sandbox suspension cannot be confirmed",
        ),
    }
}

/// How the pod ended, if it did.
fn outcome(pod: &Pod) -> Option<(&'static str, &'static str)> {
    match pod.status.phase.as_str() {
        "Succeeded" => Some(("PodSucceeded", "Pod completed successfully")),
        "Failed" => Some(("PodFailed", "Pod failed")),
        _ => None,
    }
}

fn finished(seen: &Seen) -> Option<State> {
    let PodState::Owned(pod) = &seen.pod else {
        return None;
    };
    let (reason, message) = outcome(pod)?;
    Some(State::new("Finished", Truth::True, reason, message))
}

fn scheduled(seen: &Seen) -> Option<State> {
    let unknown = |message: &str| {
        State::new(
            "PodScheduled",
            Truth::Unknown,
            "PodSchedulingUnknown",
            message,
        )
    };
    match &seen.pod {
        PodState::Owned(pod) => Some(match pod.condition("PodScheduled") {
            None => unknown("Pod has not reported a PodScheduled condition yet"),
            Some(of_pod) => {
                let truth = Truth::parse(&of_pod.status);
                let reason = match (of_pod.reason.as_str(), truth) {
                    ("", Truth::True) => "PodScheduled",
                    ("", _) => "PodSchedulingUnknown",
                    (reason, _) => reason,
                };
                State::new("PodScheduled", truth, reason, of_pod.message.clone())
            }
        }),
        PodState::Unknown => Some(unknown(
            "Pod state is unknown. Pod scheduling cannot be determined",
        )),
        PodState::Absent | PodState::NotOwned | PodState::Several(_) => None,
    }
}

fn ready(wanted: &Wanted<'_>, seen: &Seen) -> State {
    let not_ready =
        |reason: &str, message: String| State::new("Ready", Truth::False, reason, message);
    if let PodState::Several(count) = seen.pod {
        let message = format!(
            "multiple Pods ({count}) are controlled by this Sandbox; refusing to choose or create a Pod"
        );
        return not_ready(SEVERAL_PODS, message);
    }
    if let Some(error) = &seen.error {
        return not_ready("ReconcilerError", format!("Error seen: {error}"));
    }
    let pod = match &seen.pod {
        PodState::Owned(pod) => Some(pod),
        _ => None,
    };
    if !wanted.is_v1alpha1() {
        if wanted.is_suspended() {
            let message = if pod.is_some() {
                "Sandbox is suspending"
            } else {
                "Sandbox is suspended"
            };
            return not_ready("SandboxSuspended", message.to_owned());
        }
        if let Some((reason, message)) = pod.and_then(|pod| outcome(pod)) {
            return not_ready(reason, message.to_owned());
        }
    }
    if let (Some(saving), false) = (&seen.saving, wanted.is_suspended()) {
        let message = format!("{}; the sandbox is resumed from it", saving.message);
        return not_ready("DependenciesNotReady", message);
    }
    let required = service::is_required(wanted, seen.service.is_some());
    let service_ready = !required || seen.service.is_some();
    let (pod_ready, mut message) = match pod {
        None if wanted.is_suspended() => (true, "Pod does not exist, replicas is 0".to_owned()),
        None => (false, "Pod does not exist".to_owned()),
        Some(pod) => pod_readiness(pod),
    };
    if required {
        message.push_str(if seen.service.is_some() {
            "; Service Exists"
        } else {
            "; Service does not exist"
        });
    }
    if pod_ready && service_ready {
        State::new("Ready", Truth::True, "DependenciesReady", message)
    } else {
        not_ready("DependenciesNotReady", message)
    }
}

fn pod_readiness(pod: &Pod) -> (bool, String) {
    if pod.status.phase != "Running" {
        return (
            false,
            format!("Pod exists with phase: {}", pod.status.phase),
        );
    }
    if !pod.is_ready() {
        return (false, "Pod is Running but not Ready".to_owned());
    }
    if pod.status.pod_ips.is_empty() {
        return (false, "Pod is Ready but has no podIPs yet".to_owned());
    }
    (true, "Pod is Ready".to_owned())
}
