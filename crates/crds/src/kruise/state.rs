//! The state that is derived from a sandbox. Claims, lists, routes and pools all use this one rule.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference};

use super::names::{GROUP, condition, reason};
use super::sandbox::{Sandbox, SandboxPhase};

/// The state of a sandbox, for its users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SandboxState {
    /// It is not ready for the first time yet.
    Creating,
    /// It waits in a pool.
    Available,
    /// It is claimed and ready.
    Running,
    /// It is paused, or between two states.
    Paused,
    /// It is gone, or will never be ready again.
    Dead,
}

impl SandboxState {
    /// The state, and why the sandbox has it. The order of the rules matters: an expired sandbox is dead
    /// before the controller deletes it.
    #[must_use]
    pub fn of(sandbox: &Sandbox, now: Timestamp) -> (Self, &'static str) {
        if sandbox.metadata.deletion_timestamp.is_some() {
            return (Self::Dead, "ResourceDeleted");
        }
        if is_expired(sandbox, now) {
            return (Self::Dead, "ShutdownTimeReached");
        }
        let phase = phase(sandbox);
        match phase {
            SandboxPhase::Pending => return (Self::Creating, "ResourcePending"),
            SandboxPhase::Succeeded => return (Self::Dead, "ResourceSucceeded"),
            SandboxPhase::Failed => return (Self::Dead, "ResourceFailed"),
            SandboxPhase::Terminating => return (Self::Dead, "ResourceTerminating"),
            _ => {}
        }
        if sandbox.is_pooled() {
            return if sandbox.is_ready() {
                (Self::Available, "ResourceControlledBySbsAndReady")
            } else {
                (Self::Creating, "ResourceControlledBySbsButNotReady")
            };
        }
        if phase != SandboxPhase::Running {
            return (Self::Paused, "NotRunningResourceClaimed");
        }
        if sandbox.spec.paused {
            return (Self::Paused, "RunningResourceClaimedAndPaused");
        }
        if sandbox.is_ready() {
            return (Self::Running, "RunningResourceClaimedAndReady");
        }
        (Self::Dead, "RunningResourceClaimedButNotReady")
    }

    /// The name, as clients see it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Available => "available",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Dead => "dead",
        }
    }
}

impl Sandbox {
    /// A condition.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        let status = self.status.as_ref()?;
        status.conditions.iter().find(|known| known.type_ == kind)
    }

    /// Whether a condition is `True`.
    #[must_use]
    pub fn holds(&self, kind: &str) -> bool {
        self.condition(kind)
            .is_some_and(|known| known.status == "True")
    }

    /// Whether it is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.holds(condition::READY)
    }

    /// Why its pause failed, if the last one did. Its pod runs on.
    #[must_use]
    pub fn pause_failure(&self) -> Option<&str> {
        let paused = self.condition(condition::SANDBOX_PAUSED)?;
        let failed = paused.status != "True" && paused.reason == reason::CHECKPOINT_FAILED;
        failed.then_some(paused.message.as_str())
    }

    /// The SandboxSet that controls it. A claim removes this reference.
    #[must_use]
    pub fn pool(&self) -> Option<&OwnerReference> {
        let owners = self.metadata.owner_references.iter().flatten();
        owners
            .filter(|owner| owner.controller == Some(true) && owner.kind == "SandboxSet")
            .find(|owner| {
                owner
                    .api_version
                    .split_once('/')
                    .is_some_and(|(group, _)| group == GROUP)
            })
    }

    /// Whether a SandboxSet controls it.
    #[must_use]
    pub fn is_pooled(&self) -> bool {
        self.pool().is_some()
    }
}

fn phase(sandbox: &Sandbox) -> SandboxPhase {
    let status = sandbox.status.as_ref();
    status.and_then(|status| status.phase).unwrap_or_default()
}

fn is_expired(sandbox: &Sandbox, now: Timestamp) -> bool {
    let shutdown = sandbox.spec.shutdown_time.as_ref();
    shutdown.is_some_and(|time| time.0 <= now)
}

/// Why a sandbox cannot be paused. The text is what clients compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPausable {
    /// It runs, but is not ready.
    #[error("SandboxIsRunningButNotReady")]
    NotReady,
    /// It is in another phase.
    #[error("SandboxPhaseNotAllowed")]
    Phase,
}

