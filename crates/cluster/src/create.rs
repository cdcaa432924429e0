//! Creating a sandbox: a claim from the pool of its template, or a new one where none waits.

mod entry;
mod plan;
mod request;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp as Time};
use kube::Api;
use kube::api::PostParams;
use shoal_core::auth::Principal;
use shoal_core::driver::DriverError;
use shoal_core::ports::create::{CpuTarget, CreateError, Created, ResizeCreated, SandboxRequest};
use shoal_core::sandbox::SandboxRecord;
use shoal_crds::kruise::Sandbox;
use shoal_crds::kruise::names::{condition, label};

use self::plan::Plan;
use crate::identity::{self, key};
use crate::lifecycle::STARTUP;
use crate::options::Keep;
use crate::sandboxes::Sandboxes;
use crate::{failure, internet, ready, record};

/// How long a sandbox may take to become ready when the request does not say: its image may have to be
/// pulled.
const READY: Duration = Duration::from_secs(300);

/// The longest look for a waiting sandbox: the client has gone by then.
const CLAIM: Duration = Duration::from_secs(60);

/// A hundred years, which clients take for ever.
const FOR_EVER: SignedDuration = SignedDuration::from_hours(100 * 365 * 24);

/// The priority of a sandbox that a client waits for, over those of pools.
const PRIORITY: &str = "100";

/// Whether a sandbox may come from the pool.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pool {
    Used,
    PassedBy,
}

impl Sandboxes {
    /// Creates a sandbox, initializes it and waits until it answers.
    ///
    /// # Errors
    /// See [`CreateError`]. Nothing is left of the sandbox, unless the request keeps failures.
    pub(crate) async fn create_one(
        &self,
        principal: &Principal,
        new: SandboxRequest,
    ) -> Result<Created, CreateError> {
        match self.attempt(principal, new.clone(), Pool::Used).await {
            // The member cannot grow where it is: a new one has its limits from the beginning.
            Err(CreateError::Driver(DriverError::CannotResize(why))) if new.resize.is_none() => {
                tracing::info!(why, "a member of a pool could not get its limits");
                self.attempt(principal, new, Pool::PassedBy).await
            }
            done => done,
        }
    }

    async fn attempt(
        &self,
        principal: &Principal,
        new: SandboxRequest,
        pool: Pool,
    ) -> Result<Created, CreateError> {
        let plan = self.plan(principal, new)?;
        if plan.closed {
            let (namespace, _) = key(&plan.set.metadata);
            internet::check_policy(&self.client, &namespace).await?;
        }
        let (sandbox, is_new) = self.place(&plan, pool).await?;
        let finished = match self.finish(&plan, &sandbox, is_new).await {
            // What a client waits for is no time of the sandbox.
            Ok(ready) if is_new || plan.entry.is_some() => self.begin(&plan, &ready).await,
            Ok(ready) => Ok(Arc::new(record::of(&ready, Time::now()))),
            Err(error) => Err(error),
        };
        match finished {
            Ok(record) => Ok(Created { record }),
            Err(error) => {
                self.clear(&plan, &sandbox).await;
                Err(error)
            }
        }
    }

    /// A claimed sandbox, and whether it is new.
    async fn place(&self, plan: &Plan, pool: Pool) -> Result<(Arc<Sandbox>, bool), CreateError> {
        let pool = match &plan.entry {
            // It would stay as it is, and be lost.
            Some(entry) if !entry.can_raise() => Pool::PassedBy,
            _ => pool,
        };
        if pool == Pool::Used
            && let Some(taken) = self.take(plan).await?
        {
            return Ok((taken, false));
        }
        if plan.options.pooled_only {
            if let Some(time) = plan.options.claim_timeout.filter(|_| pool == Pool::Used)
                && let Some(taken) = self.take_within(plan, time).await?
            {
                return Ok((taken, false));
            }
            return Err(CreateError::NotReady(
                "no sandbox of its pool waits".to_owned(),
            ));
        }
        let sandbox = plan.new_sandbox();
        let (namespace, _) = key(&plan.set.metadata);
        let api: Api<Sandbox> = Api::namespaced(self.client.clone(), &namespace);
        let made = api.create(&PostParams::default(), &sandbox).await;
        Ok((self.watched.put(self.answered(plan, made).await?), true))
    }

