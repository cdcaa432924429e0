//! Templates, with details that E2B's representation omits.

use std::collections::BTreeMap;

use axum::Extension;
use axum::extract::{Path, State};
use shoal_core::auth::Principal;
use shoal_core::build::BuildRecord;
use shoal_core::ports::templates::{TemplateError, TemplateRequest};
use shoal_core::resources::{Mib, MilliCpu, Resources};
use shoal_core::snapshot::Contents;
use shoal_core::template::{Template as Stored, TemplateRef};
use shoal_protocol::build::RequestedBuild;
use shoal_protocol::native::{BuildTemplate, NewTemplate, Template};

use super::admin::Admin;
use super::answer::Answer;
use super::images::image_name;
use crate::audit;
use crate::backend::Backend;
use crate::body::JsonBody;
use crate::error::ApiError;

/// The longest description, in characters.
const DESCRIPTION_MAX: usize = 256;

/// The longest name of a user or of a directory, in bytes.
const PATH_MAX: usize = 4096;

fn view(backend: &Backend, template: &Stored) -> Template {
    let resources = &template.resources;
    let latest = backend.builds.of_template(&template.id).into_iter().next();
    Template {
        id: template.id.to_string(),
        names: template.names.iter().map(ToString::to_string).collect(),
        tags: template.tags.keys().cloned().collect(),
        state: Template::READY.to_owned(),
        failure: latest.and_then(|build| Some(build.failure.as_ref()?.message.clone())),
        image: template.image.to_string(),
        cpu_milli: resources.cpu.0,
        memory_mb: resources.memory.0,
        disk_size_mb: resources.disk.0,
        pids: resources.pids,
        runtime: template.runtime.as_ref().map(ToString::to_string),
        persistent_contents: contents(template.persistent),
        max_cpu_milli: template.max_cpu.map(|cpu| cpu.0),
        user: template.user.clone(),
        workdir: template.workdir.clone(),
        env: template.env.clone(),
        public: template.public,
        stock: template.team.is_none(),
        description: template.description.clone(),
        created_at: template.created_at.to_string(),
        updated_at: template.updated_at.to_string(),
    }
}

/// A template whose first build has not succeeded, as that build describes it.
fn view_to_come(build: &BuildRecord) -> Template {
    let resources = &build.resources;
    Template {
        id: build.template.to_string(),
        names: vec![build.name.to_string()],
        tags: Vec::new(),
        state: build.status.as_str().to_owned(),
        failure: build
            .failure
            .as_ref()
            .map(|failure| failure.message.clone()),
        image: String::new(),
        cpu_milli: resources.cpu.0,
        memory_mb: resources.memory.0,
        disk_size_mb: resources.disk.0,
        pids: resources.pids,
        runtime: None,
        persistent_contents: contents(Contents::default()),
        max_cpu_milli: None,
        user: String::new(),
        workdir: None,
        env: BTreeMap::new(),
        public: build.builtin,
        stock: build.builtin,
        description: String::new(),
        created_at: build.created_at.to_string(),
        updated_at: build.updated_at.to_string(),
    }
}

fn contents(contents: Contents) -> Vec<String> {
    contents.to_string().split(',').map(str::to_owned).collect()
}

fn reference(text: &str) -> Result<TemplateRef, ApiError> {
    // An invalid reference cannot belong to a template.
    text.parse()
        .map_err(|_| ApiError::not_found(format!("template {text:?} not found")))
}

/// `GET /templates`: those whose first build has not succeeded, then those that the caller may use,
/// newest first.
pub(super) async fn list(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
) -> Answer<Vec<Template>> {
    // In this order: a build that succeeds in between is listed twice instead of not at all.
    let to_come = backend.builds.pending_templates(&principal);
    let ready = backend.templates.list(&principal);
    let mut views: Vec<Template> = to_come.iter().map(|build| view_to_come(build)).collect();
    views.extend(ready.iter().map(|template| view(&backend, template)));
    Answer::ok(views)
}

