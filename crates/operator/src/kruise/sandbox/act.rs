//! Carries out a step of a sandbox: its pod, hooks and checkpoints, and its status.

use std::sync::Arc;

use jiff::Timestamp;
use shoal_crds::kruise::names::{condition, reason};
use shoal_crds::kruise::{Sandbox, SandboxPhase, SandboxStatus};

use super::phase::{self, Next};
use super::pod::{Blueprint, controller_ref};
use super::{LOOK_AGAIN, SandboxController, Step, phase_of};
use crate::cache::key;
use crate::conditions::{self, State, Truth};
use crate::failure::{self, Failure};
use crate::kruise::Pod;
use crate::{saves, write};

impl SandboxController {
    /// Carries out the actions of a phase, and writes the status.
    pub(super) async fn act(
        &self,
        sandbox: &Arc<Sandbox>,
        blueprint: &Blueprint,
        pod: Option<&Pod>,
        mut next: Next,
        foreign: &mut Option<String>,
    ) -> Result<Step, Failure> {
        match (&next.action, pod) {
            (phase::Action::CreatePod, _) => {
                match self.create_pod(sandbox, blueprint).await {
                    Ok(taken) => *foreign = taken,
                    Err(failure) => return self.not_created(sandbox, next, failure).await,
                }
                return Ok(Step::Again);
            }
            (phase::Action::Update(change), Some(pod)) if change.is_metadata() => {
                self.update_pod(pod, change).await?;
                return Ok(Step::Again);
            }
            _ => {}
        }
        self.keep_finalizer(sandbox, next.status.phase.unwrap_or_default())
            .await?;
        let mut try_again = None;
        if let (phase::Action::Initialize(container), Some(pod)) = (&next.action, pod) {
            try_again = self
                .initialize(sandbox, pod, container, &mut next.status)
                .await;
        }
        let held = self.write_status(sandbox, &next.status).await?;
        if let (phase::Action::Run(hook), Some(pod)) = (&next.action, pod) {
            return self.run(sandbox, pod, hook, next.status.clone()).await;
        }
        if let (phase::Action::StartUp(due), Some(pod)) = (&next.action, pod) {
            return self.start_up(sandbox, pod, due, next.status.clone()).await;
        }
        match (&next.action, pod) {
            (phase::Action::DeletePod, Some(pod)) => {
                write::delete(
                    &self.cluster,
                    &self.pods,
                    pod,
                    Some(saves::GRACE_SECONDS),
                    false,
                )
                .await?;
                return Ok(Step::Again);
            }
            (phase::Action::Update(change), Some(pod)) => {
                self.update_in_place(sandbox, &next.status, pod, change)
                    .await?;
                return Ok(Step::Again);
            }
            _ => {}
        }
        if self.save_or_forget(sandbox, pod, &next).await? || next.again {
            return Ok(Step::Again);
        }
        let wait = foreign.as_ref().map(|_| LOOK_AGAIN);
        let waits = [held, wait, try_again, next.wait];
        Ok(Step::Rest(waits.into_iter().flatten().min()))
    }

    /// Makes and deletes the checkpoints of pauses. Whether something changed.
    async fn save_or_forget(
        &self,
        sandbox: &Sandbox,
        pod: Option<&Pod>,
        next: &Next,
    ) -> Result<bool, Failure> {
        let uid = sandbox.metadata.uid.as_deref().unwrap_or_default();
        let runs = next.status.phase == Some(SandboxPhase::Running) && !sandbox.spec.paused;
        let ready = conditions::find(&next.status.conditions, condition::READY);
        match (&next.action, pod) {
            (phase::Action::Save(contents), Some(pod)) => {
                let (namespace, name) = key(sandbox);
                let source = saves::Source {
                    namespace: &namespace,
                    name: &name,
                    controller: controller_ref(sandbox),
                    pod: &pod.metadata,
                };
                self.saves.begin(uid, &source, contents).await?;
                Ok(true)
            }
            (phase::Action::ForgetSave, _) => {
                self.saves.forget(uid).await?;
                Ok(true)
            }
            // All of its containers are restored.
            _ if runs && ready.is_some_and(|ready| ready.status == "True") => {
                self.saves.forget(uid).await?;
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    /// Runs a command around an upgrade, and writes how it ended.
    async fn run(
        &self,
        sandbox: &Arc<Sandbox>,
        pod: &Pod,
        hook: &phase::Hook,
        mut status: SandboxStatus,
    ) -> Result<Step, Failure> {
        let failure = self.run_hook(sandbox, pod, hook).await;
        phase::after_hook(
            &mut status,
            &sandbox.spec,
            hook.when,
            failure.as_deref(),
            sandbox.metadata.generation,
            Timestamp::now(),
        );
        if let Some(newest) = self.sandboxes.get(&key(&**sandbox)) {
            self.write_status(&newest, &status).await?;
        }
        if let Some(failure) = failure {
            self.cluster
                .event(&**sandbox, true, hook.when.failed(), failure);
        }
        Ok(Step::Again)
    }

    /// Says why there is no pod. A change of the template reconciles the sandbox again. A sandbox that runs
    /// continues without its template.
    pub(super) async fn refuse(
        &self,
        sandbox: &Arc<Sandbox>,
        message: &str,
    ) -> Result<Step, Failure> {
        if phase_of(sandbox) != SandboxPhase::Pending {
            return Ok(Step::Rest(None));
        }
        let mut status = sandbox.status.clone().unwrap_or_default();
        status.phase = Some(SandboxPhase::Pending);
        message.clone_into(&mut status.message);
        self.set_not_created(sandbox, &mut status, message);
        self.write_status(sandbox, &status).await?;
        Ok(Step::Rest(None))
    }

    pub(super) async fn not_created(
        &self,
        sandbox: &Arc<Sandbox>,
        next: Next,
        failure: Failure,
    ) -> Result<Step, Failure> {
        let mut status = next.status;
        let message = failure.to_string();
        status.message.clone_from(&message);
        if status.phase == Some(SandboxPhase::Upgrading) && is_refusal(&failure) {
            let reason = reason::UPGRADE_POD_FAILED;
            let state = State::new(condition::UPGRADING, Truth::False, reason, &*message);
            let generation = sandbox.metadata.generation;
            conditions::set(&mut status.conditions, &state, generation, Timestamp::now());
        }
        self.set_not_created(sandbox, &mut status, &message);
        self.write_status(sandbox, &status).await?;
        Err(failure)
    }

    fn set_not_created(&self, sandbox: &Sandbox, status: &mut SandboxStatus, message: &str) {
        let known = sandbox.condition(condition::READY);
        let known = known.is_some_and(|known| {
            known.reason == reason::POD_CREATE_FAILED && known.message == message
        });
        if !known {
            let note = message.to_owned();
            self.cluster
                .event(sandbox, true, reason::POD_CREATE_FAILED, note);
        }
        conditions::set(
            &mut status.conditions,
            &State::new(
                condition::READY,
                Truth::False,
                reason::POD_CREATE_FAILED,
                message,
            ),
            sandbox.metadata.generation,
            Timestamp::now(),
        );
    }
}

/// Whether an object can never be created as it is. A quota may have room in a moment.
fn is_refusal(failure: &Failure) -> bool {
    match failure {
        Failure::Refused(_) => true,
        Failure::Api(error) => matches!(failure::code(error), Some(400 | 422)),
        _ => false,
    }
}