/// Whether a sandbox can be paused. One that is paused can: nothing happens then.
///
/// # Errors
/// The reason why it cannot.
pub fn pausable(sandbox: &Sandbox) -> Result<(), NotPausable> {
    match phase(sandbox) {
        SandboxPhase::Paused => Ok(()),
        // A ReplicaSet that is about to replace a lost pod makes none then.
        SandboxPhase::Running if sandbox.is_ready() || sandbox.is_kept() => Ok(()),
        SandboxPhase::Running => Err(NotPausable::NotReady),
        _ => Err(NotPausable::Phase),
    }
}

/// Why a sandbox cannot be resumed. The text is what clients compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotResumable {
    /// It is being deleted.
    #[error("SandboxIsTerminating")]
    Terminating,
    /// It has expired.
    #[error("ShutdownTimeReached")]
    Expired,
    /// It is still being paused.
    #[error("SandboxIsPausing")]
    Pausing,
    /// It is in another phase.
    #[error("SandboxPhaseNotAllowed")]
    Phase,
}

/// Whether a sandbox can be resumed. One that runs can: nothing happens then.
///
/// # Errors
/// The reason why it cannot.
pub fn resumable(sandbox: &Sandbox, now: Timestamp) -> Result<(), NotResumable> {
    if sandbox.metadata.deletion_timestamp.is_some() {
        return Err(NotResumable::Terminating);
    }
    if is_expired(sandbox, now) {
        return Err(NotResumable::Expired);
    }
    match phase(sandbox) {
        SandboxPhase::Resuming => Ok(()),
        SandboxPhase::Running if sandbox.spec.paused => Err(NotResumable::Pausing),
        SandboxPhase::Running => Ok(()),
        SandboxPhase::Paused if sandbox.holds(condition::SANDBOX_PAUSED) => Ok(()),
        // Its pod runs on.
        SandboxPhase::Paused if sandbox.pause_failure().is_some() => Ok(()),
        SandboxPhase::Paused => Err(NotResumable::Pausing),
        _ => Err(NotResumable::Phase),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn sandbox(change: &Value) -> Sandbox {
        let mut object = json!({"metadata": {"name": "s", "namespace": "ns"}, "spec": {}});
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

    fn state(change: &Value) -> (SandboxState, &'static str) {
        SandboxState::of(&sandbox(change), NOW.parse().unwrap())
    }

    fn in_phase(phase: &str, ready: &str) -> Value {
        json!({"status": {"phase": phase, "conditions": [condition("Ready", ready)]}})
    }

    fn with(mut object: Value, change: &Value) -> Value {
        merge(&mut object, change);
        object
    }

    fn pooled() -> Value {
        json!({"metadata": {"ownerReferences": [{
            "apiVersion": "agents.kruise.io/v1alpha1", "kind": "SandboxSet", "name": "p", "uid": "u", "controller": true,
        }]}})
    }

    #[test]
    fn deletion_comes_before_everything() {
        let deleted = json!({
            "metadata": {"deletionTimestamp": NOW},
            "spec": {"shutdownTime": NOW},
            "status": {"phase": "Pending"},
        });
        assert_eq!(state(&deleted), (SandboxState::Dead, "ResourceDeleted"));
    }

    #[test]
    fn an_expired_sandbox_is_dead_at_its_time() {
        let expired = with(
            in_phase("Running", "True"),
            &json!({"spec": {"shutdownTime": NOW}}),
        );
        assert_eq!(state(&expired), (SandboxState::Dead, "ShutdownTimeReached"));
        let later = json!({"spec": {"shutdownTime": "2026-01-02T03:04:06Z"}});
        let later = with(in_phase("Running", "True"), &later);
        assert_eq!(state(&later).0, SandboxState::Running);
    }

    #[test]
    fn a_sandbox_without_a_phase_is_being_created() {
        for object in [
            json!({}),
            json!({"status": {}}),
            in_phase("Pending", "True"),
        ] {
            assert_eq!(state(&object), (SandboxState::Creating, "ResourcePending"));
        }
    }

    #[test]
    fn finished_sandboxes_are_dead_in_a_pool_too() {
        for (phase, reason) in [
            ("Succeeded", "ResourceSucceeded"),
            ("Failed", "ResourceFailed"),
            ("Terminating", "ResourceTerminating"),
        ] {
            let object = with(in_phase(phase, "True"), &pooled());
            assert_eq!(state(&object), (SandboxState::Dead, reason));
        }
    }

    #[test]
    fn members_of_a_pool_are_available_when_ready() {
        let ready = with(in_phase("Running", "True"), &pooled());
        assert_eq!(state(&ready).0, SandboxState::Available);
        let unready = with(in_phase("Running", "False"), &pooled());
        assert_eq!(state(&unready).0, SandboxState::Creating);
        let paused = with(ready, &json!({"spec": {"paused": true}}));
        assert_eq!(state(&paused).0, SandboxState::Available);
    }

    #[test]
    fn a_reference_that_is_no_controller_makes_no_member() {
        let mut object = with(in_phase("Running", "True"), &pooled());
        object["metadata"]["ownerReferences"][0]["controller"] = false.into();
        assert_eq!(state(&object).0, SandboxState::Running);
        let mut object = with(in_phase("Running", "True"), &pooled());
        object["metadata"]["ownerReferences"][0]["apiVersion"] = "other.io/v1alpha1".into();
        assert_eq!(state(&object).0, SandboxState::Running);
    }

    #[test]
    fn claimed_sandboxes_run_when_ready_and_not_paused() {
        assert_eq!(state(&in_phase("Running", "True")).0, SandboxState::Running);
        let paused = with(
            in_phase("Running", "True"),
            &json!({"spec": {"paused": true}}),
        );
        assert_eq!(state(&paused).0, SandboxState::Paused);
        assert_eq!(
            state(&in_phase("Running", "False")),
            (SandboxState::Dead, "RunningResourceClaimedButNotReady")
        );
        assert_eq!(
            state(&json!({"status": {"phase": "Running"}})).0,
            SandboxState::Dead
        );
    }

    #[test]
    fn other_phases_count_as_paused() {
        for phase in ["Paused", "Resuming", "Upgrading", "Recycling"] {
            assert_eq!(
                state(&in_phase(phase, "True")),
                (SandboxState::Paused, "NotRunningResourceClaimed")
            );
        }
    }

    #[test]
    fn ready_and_paused_sandboxes_are_pausable() {
        let pausable = |object: &Value| pausable(&sandbox(object));
        assert_eq!(pausable(&in_phase("Running", "True")), Ok(()));
        assert_eq!(pausable(&in_phase("Paused", "False")), Ok(()));
        assert_eq!(
            pausable(&in_phase("Running", "False")),
            Err(NotPausable::NotReady)
        );
        for phase in ["Pending", "Resuming", "Upgrading", "Failed"] {
            assert_eq!(
                pausable(&in_phase(phase, "True")),
                Err(NotPausable::Phase),
                "{phase}"
            );
        }
    }

    #[test]
    fn paused_sandboxes_are_resumable_when_their_pod_is_gone() {
        let resumable = |object: &Value| resumable(&sandbox(object), NOW.parse().unwrap());
        let paused = |status: &str| json!({"status": {"phase": "Paused", "conditions": [condition("SandboxPaused", status)]}});
        assert_eq!(resumable(&paused("True")), Ok(()));
        assert_eq!(resumable(&paused("False")), Err(NotResumable::Pausing));
        assert_eq!(resumable(&in_phase("Running", "False")), Ok(()));
        assert_eq!(resumable(&in_phase("Resuming", "False")), Ok(()));
        let pausing = with(
            in_phase("Running", "True"),
            &json!({"spec": {"paused": true}}),
        );
        assert_eq!(resumable(&pausing), Err(NotResumable::Pausing));
        assert_eq!(
            resumable(&in_phase("Failed", "True")),
            Err(NotResumable::Phase)
        );
        // A pod that could not be saved runs on.
        let mut failed = paused("False");
        failed["status"]["conditions"][0]["reason"] = reason::CHECKPOINT_FAILED.into();
        failed["status"]["conditions"][0]["message"] = "no room".into();
        assert_eq!(resumable(&failed), Ok(()));
        assert_eq!(sandbox(&failed).pause_failure(), Some("no room"));
        let expired = with(paused("True"), &json!({"spec": {"shutdownTime": NOW}}));
        assert_eq!(resumable(&expired), Err(NotResumable::Expired));
        let deleted = with(
            paused("True"),
            &json!({"metadata": {"deletionTimestamp": NOW}}),
        );
        assert_eq!(resumable(&deleted), Err(NotResumable::Terminating));
    }
}
