//! Templates.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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

/// Request to build a template from a Dockerfile that copies no files of the client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BuildDockerfile {
    /// Template name, optionally with a tag: `name:tag`.
    pub name: String,
    /// The Dockerfile: 256 KiB at most.
    pub dockerfile: String,
    /// Values of `ARG`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub build_args: BTreeMap<String, String>,
    /// The name or number (from 0) of the stage to build; the last if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// CPUs of its sandboxes: 1 or an even number; the server's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_count: Option<u32>,
    /// Memory of its sandboxes in MiB; the server's default if absent.
    #[serde(default, rename = "memoryMB", skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u32>,
    /// The start command of its sandboxes; that of `ENTRYPOINT` and `CMD` if absent, none if empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_cmd: Option<String>,
    /// A command that succeeds once the start command is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_cmd: Option<String>,
    /// Disables the cache.
    #[serde(default)]
    pub force: bool,
}

/// A build of a Dockerfile, already started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DockerfileBuild {
    /// Template id.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// Build id.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// Template names, with namespace.
    pub names: Vec<String>,
    /// Tags of the build.
    pub tags: Vec<String>,
    /// Skipped instructions and probable mistakes, each with its line.
    pub warnings: Vec<String>,
}

/// Request to build a template of the installation. The response is the build, already started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BuildTemplate {
    /// Disables the cache. Effective for admin keys only.
    #[serde(default)]
    pub force: bool,
}
