//! Sandboxes whose pod a ReplicaSet makes: a lost pod is followed by another.

use shoal_crds::kruise::names::{condition, reason};
use shoal_crds::kruise::{PodInfo, SandboxPhase};

use super::{Action, Seen, Step};
use crate::conditions::Truth;
use crate::kruise::Pod;

impl Step<'_> {
    /// The ReplicaSet has not made the pod yet.
    pub(super) fn wait_for_pod(&mut self, why: &str) {
        let message = if why.is_empty() {
            "its ReplicaSet makes the pod".to_owned()
        } else {
            format!("its ReplicaSet cannot make the pod: {why}")
        };
        self.set(condition::READY, Truth::False, reason::POD_READY, &message);
        self.next.status.message = message;
    }

    /// The pod of a sandbox that runs is gone, or ends.
    pub(super) fn lose_pod(&mut self) {
        self.forget_pod();
        if self.input.sandbox.spec.paused {
            return self.pause();
        }
        match self.input.pod {
            // Another client has deleted the ReplicaSet, or has written its size.
            Seen::Absent => self.next.action = Action::CreatePod,
            Seen::Foreign(owner) => self.refuse(owner),
            Seen::Coming(why) => return self.wait_for_pod(why),
            Seen::Own(_) => {}
        }
        let message = "its pod is being replaced";
        self.set(condition::READY, Truth::False, reason::POD_READY, message);
    }

    /// The status of a deleted pod.
    pub(super) fn forget_pod(&mut self) {
        self.remove(condition::STARTED);
        let status = &mut self.next.status;
        status.pod_info = PodInfo::default();
        status.node_name.clear();
        status.sandbox_ip.clear();
    }

    /// Forgets the pod of the status when this is another: the time between the two may not have been seen.
    pub(super) fn forget_other_than(&mut self, pod: &Pod) {
        let known = &self.next.status.pod_info.pod_uid;
        if !known.is_empty() && pod.metadata.uid.as_ref() != Some(known) {
            self.forget_pod();
        }
    }

    pub(super) fn pause(&mut self) {
        self.remove(condition::SANDBOX_RESUMED);
        self.set(condition::SANDBOX_PAUSED, Truth::False, reason::PENDING, "");
        let message = "the sandbox is paused";
        self.set(condition::READY, Truth::False, reason::POD_READY, message);
        self.enter(SandboxPhase::Paused);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shoal_crds::kruise::Sandbox;

    use super::super::{Action, Input, Next, Seen, next};
    use crate::conditions;
    use crate::kruise::Pod;
    use crate::kruise::sandbox::pod::Blueprint;

    fn condition(kind: &str, status: &str) -> Value {
        json!({
            "type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z",
        })
    }

    fn sandbox(paused: bool, phase: &str, conditions: &Value) -> Sandbox {
        serde_json::from_value(json!({
            "metadata": {
                "name": "s", "namespace": "ns", "uid": "u",
                "annotations": {"agents.kruise.io/kept-by": "ReplicaSet"},
            },
            "spec": {"paused": paused, "template": {"spec": {"containers": [{"name": "sandbox"}]}}},
            "status": {
                "phase": phase, "sandboxIp": "10.0.0.1", "podInfo": {"podUID": "p"}, "conditions": conditions,
            },
        }))
        .unwrap()
    }

    fn step(sandbox: &Sandbox, pod: Seen<'_>) -> Next {
        next(&Input {
            sandbox,
            blueprint: &Blueprint::inline(sandbox).unwrap(),
            pod,
            saved: None,
            resizes: true,
            now: "2026-01-02T03:04:05Z".parse().unwrap(),
        })
    }

    fn phase(next: &Next) -> &str {
        next.status.phase.unwrap().as_str()
    }

    fn truth<'a>(next: &'a Next, kind: &str) -> Option<&'a str> {
        let found = conditions::find(&next.status.conditions, kind);
        found.map(|found| found.status.as_str())
    }

    #[test]
    fn a_lost_pod_is_waited_for_and_its_command_runs_again() {
        let known = json!([
            condition("Ready", "True"),
            condition("StartupCommand", "True")
        ]);
        let runs = sandbox(false, "Running", &known);
        let lost = step(&runs, Seen::Coming("FailedCreate"));
        assert_eq!(
            (phase(&lost), truth(&lost, "Ready")),
            ("Running", Some("False"))
        );
        assert!(lost.status.message.contains("FailedCreate"));
        assert_eq!(truth(&lost, "StartupCommand"), None);
        assert_eq!(
            lost.status.sandbox_ip, "",
            "nobody is led to the former address"
        );
        assert_eq!(lost.action, Action::Nothing);
        let nobody = step(&runs, Seen::Absent);
        assert_eq!(
            (phase(&nobody), &nobody.action),
            ("Running", &Action::CreatePod)
        );
    }

    #[test]
    fn the_command_runs_in_the_next_pod_though_the_loss_was_not_seen() {
        let known = json!([
            condition("Ready", "True"),
            condition("StartupCommand", "True")
        ]);
        let runs = sandbox(false, "Running", &known);
        for (uid, told) in [("p", Some("True")), ("q", None)] {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"uid": uid}, "spec": {"containers": [{"name": "sandbox"}]}, "status": {},
            }))
            .unwrap();
            let seen = step(&runs, Seen::Own(&pod));
            assert_eq!(truth(&seen, "StartupCommand"), told, "{uid}");
            assert_eq!(seen.status.pod_info.pod_uid, uid);
        }
    }

    #[test]
    fn a_pause_ends_though_the_pod_is_lost() {
        let known = json!([condition("Ready", "False")]);
        let begins = step(&sandbox(true, "Running", &known), Seen::Coming(""));
        assert_eq!((phase(&begins), begins.again), ("Paused", true));
        let pausing = json!([condition("SandboxPaused", "False")]);
        let pausing = sandbox(true, "Paused", &pausing);
        let makes = step(&pausing, Seen::Coming(""));
        assert_eq!(
            makes.action,
            Action::DeletePod,
            "the ReplicaSet would make another"
        );
        assert_eq!(truth(&makes, "SandboxPaused"), Some("False"));
        let none = step(&pausing, Seen::Absent);
        assert_eq!(truth(&none, "SandboxPaused"), Some("True"));
    }

    #[test]
    fn a_resume_makes_one_pod() {
        let resuming = sandbox(
            false,
            "Resuming",
            &json!([condition("SandboxPaused", "True")]),
        );
        assert_eq!(step(&resuming, Seen::Absent).action, Action::CreatePod);
        let waits = step(&resuming, Seen::Coming(""));
        assert_eq!(
            (phase(&waits), &waits.action),
            ("Resuming", &Action::Nothing)
        );
    }
}
