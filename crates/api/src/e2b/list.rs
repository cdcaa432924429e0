//! `GET /sandboxes` and `GET /v2/sandboxes`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use shoal_core::auth::Principal;
use shoal_core::clock::Timestamp;
use shoal_core::id::TemplateId;
use shoal_core::ports::list::{ListFilter, ListOrder, PageToken};
use shoal_core::template::TemplateKey;

use super::view::ListedSandbox;
use crate::backend::Backend;
use crate::error::ApiError;
use crate::labels;
use crate::query::Query;

/// The token of the next page; absent on the last page.
pub(super) const NEXT_TOKEN: HeaderName = HeaderName::from_static("x-next-token");
const TOTAL_RUNNING: HeaderName = HeaderName::from_static("x-total-running");

/// The maximum and default size of a page.
pub(super) const PAGE_MAX: usize = 100;

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct V1Query {
    /// Labels to match: `key=value` pairs, percent-encoded, joined by `&`.
    metadata: Option<String>,
}

/// All running sandboxes, newest first.
pub(super) async fn v1(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<V1Query>,
) -> Result<Json<Vec<ListedSandbox>>, ApiError> {
    let filter = ListFilter {
        running: true,
        limit: usize::MAX,
        metadata: query
            .metadata
            .as_deref()
            .map(labels::read)
            .transpose()?
            .unwrap_or_default(),
        ..ListFilter::default()
    };
    let page = backend.sandboxes.list(&principal, &filter).await;
    Ok(Json(
        page.sandboxes
            .iter()
            .map(|record| ListedSandbox::of(record))
            .collect(),
    ))
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct V2Query {
    /// Labels to match: `key=value` pairs, percent-encoded, joined by `&`.
    metadata: Option<String>,
    /// `running`, `paused`, or both joined by a comma (default).
    state: Option<String>,
    /// By start time.
    #[cfg_attr(test, schemars(extend("enum" = ["asc", "desc"])))]
    order: Option<String>,
    /// Start time, RFC 3339.
    #[cfg_attr(test, schemars(extend("format" = "date-time")))]
    started_after: Option<String>,
    /// Template reference without a tag.
    template: Option<String>,
    /// Size of a page: 1 to 100 (default).
    #[cfg_attr(test, schemars(range(min = 1, max = 100)))]
    #[cfg_attr(test, schemars(with = "Option<u32>"))]
    limit: Option<String>,
    /// Token of the page, from `X-Next-Token`.
    next_token: Option<String>,
}

/// A page of the matching sandboxes.
pub(super) async fn v2(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<V2Query>,
) -> Result<Response, ApiError> {
    let filter = query.filter(&backend, &principal)?;
    let page = backend.sandboxes.list(&principal, &filter).await;
    let listed: Vec<ListedSandbox> = page
        .sandboxes
        .iter()
        .map(|record| ListedSandbox::of(record))
        .collect();
    let mut response = Json(listed).into_response();
    let headers = response.headers_mut();
    headers.insert(TOTAL_RUNNING, HeaderValue::from(page.running));
    if let Some(next) = page
        .next
        .and_then(|next| HeaderValue::from_str(&next.to_string()).ok())
    {
        headers.insert(NEXT_TOKEN, next);
    }
    Ok(response)
}

impl V2Query {
    fn filter(&self, backend: &Backend, principal: &Principal) -> Result<ListFilter, ApiError> {
        let order = match self.order.as_deref() {
            None | Some("desc") => ListOrder::Descending,
            Some("asc") => ListOrder::Ascending,
            Some(_) => return Err(ApiError::invalid("`order`: asc or desc")),
        };
        let states = self.state.as_deref().unwrap_or("running,paused");
        let known = |state: &str| matches!(state, "running" | "paused");
        if !states.split(',').all(known) {
            return Err(ApiError::invalid("`state`: running, paused or both"));
        }
        let after = self.next_token.as_deref().filter(|token| !token.is_empty());
        let after = after
            .map(str::parse::<PageToken>)
            .transpose()
            .map_err(ApiError::invalid)?;
        if after.as_ref().is_some_and(|token| token.order() != order) {
            return Err(ApiError::invalid(
                "the next token is of a list in the other order",
            ));
        }
        let started_after = self.started_after.as_deref().map(|text| {
            Timestamp::parse_rfc3339(text)
                .ok_or_else(|| ApiError::invalid("`startedAfter`: not an RFC 3339 time"))
        });
        let template = self
            .template
            .as_deref()
            .map(|text| template(backend, principal, text));
        Ok(ListFilter {
            metadata: self
                .metadata
                .as_deref()
                .map(labels::read)
                .transpose()?
                .unwrap_or_default(),
            running: states.contains("running"),
            paused: states.contains("paused"),
            started_after: started_after.transpose()?,
            template: template.transpose()?,
            order,
            limit: limit(self.limit.as_deref())?,
            after,
            all_teams: false,
        })
    }
}

/// Parses the size of a page.
pub(super) fn limit(text: Option<&str>) -> Result<usize, ApiError> {
    let read = text.map_or(Ok(PAGE_MAX), str::parse);
    read.ok()
        .filter(|limit| (1..=PAGE_MAX).contains(limit))
        .ok_or_else(|| ApiError::invalid(format_args!("`limit`: 1 to {PAGE_MAX}")))
}

fn template(backend: &Backend, principal: &Principal, text: &str) -> Result<TemplateId, ApiError> {
    let key: TemplateKey = text.parse().map_err(ApiError::invalid)?;
    if key.as_str().contains(':') {
        return Err(ApiError::invalid("`template`: without a tag"));
    }
    match backend.templates.resolve(principal, Some(&key), None) {
        Ok(meant) => Ok(meant.id),
        // A template that does not exist has no sandboxes; the list is empty as for an unknown id.
        Err(_) => Ok(text
            .parse()
            .unwrap_or_else(|_| TemplateId::from_entropy([0; 16]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_between_one_and_a_hundred() {
        assert_eq!(limit(None).unwrap(), 100);
        assert_eq!(limit(Some("7")).unwrap(), 7);
        for bad in ["0", "101", "-1", "x", ""] {
            assert!(limit(Some(bad)).is_err(), "{bad}");
        }
    }
}
