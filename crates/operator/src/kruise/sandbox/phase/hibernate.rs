//! Pauses that save the pod: a checkpoint keeps its memory and files, or its files alone.
//!
//! The checkpoint is complete before the pod ends. One that fails leaves the pod running, and is tried again.

use shoal_crds::kruise::names::{annotation, condition, reason};
use shoal_crds::kruise::{Checkpoint, CheckpointPhase, SandboxPhase};

use super::{Action, Seen, Step};
use crate::conditions::Truth;
use crate::kruise::Pod;
use crate::saves;

const NOTHING: &[&str] = &[];

/// The reason of the event about a pause that failed.
const FAILED: &str = "SandboxPauseFailed";

/// Only the operator's own pods are saved.
const KEPT: &str = "the pod of a ReplicaSet is not saved by a pause; it keeps running. Use the pause strategy Stop";

impl<'a> Step<'a> {
    fn own_pod(&self) -> Option<&'a Pod> {
        match self.input.pod {
            Seen::Own(pod) if !pod.is_terminating() => Some(pod),
            _ => None,
        }
    }
}

impl Step<'_> {
    /// The contents that the pause saves, if any.
    pub(super) fn saved_by_pause(&self) -> Option<&'static [&'static str]> {
        let savable = self.input.blueprint.is_savable() && !self.input.sandbox.is_kept();
        let saved = self.input.sandbox.saved_by_pause(savable);
        // A started pause is completed, even if the spec changes.
        saved.or_else(|| self.input.saved.map(|_| NOTHING))
    }

    /// Adds the node of the checkpoint to the condition while the pod does not start. The object store is independent of that node.
    pub(super) fn tell_of_node(&mut self) {
        let saved = self.input.saved;
        let saved = saved.filter(|saved| saved.annotation(annotation::CHECKPOINT_STORED).is_none());
        let node = saved.and_then(Checkpoint::node);
        if let Some(node) = node.filter(|_| !self.next.status.message.is_empty()) {
            let served = saved.and_then(|saved| saved.annotation(annotation::CHECKPOINT_SERVED));
            let must = match served {
                Some(_) => "be ready",
                None => "be ready and have room for the pod",
            };
            let message = format!(
                "what was saved is on node {node}, which must {must}: {}",
                self.next.status.message
            );
            let kind = condition::SANDBOX_RESUMED;
            self.set(kind, Truth::False, reason::CREATE_POD, &message);
            self.next.status.message = message;
        }
    }

    /// One step of a pause that saves these contents.
    pub(super) fn hibernate(&mut self, contents: &'static [&'static str]) {
        let resume = !self.input.sandbox.spec.paused;
        if self.input.sandbox.is_kept() {
            return self.refuse_kept(resume);
        }
        match self.input.saved {
            None => self.begin_save(contents, resume),
            Some(saved) => match saves::phase(saved) {
                CheckpointPhase::Failed => self.save_failed(saved, resume),
                CheckpointPhase::Succeeded => self.end_paused_pod(saved, resume),
                _ => self.await_save(saved, resume),
            },
        }
    }

    fn begin_save(&mut self, contents: &'static [&'static str], resume: bool) {
        let Some(pod) = self.own_pod() else {
            return self.lost_before_save();
        };
        if resume {
            return self.run_on();
        }
        if matches!(pod.status.phase.as_str(), "Succeeded" | "Failed") {
            return self.finish(pod);
        }
        if !pod.is_ready() {
            let waits = "the pod is saved when it is ready";
            return self.not_paused(reason::PENDING, waits);
        }
        self.not_paused(reason::CHECKPOINT_CREATING, "the pod is being saved");
        self.next.action = Action::Save(contents);
    }

    /// The pod runs until its checkpoint is complete.
    fn await_save(&mut self, saved: &Checkpoint, resume: bool) {
        self.not_paused(reason::CHECKPOINT_CREATING, &saves::progress(saved));
        let deleted = saved.metadata.deletion_timestamp.is_some();
        let ending = saved.annotation(annotation::CHECKPOINT_ENDING);
        if ending.is_some() && self.own_pod().is_some() {
            // The agent ends the pod once the kubelet starts none of its containers again.
            self.next.action = Action::DeletePod;
        } else if resume && saves::phase(saved) == CheckpointPhase::Pending && !deleted {
            self.next.action = Action::ForgetSave;
        }
    }

    /// The checkpoint is complete: the pod goes, if it has not ended.
    fn end_paused_pod(&mut self, saved: &Checkpoint, resume: bool) {
        match self.input.pod {
            Seen::Own(pod) if pod.is_terminating() => {}
            Seen::Own(_) | Seen::Coming(_) => {
                self.not_paused(reason::CHECKPOINT_SUCCEEDED, "the pod is being deleted");
                self.next.action = Action::DeletePod;
            }
            Seen::Absent | Seen::Foreign(_) => {
                self.forget_pod();
                self.next.status.message.clear();
                let message = format!("saved by checkpoint {}", saves::name(Some(saved)));
                self.set(
                    condition::SANDBOX_PAUSED,
                    Truth::True,
                    reason::SNAPSHOT_PAUSE_SUCCEED,
                    &message,
                );
                self.next.again = resume;
            }
        }
    }

    /// The pod runs on. After a while it is saved again.
    fn save_failed(&mut self, saved: &Checkpoint, resume: bool) {
        if self.own_pod().is_none() {
            return self.lost_before_save();
        }
        if resume {
            self.next.action = Action::ForgetSave;
            return self.run_on();
        }
        let status = saved.status.clone().unwrap_or_default();
        let message = format!("{}; the pod keeps running", status.message);
        if self.input.sandbox.pause_failure() != Some(message.as_str()) {
            self.next.event = Some((true, FAILED, message.clone()));
        }
        self.not_paused(reason::CHECKPOINT_FAILED, &message);
        match saves::left_to_retry(saved, self.input.now) {
            Some(left) => self.next.wait = Some(left),
            None => self.next.action = Action::ForgetSave,
        }
    }

    /// The pause is cancelled: nothing has happened to the pod.
    fn run_on(&mut self) {
        self.remove(condition::SANDBOX_PAUSED);
        self.enter(SandboxPhase::Running);
    }

    fn lost_before_save(&mut self) {
        let message = "its pod ended before it was saved";
        self.set(condition::READY, Truth::False, reason::POD_READY, message);
        self.enter(SandboxPhase::Failed);
        self.next.status.message = message.to_owned();
        self.next.again = false;
    }

    fn refuse_kept(&mut self, resume: bool) {
        if resume {
            return self.run_on();
        }
        self.not_paused(reason::CHECKPOINT_FAILED, KEPT);
    }

    fn not_paused(&mut self, reason: &str, message: &str) {
        self.next.status.message = message.to_owned();
        self.set(condition::SANDBOX_PAUSED, Truth::False, reason, message);
    }
}

#[cfg(test)]
mod tests;
