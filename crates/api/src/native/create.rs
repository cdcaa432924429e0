//! `POST /sandbox`.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use shoal_core::auth::Principal;
use shoal_core::detail::Chain;
use shoal_core::ports::create::{Created, SandboxRequest};
use shoal_core::ports::inside::SandboxCommand;
use shoal_core::sandbox::{NAME_KEY, OnTimeout};
use shoal_protocol::native::{LONGEST, NewSandbox, Sandbox, TIMEOUT_SECONDS};

use super::answer::Answer;
use super::view::{COMMAND_KEY, whole};
use crate::audit;
use crate::backend::Backend;
use crate::body::JsonBody;
use crate::error::ApiError;
use crate::quantities;
use crate::texts;

/// Responds when the sandbox runs, with its program started if it has one.
pub(super) async fn create(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    body: JsonBody<NewSandbox>,
) -> Result<Answer<Sandbox>, ApiError> {
    let new = body.value;
    let command = command(&new)?;
    let order = order(&backend, &principal, new, command.as_ref())?;
    let created = backend.sandboxes.create(&principal, order, None).await?;
    audit::target(&created.record.id);
    if let Some(command) = command {
        start(&backend, &principal, &created, command).await?;
    }
    Ok(Answer::created(whole(&created.record, &principal)))
}

/// The base of a request: a template, an image, or the configured default.
fn source(new: &NewSandbox) -> Result<SandboxRequest, ApiError> {
    let said = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let template = said(&new.template).map(|name| name.parse()).transpose();
    let image = said(&new.image).map(|name| name.parse()).transpose();
    Ok(SandboxRequest {
        template: template.map_err(|e| ApiError::invalid(format_args!("`template`: {e}")))?,
        image: image.map_err(|e| ApiError::invalid(format_args!("`image`: {e}")))?,
        ..SandboxRequest::unnamed()
    })
}

fn order(
    backend: &Backend,
    principal: &Principal,
    new: NewSandbox,
    command: Option<&SandboxCommand>,
) -> Result<SandboxRequest, ApiError> {
    let order = source(&new)?;
    if new
        .user
        .as_deref()
        .is_some_and(|user| !user.is_empty() && user != principal.slug.as_str())
    {
        return Err(ApiError::invalid(format_args!(
            "`user`: a sandbox is the key's team's, {}",
            principal.slug
        )));
    }
    if new.idle_timeout.is_some_and(|seconds| seconds != LONGEST) {
        return Err(ApiError::invalid(format_args!(
            "`idle_timeout`: only {LONGEST} is supported; `timeout` ends a sandbox"
        )));
    }
    let resources = quantities::limits(
        [new.cpu.clone(), new.cpu_limit.clone()],
        [new.memory.clone(), new.memory_limit.clone()],
    );
    let timeout = timeout(backend, new.timeout)?;
    let env = new.env_vars.clone().unwrap_or_default();
    texts::check_env("envVars", &env)?;
    if new.workdir.as_deref().is_some_and(|dir| dir.contains('\0')) {
        return Err(ApiError::invalid("`workdir`: is no path"));
    }
    let metadata = labels(&new, command)?;
    Ok(SandboxRequest {
        timeout,
        on_timeout: if new.auto_pause.unwrap_or(false) {
            OnTimeout::Pause
        } else {
            OnTimeout::Kill
        },
        auto_resume: new.auto_resume.unwrap_or(false),
        runtime: texts::runtime(&metadata)?,
        metadata,
        env,
        workdir: new.workdir.filter(|dir| !dir.is_empty()),
        port: new.port,
        resources: resources?,
        ..order
    })
}

/// The labels, including those that Shoal itself reads.
fn labels(
    new: &NewSandbox,
    command: Option<&SandboxCommand>,
) -> Result<BTreeMap<String, String>, ApiError> {
    let mut metadata = new.metadata.clone().unwrap_or_default();
    if let Some(name) = new.name.as_ref().filter(|name| !name.is_empty()) {
        metadata.insert(NAME_KEY.to_owned(), name.clone());
    }
    if let Some(SandboxCommand { program, args, .. }) = command {
        let words: Vec<&String> = std::iter::once(program).chain(args).collect();
        // A list of strings always serializes.
        let words = serde_json::to_string(&words).unwrap_or_default();
        metadata.insert(COMMAND_KEY.to_owned(), words);
    }
    texts::check_metadata(&metadata)?;
    Ok(metadata)
}

/// The program to start.
fn command(new: &NewSandbox) -> Result<Option<SandboxCommand>, ApiError> {
    let args = new.args.clone().unwrap_or_default();
    let Some(program) = new.cmd.as_deref().filter(|program| !program.is_empty()) else {
        return match args.is_empty() {
            true => Ok(None),
            false => Err(ApiError::invalid("`args`: need a `cmd`")),
        };
    };
    if program.contains('\0') || args.iter().any(|arg| arg.contains('\0')) {
        return Err(ApiError::invalid("`cmd`, `args`: without NUL"));
    }
    Ok(Some(SandboxCommand::new(program, args)))
}

/// Starts the program of a new sandbox, which then runs on its own. If it cannot be started, the
/// sandbox is useless to the caller.
async fn start(
    backend: &Backend,
    principal: &Principal,
    created: &Created,
    command: SandboxCommand,
) -> Result<(), ApiError> {
    let (permit, _) = backend
        .sandboxes
        .authorize(principal, &created.record.id)
        .await?;
    let started = backend.access.open(&permit, None).await?.run(command).await;
    let Err(error) = started else {
        return Ok(());
    };
    if let Err(error) = backend.sandboxes.kill(&permit).await {
        tracing::warn!(sandbox.id = %created.record.id, error = %Chain(&error), "a sandbox of no use is left");
    }
    let failed = ApiError::from(error);
    Err(ApiError::new(
        failed.status(),
        format!("`cmd`: {}", failed.message()),
    ))
}

fn timeout(backend: &Backend, asked: Option<i64>) -> Result<Duration, ApiError> {
    match asked {
        None => {
            Ok(Duration::from_secs(TIMEOUT_SECONDS).min(backend.installation.limits().max_timeout))
        }
        Some(LONGEST) => Ok(backend.installation.limits().max_timeout),
        Some(seconds) => u64::try_from(seconds)
            .map(Duration::from_secs)
            .map_err(|_| ApiError::invalid("`timeout`: seconds, or -1 for as long as it may live")),
    }
}
