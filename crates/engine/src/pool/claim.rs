//! A member is handed out.

use std::sync::Arc;
use std::time::Duration;

use shoal_core::auth::Principal;
use shoal_core::catalogue::Entry;
use shoal_core::detail::Chain;
use shoal_core::id::SandboxId;
use shoal_core::pool::Bounds;
use shoal_core::sandbox::{IdempotencyKey, SandboxRecord, SandboxSpec};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Asked;
use crate::create::{CreateError, Created};
use crate::engine::{Engine, SandboxError, Shared};
use crate::sandboxes::{ClaimOrder, HandOutError, Load, Order, Sandboxes};

/// How many members are tried before one is made for whoever asks.
const TRIES: usize = 3;

/// Agent-Sandbox's labels of a claimed sandbox: its pool and its user.
const LABELS: [&str; 2] = ["sbx-pool", "sbx-user"];

/// The members that would do for a request.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// The entry that was asked for.
    pub(crate) entry: Arc<Entry>,
    /// Of what they are made from.
    pub(crate) digest: String,
}

/// Whether a command of the entry failed. The next member would fail too, while the caller waits.
fn is_commands(error: &HandOutError) -> bool {
    matches!(
        error,
        HandOutError::Failed { .. } | HandOutError::Endless { .. }
    )
}

type HandedOut = Result<Arc<SandboxRecord>, HandOutError>;

impl Sandboxes {
    /// Sends a claim to the task of a member and waits for its answer.
    async fn hand_out(
        &self,
        id: &SandboxId,
        order: ClaimOrder,
        answer: oneshot::Receiver<HandedOut>,
    ) -> HandedOut {
        let gone = || HandOutError::Sandbox(SandboxError::NotFound(id.clone()));
        let mailbox = self.mailbox(id).ok_or_else(gone)?;
        let sent = mailbox.send(Order::Claim(Box::new(order))).await;
        sent.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

impl Shared {
    fn count_claim(
        &self,
        labels: &[(&'static str, String); 1],
        took: Duration,
        of: &SandboxRecord,
    ) {
        metrics::counter!("shoal_pool_claims_total", labels).increment(1);
        metrics::histogram!("shoal_pool_claim_seconds", labels).record(took);
        let starts = &self.telemetry.starts;
        starts.count(&of.spec.template, of.started_at);
    }
}

impl Engine {
    /// Hands out the oldest ready member, if there is one. A member that cannot be handed out is
    /// ended, and the next one is tried unless it would fare the same: whoever asks is never told
    /// of that. A pool that has no member to give was too small; one whose members fail was not.
    #[tracing::instrument(level = "debug", name = "pool.claim", skip_all)]
    pub(crate) async fn claim(
        &self,
        principal: &Principal,
        wanted: &Wanted,
        spec: &SandboxSpec,
        idempotency: Option<&IdempotencyKey>,
    ) -> Result<Option<Created>, CreateError> {
        let (shared, entry) = (&self.shared, &wanted.entry);
        let Some(pool) = &entry.pool else {
            return Ok(None);
        };
        let (begun, labels) = (Instant::now(), [("template", entry.name.to_string())]);
        let bounds = Bounds::from(pool);
        let mut spec = spec.clone();
        let values = ["false", principal.slug.as_str()];
        for (label, value) in LABELS.into_iter().zip(values) {
            spec.metadata.insert(label.to_owned(), value.to_owned());
        }
        let mut came = Asked::Failed;
        for _ in 0..TRIES {
            let room = shared
                .sandboxes
                .room_in_team(principal.team, Load::of(&spec.resources))?;
            let name = shared.sandboxes.keep_name(principal.team, &spec)?;
            let Some(id) = shared.pools.take(&entry.name, &wanted.digest) else {
                came = Asked::Missed;
                break;
            };
            let (reply, answer) = oneshot::channel();
            let order = ClaimOrder {
                team: principal.team,
                spec: spec.clone(),
                idempotency: idempotency.cloned(),
                startup: entry.startup_argv().unwrap_or_default(),
                room,
                name,
                claiming: shared.pools.claiming(),
                reply,
            };
            let outcome = shared.sandboxes.hand_out(&id, order, answer).await;
            let now = shared.clock.now();
            match outcome {
                Ok(record) => {
                    shared.pools.asked(&entry.name, &bounds, Asked::Given, now);
                    shared.count_claim(&labels, begun.elapsed(), &record);
                    return Ok(Some(Created { record }));
                }
                Err(error) => {
                    tracing::warn!(template = %entry.name, sandbox.id = %id, error = %Chain(&error), "a member of a pool cannot be handed out");
                    shared
                        .pools
                        .blame(&entry.name, Chain(&error).to_string(), now);
                    if is_commands(&error) {
                        break;
                    }
                }
            }
        }
        let now = shared.clock.now();
        shared.pools.asked(&entry.name, &bounds, came, now);
        if came == Asked::Missed {
            metrics::counter!("shoal_pool_misses_total", &labels).increment(1);
        }
        Ok(None)
    }
}
