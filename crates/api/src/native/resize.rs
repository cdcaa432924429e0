//! `PATCH /sandbox/{id}/resources`.

use axum::Extension;
use axum::extract::{Path, State};
use shoal_core::auth::Principal;
use shoal_core::ports::sandboxes::Resize;
use shoal_protocol::native::{ResizeSandbox, SandboxResources};

use super::answer::Answer;
use crate::backend::Backend;
use crate::body::JsonBody;
use crate::error::ApiError;
use crate::quantities::{cpu, memory};

/// Resizes a running sandbox. Omitted limits stay.
pub(super) async fn resize(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<ResizeSandbox>,
) -> Result<Answer<SandboxResources>, ApiError> {
    let (permit, _) = backend.sandboxes.find(&principal, &id).await?;
    let resize = Resize {
        cpu: cpu("cpu", body.value.cpu)?,
        memory: memory("memory", body.value.memory)?,
    };
    if resize == Resize::default() {
        return Err(ApiError::invalid("say `cpu`, `memory` or both"));
    }
    let record = backend.sandboxes.resize(&permit, resize).await?;
    let now = record.spec.resources;
    Ok(Answer::ok(SandboxResources {
        cpu_milli: now.cpu.0,
        memory_mb: now.memory.0,
        disk_size_mb: now.disk.0,
        pids: now.pids,
    }))
}
