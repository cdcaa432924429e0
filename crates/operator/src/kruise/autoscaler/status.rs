//! The status of an autoscaler: conditions, and an event for each new one.

use std::time::Duration;

use jiff::Timestamp;
use shoal_crds::kruise::names::{condition, reason};
use shoal_crds::kruise::{PoolAutoscaler, PoolAutoscalerStatus};

use super::AutoscalerController;
use crate::conditions::{self, State, Truth};
use crate::failure::Failure;
use crate::write;

/// The findings of a pass.
pub(super) struct Outcome {
    pub(super) active: (Truth, &'static str, String),
    pub(super) able: (Truth, &'static str, String),
    pub(super) limited: Option<&'static str>,
    pub(super) again: Duration,
}

impl Outcome {
    /// An autoscaler that decides nothing.
    pub(super) fn inactive(
        reason: &'static str,
        message: impl Into<String>,
        again: Duration,
    ) -> Self {
        Self {
            active: (Truth::False, reason, message.into()),
            able: (Truth::True, reason::READY_TO_SCALE, String::new()),
            limited: None,
            again,
        }
    }
}

impl AutoscalerController {
    /// Writes the status, and an event for each condition that became true.
    pub(super) async fn tell(
        &self,
        scaler: &PoolAutoscaler,
        mut status: PoolAutoscalerStatus,
        outcome: Outcome,
    ) -> Result<(), Failure> {
        let (generation, now) = (scaler.metadata.generation, Timestamp::now());
        let limited = outcome.limited.map(|reason| {
            let truth = if reason == reason::DESIRED_WITHIN_RANGE {
                Truth::False
            } else {
                Truth::True
            };
            (truth, reason, String::new())
        });
        for (kind, state) in [
            (condition::SCALING_ACTIVE, Some(outcome.active)),
            (condition::ABLE_TO_SCALE, Some(outcome.able)),
            (condition::SCALING_LIMITED, limited),
        ] {
            let Some((truth, reason, message)) = state else {
                conditions::remove(&mut status.conditions, kind);
                continue;
            };
            let known = conditions::find(&status.conditions, kind);
            if known.is_none_or(|known| known.reason != reason)
                && let Some(event) = event_of(kind, reason)
            {
                self.cluster.event(scaler, true, event, message.clone());
            }
            let state = State::new(kind, truth, reason, message);
            conditions::set(&mut status.conditions, &state, generation, now);
        }
        let before = scaler.status.as_ref();
        write::status(&self.cluster, &self.scalers, scaler, before, &status).await?;
        Ok(())
    }
}

/// The event that a condition's new reason leads to.
fn event_of(kind: &str, reason: &str) -> Option<&'static str> {
    Some(match reason {
        reason::STARTUP_BUDGET_EXHAUSTED => "ScaleBlocked",
        reason::FAILED_SCALE => "FailedScale",
        // Two conditions have this reason.
        reason::FAILED_GET_TARGET if kind == condition::ABLE_TO_SCALE => "FailedGetScale",
        reason::INVALID_POLICY => "FailedComputeReplicas",
        reason::CONFLICTING_AUTOSCALER => reason::CONFLICTING_AUTOSCALER,
        _ => return None,
    })
}
