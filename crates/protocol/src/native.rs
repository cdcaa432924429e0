//! Bodies of Shoal's native API under `/api/v1`: keys, images, templates, status.
//!
//! Every response is an [`Envelope`] along with a real HTTP status. Times are RFC 3339 in UTC;
//! sizes are in bytes unless the name has another unit.

mod catalogue;
mod pool;
mod sandbox;
mod session;
mod session_events;
mod session_files;
mod session_parts;
mod status;
mod team;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::catalogue::{
    Blueprint, CapturedParts, Catalogue, CatalogueWarning, IF_MATCH, RefusedCatalogue,
    ReplaceBlueprint, ReplaceCatalogue, ResolvedTemplate, ResolvedValue,
};
pub use self::pool::{Pool, PoolError, PoolMember, RemovedMembers};
pub use self::sandbox::{
    AskMetrics, CallLimit, Event, FileEntry, Items, LONGEST, NewSandbox, OpenShare, RanCommand,
    RateLimits, ResumeSandbox, RunCommand, Sandbox, SandboxLogs, SandboxNotice, SandboxUse, Share,
    TIMEOUT_SECONDS,
};
pub use self::session::{
    ChangeSession, NewSession, ResetSession, Session, SessionCommand, SessionMachine,
    SessionOutput, SessionReset, SessionWindow,
};
pub use self::session_events::{SessionFilesNotice, SessionNotice, SessionNoticeKind};
pub use self::session_files::{MoveSessionFile, SessionFile, SessionFileCount, SessionSync};
pub use self::session_parts::{
    PutMemory, SessionMemory, SessionMemoryEntry, SessionSecret, SetSecret,
};
pub use self::status::{Runtime, Status, Totals};
pub use self::team::{NewTeamLimits, Team};

/// Request to build a template of the installation. The response is the
/// [`RequestedBuild`](crate::build::RequestedBuild), already started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BuildTemplate {
    /// Disables the cache. Effective for admin keys only.
    #[serde(default)]
    pub force: bool,
}

/// Path prefix of all routes.
pub const PREFIX: &str = "/api/v1";

/// Code of a successful response.
pub const OK: &str = "0";

/// Content type of a response that streams [`ImageEvent`]s as JSON lines.
pub const NDJSON: &str = "application/x-ndjson";

/// Wrapper of every response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Envelope<T> {
    /// [`OK`], or the HTTP status as text.
    pub code: String,
    /// `ok`, or the error and its remedy.
    pub message: String,
    /// The error message again, where Agent-Sandbox's clients read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The data; absent in errors and empty responses.
    pub data: Option<T>,
}

impl<T> Envelope<T> {
    /// A success.
    #[must_use]
    pub fn ok(data: T) -> Self {
        Self {
            code: OK.to_owned(),
            message: "ok".to_owned(),
            error: None,
            data: Some(data),
        }
    }

    /// An error.
    #[must_use]
    pub fn failed(status: u16, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            code: status.to_string(),
            error: Some(message.clone()),
            message,
            data: None,
        }
    }
}

/// Request for a new API key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewKey {
    /// Display name: 1 to 128 characters.
    pub name: String,
    /// Team of the key, created if missing; the caller's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// Whether it may create keys, images and templates.
    #[serde(default)]
    pub admin: bool,
}

/// An API key without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// Key id.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Team.
    pub team: String,
    /// Whether it may create keys, images and templates.
    pub admin: bool,
    /// First and last characters of the secret.
    pub mask: String,
    /// Creation time.
    pub created_at: String,
    /// Whether the request was made with this key.
    pub own: bool,
}

/// A new key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct MintedKey {
    /// The key without its secret.
    #[serde(flatten)]
    pub key: Key,
    /// The secret, shown only once.
    pub secret: String,
}

impl fmt::Debug for MintedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MintedKey")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// An image on the server's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Requested name.
    pub name: String,
    /// `sha256:` digest of its configuration.
    pub digest: String,
    /// Number of layers.
    pub layers: usize,
    /// Size on disk, with shared layers counted in full.
    pub size_bytes: u64,
    /// Default user, if set.
    pub user: Option<String>,
    /// Default working directory, if set.
    pub workdir: Option<String>,
    /// Time of import.
    pub created_at: String,
}

/// Request to pull an image from a registry, or to create `mmdebstrap:<suite>`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PullImage {
    /// `[registry/]repository[:tag][@digest]`.
    pub name: String,
    /// Registry account; empty if the password is a bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Registry password or token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
}

impl fmt::Debug for PullImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PullImage")
            .field("name", &self.name)
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// Request to import an OCI layout or a `docker save` archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImportImage {
    /// Absolute path on the server's machine.
    pub path: String,
    /// Name of the image.
    pub name: String,
}

/// One line of the response to a pull or an import. The last is `done` or `error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum ImageEvent {
    /// Progress of a step.
    Progress {
        /// A layer's short digest, or the name of a step.
        step: String,
        /// Amount done: bytes, or packages during an installation.
        done: u64,
        /// Total amount, if known.
        total: Option<u64>,
    },
    /// Completed.
    Done {
        /// The image.
        image: Image,
    },
    /// Failed.
    Error {
        /// The equivalent HTTP status, as text.
        code: String,
        /// The error and its remedy.
        message: String,
    },
}

