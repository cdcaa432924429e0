//! Export and import of snapshots between machines.

use std::path::PathBuf;

use axum::extract::State;
use shoal_core::template::TemplateRef;
use shoal_protocol::native::{ExportSnapshot, ExportedSnapshot, ImportSnapshot, ImportedSnapshot};

use super::admin::Admin;
use super::answer::Answer;
use crate::audit;
use crate::backend::Backend;
use crate::body::JsonBody;
use crate::error::ApiError;

/// `POST /snapshots/export`: writes a new file on the server's machine.
pub(super) async fn export(
    State(backend): State<Backend>,
    Admin(principal): Admin,
    body: JsonBody<ExportSnapshot>,
) -> Result<Answer<ExportedSnapshot>, ApiError> {
    let ExportSnapshot { snapshot, path } = body.value;
    let target = absolute(&path)?;
    if tokio::fs::try_exists(&target).await.unwrap_or(false) {
        return Err(ApiError::new(
            http::StatusCode::CONFLICT,
            format!("{path} is there already: remove it first, or name another file"),
        ));
    }
    let reference = reference(&snapshot)?;
    audit::target(&reference);
    let bytes = backend
        .snapshots
        .export(&principal, &reference, target)
        .await?;
    Ok(Answer::created(ExportedSnapshot { path, bytes }))
}

/// `POST /snapshots/import`: reads a file on the server's machine.
pub(super) async fn import(
    State(backend): State<Backend>,
    Admin(principal): Admin,
    body: JsonBody<ImportSnapshot>,
) -> Result<Answer<ImportedSnapshot>, ApiError> {
    let ImportSnapshot { path, name, trust } = body.value;
    let source = absolute(&path)?;
    let is_file = tokio::fs::metadata(&source).await;
    if !is_file.is_ok_and(|about| about.is_file()) {
        return Err(ApiError::not_found(format!(
            "{path}: there is no such file"
        )));
    }
    let name = name.as_deref().map(reference).transpose()?;
    let taken = backend
        .snapshots
        .import(&principal, source, name, trust)
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
