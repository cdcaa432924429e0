//! Creating a sandbox: a claim from the pool of its template, or a new one where none waits.

mod entry;
mod finish;
mod once;
mod quota;
mod request;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp as Time};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as MetaTime;
use kube::Api;
use kube::api::PostParams;
use shoal_core::auth::Principal;
use shoal_core::driver::DriverError;
use shoal_core::ports::NoEntropy;
use shoal_core::ports::create::{CreateError, Created, Idempotency, ResizeCreated, SandboxRequest};
use shoal_core::resources::MilliCpu;
use shoal_core::sandbox::OnTimeout;
use shoal_crds::kruise::names::{annotation, label};
use shoal_crds::kruise::{Claiming, InitRequest, Sandbox, SandboxSet};

use self::once::Once;
use self::quota::Reserved;
use crate::identity::{self, key};
use crate::lifecycle::STARTUP;
use crate::options::{Keep, Options};
use crate::sandboxes::Sandboxes;
use crate::{failure, internet, pod, random, record};

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
    /// The only sandbox of the request's idempotency key.
    once: Option<Once>,
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
        if let Some(once) = &self.once {
            once.name(&mut sandbox);
        }
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
        idempotency: Option<&Idempotency>,
    ) -> Result<Created, CreateError> {
        let Some(once) = idempotency.map(|idempotency| Once::of(principal, idempotency)) else {
            return self.create_from_pool(principal, new).await;
        };
        let mut plan = self.plan(principal, new)?;
        if plan.options.pooled_only {
            let why = "Bad extension param: create-on-no-stock=false: a create with an idempotency key makes its sandbox";
            return Err(CreateError::InvalidOption(why.to_owned()));
        }
        if let Some(made) = self.made_before(&once).await? {
            return Ok(made);
        }
        plan.once = Some(once.clone());
        match self.create_planned(principal, plan, Pool::PassedBy).await {
            // The same request was faster, here or at another replica.
            Err(refused @ (CreateError::IdempotencyInProgress | CreateError::Full(_))) => {
                self.made_before(&once).await?.ok_or(refused)
            }
            created => created,
        }
    }

    async fn create_from_pool(
        &self,
        principal: &Principal,
        new: SandboxRequest,
    ) -> Result<Created, CreateError> {
        let plan = self.plan(principal, new.clone())?;
        match self.create_planned(principal, plan, Pool::Used).await {
            // The member cannot grow where it is: a new one has its limits from the beginning.
            Err(CreateError::Driver(DriverError::CannotResize(why))) if new.resize.is_none() => {
                tracing::info!(why, "a member of a pool could not get its limits");
                let plan = self.plan(principal, new)?;
                self.create_planned(principal, plan, Pool::PassedBy).await
            }
            done => done,
        }
    }

    async fn create_planned(
        &self,
        principal: &Principal,
        mut plan: Plan,
        pool: Pool,
    ) -> Result<Created, CreateError> {
        if plan.closed {
            let (namespace, _) = key(&plan.set.metadata);
            internet::check_policy(&self.client, &namespace).await?;
        }
        let mut reserved = self.reserve(principal, &mut plan).await?;
        let (sandbox, is_new) = match self.place(&plan, pool, &mut reserved).await {
            Ok(placed) => placed,
            Err(error) => {
                quota::release(reserved, Some(&error)).await;
                return Err(error);
            }
        };
        let finish = self.finish(&plan, &sandbox, is_new);
        let finished = match tokio::join!(finish, quota::release(reserved, None)).0 {
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
            let mut env_vars = request::identity_variables(&found, id.as_deref());
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
            quota_key: None,
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
            once: None,
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
    async fn place(
        &self,
        plan: &Plan,
        pool: Pool,
        reserved: &mut Reserved<'_>,
    ) -> Result<(Arc<Sandbox>, bool), CreateError> {
        let pool = match &plan.entry {
            // It would stay as it is, and be lost.
            Some(entry) if !entry.can_raise() => Pool::PassedBy,
            _ => pool,
        };
        if pool == Pool::Used
            && let Some(taken) = self.take(plan, reserved).await?
        {
            return Ok((taken, false));
        }
        if plan.options.pooled_only {
            if let Some(time) = plan.options.claim_timeout.filter(|_| pool == Pool::Used)
                && let Some(taken) = self.take_within(plan, time, reserved).await?
            {
                return Ok((taken, false));
            }
            return Err(CreateError::NotReady(
                "no sandbox of its pool waits".to_owned(),
            ));
        }
        let sandbox = plan.new_sandbox();
        quota::renew(reserved).await?;
        let (namespace, _) = key(&plan.set.metadata);
        let api: Api<Sandbox> = Api::namespaced(self.client.clone(), &namespace);
        let made = api.create(&PostParams::default(), &sandbox).await;
        if plan.once.is_some() && made.as_ref().is_err_and(failure::is_conflict) {
            return Err(CreateError::IdempotencyInProgress);
        }
        Ok((self.watched.put(self.answered(plan, made).await?), true))
    }

    /// Claims a sandbox that waits, if one does.
    async fn take(
        &self,
        plan: &Plan,
        reserved: &mut Reserved<'_>,
    ) -> Result<Option<Arc<Sandbox>>, CreateError> {
        quota::renew(reserved).await?;
        let revision = plan.entry.as_ref().map(entry::OfEntry::revision);
        let change = |sandbox: &mut Sandbox| {
            plan.change(sandbox);
            if plan.entry.is_some() {
                plan.begin_when_ready(sandbox);
            }
            quota::allows(reserved, sandbox)
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
        reserved: &mut Reserved<'_>,
    ) -> Result<Option<Arc<Sandbox>>, CreateError> {
        let end = tokio::time::Instant::now() + time.min(CLAIM);
        let mut pause = Duration::from_millis(200);
        while tokio::time::Instant::now() + pause < end {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(2));
            if let Some(taken) = self.take(plan, reserved).await? {
                return Ok(Some(taken));
            }
        }
        Ok(None)
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

fn target(resize: &ResizeCreated, before: MilliCpu) -> MilliCpu {
    let before = shoal_core::resources::Resources {
        cpu: before,
        ..shoal_core::resources::Resources::default()
    };
    resize.limits(&before).cpu
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
