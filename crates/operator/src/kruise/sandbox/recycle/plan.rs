//! The steps of a return, from what was observed.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use shoal_crds::kruise::names::{annotation, condition, label, reason};
use shoal_crds::kruise::{Sandbox, SandboxPhase, SandboxSet, revision};

use super::super::phase::Seen;
use super::super::phase_of;
use crate::kruise::Pod;
use crate::kruise::set::controller_ref;
use crate::patch;

/// What a return needs next.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// The sandbox is not to be returned.
    Nothing,
    /// It cannot be returned, and stays.
    Reject(String),
    /// The status says that it has begun.
    Begin,
    /// The pod of its user is deleted.
    DeletePod,
    /// The sandbox becomes as its pool makes them, but is not the pool's yet.
    Reset(Value),
    /// It gets a new pod.
    CreatePod,
    /// The pod is deleted, or starts.
    Wait,
    /// The new pod is ready.
    Complete,
    /// The pool gets it.
    Return(Value),
    /// The status says that it is in its pool.
    Succeed,
    /// It failed: the reason and why.
    Fail(&'static str, String),
    /// It has failed, and stays for a while.
    Rest,
}

/// Compares a sandbox with its return, which may take as long as `timeout`.
pub(super) fn next(
    sandbox: &Sandbox,
    set: Option<&SandboxSet>,
    pod: Seen<'_>,
    now: Timestamp,
    timeout: Duration,
) -> Next {
    match phase_of(sandbox) {
        SandboxPhase::Recycling => go_on(sandbox, set, pod, now, timeout),
        SandboxPhase::Running | SandboxPhase::Paused if is_asked_for(sandbox) => {
            match rejection(sandbox, set, pod) {
                Some(why) => Next::Reject(why),
                None => Next::Begin,
            }
        }
        _ => Next::Nothing,
    }
}

fn is_asked_for(sandbox: &Sandbox) -> bool {
    let both = [annotation::CLEANUP_ENABLED, annotation::CLEANUP];
    !sandbox.is_pooled()
        && both
            .iter()
            .all(|key| sandbox.annotation(key) == Some("true"))
}

/// Why a sandbox cannot return to its pool.
fn rejection(sandbox: &Sandbox, set: Option<&SandboxSet>, pod: Seen<'_>) -> Option<String> {
    let why = match (set, pod) {
        _ if phase_of(sandbox) == SandboxPhase::Paused => "it is paused",
        (None, _) => "its SandboxSet is gone",
        (Some(set), _) if is_of_other_revision(sandbox, set) => {
            "its SandboxSet has another revision"
        }
        _ if !sandbox.spec.volume_claim_templates.is_empty() => "it has volumes that stay",
        (_, Seen::Own(pod)) if !pod.is_terminating() && pod.status.phase == "Running" => {
            return None;
        }
        _ => "it has no running pod",
    };
    Some(why.to_owned())
}

fn is_of_other_revision(sandbox: &Sandbox, set: &SandboxSet) -> bool {
    sandbox.label(label::TEMPLATE_HASH) != Some(revision::of_set(&set.spec).as_str())
}

fn go_on(
    sandbox: &Sandbox,
    set: Option<&SandboxSet>,
    pod: Seen<'_>,
    now: Timestamp,
    timeout: Duration,
) -> Next {
    let known = sandbox.condition(condition::RECYCLING);
    let step = known.map(|known| known.reason.as_str()).unwrap_or_default();
    if [reason::RECYCLING_FAILED, reason::RECYCLING_TIMEOUT].contains(&step) {
        return Next::Rest;
    }
    if sandbox.is_pooled() {
        return Next::Succeed;
    }
    let failed = |why: &str| Next::Fail(reason::RECYCLING_FAILED, why.to_owned());
    let Some(set) = set.filter(|set| set.metadata.deletion_timestamp.is_none()) else {
        return failed("its SandboxSet is gone");
    };
    if step == reason::RECYCLING_COMPLETED {
        return Next::Return(returned(sandbox, set));
    }
    let since = known.map(|known| now.duration_since(known.last_transition_time.0));
    let most = SignedDuration::try_from(timeout).unwrap_or(SignedDuration::MAX);
    if since.is_none_or(|since| since > most) {
        let why = format!("no new pod was ready within {} s", timeout.as_secs());
        return Next::Fail(reason::RECYCLING_TIMEOUT, why);
    }
    match pod {
        Seen::Own(pod) if pod.is_terminating() => Next::Wait,
        Seen::Own(pod) if is_former(sandbox, pod) => Next::DeletePod,
        Seen::Own(pod) => match pod.start_error() {
            Some(error) => failed(&error),
            None if pod.is_ready() => Next::Complete,
            None => Next::Wait,
        },
        Seen::Foreign(owner) => failed(owner),
        Seen::Absent => match reset(sandbox, set) {
            Some(patch) => Next::Reset(patch),
            None => Next::CreatePod,
        },
    }
}

/// Whether a pod is that of the user: the status names it until the return has succeeded.
fn is_former(sandbox: &Sandbox, pod: &Pod) -> bool {
    let status = sandbox.status.as_ref();
    status.is_some_and(|status| Some(&status.pod_info.pod_uid) == pod.metadata.uid.as_ref())
}

/// The change that makes a sandbox as its pool makes them, if it is not. It stays claimed, so that nobody takes it.
fn reset(sandbox: &Sandbox, set: &SandboxSet) -> Option<Value> {
    let member = set.member(&revision::of_set(&set.spec));
    let mut reset = sandbox.clone();
    reset.spec = member.spec;
    let mut labels = member.metadata.labels.unwrap_or_default();
    labels.insert(label::SANDBOX_CLAIMED.to_owned(), "true".to_owned());
    reset.metadata.labels = Some(labels);
    let mut annotations = member.metadata.annotations.unwrap_or_default();
    for key in [annotation::CLEANUP_ENABLED, annotation::CLEANUP] {
        annotations.insert(key.to_owned(), "true".to_owned());
    }
    reset.metadata.annotations = Some(annotations);
    patch::between(&json!(sandbox), &json!(reset))
}

/// The change that gives a sandbox to its pool.
fn returned(sandbox: &Sandbox, set: &SandboxSet) -> Value {
    let member = set.member(&revision::of_set(&set.spec));
    let enabled = member.metadata.annotations.unwrap_or_default();
    let enabled = enabled.get(annotation::CLEANUP_ENABLED);
    json!({"metadata": {
        "resourceVersion": sandbox.metadata.resource_version,
        "ownerReferences": [controller_ref(set, true)],
        "labels": {label::SANDBOX_CLAIMED: "false"},
        "annotations": {annotation::CLEANUP: null, annotation::CLEANUP_ENABLED: enabled},
    }})
}

#[cfg(test)]
mod tests;
