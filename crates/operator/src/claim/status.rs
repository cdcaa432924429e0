//! The status of a claim.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use shoal_crds::convert::written_in_v1alpha1;
use shoal_crds::parts::{ClaimedSandbox, SandboxClaimStatus};
use shoal_crds::v1beta1::{Sandbox, SandboxClaim};

use super::refusal::Refusal;
use crate::conditions::{self, State, Truth};

/// The reason of an expired claim.
pub(super) const EXPIRED: &str = "ClaimExpired";

/// The status of a claim with a sandbox: the sandbox's conditions, with their times.
pub(super) fn served(
    claim: &SandboxClaim,
    sandbox: &Sandbox,
    now: Timestamp,
) -> SandboxClaimStatus {
    let mut status = claim.status.clone().unwrap_or_default();
    let of_sandbox = sandbox.status.clone().unwrap_or_default();
    let generation = claim.metadata.generation;
    let not_ready =
        |reason: &str, message: &str| State::new("Ready", Truth::False, reason, message);
    match conditions::find(&of_sandbox.conditions, "Ready") {
        Some(ready) if ready.reason == "SandboxExpired" => {
            let message = "Underlying Sandbox resource has expired independently of the Claim.";
            conditions::set(
                &mut status.conditions,
                &not_ready("SandboxExpired", message),
                generation,
                now,
            );
        }
        Some(ready) => {
            let mut ready = ready.clone();
            if !written_in_v1alpha1(&claim.metadata) {
                ready.observed_generation = generation;
            }
            put(&mut status.conditions, ready);
        }
        None => {
            let state = not_ready("SandboxNotReady", "Sandbox is not ready");
            conditions::set(&mut status.conditions, &state, generation, now);
        }
    }
    match conditions::find(&of_sandbox.conditions, "Finished") {
        Some(finished) => put(&mut status.conditions, finished.clone()),
        None => conditions::remove(&mut status.conditions, "Finished"),
    }
    status.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    status.sandbox = ClaimedSandbox {
        name: sandbox.metadata.name.clone().unwrap_or_default(),
        pod_ips: of_sandbox.pod_ips,
    };
    status
}

/// Takes a condition over as it is.
fn put(conditions: &mut Vec<Condition>, condition: Condition) {
    conditions::remove(conditions, &condition.type_);
    conditions.push(condition);
}

/// The status of a claim that cannot be served now. The fields about its sandbox stay.
pub(super) fn refused(
    claim: &SandboxClaim,
    refusal: &Refusal,
    now: Timestamp,
) -> SandboxClaimStatus {
    let state = State::new(
        "Ready",
        Truth::False,
        refusal.reason,
        refusal.message.clone(),
    );
    with_ready(claim, &state, now)
}

/// The status of an expired claim.
pub(super) fn expired(claim: &SandboxClaim, message: &str, now: Timestamp) -> SandboxClaimStatus {
    with_ready(
        claim,
        &State::new("Ready", Truth::False, EXPIRED, message),
        now,
    )
}

fn with_ready(claim: &SandboxClaim, state: &State, now: Timestamp) -> SandboxClaimStatus {
    let mut status = claim.status.clone().unwrap_or_default();
    conditions::set(
        &mut status.conditions,
        state,
        claim.metadata.generation,
        now,
    );
    status.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    status
}

/// Whether the claim says that it is expired.
pub(super) fn is_marked_expired(claim: &SandboxClaim) -> bool {
    let conditions = claim
        .status
        .as_ref()
        .map(|status| status.conditions.as_slice())
        .unwrap_or_default();
    conditions::find(conditions, "Ready").is_some_and(|ready| ready.reason == EXPIRED)
}

/// Whether a status says that the claim is ready.
pub(super) fn is_ready(status: &SandboxClaimStatus) -> bool {
    conditions::find(&status.conditions, "Ready").is_some_and(|ready| ready.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim() -> SandboxClaim {
        serde_json::from_value(json!({
            "metadata": {"name": "c", "namespace": "ns", "uid": "own", "generation": 7},
            "spec": {"warmPoolRef": {"name": "p"}},
        }))
        .unwrap()
    }

    fn sandbox(conditions: &serde_json::Value) -> Sandbox {
        serde_json::from_value(json!({
            "metadata": {"name": "p-1"},
            "spec": {"podTemplate": {"spec": {}}},
            "status": {"podIPs": ["10.0.0.1"], "conditions": conditions},
        }))
        .unwrap()
    }

    fn condition(kind: &str, status: &str, reason: &str) -> serde_json::Value {
        json!({"type": kind, "status": status, "reason": reason, "message": "m",
               "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1})
    }

    #[test]
    fn a_claim_shows_the_conditions_of_its_sandbox_with_their_times() {
        let sandbox = sandbox(&json!([
            condition("Suspended", "False", "NotSuspended"),
            condition("Ready", "True", "DependenciesReady"),
            condition("Finished", "True", "PodSucceeded"),
        ]));
        let status = served(&claim(), &sandbox, Timestamp::now());
        let kinds: Vec<&str> = status
            .conditions
            .iter()
            .map(|condition| condition.type_.as_str())
            .collect();
        assert_eq!(kinds, ["Finished", "Ready"]);
        assert_eq!(
            status.conditions[1].last_transition_time.0.to_string(),
            "2026-01-01T00:00:00Z"
        );
        assert_eq!(status.conditions[1].observed_generation, Some(7));
        assert_eq!(status.sandbox.name, "p-1");
        assert_eq!(status.sandbox.pod_ips, ["10.0.0.1"]);
        assert!(is_ready(&status));
    }

    #[test]
    fn a_sandbox_that_has_expired_by_itself_is_told_apart() {
        let sandbox = sandbox(&json!([condition("Ready", "False", "SandboxExpired")]));
        let status = served(&claim(), &sandbox, Timestamp::now());
        assert_eq!(status.conditions[0].reason, "SandboxExpired");
        assert!(
            status.conditions[0]
                .message
                .starts_with("Underlying Sandbox resource")
        );
    }

    #[test]
    fn a_refusal_keeps_what_is_known_of_the_sandbox() {
        let mut claim = claim();
        let ready = sandbox(&json!([condition("Ready", "True", "DependenciesReady")]));
        claim.status = Some(served(&claim, &ready, Timestamp::now()));
        let status = refused(&claim, &Refusal::error("no"), Timestamp::now());
        assert_eq!(status.conditions[0].message, "Error seen: no");
        assert_eq!(status.sandbox.name, "p-1");
    }
}
