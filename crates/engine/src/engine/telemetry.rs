//! Events, logs and metrics, as callers of the engine see them.

use futures_util::{StreamExt, stream};
use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::clock::Timestamp;
use shoal_core::id::{SandboxId, TemplateId};
use shoal_core::ports::observe::{Scope, Seen, SeenStream, SubscribeError};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::{Engine, SandboxError};
use crate::telemetry::{LogEntry, LogQuery, Sample, SandboxEvent, Starts, TeamSample};

impl Engine {
    /// Every event from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<SandboxEvent> {
        self.shared.telemetry.events.subscribe()
    }

    /// The events of sandboxes that users see, from now on: those of the team of `principal`, or of all teams for an
    /// admin.
    ///
    /// # Errors
    /// [`SubscribeError::Forbidden`] when all are asked for without the right to see them.
    pub fn visible_events(
        &self,
        principal: &Principal,
        scope: Scope,
    ) -> Result<SeenStream, SubscribeError> {
        if scope == Scope::All && !principal.admin {
            return Err(SubscribeError::Forbidden);
        }
        let team = principal.team;
        let receiver = self.shared.telemetry.events.subscribe_visible();
        let seen = stream::unfold(receiver, |mut receiver| async {
            let seen = match receiver.recv().await {
                Ok(event) => Seen::Event(event),
                Err(RecvError::Lagged(_)) => Seen::Lagged,
                Err(RecvError::Closed) => return None,
            };
            Some((seen, receiver))
        });
        let own = move |seen: &Seen| match seen {
            Seen::Event(event) => scope == Scope::All || event.team == team,
            Seen::Lagged => true,
        };
        Ok(seen
            .filter(move |seen| std::future::ready(own(seen)))
            .boxed())
    }

    /// The latest events of the team of `principal`, of one sandbox if it is named, the newest first.
    /// Events of ended sandboxes are included.
    #[must_use]
    pub fn events(
        &self,
        principal: &Principal,
        sandbox: Option<&SandboxId>,
        limit: usize,
    ) -> Vec<SandboxEvent> {
        let events = &self.shared.telemetry.events;
        events.latest(principal.team, sandbox, limit)
    }

    /// The log of a sandbox, also of an ended one whose record is still kept.
    ///
    /// # Errors
    /// [`SandboxError::NotFound`] when there is none, or it is another team's.
    pub async fn logs(
        &self,
        principal: &Principal,
        id: &SandboxId,
        query: LogQuery,
    ) -> Result<Vec<LogEntry>, SandboxError> {
        self.shared.sandboxes.logs(principal, id, query).await
    }

    /// The samples of a sandbox, the oldest first. Few or none right after its start.
    #[must_use]
    pub fn metrics(
        &self,
        permit: &SandboxPermit,
        start: Option<Timestamp>,
        end: Option<Timestamp>,
    ) -> Vec<Sample> {
        let samples = &self.shared.telemetry.samples;
        samples.between(permit.sandbox(), start, end)
    }

    /// The activity of the team of `principal` between two moments, oldest first.
    #[must_use]
    pub fn team_metrics(
        &self,
        principal: &Principal,
        start: Timestamp,
        end: Timestamp,
    ) -> Vec<TeamSample> {
        let teams = &self.shared.telemetry.teams;
        teams.between(principal.team, start, end)
    }

    /// How often sandboxes were started from a template since the server started.
    #[must_use]
    pub fn template_starts(&self, id: &TemplateId) -> Starts {
        self.shared.telemetry.starts.of(id)
    }
}
