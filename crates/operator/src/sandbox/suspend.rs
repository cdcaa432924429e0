//! Suspending with memory: a checkpoint keeps the pod before it ends, and the next pod starts from it.
//!
//! The sandbox's annotation `shoal.dev/saved-by` names the complete checkpoint from the moment that the saved pod may end
//! until the next pod is ready: without it, the sandbox would start without its memory.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use shoal_crds::kruise::names::{annotation, reason};
use shoal_crds::kruise::{Checkpoint, CheckpointPhase, pause_contents};

use super::model::{Saving, Wanted};
use crate::restore::{self, Origin};
use crate::saves;
use crate::slim::Pod;

/// The next step for the memory of a sandbox.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// The pod is created, kept or deleted as any other. A new one starts from here.
    Plain(Option<Origin>),
    /// The pod is saved.
    Save(&'static [&'static str]),
    /// Checkpoints that are not used any more are deleted.
    Forget,
    /// The sandbox remembers its complete checkpoint.
    Remember(String),
    /// The pod ends, whether the sandbox is suspended or not: it is saved.
    End,
    /// Nothing, until the checkpoint or the pod changes.
    Wait(Saving),
    /// It cannot be done.
    Refuse(String),
}

/// The checkpoint that the sandbox remembers.
pub(super) fn saved_by<'a>(wanted: &Wanted<'a>) -> Option<&'a str> {
    own_annotation(wanted, annotation::SAVED_BY)
}

fn own_annotation<'a>(wanted: &Wanted<'a>, key: &str) -> Option<&'a str> {
    let annotations = wanted.sandbox.metadata.annotations.as_ref()?;
    annotations.get(key).map(String::as_str)
}

/// The requested contents, of the sandbox or of its pod template.
fn requested<'a>(wanted: &Wanted<'a>) -> Option<&'a str> {
    let template = &wanted.sandbox.spec.pod_template.metadata.annotations;
    let of_template = template.get(annotation::PAUSE_CONTENTS);
    own_annotation(wanted, annotation::PAUSE_CONTENTS).or(of_template.map(String::as_str))
}

/// Whether checkpoints concern the sandbox.
pub(super) fn is_concerned(wanted: &Wanted<'_>) -> bool {
    saved_by(wanted).is_some() || requested(wanted).is_some()
}

/// The next step. `pod` is the sandbox's, and `own` are the checkpoints that it controls.
pub(super) fn next(
    wanted: &Wanted<'_>,
    pod: Option<&Pod>,
    own: &[Arc<Checkpoint>],
    now: Timestamp,
) -> Step {
    let known = saved_by(wanted);
    if let Some(complete) =
        saves::complete(own).filter(|saved| saved.metadata.name.as_deref() != known)
    {
        return Step::Remember(saves::name(Some(&complete)));
    }
    let unfinished = own
        .iter()
        .filter(|saved| saves::paused_pod(saved).is_some())
        .find(|saved| !saves::phase(saved).is_finished());
    if let Some(saved) = unfinished {
        return proceed(wanted, pod, saved);
    }
    if let Some(name) = known {
        return with_saved(wanted, name, pod, own);
    }
    match pod {
        Some(pod) if wanted.is_suspended() => suspend(wanted, pod, own, now),
        Some(pod) if failed(pod, own).is_some() => Step::Forget,
        _ => Step::Plain(None),
    }
}

/// A checkpoint is being made.
fn proceed(wanted: &Wanted<'_>, pod: Option<&Pod>, saved: &Checkpoint) -> Step {
    let deleted = saved.metadata.deletion_timestamp.is_some();
    let pending = saves::phase(saved) == CheckpointPhase::Pending;
    let ending = saved.annotation(annotation::CHECKPOINT_ENDING).is_some();
    if ending && pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()) {
        // The agent ends the pod once the kubelet starts none of its containers again.
        return Step::End;
    }
    if !wanted.is_suspended() && pending && !deleted {
        return Step::Forget;
    }
    Step::Wait(Saving {
        reason: reason::CHECKPOINT_CREATING,
        message: saves::progress(saved),
        wait: None,
    })
}

/// The sandbox remembers a complete checkpoint.
fn with_saved(wanted: &Wanted<'_>, name: &str, pod: Option<&Pod>, own: &[Arc<Checkpoint>]) -> Step {
    let saved = own
        .iter()
        .find(|saved| saved.metadata.name.as_deref() == Some(name));
    if let Some(pod) = pod {
        let of_pod = saved.and_then(|saved| saves::paused_pod(saved));
        if of_pod.is_some() && of_pod == pod.metadata.uid.as_deref() {
            return Step::End;
        }
        // All of its containers are restored. One that is not ready yet ends: its checkpoint is still there.
        return if is_running(pod) && pod.is_ready() {
            Step::Forget
        } else {
            Step::Plain(None)
        };
    }
    if wanted.is_suspended() {
        return Step::Plain(None);
    }
    match restore::origin(name, saved.map(|saved| &**saved)) {
        Ok(origin) => Step::Plain(Some(origin)),
        Err(why) => Step::Refuse(format!(
            "{why}. Without the annotation {} the sandbox starts anew",
            annotation::SAVED_BY
        )),
    }
}

fn suspend(wanted: &Wanted<'_>, pod: &Pod, own: &[Arc<Checkpoint>], now: Timestamp) -> Step {
    let Some(requested) = requested(wanted) else {
        return Step::Plain(None);
    };
    let Some(contents) = pause_contents(requested) else {
        let why = format!(
            "annotation {}: {requested:?} names neither memory nor filesystem",
            annotation::PAUSE_CONTENTS
        );
        return Step::Wait(not_saved(&why, None));
    };
    if pod.metadata.deletion_timestamp.is_some() || !is_running(pod) {
        // It was not used, or it has ended.
        return Step::Plain(None);
    }
    if let Some(failed) = failed(pod, own) {
        return try_again(failed, now);
    }
    if !pod.is_ready() {
        return Step::Wait(Saving {
            reason: reason::CHECKPOINT_CREATING,
            message: "the pod is saved when it is ready".to_owned(),
            wait: None,
        });
    }
    Step::Save(contents)
}

fn is_running(pod: &Pod) -> bool {
    pod.status.phase == "Running"
}

fn failed<'a>(pod: &Pod, own: &'a [Arc<Checkpoint>]) -> Option<&'a Checkpoint> {
    let of_pod = |saved: &&Arc<Checkpoint>| saves::paused_pod(saved) == pod.metadata.uid.as_deref();
    let mut all = own.iter().filter(of_pod).map(|saved| &**saved);
    all.find(|saved| {
        saves::phase(saved) == CheckpointPhase::Failed
            && saved.metadata.deletion_timestamp.is_none()
    })
}

/// The pod runs on. After a while it is saved again.
fn try_again(failed: &Checkpoint, now: Timestamp) -> Step {
    let Some(left) = saves::left_to_retry(failed, now) else {
        return Step::Forget;
    };
    let why = failed
        .status
        .as_ref()
        .map_or("", |status| status.message.as_str());
    Step::Wait(not_saved(why, Some(left)))
}

fn not_saved(why: &str, wait: Option<Duration>) -> Saving {
    Saving {
        reason: reason::CHECKPOINT_FAILED,
        message: format!("{why}; the pod keeps running"),
        wait,
    }
}

#[cfg(test)]
mod tests;
