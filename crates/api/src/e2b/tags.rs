//! Tags of templates, and their publication.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::{Extension, Json};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use shoal_core::auth::Principal;
use shoal_core::clock::Timestamp;
use shoal_core::id::{BuildId, TemplateId};
use shoal_core::ports::snapshots::SnapshotError;
use shoal_core::ports::templates::TagError;
use shoal_core::template::{DEFAULT_TAG, Template, TemplateRef};

use super::builds::{tag_of, template_id};
use super::meanings;
use super::templates::reference;
use crate::audit;
use crate::backend::Backend;
use crate::body::{JsonBody, RequiredBody};
use crate::error::ApiError;
use crate::query::Query;

/// The maximum number of tags in a call.
const TAGS_MAX: usize = 100;

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "AssignTags"))]
pub(super) struct Assign {
    target: String,
    tags: Vec<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "AssignedTags"))]
pub(super) struct Assigned {
    tags: Vec<String>,
    #[serde(rename = "buildID")]
    build_id: String,
}

fn tags_of(tags: &[String]) -> Result<Vec<String>, ApiError> {
    if tags.is_empty() || tags.len() > TAGS_MAX {
        return Err(ApiError::invalid(format_args!(
            "`tags`: 1 to {TAGS_MAX} of them"
        )));
    }
    tags.iter().map(|tag| tag_of(tag)).collect()
}

/// `POST /templates/tags`: assigns tags to the build of `target`.
pub(super) async fn assign(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    body: JsonBody<Assign>,
) -> Result<(StatusCode, Json<Assigned>), ApiError> {
    let Assign { target, tags } = body.value;
    audit::target(&target);
    let tags = tags_of(&tags)?;
    let build = match build_meant(&backend, &principal, &target).await? {
        Some(build) => {
            let templates = &backend.templates;
            templates
                .add_tags_to_build(&principal, build, &tags)
                .await?
        }
        None => {
            let target: TemplateRef = target.parse().map_err(ApiError::invalid)?;
            assign_by_name(&backend, &principal, &target, &tags).await?
        }
    };
    let assigned = Assigned {
        tags,
        build_id: build.to_string(),
    };
    Ok((StatusCode::CREATED, Json(assigned)))
}

/// Gives tags to the build of a template, or to a snapshot.
async fn assign_by_name(
    backend: &Backend,
    principal: &Principal,
    target: &TemplateRef,
    tags: &[String],
) -> Result<BuildId, ApiError> {
    match backend.templates.add_tags(principal, target, tags).await {
        Err(TagError::Template(missing)) => {
            match backend.snapshots.add_tags(principal, target, tags).await {
                Err(SnapshotError::NotFound(_)) => Err(missing.into()),
                added => Ok(added?.into()),
            }
        }
        added => Ok(added?),
    }
}

/// The build that a target names by its id, alone or instead of a tag. Tags are never valid build
/// ids.
async fn build_meant(
    backend: &Backend,
    principal: &Principal,
    target: &str,
) -> Result<Option<BuildId>, ApiError> {
    let target = target.trim();
    let (name, id) = match target.rsplit_once(':') {
        Some((name, id)) => (Some(name), id),
        None => (None, target),
    };
    // Requires hyphens: a template name may have as many digits.
    let Some(build) = id.parse::<BuildId>().ok().filter(|_| id.contains('-')) else {
        return Ok(None);
    };
    if let Some(name) = name {
        let missing = || ApiError::not_found(format!("template {target:?} not found"));
        let build = backend.builds.get(principal, build).await;
        let of = build.ok_or_else(missing)?.template.clone();
        if template_id(backend, principal, name)? != of {
            return Err(missing());
        }
    }
    Ok(Some(build))
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "RemoveTags"))]
pub(super) struct Remove {
    name: String,
    tags: Vec<String>,
}

/// `DELETE /templates/tags`: removes tags.
pub(super) async fn remove(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    body: JsonBody<Remove>,
) -> Result<StatusCode, ApiError> {
    let Remove { name, tags } = body.value;
    let tags = tags_of(&tags)?;
    let name = reference(&name)?;
    audit::target(&name);
    match backend
        .templates
        .remove_tags(&principal, &name, &tags)
        .await
    {
        Err(TagError::Template(missing)) => {
            if meanings::takings(&backend, &principal, &name.to_string()).is_empty() {
                return Err(missing.into());
            }
            remove_takings(&backend, &principal, &name, &tags).await?;
        }
        removed => removed?,
    }
    Ok(StatusCode::NO_CONTENT)
}

