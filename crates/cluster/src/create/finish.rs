//! The end of a create: the sandbox is ready, or nothing is left of it.

use std::sync::Arc;

use jiff::Timestamp as Time;
use shoal_core::driver::DriverError;
use shoal_core::ports::create::{CpuTarget, CreateError, ResizeCreated};
use shoal_core::sandbox::SandboxRecord;
use shoal_crds::kruise::names::{condition, label};
use shoal_crds::kruise::{InitRequest, Sandbox};

use super::entry::OfEntry;
use super::kept_until;
use super::plan::Plan;
use crate::identity::{self, key};
use crate::lifecycle::STARTUP;
use crate::options::Keep;
use crate::sandboxes::Sandboxes;
use crate::{ready, record};

impl Sandboxes {
    /// Begins the time of a new sandbox, now that it is ready.
    pub(super) async fn begin(
        &self,
        plan: &Plan,
        ready: &Sandbox,
    ) -> Result<Arc<SandboxRecord>, CreateError> {
        match plan.timeout {
            Some(timeout) => Ok(self.set_deadline(&key(&ready.metadata), timeout).await?),
            None => Ok(Arc::new(record::of(ready, Time::now()))),
        }
    }

    /// Waits until a sandbox is ready, and gives its daemon its settings.
    pub(super) async fn finish(
        &self,
        plan: &Plan,
        sandbox: &Sandbox,
        is_new: bool,
    ) -> Result<Arc<Sandbox>, CreateError> {
        let key = key(&sandbox.metadata);
        let time = plan.ready_timeout();
        // A waiting sandbox is ready. Only a change of its pod has to be waited for.
        let early = plan.resize.is_some_and(|resize| resize.early_return);
        // The policy that closes the internet selects the pod by a label, which the operator gives it.
        let changes = plan.closed || plan.entry.is_some() || (plan.resize.is_some() && !early);
        let ready = if is_new || changes {
            let generation = sandbox.metadata.generation.unwrap_or_default();
            let ready = ready::wait(&self.watched, &key, generation, time).await;
            ready.map_err(|error| CreateError::NotReady(error.to_string()))?
        } else {
            let known = self.watched.get(&key);
            known.unwrap_or_else(|| Arc::new(sandbox.clone()))
        };
        let labels = ready.status.as_ref().map(|status| &status.pod_info.labels);
        let label = labels.and_then(|labels| labels.get(label::ALLOW_INTERNET_ACCESS));
        if plan.closed && label.is_none_or(|label| label != "false") {
            let told = "its pod did not get the label that closes the internet".to_owned();
            return Err(CreateError::NotReady(told));
        }
        if let Some(failed) = plan.resize.and_then(|resize| not_resized(&ready, resize)) {
            return Err(CreateError::Driver(DriverError::CannotResize(failed)));
        }
        if let Some(init) = &plan.claiming.init {
            let gone = || CreateError::NotReady(ready::describe(&ready));
            let address = self.address(&ready).ok_or_else(gone)?;
            // A member of a pool of clones tells the token that its daemon still requires.
            let init = InitRequest::of(&ready).unwrap_or_else(|| init.clone());
            self.initialize(&ready, address, init).await?;
        }
        if !is_new {
            check_raised(plan, &ready)?;
        }
        if plan.claiming.init.is_some() && ready.startup_command().is_some() {
            let started = ready::started(&self.watched, &key, STARTUP).await;
            return started.map_err(|error| CreateError::NotReady(error.to_string()));
        }
        Ok(ready)
    }

    /// Deletes a sandbox that did not become ready, or keeps it as the request says.
    pub(super) async fn clear(&self, plan: &Plan, sandbox: &Sandbox) {
        let cleared = match plan.options.keep_failed {
            None => self.delete(sandbox).await,
            Some(keep) => {
                let until = match keep {
                    Keep::ForEver => None,
                    Keep::For(_) => Some(kept_until(Time::now(), keep)),
                };
                let patch = serde_json::json!({
                    "metadata": {"labels": {label::RESERVED_FAILED_SANDBOX: "true"}},
                    "spec": {"shutdownTime": until, "pauseTime": null},
                });
                self.patch(&key(&sandbox.metadata), &patch).await.map(drop)
            }
        };
        if let Err(error) = cleared {
            let id = identity::sandbox_id(sandbox);
            tracing::warn!(sandbox = %id, %error, "cannot clear a sandbox that failed");
        }
    }
}

/// Refuses a member of an entry's pool that did not get the resources of one in use.
fn check_raised(plan: &Plan, ready: &Sandbox) -> Result<(), CreateError> {
    let raises = plan.entry.as_ref().is_some_and(OfEntry::raises);
    if !raises || ready.holds(condition::INPLACE_UPDATE) {
        return Ok(());
    }
    let update = ready.condition(condition::INPLACE_UPDATE);
    let told = update.map_or("the operator does not resize", |update| &update.message);
    Err(CreateError::Driver(DriverError::CannotResize(
        told.to_owned(),
    )))
}

/// Why a resize was given up. An absolute amount is a wish, as OpenKruise has it; a factor is a demand.
fn not_resized(sandbox: &Sandbox, resize: ResizeCreated) -> Option<String> {
    let update = sandbox.condition(condition::INPLACE_UPDATE)?;
    let failed = update.status == "False" && update.reason == "Failed";
    let demanded = matches!(resize.cpu, CpuTarget::Factor(_));
    (failed && demanded).then(|| update.message.clone())
}
