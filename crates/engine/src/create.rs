//! Create a sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shoal_core::auth::Principal;
use shoal_core::driver::DriverError;
use shoal_core::id::{ExecutionId, SandboxId};
use shoal_core::network::{InvalidRule, NetworkPolicy};
use shoal_core::resources::{InvalidResources, Mib, MilliCpu, Resources};
use shoal_core::sandbox::{Lifecycle, OnTimeout, SandboxRecord, SandboxSpec};
use shoal_core::state::State;
use shoal_core::store::{IdempotencyClaim, StoreError};
use shoal_core::template::{RuntimeName, Template, TemplateRef};
use tokio::sync::oneshot;

use crate::engine::{Engine, NoRoom, SandboxError};
use crate::entropy::{self, NoEntropy};
use crate::guest::GuestError;
use crate::names::NameError;
use crate::sandbox::Sandbox;
use crate::templates::TemplateError;

/// How many times its own processor time a sandbox can be given in place, when its template does not
/// say: a runtime has to know when it starts.
const GROWTH: u32 = 4;

/// What a sandbox has that is not there yet.
const NOTHING: Resources = Resources {
    cpu: MilliCpu(0),
    memory: Mib(0),
    disk: Mib(0),
    pids: 0,
};

/// What a user asks for. What is not said comes from the template.
#[derive(Debug, Clone)]
pub struct NewSandbox {
    /// The template.
    pub template: TemplateRef,
    /// How long it lives.
    pub timeout: Duration,
    /// What happens then.
    pub on_timeout: OnTimeout,
    /// Whether traffic wakes it when it is paused.
    pub auto_resume: bool,
    /// Whether a pause at the deadline keeps memory.
    pub keep_memory: bool,
    /// Whether the daemon inside asks for its token.
    pub secure: bool,
    /// Its network.
    pub network: NetworkPolicy,
    /// The user's labels.
    pub metadata: BTreeMap<String, String>,
    /// Where commands start, over that of the template.
    pub workdir: Option<String>,
    /// Environment of every process, over that of the template.
    pub env: BTreeMap<String, String>,
    /// The OCI runtime, over that of the template.
    pub runtime: Option<RuntimeName>,
    /// Limits, over those of the template.
    pub resources: Option<Resources>,
    /// Limits that are put in force when it runs, in place.
    pub resize: Option<ResizeCreated>,
}

/// How the limits of a sandbox change as soon as it runs (seed 001).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResizeCreated {
    /// How the processor time is said.
    pub cpu: CpuTarget,
    /// Whether the sandbox is handed out as soon as the change is known to be feasible.
    pub early_return: bool,
}

/// Processor time, as it is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CpuTarget {
    /// So many times what the template gives.
    Factor(f64),
    /// So much.
    Absolute(MilliCpu),
}

impl ResizeCreated {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float becomes the nearest number there is"
    )]
    fn limits(&self, before: &Resources) -> Resources {
        let cpu = match self.cpu {
            CpuTarget::Absolute(cpu) => cpu,
            CpuTarget::Factor(factor) => {
                MilliCpu((f64::from(before.cpu.0) * factor).round() as u32)
            }
        };
        Resources { cpu, ..*before }
    }
}

impl NewSandbox {
    /// A sandbox of this template, with the field's defaults: 300 s, then killed; secured.
    #[must_use]
    pub fn of(template: TemplateRef) -> Self {
        Self {
            template,
            timeout: Duration::from_secs(300),
            on_timeout: OnTimeout::Kill,
            auto_resume: false,
            keep_memory: true,
            secure: true,
            network: NetworkPolicy::default(),
            metadata: BTreeMap::new(),
            workdir: None,
            env: BTreeMap::new(),
            runtime: None,
            resources: None,
            resize: None,
        }
    }
}

/// A client's word that requests with the same key are the same request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The key.
    pub key: String,
    /// A digest of the request.
    pub request: [u8; 32],
}

/// A sandbox that runs.
#[derive(Debug, Clone)]
pub struct Created {
    /// What is known of it.
    pub record: Arc<SandboxRecord>,
}