/// The same for a snapshot, whose tags are versions. Unknown tags are skipped.
async fn remove_takings(
    backend: &Backend,
    principal: &Principal,
    name: &TemplateRef,
    tags: &[String],
) -> Result<(), ApiError> {
    for tag in tags {
        let taking = TemplateRef {
            tag: Some(tag.clone()),
            ..name.clone()
        };
        match backend.snapshots.delete(principal, &taking).await {
            Ok(()) | Err(SnapshotError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct Tag {
    tag: String,
    #[serde(rename = "buildID")]
    build_id: String,
    created_at: String,
}

/// That a tag means a build, and since when.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) tag: String,
    pub(super) build: BuildId,
    pub(super) at: Timestamp,
    /// When the build was announced, and when it ended.
    pub(super) built: (Timestamp, Option<Timestamp>),
}

/// The template or snapshot of a path: the template id of its sandboxes, and its tags.
pub(super) fn tagged(
    backend: &Backend,
    principal: &Principal,
    id: &str,
) -> Result<(TemplateId, Vec<Given>), ApiError> {
    match find(backend, principal, id) {
        Ok(template) => Ok((template.id.clone(), given(backend, &template))),
        Err(missing) => {
            let takings = meanings::takings(backend, principal, id);
            let snapshot = takings.first().ok_or(missing)?;
            let given = takings.iter().flat_map(|taking| {
                taking.tags().map(|(tag, at)| Given {
                    tag: tag.to_owned(),
                    build: taking.id.into(),
                    at,
                    built: (taking.created_at, Some(taking.created_at)),
                })
            });
            Ok((snapshot.template.clone(), given.collect()))
        }
    }
}

/// The tags of a template; one without builds has only the default tag.
fn given(backend: &Backend, template: &Template) -> Vec<Given> {
    let builds = backend.builds.of_template(&template.id);
    let built = |id: BuildId| {
        let build = builds.iter().find(|build| build.id == id);
        build.map_or((template.updated_at, Some(template.updated_at)), |build| {
            (build.created_at, build.finished_at)
        })
    };
    if template.tags.is_empty() {
        return vec![Given {
            tag: DEFAULT_TAG.to_owned(),
            build: template.build,
            at: template.updated_at,
            built: built(template.build),
        }];
    }
    let tags = template.tags.iter().map(|(tag, tagged)| Given {
        tag: tag.clone(),
        build: tagged.build,
        at: tagged.at,
        built: built(tagged.build),
    });
    tags.collect()
}

/// The template of a path, if the caller may use it.
pub(super) fn find(
    backend: &Backend,
    principal: &Principal,
    id: &str,
) -> Result<Arc<Template>, ApiError> {
    let missing = || ApiError::not_found(format!("template {id:?} not found"));
    let found = backend.templates.find(principal, &reference(id)?);
    found.ok_or_else(missing)
}

/// `GET /templates/{id}/tags`: the tags of a template.
pub(super) async fn list(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Result<Json<Vec<Tag>>, ApiError> {
    let (_, tags) = tagged(&backend, &principal, &id)?;
    let views = tags.into_iter().map(|Given { tag, build, at, .. }| Tag {
        tag,
        build_id: build.to_string(),
        created_at: at.to_string(),
    });
    Ok(Json(views.collect()))
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ExistsQuery {
    /// Tag.
    tag: String,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "TagExists"))]
#[serde(rename_all = "camelCase")]
pub(super) struct Exists {
    exists: bool,
    normalized_tag: String,
}

/// `GET /templates/{id}/tags/exists`: whether a template has a tag.
pub(super) async fn exists(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    Query(query): Query<ExistsQuery>,
) -> Result<Json<Exists>, ApiError> {
    let normalized_tag = tag_of(&query.tag)?;
    let (_, tags) = tagged(&backend, &principal, &id)?;
    Ok(Json(Exists {
        exists: tags.iter().any(|tag| tag.tag == normalized_tag),
        normalized_tag,
    }))
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "TagCount"))]
pub(super) struct Count {
    total: usize,
}

/// `GET /templates/{id}/tags/count`: how many tags a template has.
pub(super) async fn count(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Result<Json<Count>, ApiError> {
    let total = tagged(&backend, &principal, &id)?.1.len();
    Ok(Json(Count { total }))
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "PublishTemplate"))]
pub(super) struct Publish {
    public: Option<bool>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "PublishedTemplate"))]
pub(super) struct Published {
    names: Vec<String>,
}

/// `PATCH /v2/templates/{id}`: publishes a template to other teams, or withdraws it.
pub(super) async fn publish_v2(
    state: State<Backend>,
    principal: Extension<Principal>,
    id: Path<String>,
    RequiredBody(body): RequiredBody<Publish>,
) -> Result<Json<Published>, ApiError> {
    let names = publish(&state.0, &principal.0, &id.0, body).await?;
    Ok(Json(Published { names }))
}

/// `PATCH /templates/{id}`: the same for older clients.
pub(super) async fn publish_v1(
    state: State<Backend>,
    principal: Extension<Principal>,
    id: Path<String>,
    RequiredBody(body): RequiredBody<Publish>,
) -> Result<Json<serde_json::Value>, ApiError> {
    publish(&state.0, &principal.0, &id.0, body).await?;
    Ok(Json(serde_json::json!({})))
}

async fn publish(
    backend: &Backend,
    principal: &Principal,
    id: &str,
    body: Publish,
) -> Result<Vec<String>, ApiError> {
    let reference = reference(id)?;
    // In this order: a first build that finishes in between is found as a template.
    let coming = backend.builds.pending_template(principal, &reference);
    let names = match (coming, find(backend, principal, id)) {
        (_, Ok(template)) => template.names.clone(),
        (Some(coming), Err(_)) => vec![coming.name.clone()],
        (None, Err(missing)) => return Err(missing),
    };
    if let Some(public) = body.public {
        backend
            .templates
            .publish(principal, &reference, public)
            .await?;
    }
    let names = names.iter();
    Ok(names
        .map(|name| format!("{}/{name}", principal.slug))
        .collect())
}
