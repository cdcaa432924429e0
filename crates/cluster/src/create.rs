//! Creating a sandbox: a claim from the pool of its template, or a new one where none waits.

mod entry;
mod request;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp as Time};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as MetaTime;
use kube::Api;
use kube::api::PostParams;
use shoal_core::auth::Principal;
use shoal_core::driver::DriverError;
use shoal_core::ports::NoEntropy;
use shoal_core::ports::create::{CpuTarget, CreateError, Created, ResizeCreated, SandboxRequest};
use shoal_core::resources::MilliCpu;
use shoal_core::sandbox::{OnTimeout, SandboxRecord};
use shoal_crds::kruise::names::{annotation, condition, label};
use shoal_crds::kruise::{Claiming, InitRequest, Sandbox, SandboxSet};

use crate::identity::{self, key};
use crate::lifecycle::STARTUP;
use crate::options::{Keep, Options};
use crate::sandboxes::Sandboxes;
use crate::templates::Found;
use crate::{failure, internet, pod, random, ready, record};

/// How long a sandbox may take to become ready when the request does not say: its image may have to be
/// pulled.
const READY: Duration = Duration::from_secs(300);

/// The longest look for a waiting sandbox: the client has gone by then.
const CLAIM: Duration = Duration::from_secs(60);

/// A hundred years, which clients take for ever.
const FOR_EVER: SignedDuration = SignedDuration::from_hours(100 * 365 * 24);

/// The priority of a sandbox that a client waits for, over those of pools.
const PRIORITY: &str = "100";

/// A request, checked.
struct Plan {
    set: Arc<SandboxSet>,
    /// What is to be done if the template is an entry of the catalogue.
    entry: Option<entry::OfEntry>,
    claiming: Claiming,
    resize: Option<ResizeCreated>,
    /// How long the sandbox lives, unless it does for ever.
    timeout: Option<Duration>,
    /// Whether the internet is closed to it.
    closed: bool,
    options: Options,
}

/// Whether a sandbox may come from the pool.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pool {
    Used,
    PassedBy,
}

impl Plan {
    /// A sandbox for an empty pool.
    fn new_sandbox(&self) -> Sandbox {
        let status = self.set.status.as_ref();
        let revision = match &self.entry {
            Some(entry) => entry.revision(),
            None => status.map_or("", |status| status.update_revision.as_str()),
        };
        let mut sandbox = self.set.member(revision);
        self.claiming.claim(&mut sandbox);
        self.change(&mut sandbox);
        self.begin_when_ready(&mut sandbox);
        if self.entry.is_some() {
            // It comes from no pool, and returns to none.
            let labels = sandbox.metadata.labels.get_or_insert_default();
            labels.remove(label::SANDBOX_POOL);
        }
        let annotations = sandbox.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::SANDBOX_PRIORITY.to_owned(), PRIORITY.to_owned());
        sandbox
    }

    /// What a create changes in the sandbox beside the claim.
    fn change(&self, sandbox: &mut Sandbox) {
        if let Some(entry) = &self.entry {
            entry.change(sandbox);
        }
        if let (Some(resize), Some(template)) = (&self.resize, &mut sandbox.spec.template) {
            let cpu = pod::cpu(template).map(|cpu| cpu.map(|cpu| target(resize, cpu)));
            pod::set_cpu(template, cpu);
        }
    }

    /// Leaves the sandbox the time until it is ready, when its own time begins.
    fn begin_when_ready(&self, sandbox: &mut Sandbox) {
        let starts = self.ready_timeout() + STARTUP;
        for time in [
            &mut sandbox.spec.shutdown_time,
            &mut sandbox.spec.pause_time,
        ] {
            *time = time.take().map(|time| MetaTime(later(time.0, starts)));
        }
    }

    /// How long the sandbox may take to become ready.
    fn ready_timeout(&self) -> Duration {
        self.options.ready_timeout.unwrap_or(READY).min(READY)
    }
}

/// A time, so much later.
fn later(time: Time, by: Duration) -> Time {
    let by = SignedDuration::try_from(by).unwrap_or(FOR_EVER);
    time.checked_add(by).unwrap_or(Time::MAX)
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

    fn plan(&self, principal: &Principal, mut new: SandboxRequest) -> Result<Plan, CreateError> {
        let named = &self.templates;
        let found = named.named(principal, new.template.as_ref(), new.image.as_ref())?;
        request::refuse_unserved(&new, found.entry().is_some())?;
        let set = found.set().clone();
        let id = identity::new_sandbox_id(principal.slug.as_str(), random::bytes()?)
            .map(|id| id.to_string());
        let entry = found.entry().map(|entry| {
            entry::fill(&mut new, entry);
            entry::OfEntry::of(entry, &new, principal, id.as_deref())
        });
        let options = Options::take(&mut new.metadata)?;
        let now = Time::now();
        let (pause_time, shutdown_time) = self.deadlines(&new, &options, now)?;
        request::need_template(&set, &new)?;
        let closed = new.network.egress.internet == Some(false) || request::is_closed(&set);
        let metadata = std::mem::take(&mut new.metadata);
        let (labels, annotations) = request::marks(&set, &new, metadata, &options)?;
        let init = (!options.skip_init).then(|| {
            let mut env_vars = identity_variables(&found, id.as_deref());
            // The user's variables override these.
            env_vars.extend(new.env);
            Ok::<_, NoEntropy>(InitRequest {
                env_vars,
                access_token: hex(&random::bytes::<32>()?),
            })
        });
        let claiming = Claiming {
            id,
            owner: principal.key.to_string(),
            lock: hex(&random::bytes::<16>()?),
            at: now,
            claim_name: None,
            shutdown_time,
            pause_time,
            labels,
            annotations,
            annotate_pod: false,
            init: init.transpose()?,
        };
        Ok(Plan {
            set,
            entry,
            claiming,
            resize: new.resize,
            timeout: (!new.endless).then_some(new.timeout),
            closed,
            options,
        })
    }

    /// When the sandbox is paused, and when it is deleted.
    fn deadlines(
        &self,
        new: &SandboxRequest,
        options: &Options,
        now: Time,
    ) -> Result<(Option<Time>, Option<Time>), CreateError> {
        if new.endless {
            return Ok((None, None));
        }
        if new.timeout.is_zero() {
            return Err(CreateError::NoTimeout);
        }
        let end = now + self.within_limit(new.timeout)?;
        Ok(match new.on_timeout {
            OnTimeout::Kill => (None, Some(end)),
            OnTimeout::Pause => (Some(end), Some(kept_until(end, options.kept_paused()))),
        })
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

/// The variables by which programs know that they are in a sandbox, and in which one.
fn identity_variables(found: &Found, id: Option<&str>) -> BTreeMap<String, String> {
    let template = match found.entry() {
        Some(entry) => entry.entry.name.template_id(),
        None => {
            let (namespace, name) = key(&found.set().metadata);
            identity::template(&namespace, &name)
        }
    };
    let variables = [
        ("E2B_SANDBOX", "true".to_owned()),
        ("E2B_SANDBOX_ID", id.unwrap_or_default().to_owned()),
        ("E2B_TEMPLATE_ID", template.to_string()),
    ];
    variables
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn target(resize: &ResizeCreated, before: MilliCpu) -> MilliCpu {
    let before = shoal_core::resources::Resources {
        cpu: before,
        ..shoal_core::resources::Resources::default()
    };
    resize.limits(&before).cpu
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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
