//! `GET /ratelimit`.

use axum::Extension;
use axum::extract::State;
use shoal_core::auth::Principal;
use shoal_protocol::native::{CallLimit, OpenShare, RateLimits, Share};

use super::answer::Answer;
use crate::backend::Backend;
use crate::config::ApiConfig;

/// The limits of the key's team, and their usage.
pub(super) async fn get(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Extension(config): Extension<ApiConfig>,
) -> Answer<RateLimits> {
    let (limits, used) = (
        backend.installation.limits(),
        backend.telemetry.usage(&principal).await,
    );
    let own = backend.teams.limits(&principal);
    let calls = config.rate_limit.map(|limit| CallLimit {
        calls: limit.calls.get(),
        seconds: limit.per.as_secs(),
    });
    Answer::ok(RateLimits {
        calls,
        sandboxes: Share {
            used: used.counted as u64,
            limit: own
                .sandboxes
                .map_or(u64::MAX, u64::from)
                .min(limits.sandboxes as u64),
        },
        starting: used.starting,
        cpu_milli: OpenShare {
            used: used.cpu.0.into(),
            limit: own.cpu.map(|cpu| cpu.0.into()),
        },
        max_timeout: limits.max_timeout.as_secs(),
    })
}
