//! Starts sandboxes, and adopts those of the previous server.

use std::sync::Arc;

use shoal_core::auth::Principal;
use shoal_core::id::{ExecutionId, SandboxId, TeamId};
use shoal_core::sandbox::{IdempotencyKey, Purpose, SandboxRecord, SandboxSpec, TokenSalts};
use shoal_core::state::State;
use shoal_core::store::Version;
use tokio::sync::oneshot;

use super::Sandboxes;
use super::memory::PATIENCE;
use super::names::NameReservation;
use super::quota::{Load, QuotaReservation};
use super::recovery::RecoveryAction;
use super::task::Sandbox;
use crate::random;
use shoal_core::ports::create::{CreateError, Created};

impl Sandboxes {
    /// Starts the task of a recovered sandbox, which first carries out `action`.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        record: SandboxRecord,
        version: Version,
        action: RecoveryAction,
    ) {
        Sandbox::spawn_found(self.clone(), record, version, action);
    }

    /// Starts a sandbox of this specification and waits until it answers.
    pub(crate) async fn launch(
        self: &Arc<Self>,
        principal: &Principal,
        spec: SandboxSpec,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<Created, CreateError> {
        let quota = self.reserve_new(principal.team, Load::of(&spec.resources))?;
        let _admission = self.make_room(PATIENCE).await?;
        let name = self.reserve_name(principal.team, &spec)?;
        let id = SandboxId::from_entropy(random::bytes()?);
        let launched = self.launch_as(id, principal.team, spec, idempotency, (quota, name));
        let record = launched.await?;
        if record.spec.purpose == Purpose::Use {
            let at = record.started_at;
            self.parts.telemetry.starts.count(&record.spec.template, at);
        }
        Ok(Created { record })
    }

    /// Starts a sandbox under an id that was chosen before, with its reservations.
    pub(crate) async fn launch_as(
        self: &Arc<Self>,
        id: SandboxId,
        team: TeamId,
        spec: SandboxSpec,
        idempotency: Option<IdempotencyKey>,
        places: (QuotaReservation, Option<NameReservation>),
    ) -> Result<Arc<SandboxRecord>, CreateError> {
        let now = self.parts.clock.now();
        let record = SandboxRecord {
            id,
            team,
            execution: ExecutionId::from_entropy(random::bytes()?),
            deadline: now + spec.lifecycle.timeout,
            spec,
            state: State::Creating,
            created_at: now,
            started_at: now,
            since: now,
            report: None,
            resizing: false,
            tokens: TokenSalts::default(),
            aim: None,
            idempotency,
        };
        let version = self.parts.store.commit(record.clone(), None).await?;
        let (started, outcome) = oneshot::channel();
        let id = record.id.clone();
        Sandbox::spawn_new(self.clone(), record, version, started);
        // The registry counts the sandbox now.
        drop(places);
        outcome.await.map_err(|_| self.gone(&id))?
    }
}
