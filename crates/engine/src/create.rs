//! Creating a sandbox.
//!
//! A create is a pipeline of five steps, one method each:
//!
//! 1. `authorize` refuses what the caller may not ask for, before anything is looked up.
//! 2. [`resolve`](Resolver::resolve_request) finds the template, snapshot or image that the request names.
//! 3. [`plan`](Planner::plan) fills in every value: a [`SandboxSpec`], and the pool that can supply it.
//! 4. `place` claims a pool member or starts a sandbox.
//! 5. `commit` puts a resize in force that is part of the request, and hands the sandbox out.
//!
//! One loop ([`Creator::create_once`]) repeats steps 2 to 4 where a second attempt can succeed.
//! Idempotency keys wrap the whole pipeline.

use std::sync::Arc;

use shoal_core::auth::Principal;
use shoal_core::clock::Clock;
use shoal_core::driver::DriverError;
use shoal_core::id::SnapshotId;
use shoal_core::limits::within_template;
use shoal_core::ports::resolve::Resolved;
use shoal_core::ports::sandboxes::{Resize, SandboxError};
use shoal_core::resources::MilliCpu;
use shoal_core::sandbox::{IdempotencyKey, SandboxSpec};
use shoal_core::store::{IdempotencyClaim, IdempotencyStore, StoreError};

use crate::access::Access;
use crate::build_records::BuildRecords;
use crate::config::{Endless, EngineConfig};
use crate::drivers::Drivers;
use crate::plan::{Planner, PoolKey};
use crate::pool::Pools;
use crate::resolve::Resolver;
use crate::sandboxes::{Load, QuotaReservation, Sandboxes};
use crate::work::Work;
pub use shoal_core::ports::create::{
    CpuTarget, CreateError, Created, Idempotency, ResizeCreated, SandboxRequest,
};

/// The dependencies of [`Creator`].
pub(crate) struct CreatorParts {
    pub(crate) store: Arc<dyn IdempotencyStore>,
    pub(crate) drivers: Arc<Drivers>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) access: Arc<Access>,
    pub(crate) builds: Arc<BuildRecords>,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) planner: Arc<Planner>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) work: Work,
}

/// Creates sandboxes for clients.
pub(crate) struct Creator {
    endless: Endless,
    parts: CreatorParts,
}

/// The findings of earlier attempts of a create.
#[derive(Default)]
struct Retries {
    /// A planned snapshot that no longer exists.
    gone: Option<SnapshotId>,
    /// Saved memory is unusable: boot from the files of the snapshot.
    without_memory: bool,
}

/// The resize that is part of a request, before the sandbox exists.
struct PendingResize {
    cpu: MilliCpu,
    reservation: Option<QuotaReservation>,
    early_return: bool,
}

impl Creator {
    pub(crate) fn new(config: &EngineConfig, parts: CreatorParts) -> Self {
        Self {
            endless: config.limits.endless,
            parts,
        }
    }

