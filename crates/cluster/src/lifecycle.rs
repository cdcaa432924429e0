//! Timeouts, resume, resize and the end of a sandbox: patches of its resource, which the operator
//! carries out.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp as Time};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use shoal_core::id::SandboxId;
use shoal_core::ports::inside::InsideError;
use shoal_core::ports::sandboxes::{Connected, SandboxError, TimeoutTooLong};
use shoal_core::sandbox::SandboxRecord;
use shoal_core::state::{InputKind, Refused};
use shoal_crds::kruise::names::{annotation, condition, label};
use shoal_crds::kruise::{
    InitRequest, NotResumable, Sandbox, SandboxPhase, SandboxState, resumable,
};

use crate::create::kept_until;
use crate::identity::{Key, key, sandbox_id};
use crate::options::kept_paused;
use crate::sandboxes::Sandboxes;
use crate::{failure, ready, record};

/// How long a caller waits for a pause, and for a resume.
pub(crate) const PAUSE: Duration = Duration::from_secs(60);
const RESUME: Duration = Duration::from_secs(600);

/// How long the command of a template may take, with the daemon's settings before it.
pub(crate) const STARTUP: Duration = Duration::from_secs(45);

/// The least timeout of a sandbox that is resumed.
const RESUMED: Duration = Duration::from_secs(300);

/// How often a write is tried again after another one came first.
const TRIES: u32 = 5;

/// How a deadline changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// To this.
    Set,
    /// To this, unless it is later already.
    Extend,
}

impl Sandboxes {
    /// A timeout that is not too long.
    ///
    /// # Errors
    /// When it is.
    pub(crate) fn within_limit(&self, timeout: Duration) -> Result<SignedDuration, TimeoutTooLong> {
        let most = self.max_timeout;
        if timeout > most {
            return Err(TimeoutTooLong { most });
        }
        SignedDuration::try_from(timeout).map_err(|_| TimeoutTooLong { most })
    }

    /// Sets the deadline to `timeout` from now.
    pub(crate) async fn set_deadline(
        &self,
        key: &Key,
        timeout: Duration,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        self.change_deadline(key, timeout, Change::Set).await
    }

    /// Moves the deadline to at least `timeout` from now.
    pub(crate) async fn extend_deadline(
        &self,
        key: &Key,
        timeout: Duration,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        self.change_deadline(key, timeout, Change::Extend).await
    }

    async fn change_deadline(
        &self,
        key: &Key,
        timeout: Duration,
        change: Change,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        let end = Time::now() + self.within_limit(timeout)?;
        let sandbox = self
            .write(key, |sandbox| {
                let now = Time::now();
                if SandboxState::of(sandbox, now).0 != SandboxState::Running {
                    return Err(refused(sandbox, InputKind::Ready, now));
                }
                Ok(deadlines(sandbox, end, change))
            })
            .await?;
        Ok(Arc::new(record::of(&sandbox, Time::now())))
    }

    /// Resumes a sandbox that is paused, and gives it at least `timeout`.
    pub(crate) async fn connect_one(
        &self,
        key: &Key,
        timeout: Duration,
    ) -> Result<Connected, SandboxError> {
        self.within_limit(timeout)?;
        let sandbox = self.fresh(key).await?;
        if !sandbox.spec.paused
            && SandboxState::of(&sandbox, Time::now()).0 == SandboxState::Running
        {
            let record = self.extend_deadline(key, timeout).await?;
            // A daemon that was started again, with its container, has lost its settings.
            self.initialize_again(&sandbox)
                .await
                .map_err(SandboxError::Guest)?;
            return Ok(Connected {
                record,
                resumed: false,
            });
        }
        let record = self.resume_one(key, timeout).await?;
        Ok(Connected {
            record,
            resumed: true,
        })
    }

    /// Waits until a sandbox that is being paused is paused.
    async fn end_of_pause(&self, key: &Key) -> Result<(), SandboxError> {
        let ended = self
            .watched
            .wait_for(key, PAUSE, || match self.watched.get(key) {
                None => Some(Err(self.gone(key))),
                Some(sandbox) if is_being_paused(&sandbox) => None,
                Some(_) => Some(Ok(())),
            });
        let busy = || Err(SandboxError::Busy(self.id_of(key)));
        ended.await.unwrap_or_else(busy)
    }