/// `GET /templates/{id}`: one template, by id or name.
pub(super) async fn one(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Result<Answer<Template>, ApiError> {
    let reference = reference(&id)?;
    if let Some(build) = backend.builds.pending_template(&principal, &reference) {
        return Ok(Answer::ok(view_to_come(&build)));
    }
    let template = match backend.templates.get(&principal, &reference) {
        // A name without a tag refers to the template, even if its default tag has no build.
        Err(TemplateError::NoTag { .. }) if reference.tag.is_none() => backend
            .templates
            .find(&principal, &reference)
            .ok_or(TemplateError::NotFound(id))?,
        resolved => resolved?,
    };
    Ok(Answer::ok(view(&backend, &template)))
}

/// `POST /templates`: creates a template over an existing image.
pub(super) async fn create(
    State(backend): State<Backend>,
    Admin(principal): Admin,
    body: JsonBody<NewTemplate>,
) -> Result<Answer<Template>, ApiError> {
    let asked = translate(body.value)?;
    let made = backend.templates.create(&principal, asked).await?;
    audit::target(&made.id);
    Ok(Answer::created(view(&backend, &made)))
}

/// `DELETE /templates/{id}`: removes a template, by id or name.
pub(super) async fn remove(
    State(backend): State<Backend>,
    Admin(principal): Admin,
    Path(id): Path<String>,
) -> Result<Answer<()>, ApiError> {
    backend
        .templates
        .delete(&principal, &reference(&id)?)
        .await?;
    Ok(Answer::ok(()))
}

/// `POST /templates/{id}/build`: builds a template that the installation defines.
pub(super) async fn build(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<BuildTemplate>,
) -> Result<Answer<RequestedBuild>, ApiError> {
    let name = reference(&id)?.name;
    let build = backend
        .builds
        .build_builtin(&principal, &name, body.value.force)
        .await?;
    Ok(Answer::created(RequestedBuild {
        template_id: build.template.to_string(),
        build_id: build.id.to_string(),
        public: true,
        names: vec![build.name.to_string()],
        tags: build.tags.clone(),
        aliases: vec![build.name.to_string()],
    }))
}

fn translate(new: NewTemplate) -> Result<TemplateRequest, ApiError> {
    let standard = Resources::default();
    let resources = Resources {
        cpu: new.cpu_milli.map_or(standard.cpu, MilliCpu),
        memory: new.memory_mb.map_or(standard.memory, Mib),
        disk: new.disk_size_mb.map_or(standard.disk, Mib),
        pids: new.pids.unwrap_or(standard.pids),
    };
    let env = &new.env;
    if let Some((name, _)) = env
        .iter()
        .find(|(name, value)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0'))
    {
        return Err(ApiError::invalid(format_args!(
            "`env`: {name:?} cannot be set"
        )));
    }
    if new.description.chars().count() > DESCRIPTION_MAX {
        return Err(ApiError::invalid(format_args!(
            "`description`: at most {DESCRIPTION_MAX} characters"
        )));
    }
    let plain =
        |text: &&String| (1..=PATH_MAX).contains(&text.len()) && !text.contains(char::is_control);
    if new.user.as_ref().is_some_and(|user| !plain(&user)) {
        return Err(ApiError::invalid("`user`: is no user's name"));
    }
    let absolute = |text: &String| plain(&text) && text.starts_with('/');
    if new.workdir.as_ref().is_some_and(|path| !absolute(path)) {
        return Err(ApiError::invalid("`workdir`: must be an absolute path"));
    }
    let runtime = new.runtime.as_deref().map(str::parse).transpose();
    let contents = new
        .persistent_contents
        .map(|all| all.join(",").parse())
        .transpose();
    Ok(TemplateRequest {
        name: new
            .name
            .parse()
            .map_err(|_| ApiError::invalid("`name`: 1 to 128 of a-z, 0-9, _ and -"))?,
        image: image_name(&new.image)?,
        resources,
        runtime: runtime.map_err(ApiError::invalid)?,
        persistent: contents.map_err(ApiError::invalid)?.unwrap_or_default(),
        max_cpu: new.max_cpu_milli.map(MilliCpu),
        user: new.user,
        workdir: new.workdir,
        env: new.env,
        public: new.public,
        description: new.description,
    })
}
