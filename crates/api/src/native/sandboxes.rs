//! Sandboxes by name or id: their life cycle.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::ports::list::{ListFilter, PageToken};
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::sandbox::SandboxRecord;
use shoal_protocol::native::{LONGEST, ResumeSandbox, Sandbox};

use super::answer::Answer;
use super::view::{listed, whole};
use crate::backend::Backend;
use crate::body::JsonBody;
use crate::error::ApiError;
use crate::labels;
use crate::query::Query;

/// The maximum and default size of a page.
const PAGE_MAX: usize = 100;

/// The token of the next page; absent on the last page.
const NEXT_TOKEN: HeaderName = HeaderName::from_static("x-next-token");

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ListQuery {
    /// Labels to match: `key=value` pairs, percent-encoded, joined by `&`.
    metadata: Option<String>,
    /// Size of a page: 1 to 100 (default).
    #[cfg_attr(test, schemars(range(min = 1, max = 100)))]
    limit: Option<usize>,
    /// Token of the page, from `X-Next-Token`.
    next: Option<String>,
}

/// `GET /sandbox`: those of the key's team, or of all teams for an admin, newest first.
pub(super) async fn list(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<ListQuery>,
) -> Result<Response, ApiError> {
    let limit = query.limit.unwrap_or(PAGE_MAX);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(ApiError::invalid(format_args!("`limit`: 1 to {PAGE_MAX}")));
    }
    let metadata = query.metadata.as_deref().map(labels::read).transpose()?;
    let after = query.next.as_deref().filter(|token| !token.is_empty());
    let after = after.map(str::parse::<PageToken>).transpose();
    let filter = ListFilter {
        metadata: metadata.unwrap_or_default(),
        after: after.map_err(|e| ApiError::invalid(format_args!("`next`: {e}")))?,
        all_teams: principal.admin,
        ..ListFilter::all(limit)
    };
    let page = backend.sandboxes.list(&principal, &filter).await;
    let sandboxes: Vec<Sandbox> = page
        .sandboxes
        .iter()
        .map(|record| listed(record, &principal))
        .collect();
    let mut response = Answer::ok(sandboxes).into_response();
    let next = page.next.map(|next| next.to_string());
    if let Some(next) = next.and_then(|next| HeaderValue::from_str(&next).ok()) {
        response.headers_mut().insert(NEXT_TOKEN, next);
    }
    Ok(response)
}

/// `GET /sandbox/{id}`.
pub(super) async fn get(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Result<Answer<Sandbox>, ApiError> {
    let (_, record) = backend.sandboxes.find(&principal, &id).await?;
    Ok(Answer::ok(whole(&record, &principal)))
}

/// `DELETE /sandbox/{id}`: responds when all its resources are removed.
pub(super) async fn remove(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Result<Answer<()>, ApiError> {
    let sandboxes = &backend.sandboxes;
    match sandboxes.find(&principal, &id).await {
        Err(SandboxError::NoSuchName(_)) if sandboxes.clear_failed(&principal, &id).await? => {}
        found => sandboxes.kill(&found?.0).await?,
    }
    Ok(Answer::ok(()))
}

/// `POST /sandbox/pause/{id}`: responds when everything is on disk.
pub(super) async fn pause(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Result<Answer<Sandbox>, ApiError> {
    let (permit, record) = backend.sandboxes.find(&principal, &id).await?;
    backend.sandboxes.pause(&permit, None, false).await?;
    Ok(Answer::ok(
        seen(&backend, &principal, &permit, &record).await,
    ))
}

/// `POST /sandbox/resume/{id}`: responds when it runs.
pub(super) async fn resume(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<ResumeSandbox>,
) -> Result<Answer<Sandbox>, ApiError> {
    let (permit, record) = backend.sandboxes.find(&principal, &id).await?;
    let most = backend.installation.limits().max_timeout;
    let timeout = match body.value.timeout {
        None => record.spec.lifecycle.timeout,
        Some(LONGEST) => most,
        Some(seconds) => u64::try_from(seconds)
            .ok()
            .map(Duration::from_secs)
            .filter(|timeout| (Duration::from_secs(1)..=most).contains(timeout))
            .ok_or_else(|| {
                ApiError::invalid(format_args!(
                    "`timeout`: 1 to {} seconds, or -1 for as long as it may live",
                    most.as_secs()
                ))
            })?,
    };
    let record = backend.sandboxes.resume(&permit, timeout, true).await?;
    Ok(Answer::ok(whole(&record, &principal)))
}

/// The current state of a sandbox, or its last one if it has ended meanwhile.
async fn seen(
    backend: &Backend,
    principal: &Principal,
    permit: &SandboxPermit,
    before: &Arc<SandboxRecord>,
) -> Sandbox {
    let now = backend
        .sandboxes
        .authorize(principal, permit.sandbox())
        .await;
    whole(&now.map_or_else(|_| before.clone(), |now| now.1), principal)
}