    /// Creates a sandbox and waits until it answers. With an idempotency key, a repeated request
    /// returns the sandbox of the first one.
    ///
    /// # Errors
    /// See [`CreateError`]; no part of the sandbox remains.
    #[tracing::instrument(level = "debug", skip_all)]
    pub(crate) async fn create(
        self: &Arc<Self>,
        principal: &Principal,
        new: SandboxRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<Created, CreateError> {
        let Some(Idempotency { key, request }) = idempotency else {
            return self.create_once(principal, &new, None).await;
        };
        let (parts, team) = (&self.parts, principal.team);
        let at = parts.clock.now();
        let claim = parts.store.claim_idempotency(team, &key, &request, at);
        match claim.await? {
            IdempotencyClaim::First => {}
            IdempotencyClaim::InProgress => return Err(CreateError::IdempotencyInProgress),
            IdempotencyClaim::Mismatch => return Err(CreateError::IdempotencyMismatch),
            IdempotencyClaim::Done(id) => {
                let found = parts.sandboxes.authorize(principal, &id);
                let (_, record) = found.map_err(|_| CreateError::IdempotencyGone)?;
                return Ok(Created { record });
            }
        }
        // On a task of its own: the key is settled even if the caller disconnects.
        let (creator, principal) = (self.clone(), principal.clone());
        let key = IdempotencyKey { key, at };
        let settled = parts.work.spawn(async move {
            let outcome = creator.create_once(&principal, &new, Some(&key)).await;
            let created = outcome.as_ref().ok().map(|created| &created.record.id);
            let store = &creator.parts.store;
            store.settle_idempotency(team, &key, created).await?;
            outcome
        });
        settled.await.map_err(StoreError::failed)?
    }

    /// Runs the pipeline, with the only retry loop of a create.
    async fn create_once(
        &self,
        principal: &Principal,
        new: &SandboxRequest,
        key: Option<&IdempotencyKey>,
    ) -> Result<Created, CreateError> {
        self.authorize(principal, new)?;
        let (resolver, planner) = (&self.parts.resolver, &self.parts.planner);
        let mut retries = Retries::default();
        let (created, resize) = loop {
            let resolved = resolver.resolve_request(principal, new).await?;
            let (mut spec, mut pool) = planner.plan(principal, &resolved, new)?;
            retries.apply(&mut spec, &mut pool)?;
            let resize = self.reserve_resize(principal, &resolved, &spec, new)?;
            let memory = spec.snapshot.as_ref().filter(|origin| origin.memory);
            let memory = memory.map(|origin| origin.id);
            match self.place(principal, spec, pool, key).await {
                Ok(created) => break (created, resize),
                Err(error) => self.check_retry(error, memory, &mut retries)?,
            }
        };
        self.commit(principal, created, resize).await
    }

    /// Refuses values that the caller is not allowed to set, regardless of the template.
    fn authorize(&self, principal: &Principal, new: &SandboxRequest) -> Result<(), CreateError> {
        if new.endless && self.endless == Endless::Admins && !principal.admin {
            return Err(CreateError::EndlessForbidden);
        }
        self.parts.sandboxes.check_timeout(new.timeout)?;
        if new.timeout.is_zero() {
            return Err(CreateError::NoTimeout);
        }
        new.network.validate()?;
        Ok(())
    }

    /// Reserves what the resize of the request needs beyond the plan. A sandbox that could not be
    /// resized is never started.
    fn reserve_resize(
        &self,
        principal: &Principal,
        resolved: &Resolved,
        spec: &SandboxSpec,
        new: &SandboxRequest,
    ) -> Result<Option<PendingResize>, CreateError> {
        let most = resolved.base().and_then(|base| base.max_cpu);
        if let (Some(asked), Some(most)) = (new.resources.cpu, most) {
            within_template(asked, most).map_err(SandboxError::from)?;
        }
        let Some(resize) = new.resize else {
            return Ok(None);
        };
        let driver = self.parts.drivers.of_runtime(spec.runtime.as_ref());
        driver.resizes()?;
        let before = spec.resources;
        let bounds = self.parts.access.bounds(principal.team);
        let granted = bounds.regrant(&before, resize.limits(&before), spec.cpu_ceiling);
        let limits = granted.map_err(SandboxError::from)?.resources();
        let (planned, resized) = (Load::of(&before), Load::of(&limits));
        let sandboxes = &self.parts.sandboxes;
        let reservation =
            sandboxes.reserve_growth(principal.team, Load::default(), planned, resized);
        Ok(Some(PendingResize {
            cpu: limits.cpu,
            reservation: reservation.map_err(SandboxError::from)?,
            early_return: resize.early_return,
        }))
    }

    /// Claims a member of the pool, or starts a sandbox when there is none.
    async fn place(
        &self,
        principal: &Principal,
        spec: SandboxSpec,
        pool: Option<PoolKey>,
        key: Option<&IdempotencyKey>,
    ) -> Result<Created, CreateError> {
        let parts = &self.parts;
        if let Some(pool) = pool
            && let Some(claimed) = parts.pools.claim(principal, &pool, &spec, key).await?
        {
            return Ok(claimed);
        }
        parts.sandboxes.launch(principal, spec, key.cloned()).await
    }

    /// Returns `error` unless a further attempt can succeed. Each cause counts once: a rebuilt template
    /// has a new snapshot, and a snapshot of a build can boot from its files, because the start command
    /// leads to the same state. A user's snapshot has no such substitute for its `memory`.
    fn check_retry(
        &self,
        error: CreateError,
        memory: Option<SnapshotId>,
        retries: &mut Retries,
    ) -> Result<(), CreateError> {
        match (&error, memory) {
            (CreateError::Driver(DriverError::SnapshotNotFound(id)), _)
                if retries.gone.is_none() =>
            {
                retries.gone = Some(*id);
                Ok(())
            }
            (CreateError::Driver(DriverError::Unusable(why)), Some(id))
                if !retries.without_memory && self.parts.builds.snapshots().contains(&id) =>
            {
                tracing::warn!(snapshot.id = %id, why, "the memory of a template's snapshot is unusable: booting from its files until the template is rebuilt");
                retries.without_memory = true;
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Hands the sandbox out, resized if the request says so. The sandbox is ended when the resize
    /// fails.
    async fn commit(
        &self,
        principal: &Principal,
        created: Created,
        resize: Option<PendingResize>,
    ) -> Result<Created, CreateError> {
        let Some(pending) = resize else {
            return Ok(created);
        };
        let sandboxes = &self.parts.sandboxes;
        let (permit, _) = sandboxes.authorize(principal, &created.record.id)?;
        let resize = Resize {
            cpu: Some(pending.cpu),
            memory: None,
        };
        let resized = sandboxes
            .clone()
            .start_resize(permit, resize, pending.reservation)
            .await?;
        if pending.early_return {
            let record = sandboxes.record(&created.record.id);
            let record = record.unwrap_or(created.record);
            return Ok(Created { record });
        }
        let outcome = resized
            .await
            .map_err(|_| SandboxError::NotFound(created.record.id.clone()))?;
        Ok(Created { record: outcome? })
    }
}

impl Retries {
    /// Applies what earlier attempts have found out to the next plan.
    fn apply(&self, spec: &mut SandboxSpec, pool: &mut Option<PoolKey>) -> Result<(), CreateError> {
        let Some(origin) = &mut spec.snapshot else {
            return Ok(());
        };
        if let Some(gone) = self.gone.filter(|gone| *gone == origin.id) {
            return Err(DriverError::SnapshotNotFound(gone).into());
        }
        if self.without_memory {
            origin.memory = false;
            // Its pool has been asked already.
            *pool = None;
        }
        Ok(())
    }
}