    /// A member of the pool, if one waits.
    async fn take(&self, plan: &Plan) -> Result<Option<Arc<Sandbox>>, CreateError> {
        let revision = plan.entry.as_ref().map(entry::OfEntry::revision);
        let change = |sandbox: &mut Sandbox| {
            plan.change(sandbox);
            if plan.entry.is_some() {
                plan.begin_when_ready(sandbox);
            }
        };
        let claiming = &plan.claiming;
        let taken = self
            .claims
            .take(&plan.set, revision, claiming, change)
            .await;
        self.answered(plan, taken).await
    }

    /// The answer to a write. Without a clear one, the write may have been done: what it made is deleted.
    async fn answered<T>(&self, plan: &Plan, answer: kube::Result<T>) -> Result<T, CreateError> {
        let error = match answer {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        if failure::refusal(&error).is_none()
            && let Some(id) = &plan.claiming.id
        {
            let (namespace, _) = key(&plan.set.metadata);
            if let Err(error) = self.delete_labelled(&namespace, id).await {
                tracing::warn!(%error, "cannot look for a sandbox whose create got no answer");
            }
        }
        Err(refused(error))
    }

    /// Looks for a waiting sandbox again, until one comes or the time is over.
    async fn take_within(
        &self,
        plan: &Plan,
        time: Duration,
    ) -> Result<Option<Arc<Sandbox>>, CreateError> {
        let end = tokio::time::Instant::now() + time.min(CLAIM);
        let mut pause = Duration::from_millis(200);
        while tokio::time::Instant::now() + pause < end {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(2));
            if let Some(taken) = self.take(plan).await? {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    /// Begins the time of a new sandbox, now that it is ready.
    async fn begin(&self, plan: &Plan, ready: &Sandbox) -> Result<Arc<SandboxRecord>, CreateError> {
        match plan.timeout {
            Some(timeout) => Ok(self.set_deadline(&key(&ready.metadata), timeout).await?),
            None => Ok(Arc::new(record::of(ready, Time::now()))),
        }
    }

    async fn finish(
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
            let address = ready.address().ok_or_else(gone)?;
            self.initialize(&ready, address, init.clone()).await?;
        }
        let raised = plan
            .entry
            .as_ref()
            .filter(|entry| !is_new && entry.raises());
        if raised.is_some() && !ready.holds(condition::INPLACE_UPDATE) {
            let update = ready.condition(condition::INPLACE_UPDATE);
            let told = update.map_or("the operator does not resize", |update| &update.message);
            return Err(CreateError::Driver(DriverError::CannotResize(
                told.to_owned(),
            )));
        }
        if plan.claiming.init.is_some() && ready.startup_command().is_some() {
            let started = ready::started(&self.watched, &key, STARTUP).await;
            return started.map_err(|error| CreateError::NotReady(error.to_string()));
        }
        Ok(ready)
    }

    /// Deletes a sandbox that did not become ready, or keeps it as the request says.
    async fn clear(&self, plan: &Plan, sandbox: &Sandbox) {
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

/// The end of the time that a pause or a failure keeps a sandbox.
pub(crate) fn kept_until(from: Time, keep: Keep) -> Time {
    let keep = match keep {
        Keep::ForEver => FOR_EVER,
        Keep::For(time) => SignedDuration::try_from(time).unwrap_or(FOR_EVER),
    };
    from.checked_add(keep.min(FOR_EVER)).unwrap_or(Time::MAX)
}

/// Why a resize was given up. An absolute amount is a wish, as OpenKruise has it; a factor is a demand.
fn not_resized(sandbox: &Sandbox, resize: ResizeCreated) -> Option<String> {
    let update = sandbox.condition(condition::INPLACE_UPDATE)?;
    let failed = update.status == "False" && update.reason == "Failed";
    let demanded = matches!(resize.cpu, CpuTarget::Factor(_));
    (failed && demanded).then(|| update.message.clone())
}

/// The API server refused a sandbox, as for want of quota, or did not answer.
fn refused(error: kube::Error) -> CreateError {
    match failure::refusal(&error) {
        Some(message) => CreateError::NotReady(message),
        None => failure::store(&error).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_for_ever_ends_in_a_hundred_years() {
        let now: Time = "2026-01-02T03:04:05Z".parse().unwrap();
        let forever = kept_until(now, Keep::ForEver).to_string();
        assert!(forever.starts_with("2125-12"), "{forever}");
        let hour = Keep::For(Duration::from_secs(3600));
        assert_eq!(kept_until(now, hour).to_string(), "2026-01-02T04:04:05Z");
        let longest = Keep::For(Duration::MAX);
        assert_eq!(kept_until(now, longest), kept_until(now, Keep::ForEver));
    }
}
