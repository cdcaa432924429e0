//! Creating a sandbox: a claim from the pool of its template, or a new one where none waits.

mod entry;
mod finish;
mod once;
mod plan;
mod quota;
mod request;
mod size;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp as Time};
use kube::Api;
use kube::api::PostParams;
use shoal_core::auth::Principal;
use shoal_core::driver::DriverError;
use shoal_core::ports::create::{CreateError, Created, Idempotency, SandboxRequest};
use shoal_crds::kruise::Sandbox;

use self::once::Once;
use self::plan::Plan;
use self::quota::Reserved;
use crate::identity::key;
use crate::options::Keep;
use crate::sandboxes::Sandboxes;
use crate::saves::is_id;
use crate::{failure, internet, record};

/// How long a sandbox may take to become ready when the request does not say: its image may have to be
/// pulled.
const READY: Duration = Duration::from_secs(300);

/// The longest look for a waiting sandbox: the client has gone by then.
const CLAIM: Duration = Duration::from_secs(60);

/// A hundred years: the API has no value for an unlimited time.
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
        idempotency: Option<&Idempotency>,
    ) -> Result<Created, CreateError> {
        // Before a dynamic entry of the catalogue takes the id for a name of its own.
        if let Some(template) = new.template.as_ref().filter(|key| is_id(key.as_str())) {
            self.look_up_snapshot(principal, template.as_str()).await?;
        }
        let Some(once) = idempotency.map(|idempotency| Once::of(principal, idempotency)) else {
            return self.create_from_pool(principal, new).await;
        };
        // Before the request is looked at: its template may have gone since.
        if let Some(made) = self.made_before(&once).await? {
            return Ok(made);
        }
        let mut plan = self.plan(principal, new).await?;
        if plan.options.pooled_only {
            let why = "Bad extension param: create-on-no-stock=false: a create with an idempotency key makes its sandbox";
            return Err(CreateError::InvalidOption(why.to_owned()));
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
        let plan = self.plan(principal, new.clone()).await?;
        let retried = plan.resize.is_none();
        match self.create_planned(principal, plan, Pool::Used).await {
            // The member cannot grow where it is: a new one has its limits from the beginning.
            Err(CreateError::Driver(DriverError::CannotResize(why))) if retried => {
                tracing::info!(why, "a member of a pool could not get its limits");
                let plan = self.plan(principal, new).await?;
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
            // The client's wait does not count as lifetime.
            Ok(ready) if is_new || plan.entry.is_some() => self.begin(&plan, &ready).await,
            Ok(ready) => Ok(Arc::new(record::of(&ready, Time::now()))),
            Err(error) => Err(error),
        };
        match finished {
            Ok(record) => Ok(Created { record }),
            Err(error) => {
                // Another attempt follows, so the request's record does not keep this one.
                if pool == Pool::Used && plan.is_retried_after(&error) {
                    plan.options.keep_failed = None;
                }
                self.clear(&plan, &sandbox).await;
                Err(error)
            }
        }
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
            // A pool of a snapshot's name is another one.
            _ if plan.has_own_pod() => Pool::PassedBy,
            _ => pool,
        };
        if pool == Pool::Used {
            let taken = self.take(plan, reserved).await?;
            self.pools.count(key(&plan.set.metadata), taken.is_some());
            if let Some(taken) = taken {
                return Ok((taken, false));
            }
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

    /// The answer to a write. Without a clear one, the write may have been done: its object is deleted.
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

    /// Looks for a waiting sandbox until one comes or the timeout expires.
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