/// Request to create a template from an image on the server's machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewTemplate {
    /// Name: 1 to 128 of a-z, 0-9, `_` and `-`.
    pub name: String,
    /// The image.
    pub image: String,
    /// CPU limit in thousandths of a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_milli: Option<u32>,
    /// Memory in MiB.
    #[serde(default, rename = "memoryMB", skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u32>,
    /// Writable disk space in MiB.
    #[serde(
        default,
        rename = "diskSizeMB",
        skip_serializing_if = "Option::is_none"
    )]
    pub disk_size_mb: Option<u32>,
    /// Limit of processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// OCI runtime; the server's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Default contents of a pause or a snapshot: `filesystem`, or `memory` with the file system
    /// (default).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_contents: Option<Vec<String>>,
    /// Upper bound of CPU resizes, in thousandths of a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cpu_milli: Option<u32>,
    /// User of commands; the image's if absent, else root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Working directory of commands; the image's if absent, else the user's home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Environment of every process; overrides the image's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Whether other teams may use it.
    #[serde(default)]
    pub public: bool,
    /// One-line description.
    #[serde(default)]
    pub description: String,
}

/// A template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// Template id.
    #[serde(rename = "templateID")]
    pub id: String,
    /// Names.
    pub names: Vec<String>,
    /// Tags of its builds, in order; empty for a template from an image.
    #[serde(default)]
    pub tags: Vec<String>,
    /// `ready`, or the status of its first build until a build succeeds: `waiting`, `building` or
    /// `error`.
    #[serde(default = "ready")]
    pub state: String,
    /// Error of the latest build, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Root image of its sandboxes; empty until a build succeeds.
    pub image: String,
    /// CPU limit in thousandths of a core.
    pub cpu_milli: u32,
    /// Memory in MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: u32,
    /// Writable disk space in MiB.
    #[serde(rename = "diskSizeMB")]
    pub disk_size_mb: u32,
    /// Limit of processes and threads.
    pub pids: u32,
    /// OCI runtime, if set.
    pub runtime: Option<String>,
    /// Default contents of a pause or a snapshot.
    #[serde(default)]
    pub persistent_contents: Vec<String>,
    /// Upper bound of CPU resizes, in thousandths of a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cpu_milli: Option<u32>,
    /// User of commands.
    pub user: String,
    /// Working directory of commands, if set.
    pub workdir: Option<String>,
    /// Environment of every process.
    pub env: BTreeMap<String, String>,
    /// Whether other teams may use it.
    pub public: bool,
    /// Whether it belongs to the installation rather than to a team.
    pub stock: bool,
    /// One-line description.
    pub description: String,
    /// Creation time.
    pub created_at: String,
    /// Time of its current build.
    pub updated_at: String,
}

/// State of a usable template.
fn ready() -> String {
    Template::READY.to_owned()
}

impl Template {
    /// State of a usable template.
    pub const READY: &str = "ready";
}

/// New limits of a running sandbox.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResizeSandbox {
    /// CPUs, as a number or a Kubernetes quantity: `2`, `"1.5"`, `"500m"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<serde_json::Value>,
    /// Memory, as a number of MiB or a Kubernetes quantity: `512`, `"1Gi"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<serde_json::Value>,
}

/// Tokens of a sandbox after a rotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SandboxTokens {
    /// Sandbox id.
    pub sandbox: String,
    /// Access token of its daemon; absent if the sandbox is not secured.
    pub envd_access_token: Option<String>,
    /// Access token of its ports; absent if they are public.
    pub traffic_access_token: Option<String>,
}

/// Limits of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SandboxResources {
    /// CPU limit in thousandths of a core.
    pub cpu_milli: u32,
    /// Memory in MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: u32,
    /// Writable disk space in MiB.
    #[serde(rename = "diskSizeMB")]
    pub disk_size_mb: u32,
    /// Limit of processes and threads.
    pub pids: u32,
}

/// Request to export a snapshot to a file on the server's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExportSnapshot {
    /// Snapshot name or id, with a tag unless it is `default`.
    pub snapshot: String,
    /// Absolute path on the server's machine. The file must not exist.
    pub path: String,
}

/// An exported snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExportedSnapshot {
    /// Path of the file.
    pub path: String,
    /// Size of the file.
    pub bytes: u64,
}

/// Request to import a snapshot from a file on the server's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImportSnapshot {
    /// Absolute path on the server's machine.
    pub path: String,
    /// Name of the snapshot; its original name if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Accepts an export of another installation. Its memory is loaded into the runtime and its
    /// programs run as the author of the file wrote them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trust: bool,
}

/// An imported snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ImportedSnapshot {
    /// Id to start sandboxes from.
    #[serde(rename = "snapshotID")]
    pub snapshot_id: String,
    /// Contents: `filesystem` or `memory,filesystem`.
    pub contents: String,
}

#[cfg(test)]
mod tests;
