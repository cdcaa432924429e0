//! Upgrades that keep files: the pod is saved, and the new one starts with its files.

use shoal_crds::kruise::names::{annotation, reason};
use shoal_crds::kruise::{Checkpoint, CheckpointPhase};

use super::super::{Action, Seen, Step};
use crate::kruise::Pod;
use crate::kruise::sandbox::inplace;
use crate::saves;

/// The contents that an upgrade keeps. Memory belongs to the former template.
const FILES: &[&str] = &["filesystem"];

/// Only the operator's own pods are saved.
const KEPT: &str = "the pod of a ReplicaSet is not saved; it keeps running: use Recreate";

const UNSAVABLE: &str = "CheckpointRestore needs a template with runtimeClassName: shoal; the pod keeps running: use Recreate";

const IMAGES: &str = "CheckpointRestore cannot change images, because the files belong to the former one; the pod keeps running: \
                      use Recreate";

impl Step<'_> {
    /// Why the files of a pod cannot be kept by its successor.
    pub(super) fn refuse_to_keep_files(&self, pod: &Pod) -> Option<&'static str> {
        let blueprint = self.input.blueprint;
        if self.input.sandbox.is_kept() {
            Some(KEPT)
        } else if !blueprint.is_savable() {
            Some(UNSAVABLE)
        } else if inplace::images(&blueprint.template.spec, pod).is_empty() {
            None
        } else {
            Some(IMAGES)
        }
    }

    /// Saves the pod. It ends when its checkpoint is complete.
    pub(super) fn save_files(&mut self) {
        match self.input.saved {
            None => self.begin_to_save_files(),
            Some(saved) => match saves::phase(saved) {
                CheckpointPhase::Succeeded => self.again(reason::UPGRADE_POD),
                CheckpointPhase::Failed => {
                    let status = saved.status.clone().unwrap_or_default();
                    let message = format!("{}; the pod keeps running", status.message);
                    self.wait(reason::CHECKPOINT_FAILED, &message);
                }
                _ => self.wait_for_files(saved),
            },
        }
    }

    fn begin_to_save_files(&mut self) {
        let Some(pod) = self.usable_pod() else {
            let message = "the pod ended before it was saved: change the specification to continue without its files";
            return self.wait(reason::CHECKPOINT_FAILED, message);
        };
        if !pod.is_ready() {
            let message = "the pod is saved when it is ready";
            return self.wait(reason::CHECKPOINTING, message);
        }
        self.wait(reason::CHECKPOINTING, "the pod is being saved");
        self.next.action = Action::Save(FILES);
    }

    fn wait_for_files(&mut self, saved: &Checkpoint) {
        self.wait(reason::CHECKPOINTING, &saves::progress(saved));
        let ending = saved.annotation(annotation::CHECKPOINT_ENDING).is_some();
        let own = matches!(self.input.pod, Seen::Own(pod) if !pod.is_terminating());
        if ending && own {
            // The agent ends the pod once the kubelet starts none of its containers again.
            self.next.action = Action::DeletePod;
        }
    }

    /// A step that failed begins again, with another checkpoint.
    pub(super) fn save_files_again(&mut self) {
        self.again(reason::PRE_UPGRADE);
        if self.input.saved.is_some() {
            self.next.action = Action::ForgetSave;
        }
    }
}
