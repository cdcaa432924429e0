//! Claiming a member.

use std::sync::Arc;

use shoal_core::auth::Principal;
use shoal_core::detail::Chain;
use shoal_core::id::SandboxId;
use shoal_core::pool::PoolBounds;
use shoal_core::ports::create::{CreateError, Created};
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::sandbox::{IdempotencyKey, SandboxRecord, SandboxSpec};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Pools;
use super::members::ClaimOutcome;
use crate::plan::PoolKey;
use crate::sandboxes::{ClaimRequest, Command, HandOutError, Load};

/// How many members are tried before a sandbox is started for the request.
const TRIES: usize = 3;

/// Agent-Sandbox's labels of a claimed sandbox: its pool and its user.
const LABELS: [&str; 2] = ["sbx-pool", "sbx-user"];

/// Whether a command of the entry failed. It would fail in the next member too, while the caller waits.
fn is_command_failure(error: &HandOutError) -> bool {
    matches!(
        error,
        HandOutError::Failed { .. } | HandOutError::Endless { .. }
    )
}

/// The specification with the labels of a claimed sandbox.
fn labelled(spec: &SandboxSpec, principal: &Principal) -> SandboxSpec {
    let mut spec = spec.clone();
    let values = ["false", principal.slug.as_str()];
    for (label, value) in LABELS.into_iter().zip(values) {
        spec.metadata.insert(label.to_owned(), value.to_owned());
    }
    spec
}

type HandedOut = Result<Arc<SandboxRecord>, HandOutError>;

impl Pools {
    /// Sends a claim to the task of a member and waits for its answer.
    async fn hand_out(
        &self,
        id: &SandboxId,
        request: ClaimRequest,
        answer: oneshot::Receiver<HandedOut>,
    ) -> HandedOut {
        let gone = || HandOutError::Sandbox(SandboxError::NotFound(id.clone()));
        let mailbox = self.parts.sandboxes.mailbox(id).ok_or_else(gone)?;
        let sent = mailbox
            .send_waiting(Command::Claim(Box::new(request)))
            .await;
        sent.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Claims the oldest ready member, if there is one. A member that fails during the claim is ended,
    /// and the next one is tried unless it would fail too; the caller never sees that error. A pool
    /// without a ready member was too small; a pool whose members fail was not.
    ///
    /// # Errors
    /// When the quota of the team is used up, or the name is taken.
    #[tracing::instrument(level = "debug", name = "pool.claim", skip_all)]
    pub(crate) async fn claim(
        &self,
        principal: &Principal,
        key: &PoolKey,
        spec: &SandboxSpec,
        idempotency: Option<&IdempotencyKey>,
    ) -> Result<Option<Created>, CreateError> {
        let entry = &key.entry;
        let Some(pool) = &entry.pool else {
            return Ok(None);
        };
        let (begun, labels) = (Instant::now(), [("template", entry.name.to_string())]);
        let bounds = PoolBounds::from(pool);
        let spec = labelled(spec, principal);
        let mut outcome = ClaimOutcome::Failed;
        for _ in 0..TRIES {
            let load = Load::of(&spec.resources);
            let quota = self.parts.sandboxes.reserve_claimed(principal.team, load)?;
            let name = self.parts.sandboxes.reserve_name(principal.team, &spec)?;
            let Some(id) = self.parts.members.take(&entry.name, &key.digest) else {
                outcome = ClaimOutcome::Missed;
                break;
            };
            let (reply, answer) = oneshot::channel();
            let request = ClaimRequest {
                team: principal.team,
                spec: spec.clone(),
                idempotency: idempotency.cloned(),
                startup: entry.startup_argv().unwrap_or_default(),
                quota,
                name,
                claiming: self.parts.members.claiming(),
                reply,
            };
            let claimed = self.hand_out(&id, request, answer).await;
            let now = self.parts.clock.now();
            match claimed {
                Ok(record) => {
                    let took = begun.elapsed();
                    let outcome = ClaimOutcome::Claimed(took);
                    let members = &self.parts.members;
                    members.count_claim(&entry.name, &bounds, outcome, now);
                    metrics::histogram!("shoal_pool_claim_seconds", &labels).record(took);
                    self.count_start(&record, &labels);
                    return Ok(Some(Created { record }));
                }
                Err(error) => {
                    tracing::warn!(template = %entry.name, sandbox.id = %id, error = %Chain(&error), "a member of a pool cannot be handed out");
                    let message = Chain(&error).to_string();
                    self.parts.members.claim_failed(&entry.name, message, now);
                    if is_command_failure(&error) {
                        break;
                    }
                }
            }
        }
        let now = self.parts.clock.now();
        self.parts
            .members
            .count_claim(&entry.name, &bounds, outcome, now);
        if outcome == ClaimOutcome::Missed {
            metrics::counter!("shoal_pool_misses_total", &labels).increment(1);
        }
        Ok(None)
    }

    /// Counts the start of a claimed sandbox.
    fn count_start(&self, record: &SandboxRecord, labels: &[(&'static str, String)]) {
        metrics::counter!("shoal_pool_claims_total", labels).increment(1);
        let starts = &self.parts.telemetry.starts;
        starts.count(&record.spec.template, record.started_at);
    }
}