/// Why no sandbox was created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The template cannot be used.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The life asked for is zero or too long.
    #[error("Timeout cannot be greater than {} hours", .most.as_secs().div_ceil(3600))]
    TimeoutTooLong {
        /// The longest that is allowed.
        most: Duration,
    },
    /// The life asked for is zero.
    #[error("Timeout must be greater than 0")]
    NoTimeout,
    /// A limit makes no sense.
    #[error(transparent)]
    Resources(#[from] InvalidResources),
    /// A rule of the network makes no sense.
    #[error(transparent)]
    Network(#[from] InvalidRule),
    /// The name cannot be one, or another sandbox has it.
    #[error(transparent)]
    Name(#[from] NameError),
    /// There are as many sandboxes as there may be.
    #[error(transparent)]
    Full(#[from] NoRoom),
    /// The idempotency key was used for another request.
    #[error("the idempotency key was used for another request")]
    IdempotencyMismatch,
    /// The same request is still under way.
    #[error("a request with this idempotency key is still in progress")]
    IdempotencyInProgress,
    /// The same request made a sandbox that is gone since.
    #[error("the sandbox that this idempotency key made is gone")]
    IdempotencyGone,
    /// The driver could not make it.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// It was made and does not answer.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// It was ended while it was made.
    #[error(transparent)]
    Sandbox(SandboxError),
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system has no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}

impl From<SandboxError> for CreateError {
    /// What has a name of its own here keeps it.
    fn from(error: SandboxError) -> Self {
        match error {
            SandboxError::Driver(driver) => Self::Driver(driver),
            SandboxError::Guest(guest) => Self::Guest(guest),
            SandboxError::Store(store) => Self::Store(store),
            SandboxError::Full(full) => Self::Full(full),
            SandboxError::Resources(resources) => Self::Resources(resources),
            SandboxError::Entropy(entropy) => Self::Entropy(entropy),
            other => Self::Sandbox(other),
        }
    }
}

impl Engine {
    /// Creates a sandbox and waits until it answers.
    ///
    /// Goes on when the caller stops waiting: the sandbox lives until its deadline.
    ///
    /// # Errors
    /// See [`CreateError`]; nothing is left of the sandbox then.
    pub async fn create(
        &self,
        principal: &Principal,
        new: NewSandbox,
        idempotency: Option<Idempotency>,
    ) -> Result<Created, CreateError> {
        let Some(Idempotency { key, request }) = idempotency else {
            return self.create_once(principal, new).await;
        };
        let (shared, team) = (&self.shared, principal.team);
        match shared
            .store
            .claim_idempotency(team, &key, &request, shared.clock.now())
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
        // On a task of its own: whoever asked may stop waiting, and the claim is settled all the
        // same.
        let (engine, principal) = (self.clone(), principal.clone());
        let settled = tokio::spawn(async move {
            let outcome = engine.create_once(&principal, new).await;
            let made = outcome.as_ref().ok().map(|created| &created.record.id);
            engine
                .shared
                .store
                .settle_idempotency(team, &key, made)
                .await?;
            outcome
        });
        settled
            .await
            .map_err(|e| StoreError::Failed(e.to_string()))?
    }

    async fn create_once(
        &self,
        principal: &Principal,
        new: NewSandbox,
    ) -> Result<Created, CreateError> {
        let shared = &self.shared;
        let resize = new.resize;
        let spec = match shared.templates.resolve(principal, &new.template) {
            Ok(template) => self.specify(&self.base_of(&template), new)?,
            Err(unknown) => {
                let now = shared.clock.now();
                let snapshot = shared.snapshots.resolve(principal, &new.template, now);
                self.specify(&snapshot.ok_or(unknown)?.spec_of_clone(), new)?
            }
        };
        let Some(resize) = resize else {
            return self.launch(principal, spec).await;
        };
        let limits = resize.limits(&spec.resources);
        // Before anything is made: what cannot be given is not handed out.
        shared.feasible(
            principal.team,
            &NOTHING,
            &limits,
            spec.cpu_ceiling.max(spec.resources.cpu),
        )?;
        let created = self.launch(principal, spec).await?;
        self.resize_created(principal, created, limits, resize.early_return)
            .await
    }

    /// Changes the limits of a sandbox that was just created, and waits for it or not. One that
    /// cannot be changed is not handed out.
    async fn resize_created(
        &self,
        principal: &Principal,
        created: Created,
        limits: Resources,
        early_return: bool,
    ) -> Result<Created, CreateError> {
        let (permit, _) = self.authorize(principal, &created.record.id)?;
        let resized = self.clone().start_resize(permit, limits).await?;
        if early_return {
            let record = self.shared.entries.record(&created.record.id);
            let record = record.unwrap_or(created.record);
            return Ok(Created { record });
        }
        let outcome = resized
            .await
            .map_err(|_| SandboxError::NotFound(created.record.id.clone()))?;
        Ok(Created { record: outcome? })
    }

    /// Starts a sandbox that is to be this, and waits until it answers.
    pub(crate) async fn launch(
        &self,
        principal: &Principal,
        spec: SandboxSpec,
    ) -> Result<Created, CreateError> {
        let shared = &self.shared;
        let room = shared.room_for_one(principal.team)?;
        let name = shared.keep_name(principal.team, &spec)?;
        let now = shared.clock.now();
        let record = SandboxRecord {
            id: SandboxId::from_entropy(entropy::bytes()?),
            team: principal.team,
            execution: ExecutionId::from_entropy(entropy::bytes()?),
            deadline: now + spec.lifecycle.timeout,
            spec,
            state: State::Creating,
            created_at: now,
            started_at: now,
            since: now,
            report: None,
            saved: None,
            resizing: false,
        };
        let version = shared.store.commit(record.clone(), None).await?;
        let (started, outcome) = oneshot::channel();
        let id = record.id.clone();
        Sandbox::spawn_new(shared.clone(), record, version, started);
        // It is known itself now.
        drop((room, name));
        let record = outcome.await.map_err(|_| SandboxError::NotFound(id))??;
        shared
            .templates
            .count_start(&record.spec.template, record.started_at);
        Ok(Created { record })
    }

    /// What a sandbox of a template is, unless more is said.
    fn base_of(&self, template: &Template) -> SandboxSpec {
        let machine = self.shared.driver.capabilities().cpu;
        let ceiling = template
            .max_cpu
            .unwrap_or_else(|| MilliCpu(template.resources.cpu.0.saturating_mul(GROWTH)));
        SandboxSpec {
            template: template.id.clone(),
            template_name: template.names.first().map(ToString::to_string),
            image: template.image.clone(),
            runtime: template.runtime.clone(),
            resources: template.resources,
            user: template.user.clone(),
            workdir: template.workdir.clone(),
            env: template.env.clone(),
            metadata: BTreeMap::new(),
            lifecycle: Lifecycle {
                timeout: Duration::ZERO,
                on_timeout: OnTimeout::Kill,
                auto_resume: false,
                keep_memory: true,
            },
            network: NetworkPolicy::default(),
            secure: true,
            persistent: template.persistent,
            cpu_ceiling: ceiling.min(machine),
            snapshot: None,
        }
    }

    /// Fills in what was said.
    fn specify(&self, base: &SandboxSpec, new: NewSandbox) -> Result<SandboxSpec, CreateError> {
        let most = self.shared.config.limits.max_timeout;
        if new.timeout > most {
            return Err(CreateError::TimeoutTooLong { most });
        }
        if new.timeout.is_zero() {
            return Err(CreateError::NoTimeout);
        }
        new.network.egress.validate()?;
        let resources = new.resources.unwrap_or(base.resources);
        resources.validate()?;
        let runtime = new.runtime.or_else(|| base.runtime.clone());
        if new.on_timeout == OnTimeout::Pause && new.keep_memory {
            self.must_keep_memory(runtime.as_ref())?;
        }
        let mut env = base.env.clone();
        env.extend(new.env);
        Ok(SandboxSpec {
            runtime,
            resources,
            workdir: new.workdir.or_else(|| base.workdir.clone()),
            env,
            metadata: new.metadata,
            lifecycle: Lifecycle {
                timeout: new.timeout,
                on_timeout: new.on_timeout,
                auto_resume: new.auto_resume,
                keep_memory: new.keep_memory,
            },
            network: new.network,
            secure: new.secure,
            ..base.clone()
        })
    }

    /// Whether what is to be paused at its deadline can be: said now, and not in the night.
    fn must_keep_memory(&self, runtime: Option<&RuntimeName>) -> Result<(), CreateError> {
        let runtimes = &self.capabilities().runtimes;
        let info = match runtime {
            Some(name) => runtimes.iter().find(|info| info.name == *name),
            None => runtimes.first(),
        };
        match info {
            Some(info) if !info.memory_snapshot => Err(DriverError::Unsupported {
                runtime: info.name.clone(),
                operation: "keep memory in a pause",
                instead: "autoPauseMemory: false, or the runtime runsc",
            }
            .into()),
            // An unknown one is refused by the driver, by name.
            _ => Ok(()),
        }
    }
}
