//! Create a sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shoal_core::auth::Principal;
use shoal_core::driver::DriverError;
use shoal_core::id::{ExecutionId, SandboxId};
use shoal_core::network::{InvalidRule, NetworkPolicy};
use shoal_core::resources::{InvalidResources, Resources};
use shoal_core::sandbox::{Lifecycle, OnTimeout, SandboxRecord, SandboxSpec};
use shoal_core::state::State;
use shoal_core::store::{IdempotencyClaim, StoreError};
use shoal_core::template::{RuntimeName, Template, TemplateRef};
use tokio::sync::oneshot;

use crate::engine::{Engine, SandboxError};
use crate::entropy::{self, NoEntropy};
use crate::guest::GuestError;
use crate::sandbox::Sandbox;
use crate::templates::TemplateError;

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
    /// Environment of every process, over that of the template.
    pub env: BTreeMap<String, String>,
    /// The OCI runtime, over that of the template.
    pub runtime: Option<RuntimeName>,
    /// Limits, over those of the template.
    pub resources: Option<Resources>,
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
            env: BTreeMap::new(),
            runtime: None,
            resources: None,
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
    /// What it asks for is not there yet.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// The tenant has as many sandboxes as it may.
    #[error("you have reached the limit of {0} sandboxes at once")]
    TeamLimit(usize),
    /// The machine has as many sandboxes as it may.
    #[error("the server has reached its limit of {0} sandboxes at once")]
    NodeLimit(usize),
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
    Sandbox(#[from] SandboxError),
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system has no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
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
        let template = shared.templates.resolve(principal, &new.template)?;
        let spec = self.specify(&template, new)?;
        let limits = &shared.config.limits;
        let (all, of_team) = shared.entries.count(principal.team);
        if of_team >= limits.sandboxes_per_team {
            return Err(CreateError::TeamLimit(limits.sandboxes_per_team));
        }
        if all >= limits.sandboxes {
            return Err(CreateError::NodeLimit(limits.sandboxes));
        }
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
        };
        let version = shared.store.commit(record.clone(), None).await?;
        let (started, outcome) = oneshot::channel();
        let id = record.id.clone();
        Sandbox::spawn_new(shared.clone(), record, version, started);
        let record = outcome.await.map_err(|_| SandboxError::NotFound(id))??;
        shared
            .templates
            .count_start(&record.spec.template, record.started_at);
        Ok(Created { record })
    }

    /// Fills in what was not said.
    fn specify(&self, template: &Template, new: NewSandbox) -> Result<SandboxSpec, CreateError> {
        let most = self.shared.config.limits.max_timeout;
        if new.timeout > most {
            return Err(CreateError::TimeoutTooLong { most });
        }
        if new.timeout.is_zero() {
            return Err(CreateError::NoTimeout);
        }
        if new.on_timeout == OnTimeout::Pause || new.auto_resume {
            return Err(CreateError::Unsupported("pausing a sandbox"));
        }
        new.network.egress.validate()?;
        let resources = new.resources.unwrap_or(template.resources);
        resources.validate()?;
        let mut env = template.env.clone();
        env.extend(new.env);
        Ok(SandboxSpec {
            template: template.id.clone(),
            template_name: template.names.first().map(ToString::to_string),
            image: template.image.clone(),
            runtime: new.runtime.or_else(|| template.runtime.clone()),
            resources,
            user: template.user.clone(),
            workdir: template.workdir.clone(),
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
        })
    }
}
