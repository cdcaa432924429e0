//! Create a sandbox.

mod specify;

use shoal_core::auth::Principal;
use shoal_core::driver::DriverError;
use shoal_core::limits::within_template;
use shoal_core::resources::MilliCpu;
use shoal_core::sandbox::IdempotencyKey;
use shoal_core::store::{IdempotencyClaim, StoreError};

pub(crate) use self::specify::Specified;
use crate::engine::{Engine, SandboxError};
use crate::sandboxes::{Load, Resize, Room};
pub use shoal_core::ports::create::{
    CpuTarget, CreateError, Created, Idempotency, NewSandbox, ResizeCreated,
};

impl Engine {
    /// Creates a sandbox and waits until it answers.
    ///
    /// Goes on when the caller stops waiting: the sandbox lives until its deadline.
    ///
    /// # Errors
    /// See [`CreateError`]; nothing is left of the sandbox then.
    #[tracing::instrument(level = "debug", skip_all)]
    pub async fn create(
        &self,
        principal: &Principal,
        new: NewSandbox,
        idempotency: Option<Idempotency>,
    ) -> Result<Created, CreateError> {
        let Some(Idempotency { key, request }) = idempotency else {
            return self.create_once(principal, new, None).await;
        };
        let (shared, team) = (&self.shared, principal.team);
        let at = shared.clock.now();
        match shared
            .store
            .claim_idempotency(team, &key, &request, at)
            .await?
        {
            IdempotencyClaim::First => {}
            IdempotencyClaim::InProgress => return Err(CreateError::IdempotencyInProgress),
            IdempotencyClaim::Mismatch => return Err(CreateError::IdempotencyMismatch),
            IdempotencyClaim::Done(id) => {
                let found = self.authorize(principal, &id);
                let (_, record) = found.map_err(|_| CreateError::IdempotencyGone)?;
                return Ok(Created { record });
            }
        }
        // On a task of its own: the key is settled even if the caller disconnects.
        let (engine, principal) = (self.clone(), principal.clone());
        let key = IdempotencyKey { key, at };
        let settled = shared.work.spawn(async move {
            let outcome = engine.create_once(&principal, new, Some(&key)).await;
            let made = outcome.as_ref().ok().map(|created| &created.record.id);
            engine
                .shared
                .store
                .settle_idempotency(team, &key, made)
                .await?;
            outcome
        });
        settled.await.map_err(StoreError::failed)?
    }

    async fn create_once(
        &self,
        principal: &Principal,
        new: NewSandbox,
        key: Option<&IdempotencyKey>,
    ) -> Result<Created, CreateError> {
        let shared = &self.shared;
        let resize = new.resize;
        let specified = self.specified_with_builtin(principal, new.clone()).await?;
        let spec = &specified.spec;
        let most = specified.resolved.base().and_then(|base| base.max_cpu);
        if let (Some(asked), Some(most)) = (new.resources.cpu, most) {
            within_template(asked, most).map_err(SandboxError::from)?;
        }
        let Some(resize) = resize else {
            return self.make(principal, new, specified, key).await;
        };
        let limits = resize.limits(&spec.resources);
        // Before anything is made: what cannot be given is not handed out, and what can be is kept.
        let before = spec.resources;
        let limits = shared
            .access
            .bounds(principal.team)
            .regrant(&before, limits, spec.cpu_ceiling)
            .map_err(SandboxError::from)?
            .resources();
        let kept = shared
            .sandboxes
            .more_for(
                principal.team,
                Load::default(),
                Load::of(&before),
                Load::of(&limits),
            )
            .map_err(SandboxError::from)?;
        let created = self.make(principal, new, specified, key).await?;
        self.resize_created(principal, created, limits.cpu, kept, resize.early_return)
            .await
    }

    /// Makes what was specified, and that anew when what it begins with has gone since: its template was
    /// built anew.
    async fn make(
        &self,
        principal: &Principal,
        new: NewSandbox,
        specified: Specified,
        key: Option<&IdempotencyKey>,
    ) -> Result<Created, CreateError> {
        let gone = match self.claim_or_launch(principal, specified, key).await {
            Err(CreateError::Driver(DriverError::SnapshotNotFound(gone))) => gone,
            made => return made,
        };
        let specified = self.specified_with_builtin(principal, new).await?;
        let now = specified.spec.snapshot.as_ref().map(|saved| saved.id);
        if now == Some(gone) {
            return Err(DriverError::SnapshotNotFound(gone).into());
        }
        self.claim_or_launch(principal, specified, key).await
    }

    /// What a sandbox is to be. A builtin template that is not built yet is built first.
    #[tracing::instrument(level = "debug", name = "resolve", skip_all)]
    pub(crate) async fn specified_with_builtin(
        &self,
        principal: &Principal,
        new: NewSandbox,
    ) -> Result<Specified, CreateError> {
        let missing = match self.specified(principal, new.clone(), None).await {
            Err(CreateError::Template(error)) => error,
            specified => return specified,
        };
        let builds = &self.shared.builds;
        builds.await_missing(principal, missing).await?;
        self.specified(principal, new, None).await
    }

    /// Changes the limits of a sandbox that was just created, and waits for it or not. One that
    /// cannot be changed is not handed out.
    async fn resize_created(
        &self,
        principal: &Principal,
        created: Created,
        cpu: MilliCpu,
        kept: Option<Room>,
        early_return: bool,
    ) -> Result<Created, CreateError> {
        let (permit, _) = self.authorize(principal, &created.record.id)?;
        let resize = Resize {
            cpu: Some(cpu),
            memory: None,
        };
        let resized = self
            .shared
            .sandboxes
            .clone()
            .start_resize(permit, resize, kept)
            .await?;
        if early_return {
            let record = self.shared.sandboxes.record(&created.record.id);
            let record = record.unwrap_or(created.record);
            return Ok(Created { record });
        }
        let outcome = resized
            .await
            .map_err(|_| SandboxError::NotFound(created.record.id.clone()))?;
        Ok(Created { record: outcome? })
    }

    /// Hands out a sandbox that is there already, or else starts one.
    async fn claim_or_launch(
        &self,
        principal: &Principal,
        specified: Specified,
        key: Option<&IdempotencyKey>,
    ) -> Result<Created, CreateError> {
        let Specified { spec, wanted, .. } = specified;
        let claimed = match wanted {
            Some(wanted) => self.claim(principal, &wanted, &spec, key).await?,
            None => None,
        };
        match claimed {
            Some(created) => Ok(created),
            None => {
                let sandboxes = &self.shared.sandboxes;
                sandboxes.launch(principal, spec, key.cloned()).await
            }
        }
    }
}
