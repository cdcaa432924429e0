//! Builds of templates from Dockerfiles, for clients that cannot read them.

use axum::Extension;
use axum::extract::State;
use shoal_core::auth::Principal;
use shoal_core::template::{DEFAULT_TAG, TemplateRef};
use shoal_dockerfile::{Options, Plan, Problem, TemplateBase, architecture, parse, plan};
use shoal_protocol::build::NewBuild;
use shoal_protocol::native::{BuildDockerfile, DockerfileBuild};

use super::answer::Answer;
use crate::backend::Backend;
use crate::body::JsonBody;
use crate::e2b;
use crate::error::ApiError;

/// The largest Dockerfile, in bytes.
const DOCKERFILE_MAX: usize = 256 << 10;

/// `POST /builds`: starts the build of a Dockerfile.
pub(super) async fn start(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    body: JsonBody<BuildDockerfile>,
) -> Result<Answer<DockerfileBuild>, ApiError> {
    let asked = body.value;
    let plan = planned(&backend, &principal, &asked)?;
    let warnings = plan.warnings.iter().map(at_its_line).collect();
    let mut start = plan.start();
    start.force = asked.force;
    start.ready_cmd = asked.ready_cmd;
    let command = asked.start_cmd.or(start.start_cmd);
    start.start_cmd = command.filter(|command| !command.is_empty());
    let new = NewBuild {
        name: Some(asked.name),
        cpu_count: asked.cpu_count,
        memory_mb: asked.memory_mb,
        ..NewBuild::default()
    };
    let build = e2b::start_build(&backend, &principal, new, start).await?;
    Ok(Answer::created(DockerfileBuild {
        template_id: build.template_id,
        build_id: build.build_id,
        names: build.names,
        tags: build.tags,
        warnings,
    }))
}

/// The plan of a Dockerfile, with the templates that its `FROM` names.
fn planned(
    backend: &Backend,
    principal: &Principal,
    asked: &BuildDockerfile,
) -> Result<Plan, ApiError> {
    if asked.dockerfile.len() > DOCKERFILE_MAX {
        return Err(ApiError::invalid(format_args!(
            "`dockerfile`: at most {} KiB",
            DOCKERFILE_MAX >> 10
        )));
    }
    let mut options = Options {
        build_args: asked.build_args.clone().into_iter().collect(),
        target: asked.target.clone(),
        arch: architecture().to_owned(),
        templates: Vec::new(),
    };
    let parsed = parse(&asked.dockerfile).map_err(refused)?;
    let mut planned = plan(&parsed, &options).map_err(refused)?;
    let templates = planned.perhaps_templates().into_iter();
    options.templates = templates
        .filter_map(|name| base(backend, principal, &name))
        .collect();
    if !options.templates.is_empty() {
        planned = plan(&parsed, &options).map_err(refused)?;
    }
    let steps = planned.stages.iter().flat_map(|stage| &stage.steps);
    match steps.clone().find(|staged| staged.files.is_some()) {
        None => Ok(planned),
        Some(staged) => Err(ApiError::invalid(format_args!(
            "`dockerfile`, line {}: COPY: a build of a Dockerfile alone has no files: `shoal template build` and the SDKs send them. \
             COPY --from works, and RUN with a heredoc writes files",
            staged.line
        ))),
    }
}

/// The template that `FROM` names, if sandboxes can start from it. One over an image has the default tag only.
fn base(backend: &Backend, principal: &Principal, name: &TemplateRef) -> Option<TemplateBase> {
    let template = backend.templates.find(principal, name)?;
    let tag = name.tag.as_deref().unwrap_or(DEFAULT_TAG);
    let has_tag = match template.tags.is_empty() {
        true => tag == DEFAULT_TAG,
        false => template.tags.contains_key(tag),
    };
    has_tag.then(|| TemplateBase {
        name: name.to_string(),
        user: template.user.clone(),
        workdir: template.workdir.clone(),
    })
}

fn refused(problem: Problem) -> ApiError {
    ApiError::invalid(format_args!("`dockerfile`, {}", at_its_line(&problem)))
}

fn at_its_line(problem: &Problem) -> String {
    let place = match problem.line {
        0 => String::new(),
        line => format!("line {line}: "),
    };
    let hint = problem.hint.as_ref();
    let hint = hint.map(|hint| format!(". {hint}")).unwrap_or_default();
    format!("{place}{}{hint}", problem.message)
}
