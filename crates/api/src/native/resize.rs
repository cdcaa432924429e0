//! `PATCH /sandbox/{id}/resources`.

use axum::Extension;
use axum::extract::{Path, State};
use serde_json::Value;
use shoal_core::auth::Principal;
use shoal_core::quantity;
use shoal_core::resources::{Mib, MilliCpu};
use shoal_engine::{Engine, Resize};
use shoal_protocol::native::{ResizeSandbox, SandboxResources};

use super::answer::Answer;
use crate::body::JsonBody;
use crate::error::ApiError;

/// Other limits, while it runs. What is not said stays.
pub(super) async fn resize(
    State(engine): State<Engine>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<ResizeSandbox>,
) -> Result<Answer<SandboxResources>, ApiError> {
    let (permit, _) = engine.find(&principal, &id)?;
    let resize = Resize {
        cpu: cpu("cpu", body.value.cpu)?,
        memory: memory("memory", body.value.memory)?,
    };
    if resize == Resize::default() {
        return Err(ApiError::invalid("say `cpu`, `memory` or both"));
    }
    let record = engine.resize(&permit, resize).await?;
    let now = record.spec.resources;
    Ok(Answer::ok(SandboxResources {
        cpu_milli: now.cpu.0,
        memory_mb: now.memory.0,
        disk_size_mb: now.disk.0,
        pids: now.pids,
    }))
}

/// Reads processors.
pub(super) fn cpu(name: &str, value: Option<Value>) -> Result<Option<MilliCpu>, ApiError> {
    read(name, value, quantity::cpu)
}

/// Reads memory. A bare number is mebibytes, as everywhere in this API.
pub(super) fn memory(name: &str, value: Option<Value>) -> Result<Option<Mib>, ApiError> {
    read(name, value, |text| {
        let bare = text.bytes().all(|b| b.is_ascii_digit());
        quantity::memory(&if bare {
            format!("{text}Mi")
        } else {
            text.to_owned()
        })
    })
}

fn read<T>(
    name: &str,
    value: Option<Value>,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, ApiError> {
    let text = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
    };
    match parse(&text) {
        Some(read) => Ok(Some(read)),
        None => Err(ApiError::invalid(format_args!(
            "`{name}`: {} is no quantity above 0",
            text.chars().take(64).collect::<String>()
        ))),
    }
}
