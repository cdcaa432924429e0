//! Sandboxes whose pod a ReplicaSet makes: a lost pod is followed by another.

use shoal_crds::kruise::names::{condition, reason};
use shoal_crds::kruise::{PodInfo, SandboxPhase};

use super::{Action, Seen, Step};
use crate::conditions::Truth;

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
            // Somebody else has deleted the ReplicaSet, or has written its size.
            Seen::Absent => self.next.action = Action::CreatePod,
            Seen::Foreign(owner) => self.refuse(owner),
            Seen::Coming(why) => return self.wait_for_pod(why),
            Seen::Own(_) => {}
        }
        let message = "its pod is being replaced";
        self.set(condition::READY, Truth::False, reason::POD_READY, message);
    }

    /// What the status says of a pod that is no more.
    pub(super) fn forget_pod(&mut self) {
        self.remove(condition::STARTED);
        let status = &mut self.next.status;
        status.pod_info = PodInfo::default();
        status.node_name.clear();
        status.sandbox_ip.clear();
    }

    pub(super) fn pause(&mut self) {
        self.remove(condition::SANDBOX_RESUMED);
        self.set(condition::SANDBOX_PAUSED, Truth::False, reason::PENDING, "");
        let message = "the sandbox is paused";
        self.set(condition::READY, Truth::False, reason::POD_READY, message);
        self.enter(SandboxPhase::Paused);
    }
}
