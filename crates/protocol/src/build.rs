//! Bodies of template builds: E2B's build system, versions 2 and 3, shared by the server and the
//! command line.
//!
//! ```text
//!   POST /v3/templates                                NewBuild    ─▶ RequestedBuild
//!   GET  /templates/{id}/files/{hash}                             ─▶ FileLink, then PUT of a tar
//!   POST /v2/templates/{id}/builds/{build}            BuildStart
//!   GET  /templates/{id}/builds/{build}/status        StatusQuery ─▶ BuildStatus
//!   DELETE /templates/{id}/builds/{build}                         cancels it (ours)
//! ```
//!
//! Shoal extends it for multi-stage Dockerfiles: [`BuildStart::stages`], `fromStage`, the sources
//! `fromStage` and `fromImage` of a `COPY`, and [`Step::line`]. E2B's clients send none of these
//! and need none to read the responses.

mod place;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use place::{InvalidPlace, Part, Place};

/// Limit of log entries per [`BuildStatus`].
pub const LOG_PAGE: usize = 100;

/// Request for a build. Creates the template if missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NewBuild {
    /// Template name, optionally with a tag: `name:tag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name as sent by older clients; used if there is no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// Tags of the build once it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// CPUs of its sandboxes; the server's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_count: Option<u32>,
    /// Memory of its sandboxes in MiB; the server's default if absent.
    #[serde(default, rename = "memoryMB", skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u32>,
}

/// A build that waits for files and steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RequestedBuild {
    /// Template id.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// Build id, a UUID.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// Whether other teams may use the template.
    pub public: bool,
    /// Template names with namespace.
    pub names: Vec<String>,
    /// Tags of the build.
    pub tags: Vec<String>,
    /// Template names without namespace.
    pub aliases: Vec<String>,
}

/// Whether files with a hash exist, and where to upload them if not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileLink {
    /// Whether they exist.
    pub present: bool,
    /// Upload URL of the archive. Needs no API key: the URL authorises the upload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers to send with the upload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
}

/// Plan of a build, with exactly one of `from_image`, `from_template` and `from_stage`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BuildStart {
    /// Base image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_image: Option<String>,
    /// Credentials for the image's registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_image_registry: Option<Registry>,
    /// Base template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_template: Option<String>,
    /// Base stage, as an index into `stages` (Shoal extension).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_stage: Option<usize>,
    /// Stages to build first, in order (Shoal extension).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    /// Disables the cache.
    #[serde(default)]
    pub force: bool,
    /// Steps in order.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// Variables of `ENV` steps to set in every process of a sandbox, as in Docker (Shoal
    /// extension). E2B's clients send none: there variables apply only to the build and the start
    /// command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep_env: Vec<String>,
    /// Start command, run after the build and kept running in every sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_cmd: Option<String>,
    /// Command that succeeds once the start command is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_cmd: Option<String>,
}

/// A stage of a Dockerfile (Shoal extension), with exactly one of `from_image`, `from_template` and
/// `from_stage`. Other stages may copy from it or use it as base.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "BuildStage"))]
#[serde(rename_all = "camelCase")]
pub struct Stage {
    /// Stage name, for logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Base image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_image: Option<String>,
    /// Credentials for the image's registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_image_registry: Option<Registry>,
    /// Base template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_template: Option<String>,
    /// Base stage: an index of an earlier stage in `stages`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_stage: Option<usize>,
    /// Steps in order.
    #[serde(default)]
    pub steps: Vec<Step>,
}

/// One step of a build.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "BuildStep"))]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// `COPY`, `ADD`, `RUN`, `ENV`, `ARG`, `WORKDIR` or `USER`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Arguments, whose meaning depends on the type (spec: E2B's build system).
    ///
    /// In values of `ENV` and `ARG` the server expands `$NAME`, `${NAME}`, `${NAME:-word}`,
    /// `${NAME-word}`, `${NAME:+word}` and `${NAME+word}` with the variables before the step. `\$`,
    /// `\\` and `\}` yield the character itself; other backslashes are literal.
    #[serde(default)]
    pub args: Vec<String>,
    /// Hash of the archive with the client's files for a `COPY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_hash: Option<String>,
    /// Disables the cache for this and all later steps.
    #[serde(default)]
    pub force: bool,
    /// Source stage of a `COPY` without `files_hash`, as an index into `stages`
    /// (Shoal extension).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_stage: Option<usize>,
    /// Source image of a `COPY` without `files_hash` (Shoal extension).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_image: Option<String>,
    /// Line in the Dockerfile, from 1 (Shoal extension). Informational: not part of the cache key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// Credentials for an image registry.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "RegistryCredentials"))]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Registry {
    /// A registry account.
    Registry {
        /// Account name.
        username: String,
        /// Password or token.
        password: String,
    },
    /// Amazon ECR.
    #[serde(rename_all = "camelCase")]
    Aws {
        /// Access key id.
        aws_access_key_id: String,
        /// Secret access key.
        aws_secret_access_key: String,
        /// Region of the registry.
        aws_region: String,
    },
    /// Google Artifact Registry.
    #[serde(rename_all = "camelCase")]
    Gcp {
        /// Service account key: a JSON document as text.
        service_account_json: String,
    },
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registry { username, .. } => f
                .debug_struct("Registry")
                .field("username", username)
                .finish_non_exhaustive(),
            Self::Aws { aws_region, .. } => f
                .debug_struct("Aws")
                .field("aws_region", aws_region)
                .finish_non_exhaustive(),
            Self::Gcp { .. } => f.debug_struct("Gcp").finish_non_exhaustive(),
        }
    }
}

/// Query for the status of a build.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StatusQuery {
    /// Number of log entries that the caller already has.
    #[serde(default)]
    pub logs_offset: usize,
    /// Limit of log entries, 100 at most; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Minimum log level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
}

/// Status of a build and its log entries since `logsOffset`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BuildStatus {
    /// Template id.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// Build id.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// Progress.
    pub status: Progress,
    /// Log entries as text.
    #[serde(default)]
    pub logs: Vec<String>,
    /// Log entries.
    #[serde(default)]
    pub log_entries: Vec<LogEntry>,
    /// Reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

/// Progress of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "BuildProgress"))]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// Waiting for its steps.
    Waiting,
    /// Running.
    Building,
    /// Ready: sandboxes start from it.
    Ready,
    /// Failed or cancelled.
    Error,
}

impl Progress {
    /// Whether the status is final.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Ready | Self::Error)
    }
}

/// Log level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "LogLevel"))]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// For debugging.
    Debug,
    /// Normal events.
    Info,
    /// Possible mistakes.
    Warn,
    /// Errors.
    Error,
}

/// A log entry of a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "BuildLogEntry"))]
pub struct LogEntry {
    /// RFC 3339 in UTC.
    pub timestamp: String,
    /// Text.
    pub message: String,
    /// Log level.
    pub level: Level,
    /// The step that logged it: `base`, its number from 1, or `finalize`; after `stages/<index>/` in another stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

/// Reason of a failed build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "BuildFailure"))]
#[serde(rename_all = "camelCase")]
pub struct Reason {
    /// Human-readable error.
    pub message: String,
    /// The step that failed, in the form of the step of a log entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Last log entries.
    #[serde(default)]
    pub log_entries: Vec<LogEntry>,
}

#[cfg(test)]
mod tests;
