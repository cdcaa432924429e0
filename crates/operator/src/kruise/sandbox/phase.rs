//! The phases of a sandbox: from the observed objects to the next status and the actions.

mod hibernate;
mod kept;
mod pause;
mod upgrade;

use std::time::Duration;

use jiff::Timestamp;
use shoal_crds::kruise::names::{annotation, condition, label, reason};
use shoal_crds::kruise::{Checkpoint, PodInfo, Sandbox, SandboxPhase, SandboxStatus};

use super::pod::Blueprint;
use super::{initialize, inplace, startup};
use crate::conditions::{self, State, Truth};
use crate::kruise::Pod;

pub(super) use self::upgrade::{Hook, HookTime, after_hook};

/// The pod with the sandbox's name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seen<'a> {
    /// There is none.
    Absent,
    /// It is the sandbox's.
    Own(&'a Pod),
    /// Another object has it. The text says which.
    Foreign(&'a str),
    /// Its ReplicaSet makes it, or ends the former one. The text says why it cannot, if it is known.
    Coming(&'a str),
}

/// The observed state.
#[derive(Debug)]
pub(super) struct Input<'a> {
    pub(super) sandbox: &'a Sandbox,
    pub(super) blueprint: &'a Blueprint,
    pub(super) pod: Seen<'a>,
    /// The checkpoint of the pause that is under way, or of the last one.
    pub(super) saved: Option<&'a Checkpoint>,
    /// Whether resources of running pods change.
    pub(super) resizes: bool,
    pub(super) now: Timestamp,
}

/// The required actions.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Nothing.
    Nothing,
    /// The pod is created.
    CreatePod,
    /// The pod is deleted.
    DeletePod,
    /// The pod is saved with these contents, to be paused.
    Save(&'static [&'static str]),
    /// Deletes the checkpoint of a pause.
    ForgetSave,
    /// The daemon in this container gets its settings.
    Initialize(String),
    /// The pod is changed where it is.
    Update(inplace::Change),
    /// A command runs before or after an upgrade.
    Run(Hook),
    /// The command of the template runs in this container.
    StartUp((Vec<String>, String)),
}

/// The next status, and what must be done after it is written.
#[derive(Clone, Debug)]
pub(super) struct Next {
    pub(super) status: SandboxStatus,
    pub(super) action: Action,
    /// Whether the next pass follows at once.
    pub(super) again: bool,
    /// When another pass follows, if nothing changes before.
    pub(super) wait: Option<Duration>,
    /// An event: whether it warns, its reason and its note.
    pub(super) event: Option<(bool, &'static str, String)>,
}

/// The reason of the event about a pod that another object owns.
pub(super) const POD_OWNER_MISMATCH: &str = "PodOwnerMismatch";

/// Computes the next step.
pub(super) fn next(input: &Input<'_>) -> Next {
    let mut step = Step {
        input,
        next: Next {
            status: input.sandbox.status.clone().unwrap_or_default(),
            action: Action::Nothing,
            again: false,
            wait: None,
            event: None,
        },
    };
    let metadata = &input.sandbox.metadata;
    step.next.status.observed_generation = metadata.generation.unwrap_or_default();
    let phase = step.next.status.phase.unwrap_or_default();
    // A pod that is about to go does not have the newest template.
    if phase != SandboxPhase::Paused {
        step.next
            .status
            .update_revision
            .clone_from(&input.blueprint.revision);
    }
    step.next.status.phase = Some(phase);
    match phase {
        SandboxPhase::Pending => step.pending(),
        SandboxPhase::Running => step.running(),
        SandboxPhase::Paused => step.paused(),
        SandboxPhase::Resuming => step.resuming(),
        SandboxPhase::Upgrading => step.upgrading(),
        // Other phases end here, or belong to other controllers.
        _ => {}
    }
    step.next
}

struct Step<'a> {
    input: &'a Input<'a>,
    next: Next,
}

