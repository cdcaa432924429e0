//! The upgrade of a sandbox: its pod is replaced by one of the new template, with commands before and after. The reason
//! of the condition `Upgrading` is the step.

mod checkpoint;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use shoal_crds::kruise::names::{annotation, condition, label, reason};
use shoal_crds::kruise::{SandboxPhase, SandboxSpec, SandboxStatus};

use super::{Action, Seen, Step, initialize};
use crate::conditions::{self, State, Truth};
use crate::kruise::Pod;

/// How long a command may take if its hook does not say.
const HOOK_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a daemon may refuse its settings before the upgrade fails.
const SETTINGS_TIMEOUT: SignedDuration = SignedDuration::from_secs(60);

/// When a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookTime {
    Before,
    After,
}

impl HookTime {
    /// The reason when it fails.
    pub(crate) fn failed(self) -> &'static str {
        match self {
            Self::Before => reason::PRE_UPGRADE_FAILED,
            Self::After => reason::POST_UPGRADE_FAILED,
        }
    }
}

/// A command that runs in the pod around an upgrade.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hook {
    pub(crate) when: HookTime,
    pub(crate) command: Vec<String>,
    pub(crate) timeout: Duration,
}

/// The command of a sandbox for this time, if it has one.
fn hook(spec: &SandboxSpec, when: HookTime) -> Option<Hook> {
    let hooks = spec.lifecycle.as_ref()?;
    let hook = match when {
        HookTime::Before => hooks.pre_upgrade.as_ref()?,
        HookTime::After => hooks.post_upgrade.as_ref()?,
    };
    let seconds = hook
        .timeout_seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .filter(|seconds| *seconds > 0);
    Some(Hook {
        when,
        command: hook.exec.as_ref()?.command.clone(),
        timeout: seconds.map_or(HOOK_TIMEOUT, Duration::from_secs),
    })
}

/// Adds to the status that a command has run. `failure` is why it failed.
pub(crate) fn after_hook(
    status: &mut SandboxStatus,
    spec: &SandboxSpec,
    when: HookTime,
    failure: Option<&str>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let (truth, reason, message) = match (when, failure) {
        (when, Some(failure)) => (Truth::False, when.failed(), failure),
        (HookTime::Before, None) => (Truth::False, prepared(spec), ""),
        (HookTime::After, None) => (Truth::True, reason::SUCCEEDED, ""),
    };
    let state = State::new(condition::UPGRADING, truth, reason, message);
    conditions::set(&mut status.conditions, &state, generation, now);
}

/// The step after the command that runs before the upgrade.
fn prepared(spec: &SandboxSpec) -> &'static str {
    if spec.keeps_files_in_upgrades() {
        reason::CHECKPOINTING
    } else {
        reason::UPGRADE_POD
    }
}

/// Why a pod does not start, if it needs help.
fn start_failure(pod: &Pod) -> Option<String> {
    let has_ended = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
    let ended = has_ended.then(|| "the new pod has ended".to_owned());
    ended.or_else(|| pod.start_error())
}

impl<'a> Step<'a> {
    /// Whether the pod must be replaced because the template has changed.
    pub(super) fn must_upgrade(&self, pod: &Pod) -> bool {
        let replaces = self.input.sandbox.spec.upgrade_policy.is_some();
        replaces && pod.status.phase == "Running" && !self.has_template(pod)
    }

    /// Whether a pod has the newest template. A pod without the label is not ours to judge.
    fn has_template(&self, pod: &Pod) -> bool {
        let hash = pod.label(label::POD_TEMPLATE_HASH);
        hash.is_none_or(|hash| hash == self.input.blueprint.revision)
    }

    pub(super) fn begin_upgrade(&mut self) {
        self.enter(SandboxPhase::Upgrading);
        self.reach(reason::PRE_UPGRADE);
        self.tell_upgrade();
    }

    /// Whether a paused sandbox is resumed for an upgrade.
    pub(super) fn is_resumed_to_upgrade(&self) -> bool {
        let trigger = self
            .input
            .sandbox
            .annotation(annotation::UPGRADE_RESUME_TRIGGER);
        trigger == Some("true")
    }

