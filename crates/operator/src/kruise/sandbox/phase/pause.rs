//! A pause by the stop strategy, which ends the pod, and the resume after it.

use shoal_crds::kruise::SandboxPhase;
use shoal_crds::kruise::names::{condition, reason};

use super::{Action, Seen, Step};
use crate::conditions::Truth;

impl Step<'_> {
    pub(super) fn paused(&mut self) {
        let resume = !self.input.sandbox.spec.paused;
        if self.input.sandbox.holds(condition::SANDBOX_PAUSED) {
            if resume {
                self.resume();
            } else if self.is_resumed_to_upgrade() {
                self.resume_to_upgrade();
            }
            return;
        }
        if let Some(contents) = self.saved_by_pause() {
            return self.hibernate(contents);
        }
        match self.input.pod {
            Seen::Own(pod) if pod.is_terminating() => {}
            Seen::Own(_) | Seen::Coming(_) => self.next.action = Action::DeletePod,
            Seen::Absent | Seen::Foreign(_) => {
                self.forget_pod();
                self.set(
                    condition::SANDBOX_PAUSED,
                    Truth::True,
                    reason::STOP_PAUSE_SUCCEED,
                    "",
                );
                self.next.again = resume;
            }
        }
    }

    pub(super) fn resume(&mut self) {
        self.set(
            condition::SANDBOX_RESUMED,
            Truth::False,
            reason::CREATE_POD,
            "",
        );
        self.enter(SandboxPhase::Resuming);
    }

    pub(super) fn resuming(&mut self) {
        match self.input.pod {
            Seen::Absent => self.next.action = Action::CreatePod,
            Seen::Foreign(owner) => self.refuse(owner),
            Seen::Coming(why) => self.wait_for_pod(why),
            Seen::Own(pod) => self.start(pod, SandboxPhase::Resuming),
        }
    }
}