    /// Resumes a paused sandbox and waits until it answers.
    pub(crate) async fn resume_one(
        &self,
        key: &Key,
        timeout: Duration,
    ) -> Result<Arc<SandboxRecord>, SandboxError> {
        let timeout = timeout.max(RESUMED.min(self.max_timeout));
        let time = self.within_limit(timeout)?;
        self.fresh(key).await?;
        self.end_of_pause(key).await?;
        let end = Time::now() + time;
        let resumed = self
            .write(key, |sandbox| {
                let now = Time::now();
                resumable(sandbox, now).map_err(|reason| match reason {
                    NotResumable::Terminating | NotResumable::Expired => self.gone(key),
                    NotResumable::Pausing => SandboxError::Busy(sandbox_id(sandbox)),
                    NotResumable::Phase => refused(sandbox, InputKind::Resume, now),
                })?;
                if !sandbox.spec.paused {
                    return Ok(None);
                }
                let mut patch = deadlines(sandbox, end, Change::Set).unwrap_or_else(|| json!({}));
                patch["spec"]["paused"] = false.into();
                // It was said for the last pause.
                patch["metadata"]["annotations"] = json!({annotation::PAUSE_CONTENTS: null});
                Ok(Some(patch))
            })
            .await?;
        let generation = resumed.metadata.generation.unwrap_or_default();
        let ready = ready::wait(&self.watched, key, generation, RESUME).await;
        let ready = ready.map_err(|error| {
            SandboxError::NotResumed(InsideError::Unreachable(error.to_string()))
        })?;
        self.initialize_again(&ready)
            .await
            .map_err(SandboxError::NotResumed)?;
        let ready = match (ready.startup_command(), InitRequest::of(&ready)) {
            (Some(_), Some(_)) => {
                let started = ready::started(&self.watched, key, STARTUP).await;
                started.map_err(|error| {
                    SandboxError::NotResumed(InsideError::Unreachable(error.to_string()))
                })?
            }
            _ => ready,
        };
        // Its time begins now. Another caller may have paused it again, or given it more.
        match self.extend_deadline(key, timeout).await {
            Err(SandboxError::Refused(_)) => Ok(Arc::new(record::of(&ready, Time::now()))),
            extended => extended,
        }
    }