    /// A paused sandbox gets a pod of its template before the template changes.
    pub(super) fn resume_to_upgrade(&mut self) {
        self.enter(SandboxPhase::Upgrading);
        self.reach(reason::RESUMING);
        self.tell_upgrade();
    }

    /// Follows the steps. Each is in the status before it begins.
    pub(super) fn upgrading(&mut self) {
        let known = conditions::find(&self.next.status.conditions, condition::UPGRADING);
        let Some((step, generation)) =
            known.map(|known| (known.reason.clone(), known.observed_generation))
        else {
            return self.begin_upgrade();
        };
        // A step that failed begins again when the specification changes.
        let changed = generation != self.input.sandbox.metadata.generation;
        match step.as_str() {
            reason::RESUMING => self.wait_for_resumed_pod(),
            reason::RESUME_SUCCEED => self.wait_for_template(),
            reason::PRE_UPGRADE => self.prepare(),
            reason::PRE_UPGRADE_FAILED if changed => self.again(reason::PRE_UPGRADE),
            reason::CHECKPOINTING => self.save_files(),
            reason::CHECKPOINT_FAILED if changed => self.save_files_again(),
            // The template has not changed yet.
            reason::UPGRADE_POD_FAILED if self.is_resumed_to_upgrade() => {
                self.wait_for_resumed_pod();
            }
            reason::UPGRADE_POD | reason::UPGRADE_POD_FAILED => self.replace_pod(),
            reason::POST_UPGRADE => self.conclude(),
            reason::POST_UPGRADE_FAILED if changed => self.again(reason::POST_UPGRADE),
            reason::SUCCEEDED => {
                self.enter(SandboxPhase::Running);
                return self.running();
            }
            _ => {}
        }
        self.tell_upgrade();
    }

    /// `Ready` says why the sandbox is not.
    fn tell_upgrade(&mut self) {
        if self.next.status.phase != Some(SandboxPhase::Upgrading) {
            return;
        }
        let known = conditions::find(&self.next.status.conditions, condition::UPGRADING);
        let message = known.map(|known| known.message.clone()).unwrap_or_default();
        self.next.status.message.clone_from(&message);
        self.set(condition::READY, Truth::False, reason::UPGRADING, &message);
    }

    fn reach(&mut self, step: &'static str) {
        self.wait(step, "");
    }

    /// Describes the condition that a step waits for.
    fn wait(&mut self, step: &'static str, message: &str) {
        self.set(condition::UPGRADING, Truth::False, step, message);
    }

    /// Goes to a step, which begins after it is written.
    fn again(&mut self, step: &'static str) {
        self.reach(step);
        self.next.again = true;
    }

    fn succeed(&mut self) {
        self.set(condition::UPGRADING, Truth::True, reason::SUCCEEDED, "");
        self.next.again = true;
    }