impl Step<'_> {
    fn pending(&mut self) {
        match self.input.pod {
            Seen::Absent => self.next.action = Action::CreatePod,
            Seen::Foreign(owner) => self.refuse(owner),
            Seen::Coming(why) => self.wait_for_pod(why),
            Seen::Own(pod) => self.start(pod, SandboxPhase::Pending),
        }
    }

    fn refuse(&mut self, owner: &str) {
        let message = format!("the name of the pod is taken: {owner}");
        if self.next.status.message != message {
            self.next.event = Some((true, POD_OWNER_MISMATCH, message.clone()));
        }
        self.next.status.message = message;
    }

    /// Follows a pod that starts.
    fn start(&mut self, pod: &Pod, from: SandboxPhase) {
        if pod.is_terminating() {
            self.next.status.message = "the former pod is being deleted".to_owned();
            return;
        }
        match pod.status.phase.as_str() {
            "Running" => {
                if from == SandboxPhase::Resuming {
                    self.set(
                        condition::SANDBOX_RESUMED,
                        Truth::True,
                        reason::RESUME_POD,
                        "",
                    );
                    self.remove(condition::SANDBOX_PAUSED);
                }
                self.enter(SandboxPhase::Running);
                self.running();
            }
            "Succeeded" | "Failed" => self.finish(pod),
            _ => {
                self.show(pod);
                self.next.status.message = pod.delay().unwrap_or_default();
                if from == SandboxPhase::Resuming {
                    self.tell_of_node();
                }
                match pod.start_error() {
                    Some(error) => self.set(
                        condition::READY,
                        Truth::False,
                        reason::START_CONTAINER_FAILED,
                        &error,
                    ),
                    None => self.set(
                        condition::READY,
                        Truth::False,
                        reason::POD_READY,
                        "the pod is starting",
                    ),
                }
            }
        }
    }

    fn finish(&mut self, pod: &Pod) {
        self.show(pod);
        let phase = if pod.status.phase == "Succeeded" {
            SandboxPhase::Succeeded
        } else {
            SandboxPhase::Failed
        };
        let message = [&pod.status.reason, &pod.status.message]
            .into_iter()
            .filter(|text| !text.is_empty())
            .cloned()
            .collect::<Vec<_>>()
            .join(": ");
        self.set(condition::READY, Truth::False, reason::POD_READY, &message);
        self.enter(phase);
        self.next.status.message = message;
        self.next.again = false;
    }

    fn running(&mut self) {
        let pod = match self.input.pod {
            Seen::Own(pod) if !pod.is_terminating() => pod,
            _ if self.input.sandbox.is_kept() => return self.lose_pod(),
            _ => {
                self.set(
                    condition::READY,
                    Truth::False,
                    reason::POD_READY,
                    "pod not found",
                );
                self.enter(SandboxPhase::Failed);
                self.next.status.message = "pod not found".to_owned();
                self.next.again = false;
                return;
            }
        };
        self.forget_other_than(pod);
        if self.must_upgrade(pod) {
            return self.begin_upgrade();
        }
        if self.input.sandbox.spec.paused {
            return self.pause();
        }
        if matches!(pod.status.phase.as_str(), "Succeeded" | "Failed") {
            return self.finish(pod);
        }
        self.show(pod);
        self.next.status.message.clear();
        self.mirror_ready(pod);
        self.update_in_place(pod);
        if self.next.action == Action::Nothing
            && let Some(container) = initialize::due(self.input.sandbox, pod)
        {
            self.next.action = Action::Initialize(container.to_owned());
        }
        let updating = conditions::find(&self.next.status.conditions, condition::INPLACE_UPDATE);
        let updating = updating.is_some_and(|known| known.reason == reason::INPLACE_UPDATING);
        if self.next.action == Action::Nothing
            && !updating
            && let Some(due) = startup::due(self.input.sandbox, pod)
        {
            self.next.action = Action::StartUp(due);
        }
    }

    /// `Ready` is that of the pod.
    fn mirror_ready(&mut self, pod: &Pod) {
        if pod.is_ready() {
            return self.set(condition::READY, Truth::True, reason::POD_READY, "");
        }
        if let Some(error) = pod.start_error() {
            self.next.status.message.clone_from(&error);
            return self.set(
                condition::READY,
                Truth::False,
                reason::START_CONTAINER_FAILED,
                &error,
            );
        }
        let message = pod
            .condition("Ready")
            .map(|ready| ready.message.clone())
            .unwrap_or_default();
        self.set(condition::READY, Truth::False, reason::POD_READY, &message);
    }

    fn update_in_place(&mut self, pod: &Pod) {
        let known = self.input.sandbox.condition(condition::INPLACE_UPDATE);
        let step = inplace::step(self.input, pod, known);
        match step {
            inplace::Step::Nothing => {}
            inplace::Step::Forbidden(note) => {
                if known.is_none_or(|known| known.message != note) {
                    self.next.event = Some((true, inplace::FORBIDDEN, note));
                }
            }
            inplace::Step::Metadata(change) => self.next.action = Action::Update(change),
            inplace::Step::Begin(change) => {
                self.updating("");
                // The status says so before the pod changes.
                self.next.action = Action::Update(change);
            }
            inplace::Step::Wait(message) => self.updating(&message),
            inplace::Step::Done => self.set(
                condition::INPLACE_UPDATE,
                Truth::True,
                reason::SUCCEEDED,
                "",
            ),
            inplace::Step::Failed(message) => {
                if known.is_none_or(|known| known.message != message) {
                    self.next.event = Some((true, inplace::FAILED, message.clone()));
                }
                self.set(
                    condition::INPLACE_UPDATE,
                    Truth::False,
                    reason::FAILED,
                    &message,
                );
            }
        }
    }

    fn updating(&mut self, message: &str) {
        for kind in [condition::INPLACE_UPDATE, condition::READY] {
            self.set(kind, Truth::False, reason::INPLACE_UPDATING, message);
        }
    }

    fn enter(&mut self, phase: SandboxPhase) {
        self.next.status.phase = Some(phase);
        self.next.status.message.clear();
        self.next.again = true;
    }

    /// The place of the pod.
    fn show(&mut self, pod: &Pod) {
        let status = &mut self.next.status;
        status.node_name.clone_from(&pod.spec.node_name);
        status.sandbox_ip.clone_from(&pod.status.pod_ip);
        status.pod_info = PodInfo {
            node_name: pod.spec.node_name.clone(),
            pod_ip: pod.status.pod_ip.clone(),
            pod_uid: pod.metadata.uid.clone().unwrap_or_default(),
            // The API waits for the label when it closes the internet to a sandbox.
            labels: pod
                .label(label::ALLOW_INTERNET_ACCESS)
                .map(|value| (label::ALLOW_INTERNET_ACCESS.to_owned(), value.to_owned()))
                .into_iter()
                .collect(),
            annotations: (self.input.sandbox.is_kept())
                .then(|| pod.metadata.name.clone())
                .flatten()
                .map(|name| (annotation::POD_NAME.to_owned(), name))
                .into_iter()
                .collect(),
        };
    }

    fn set(&mut self, kind: &'static str, truth: Truth, reason: &str, message: &str) {
        let state = State::new(kind, truth, reason, message);
        let generation = self.input.sandbox.metadata.generation;
        let conditions = &mut self.next.status.conditions;
        conditions::set(conditions, &state, generation, self.input.now);
    }

    fn remove(&mut self, kind: &str) {
        conditions::remove(&mut self.next.status.conditions, kind);
    }
}
