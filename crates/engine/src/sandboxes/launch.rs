//! Starts sandboxes, and adopts those of a previous server.

use std::sync::Arc;

use shoal_core::auth::Principal;
use shoal_core::driver::DriverError;
use shoal_core::id::{ExecutionId, SandboxId, TeamId};
use shoal_core::sandbox::{IdempotencyKey, Purpose, SandboxRecord, SandboxSpec, TokenSalts};
use shoal_core::state::State;
use shoal_core::store::Version;
use tokio::sync::oneshot;

use super::Sandboxes;
use super::names::KeptName;
use super::quota::{Load, Room};
use super::recovery::Was;
use super::task::Sandbox;
use crate::entropy;
use shoal_core::ports::create::{CreateError, Created};

impl Sandboxes {
    /// Begins the task of a sandbox that the start of the server has found; `was` says how.
    pub(crate) fn adopt(self: &Arc<Self>, record: SandboxRecord, version: Version, was: Was) {
        Sandbox::spawn_found(self.clone(), record, version, was);
    }

    /// Starts a sandbox of this specification and waits until it answers.
    pub(crate) async fn launch(
        self: &Arc<Self>,
        principal: &Principal,
        spec: SandboxSpec,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<Created, CreateError> {
        let load = Load::of(&spec.resources);
        let room = self.room_for_one(principal.team, load)?;
        let name = self.keep_name(principal.team, &spec)?;
        let id = SandboxId::from_entropy(entropy::bytes()?);
        let places = (room, name);
        let saved = spec.snapshot.as_ref().is_some_and(|saved| saved.memory);
        let again = saved.then(|| spec.clone());
        let started = self.launch_as(id, principal.team, spec, idempotency.clone(), places);
        let record = match started.await {
            Err(CreateError::Driver(DriverError::Unusable(why)))
                if let Some(spec) = again.and_then(|spec| self.without_memory(spec)) =>
            {
                tracing::warn!(template.id = %spec.template, why, "what a build has saved cannot go on: it boots from its files, until the template is built again");
                let places = (
                    self.room_for_one(principal.team, load)?,
                    self.keep_name(principal.team, &spec)?,
                );
                let id = SandboxId::from_entropy(entropy::bytes()?);
                self.launch_as(id, principal.team, spec, idempotency, places)
                    .await?
            }
            made => made?,
        };
        if record.spec.purpose == Purpose::Use {
            let at = record.started_at;
            self.telemetry.starts.count(&record.spec.template, at);
        }
        Ok(Created { record })
    }

    /// The same specification without memory, when its snapshot is the output of a build: the start
    /// command brings it to the same point. A sandbox of a user's snapshot needs its memory.
    fn without_memory(&self, mut spec: SandboxSpec) -> Option<SandboxSpec> {
        let origin = spec.snapshot.as_mut()?;
        let built = self.builds.snapshots().contains(&origin.id);
        origin.memory = false;
        built.then_some(spec)
    }

    /// Starts a sandbox under an id that was chosen before, with its reservations.
    pub(crate) async fn launch_as(
        self: &Arc<Self>,
        id: SandboxId,
        team: TeamId,
        spec: SandboxSpec,
        idempotency: Option<IdempotencyKey>,
        places: (Room, Option<KeptName>),
    ) -> Result<Arc<SandboxRecord>, CreateError> {
        let now = self.clock.now();
        let record = SandboxRecord {
            id,
            team,
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
            tokens: TokenSalts::default(),
            aim: None,
            idempotency,
        };
        let version = self.store.commit(record.clone(), None).await?;
        let (started, outcome) = oneshot::channel();
        let id = record.id.clone();
        Sandbox::spawn_new(self.clone(), record, version, started);
        // The registry counts the sandbox now.
        drop(places);
        outcome.await.map_err(|_| self.gone(&id))?
    }
}