    /// The pod, if it can be used.
    fn usable_pod(&self) -> Option<&'a Pod> {
        match self.input.pod {
            Seen::Own(pod) if !pod.is_terminating() && pod.status.phase == "Running" => Some(pod),
            _ => None,
        }
    }

    fn wait_for_resumed_pod(&mut self) {
        match self.input.pod {
            Seen::Absent => self.next.action = Action::CreatePod,
            Seen::Foreign(owner) => self.wait(reason::RESUMING, owner),
            Seen::Coming(why) => self.wait(reason::RESUMING, why),
            Seen::Own(pod) if pod.is_ready() && !pod.is_terminating() => {
                self.show(pod);
                if !self.initialize(pod, reason::UPGRADE_POD_FAILED) {
                    self.remove(condition::SANDBOX_PAUSED);
                    self.again(reason::RESUME_SUCCEED);
                }
            }
            Seen::Own(pod) => {
                self.show(pod);
                match start_failure(pod) {
                    Some(failure) => self.wait(reason::UPGRADE_POD_FAILED, &failure),
                    None => self.wait(reason::RESUMING, &pod.delay().unwrap_or_default()),
                }
            }
        }
    }

    fn wait_for_template(&mut self) {
        let has_template = self.usable_pod().is_some_and(|pod| self.has_template(pod));
        if !has_template {
            self.again(reason::PRE_UPGRADE);
        } else if !self.is_resumed_to_upgrade() {
            // It was given up before the template changed.
            self.remove(condition::UPGRADING);
            self.enter(SandboxPhase::Running);
        }
    }

    fn prepare(&mut self) {
        let Some(pod) = self.usable_pod() else {
            // Nothing can run before the upgrade.
            return self.again(reason::UPGRADE_POD);
        };
        if self.has_template(pod) {
            // The template is the former one again.
            return self.succeed();
        }
        let spec = &self.input.sandbox.spec;
        let step = prepared(spec);
        let keeps_files = step == reason::CHECKPOINTING;
        if let Some(why) = self.refuse_to_keep_files(pod).filter(|_| keeps_files) {
            return self.wait(reason::CHECKPOINT_FAILED, why);
        }
        if let Some(hook) = hook(spec, HookTime::Before) {
            if !self.initialize(pod, reason::PRE_UPGRADE_FAILED) {
                self.next.action = Action::Run(hook);
            }
            return;
        }
        self.reach(step);
        if keeps_files {
            self.save_files();
        } else {
            self.replace_pod();
        }
    }

    fn replace_pod(&mut self) {
        let pod = match self.input.pod {
            Seen::Absent => return self.next.action = Action::CreatePod,
            Seen::Foreign(owner) => return self.wait(reason::UPGRADE_POD, owner),
            Seen::Coming(why) => return self.wait(reason::UPGRADE_POD, why),
            Seen::Own(pod) => pod,
        };
        if pod.is_terminating() {
            return self.wait(reason::UPGRADE_POD, "the former pod is being deleted");
        }
        if !self.has_template(pod) {
            self.reach(reason::UPGRADE_POD);
            // Another daemon may take what this one refused.
            self.remove(condition::RUNTIME_INITIALIZED);
            self.next.action = Action::DeletePod;
            return;
        }
        self.show(pod);
        if let Some(failure) = start_failure(pod) {
            self.wait(reason::UPGRADE_POD_FAILED, &failure);
        } else if !pod.is_ready() {
            self.wait(reason::UPGRADE_POD, &pod.delay().unwrap_or_default());
        } else if !self.initialize(pod, reason::UPGRADE_POD_FAILED) {
            self.again(reason::POST_UPGRADE);
        }
    }

    /// Whether the daemon in a pod needs its settings first. One that takes none fails the step.
    fn initialize(&mut self, pod: &Pod, failed: &'static str) -> bool {
        let Some(container) = initialize::due(self.input.sandbox, pod) else {
            return false;
        };
        match self.refused_settings() {
            Some(why) => self.wait(failed, &why),
            None => self.next.action = Action::Initialize(container.to_owned()),
        }
        true
    }

    /// Why the daemon has no settings, if it was asked for long enough. A new specification asks it again.
    fn refused_settings(&self) -> Option<String> {
        let known = conditions::find(&self.next.status.conditions, condition::RUNTIME_INITIALIZED)?;
        let since = known.last_transition_time.0;
        let is_current = known.observed_generation == self.input.sandbox.metadata.generation;
        let is_over = self.input.now.duration_since(since) >= SETTINGS_TIMEOUT;
        (known.reason == reason::FAILED && is_current && is_over).then(|| {
            let seconds = SETTINGS_TIMEOUT.as_secs();
            format!(
                "the daemon took no settings for {seconds} s: {}",
                known.message
            )
        })
    }

    fn conclude(&mut self) {
        let Some(pod) = self.usable_pod().filter(|pod| self.has_template(pod)) else {
            return self.again(reason::UPGRADE_POD);
        };
        if !pod.is_ready() {
            let why = pod.delay().unwrap_or_default();
            return self.wait(reason::POST_UPGRADE, &why);
        }
        match hook(&self.input.sandbox.spec, HookTime::After) {
            Some(_) if self.initialize(pod, reason::POST_UPGRADE_FAILED) => {}
            Some(hook) => self.next.action = Action::Run(hook),
            None => self.succeed(),
        }
    }
}

#[cfg(test)]
mod tests;
