//! Pools of the catalogue: listing them, and replacing members.

use axum::extract::{Path, State};
use shoal_core::ports::pools::MemberView;
use shoal_protocol::native::{
    ClaimSeconds, Pool, PoolError, PoolMember, PoolSample, RemovedMembers,
};

use super::admin::Admin;
use super::answer::Answer;
use crate::backend::Backend;
use crate::error::ApiError;

/// `GET /pool`: every pool.
pub(super) async fn list(State(backend): State<Backend>, _: Admin) -> Answer<Vec<Pool>> {
    let pools = backend.pools.list().await.into_iter().map(|pool| Pool {
        template: pool.template.to_string(),
        size: pool.size,
        ready: pool.ready,
        parked: pool.parked,
        starting: pool.starting,
        claimed: pool.claimed,
        misses: pool.misses,
        claim_seconds: pool.claim_times.map(|times| ClaimSeconds {
            p50: times.median.as_secs_f64(),
            p99: times.p99.as_secs_f64(),
        }),
        last_error: pool.fault.map(|fault| PoolError {
            at: fault.at.to_string(),
            message: fault.message,
        }),
    });
    Answer::ok(pools.collect())
}

/// `GET /pool/sandbox/{template}`: the members of a pool, the next to be claimed first.
pub(super) async fn members(
    State(backend): State<Backend>,
    _: Admin,
    Path(template): Path<String>,
) -> Result<Answer<Vec<PoolMember>>, ApiError> {
    let members = backend.pools.members(&template).await;
    let members = members.ok_or_else(|| no_pool(&template))?;
    let shown = members.into_iter().map(|member| PoolMember {
        name: member.id.to_string(),
        status: status(&member).to_owned(),
        created_at: member.since.to_string(),
        ready_at: member.ready.map(|since| since.to_string()),
    });
    Ok(Answer::ok(shown.collect()))
}

/// `GET /pool/history/{template}`: the last hours of a pool, a sample a minute, and its present state.
pub(super) async fn history(
    State(backend): State<Backend>,
    _: Admin,
    Path(template): Path<String>,
) -> Result<Answer<Vec<PoolSample>>, ApiError> {
    let samples = backend.pools.history(&template).await;
    let samples = samples.ok_or_else(|| no_pool(&template))?;
    let shown = samples.into_iter().map(|sample| PoolSample {
        at: sample.at.to_string(),
        size: sample.size,
        ready: sample.ready,
        parked: sample.parked,
        claimed: sample.claimed,
        misses: sample.misses,
    });
    Ok(Answer::ok(shown.collect()))
}

fn no_pool(template: &str) -> ApiError {
    ApiError::not_found(format!("the catalogue has no pool called {template:?}"))
}

fn status(member: &MemberView) -> &'static str {
    match (member.ready, member.parked) {
        (None, _) => "starting",
        (Some(_), true) => "parked",
        (Some(_), false) => "ready",
    }
}

/// `DELETE /pool/{name}`: removes a member, or every member of a template's pool. New ones replace
/// them.
pub(super) async fn remove(
    State(backend): State<Backend>,
    _: Admin,
    Path(name): Path<String>,
) -> Result<Answer<RemovedMembers>, ApiError> {
    let removed = backend.pools.remove(&name).await.ok_or_else(|| {
        ApiError::not_found(format!(
            "there is neither a pool nor a member called {name:?}"
        ))
    })?;
    Ok(Answer::ok(RemovedMembers { removed }))
}