    /// Deletes a sandbox. The operator and Kubernetes remove the rest.
    pub(crate) async fn delete(&self, sandbox: &Sandbox) -> kube::Result<()> {
        let key = key(&sandbox.metadata);
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: sandbox.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        match self.api(&key).delete(&key.1, &params).await {
            Ok(deleted) => match deleted.left() {
                Some(deleting) => drop(self.watched.put(deleting)),
                None => self.watched.end(&key, sandbox.metadata.uid.as_deref()),
            },
            // Gone, or another one has the name.
            Err(error) if failure::is_gone(&error) || failure::is_conflict(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Deletes a sandbox unless it has changed since this state of it. Returns whether it was deleted.
    pub(crate) async fn delete_unchanged(&self, sandbox: &Sandbox) -> kube::Result<bool> {
        let key = key(&sandbox.metadata);
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: sandbox.metadata.uid.clone(),
                resource_version: sandbox.metadata.resource_version.clone(),
            }),
            ..DeleteParams::background()
        };
        match self.api(&key).delete(&key.1, &params).await {
            Ok(_) => Ok(true),
            Err(error) if failure::is_gone(&error) || failure::is_conflict(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes the sandboxes that a claim has labelled with this id.
    pub(crate) async fn delete_labelled(&self, namespace: &str, id: &str) -> kube::Result<()> {
        let api: Api<Sandbox> = Api::namespaced(self.client.clone(), namespace);
        let labelled = ListParams::default().labels(&format!("{}={id}", label::SANDBOX_ID));
        for sandbox in api.list(&labelled).await? {
            self.delete(&sandbox).await?;
        }
        Ok(())
    }

    /// Applies a merge patch.
    pub(crate) async fn patch(&self, key: &Key, patch: &Value) -> kube::Result<Arc<Sandbox>> {
        let params = PatchParams::default();
        let patched = self
            .api(key)
            .patch(&key.1, &params, &Patch::Merge(patch))
            .await?;
        Ok(self.watched.put(patched))
    }

    /// Patches a sandbox as its newest state asks for; none changes nothing. Another write in between
    /// leads to another look.
    pub(crate) async fn write(
        &self,
        key: &Key,
        change: impl Fn(&Sandbox) -> Result<Option<Value>, SandboxError>,
    ) -> Result<Arc<Sandbox>, SandboxError> {
        let mut sandbox = self.known(key).await?;
        for _ in 0..TRIES {
            let Some(mut patch) = change(&sandbox)? else {
                return Ok(sandbox);
            };
            patch["metadata"]["resourceVersion"] = json!(sandbox.metadata.resource_version);
            match self.patch(key, &patch).await {
                Ok(written) => return Ok(written),
                Err(error) if failure::is_conflict(&error) => sandbox = self.fresh(key).await?,
                Err(error) if failure::is_gone(&error) => return Err(self.gone(key)),
                Err(error) => return Err(failure::store(&error).into()),
            }
        }
        Err(SandboxError::Busy(sandbox_id(&sandbox)))
    }

    async fn known(&self, key: &Key) -> Result<Arc<Sandbox>, SandboxError> {
        match self.watched.get(key) {
            Some(known) => Ok(known),
            None => self.fresh(key).await,
        }
    }

    /// The state that the API server has.
    pub(crate) async fn fresh(&self, key: &Key) -> Result<Arc<Sandbox>, SandboxError> {
        let found = self.api(key).get_opt(&key.1).await;
        let found = found.map_err(|error| failure::store(&error))?;
        let found = found.ok_or_else(|| self.gone(key))?;
        Ok(self.watched.put(found))
    }

    pub(crate) fn api(&self, (namespace, _): &Key) -> Api<Sandbox> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn gone(&self, key: &Key) -> SandboxError {
        SandboxError::NotFound(self.id_of(key))
    }

    pub(crate) fn id_of(&self, key: &Key) -> SandboxId {
        let known = self.watched.get(key);
        known.map_or_else(
            || sandbox_id(&Sandbox::default()),
            |sandbox| sandbox_id(&sandbox),
        )
    }
}

/// The patch that moves the deadlines; none for a sandbox without any, which keeps none.
fn deadlines(sandbox: &Sandbox, end: Time, change: Change) -> Option<Value> {
    let (pause, shutdown) = (&sandbox.spec.pause_time, &sandbox.spec.shutdown_time);
    let now = pause.as_ref().or(shutdown.as_ref())?.0;
    if change == Change::Extend && now >= end {
        return None;
    }
    let mut spec = json!({});
    if pause.is_some() {
        let keep = sandbox.annotation(annotation::RESERVE_PAUSED_SANDBOX_DURATION);
        spec["pauseTime"] = text(end);
        spec["shutdownTime"] = text(kept_until(end, kept_paused(keep)));
    } else {
        spec["shutdownTime"] = text(end);
    }
    Some(json!({"spec": spec}))
}

fn is_being_paused(sandbox: &Sandbox) -> bool {
    let phase = sandbox.status.as_ref().and_then(|status| status.phase);
    let can_be_paused = matches!(phase, Some(SandboxPhase::Running | SandboxPhase::Paused));
    let deleted = sandbox.metadata.deletion_timestamp.is_some();
    let ends = sandbox.holds(condition::SANDBOX_PAUSED) || sandbox.pause_failure().is_some();
    sandbox.spec.paused && can_be_paused && !ends && !deleted
}

pub(crate) fn refused(sandbox: &Sandbox, input: InputKind, now: Time) -> SandboxError {
    let state = record::of(sandbox, now).state.kind();
    SandboxError::Refused(Refused { input, state })
}

/// Kubernetes' times have whole seconds.
pub(crate) fn text(time: Time) -> Value {
    let seconds = Time::from_second(time.as_second()).unwrap_or(time);
    seconds.to_string().into()
}
