//! A template's tags with their assignments.
//!
//! Only the last assignment of each tag is known, because a build without tags may be deleted. So
//! each tag has exactly one assignment.

use axum::extract::{Path, State};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shoal_core::auth::Principal;
use shoal_core::id::TemplateId;

use super::builds::tag_of;
use super::tags::{Given, tagged};
use crate::backend::Backend;
use crate::error::ApiError;
use crate::query::Query;

/// The default and maximum number of items on a page (E2B's).
const TAGS_USUAL: usize = 25;
const ASSIGNMENTS_USUAL: usize = 50;
const PAGE_MAX: usize = 100;

/// That a tag was given to a build.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "TagAssignment"))]
#[serde(rename_all = "camelCase")]
struct Assignment {
    assignment_id: String,
    build_id: String,
    assigned_at: String,
    build_created_at: String,
    build_finished_at: Option<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "TagGroup"))]
#[serde(rename_all = "camelCase")]
struct Group {
    tag: String,
    assignments: Vec<Assignment>,
    has_more: bool,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "TagGroups"))]
#[serde(rename_all = "camelCase")]
pub(super) struct Groups {
    tags: Vec<Group>,
    next_cursor: Option<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "TagAssignments"))]
#[serde(rename_all = "camelCase")]
pub(super) struct Assignments {
    data: Vec<Assignment>,
    next_cursor: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum Sort {
    #[default]
    LatestDesc,
    LatestAsc,
    NameAsc,
    NameDesc,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupsQuery {
    /// Number of assignments of each tag: 1 to 100.
    #[cfg_attr(test, schemars(range(min = 1, max = 100)))]
    assignment_limit: Option<usize>,
    /// Size of a page: 1 to 100, 25 by default.
    #[cfg_attr(test, schemars(range(min = 1, max = 100)))]
    tags_limit: Option<usize>,
    /// `nextCursor` of the page before.
    tags_cursor: Option<String>,
    /// Text that tags contain.
    search: Option<String>,
    /// Order.
    #[serde(default)]
    sort: Sort,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct AssignmentsQuery {
    /// `nextCursor` of the page before.
    cursor: Option<String>,
    /// Size of a page: 1 to 100, 50 by default.
    #[cfg_attr(test, schemars(range(min = 1, max = 100)))]
    limit: Option<usize>,
}

fn sort(tags: &mut [Given], by: Sort) {
    tags.sort_by(|a, b| match by {
        Sort::LatestDesc => b.at.cmp(&a.at).then_with(|| a.tag.cmp(&b.tag)),
        Sort::LatestAsc => a.at.cmp(&b.at).then_with(|| a.tag.cmp(&b.tag)),
        Sort::NameAsc => a.tag.cmp(&b.tag),
        Sort::NameDesc => b.tag.cmp(&a.tag),
    });
}

fn assignment(
    template: &TemplateId,
    Given {
        tag,
        build,
        at,
        built: (created, finished),
    }: &Given,
) -> Assignment {
    let mut id = Sha256::new();
    for part in [template.as_str(), tag, &build.to_string(), &at.to_string()] {
        id.update(part);
        id.update([0]);
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&id.finalize()[..16]);
    Assignment {
        assignment_id: uuid::Builder::from_custom_bytes(bytes)
            .into_uuid()
            .to_string(),
        build_id: build.to_string(),
        assigned_at: at.to_string(),
        build_created_at: created.to_string(),
        build_finished_at: finished.map(|at| at.to_string()),
    }
}

fn bounded(name: &str, asked: Option<usize>, usual: usize) -> Result<usize, ApiError> {
    match asked.unwrap_or(usual) {
        number @ 1..=PAGE_MAX => Ok(number),
        _ => Err(ApiError::invalid(format_args!("`{name}`: 1 to {PAGE_MAX}"))),
    }
}

/// `GET /templates/{id}/tags/groups`: a page of tags.
pub(super) async fn groups(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    Query(query): Query<GroupsQuery>,
) -> Result<Json<Groups>, ApiError> {
    bounded("assignmentLimit", query.assignment_limit, 1)?;
    let limit = bounded("tagsLimit", query.tags_limit, TAGS_USUAL)?;
    let (template, mut tags) = tagged(&backend, &principal, &id)?;
    if let Some(search) = query.search.as_deref() {
        tags.retain(|given| given.tag.contains(&search.to_lowercase()));
    }
    sort(&mut tags, query.sort);
    let last = query.tags_cursor.as_deref().filter(|last| !last.is_empty());
    let begin = match last {
        None => 0,
        Some(last) => {
            let place = tags.iter().position(|given| given.tag == last);
            place.ok_or_else(|| ApiError::invalid("`tagsCursor`: no such place"))? + 1
        }
    };
    let page: Vec<&Given> = tags.iter().skip(begin).take(limit).collect();
    let more = begin + page.len() < tags.len();
    let next_cursor = page.last().filter(|_| more).map(|given| given.tag.clone());
    let page = page.into_iter().map(|given| Group {
        tag: given.tag.clone(),
        assignments: vec![assignment(&template, given)],
        has_more: false,
    });
    Ok(Json(Groups {
        tags: page.collect(),
        next_cursor,
    }))
}

/// `GET /templates/{id}/tags/{tag}/assignments`: the assignments of a tag.
pub(super) async fn assignments(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path((id, tag)): Path<(String, String)>,
    Query(query): Query<AssignmentsQuery>,
) -> Result<Json<Assignments>, ApiError> {
    bounded("limit", query.limit, ASSIGNMENTS_USUAL)?;
    if query.cursor.is_some_and(|cursor| !cursor.is_empty()) {
        // There is only one page.
        return Err(ApiError::invalid("`cursor`: no such place"));
    }
    let tag = tag_of(&tag)?;
    let (template, tags) = tagged(&backend, &principal, &id)?;
    let tags = tags.iter().filter(|given| given.tag == tag);
    Ok(Json(Assignments {
        data: tags.map(|given| assignment(&template, given)).collect(),
        next_cursor: None,
    }))
}
