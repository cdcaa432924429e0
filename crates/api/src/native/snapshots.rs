//! Snapshots that are carried from machine to machine.

use std::path::PathBuf;

use axum::extract::State;
use shoal_core::template::TemplateRef;
use shoal_engine::Engine;
use shoal_protocol::native::{ExportSnapshot, ExportedSnapshot, ImportSnapshot, ImportedSnapshot};

use super::admin::Admin;
use super::answer::Answer;
use crate::audit;
use crate::body::JsonBody;
use crate::error::ApiError;

/// `POST /snapshots/export`: into a new file of the server's machine.
pub(super) async fn export(
    State(engine): State<Engine>,
    Admin(principal): Admin,
    body: JsonBody<ExportSnapshot>,
) -> Result<Answer<ExportedSnapshot>, ApiError> {
    let ExportSnapshot { snapshot, path } = body.value;
    let target = absolute(&path)?;
    if target.exists() {
        return Err(ApiError::new(
            http::StatusCode::CONFLICT,
            format!("{path} is there already: remove it first, or name another file"),
        ));
    }
    let reference = reference(&snapshot)?;
    audit::target(&reference);
    let bytes = engine
        .export_snapshot(&principal, &reference, target)
        .await?;
    Ok(Answer::created(ExportedSnapshot { path, bytes }))
}

/// `POST /snapshots/import`: from a file of the server's machine.
pub(super) async fn import(
    State(engine): State<Engine>,
    Admin(principal): Admin,
    body: JsonBody<ImportSnapshot>,
) -> Result<Answer<ImportedSnapshot>, ApiError> {
    let ImportSnapshot { path, name, trust } = body.value;
    let source = absolute(&path)?;
    if !source.is_file() {
        return Err(ApiError::not_found(format!(
            "{path}: there is no such file"
        )));
    }
    let name = name.as_deref().map(reference).transpose()?;
    let taken = engine
        .import_snapshot(&principal, source, name, trust)
        .await?;
    audit::target(taken.id);
    Ok(Answer::created(ImportedSnapshot {
        snapshot_id: taken.reference(principal.slug.as_str()),
        contents: taken.saved.contents.to_string(),
    }))
}

fn absolute(path: &str) -> Result<PathBuf, ApiError> {
    let path = PathBuf::from(path);
    if path.is_absolute() {
        return Ok(path);
    }
    Err(ApiError::invalid(
        "`path`: must be absolute, on the server's machine",
    ))
}

fn reference(text: &str) -> Result<TemplateRef, ApiError> {
    text.parse().map_err(ApiError::invalid)
}
