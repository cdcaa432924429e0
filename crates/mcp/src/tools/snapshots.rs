//! `snapshot` and `restore`.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shoal_core::ports::create::SandboxRequest;
use shoal_core::ports::snapshots::NewSnapshot;
use shoal_core::snapshot::Contents;
use shoal_core::template::TemplateRef;

use super::sandboxes::{Shown, lifetime, start};
use super::{About, Call, Effect, Reply, Spec, spec};
use crate::error::ToolError;

/// Arguments of `snapshot`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TakeArguments {
    /// The id or name of another sandbox of your team; that of this session when absent.
    sandbox: Option<String>,
    /// A name for the snapshot; without one it is known by its id.
    name: Option<String>,
    /// Whether memory and processes are saved, or files alone: as the template says when absent.
    memory: Option<bool>,
}

/// A snapshot.
#[derive(Debug, Serialize, JsonSchema)]
struct Taken {
    /// The name or id by which it is restored.
    snapshot: String,
    /// The sandbox that was saved.
    sandbox: String,
    /// Its contents: `filesystem`, or `memory,filesystem`.
    contents: String,
    /// Bytes of memory and of the sandbox's own files, if they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

/// Arguments of `restore`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RestoreArguments {
    /// The name or id of a snapshot, as `snapshot` has answered.
    snapshot: String,
    /// Seconds until the new sandbox ends by itself: 900 when absent.
    timeout: Option<u64>,
}

pub(super) fn tools() -> Vec<Spec> {
    let snapshot = About(
        "snapshot",
        "Take a snapshot",
        "Saves a running sandbox, which continues. The snapshot stays until somebody deletes it.",
    );
    let restore = About(
        "restore",
        "Restore a snapshot",
        "Starts a new sandbox from a snapshot. Name it with `sandbox` in other tools. It does not end with the session.",
    );
    vec![
        spec::<_, Taken, _>(&snapshot, Effect::Adds, Some("snapshot.create"), take),
        spec::<_, Shown, _>(&restore, Effect::Adds, Some("sandbox.create"), restored),
    ]
}

async fn take(call: Arc<Call>, arguments: TakeArguments) -> Result<Reply, ToolError> {
    let name = arguments.name.map(|name| name.parse::<TemplateRef>());
    let name = name.transpose();
    let new = NewSnapshot {
        name: name.map_err(|e| ToolError::invalid(format_args!("`name`: {e}")))?,
        contents: arguments.memory.map(Contents::with_memory),
        ..NewSnapshot::default()
    };
    let (permit, record) = call.existing(arguments.sandbox.as_deref()).await?;
    let principal = &call.caller.principal;
    let record_of = call.ports.snapshots.take(principal, &permit, new).await?;
    let taken = Taken {
        snapshot: record_of.reference(principal.slug.as_str()),
        sandbox: record.id.to_string(),
        contents: record_of.saved.contents.to_string(),
        bytes: record_of
            .measured()
            .map(|saved| saved.memory_bytes + saved.file_bytes),
    };
    call.target(&taken.snapshot);
    let text = format!("snapshot {} of {}", taken.snapshot, taken.sandbox);
    Ok(Reply::new(text, &taken))
}

async fn restored(call: Arc<Call>, arguments: RestoreArguments) -> Result<Reply, ToolError> {
    let snapshot = arguments.snapshot.parse();
    let snapshot = snapshot.map_err(|e| ToolError::invalid(format_args!("`snapshot`: {e}")))?;
    let request = SandboxRequest {
        template: Some(snapshot),
        timeout: lifetime(arguments.timeout)?,
        ..SandboxRequest::unnamed()
    };
    start(&call, request).await
}
