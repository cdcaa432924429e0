//! Bodies of the sandbox routes, with Agent-Sandbox's fields.
//!
//! The mixed spelling of names is that system's, whose clients read them.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Default timeout of a sandbox in seconds.
pub const TIMEOUT_SECONDS: u64 = 1800;

/// Timeout value that means the maximum.
pub const LONGEST: i64 = -1;

/// Request for a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewSandbox {
    /// Name; `sbx-<template>-<id>` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Template to start from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Image; overrides the template's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Team; must be that of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Program to start in the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmd: Option<String>,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Environment of every process; overrides the template's.
    #[serde(default, rename = "envVars", skip_serializing_if = "Option::is_none")]
    pub env_vars: Option<BTreeMap<String, String>>,
    /// Timeout in seconds: 1800 if absent, the maximum if -1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
    /// Idle timeout in seconds; only -1 (none) is supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<i64>,
    /// Whether to pause instead of kill at the timeout.
    #[serde(default, rename = "autoPause", skip_serializing_if = "Option::is_none")]
    pub auto_pause: Option<bool>,
    /// Whether traffic resumes the paused sandbox.
    #[serde(
        default,
        rename = "autoResume",
        skip_serializing_if = "Option::is_none"
    )]
    pub auto_resume: Option<bool>,
    /// Working directory of commands; overrides the template's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// CPUs, as a number or a Kubernetes quantity: `2`, `"500m"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Value>,
    /// Memory, as a number of MiB or a Kubernetes quantity: `512`, `"1Gi"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Value>,
    /// CPU limit, which is what the sandbox gets; `cpu` is then the minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<Value>,
    /// Memory limit, which is what the sandbox gets; `memory` is then the minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<Value>,
    /// Default port of requests that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<NonZeroU16>,
    /// Labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
}

/// A sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sandbox {
    /// Name.
    pub name: String,
    /// Sandbox id.
    pub id: String,
    /// Name of its template, or its id.
    pub template: String,
    /// Root image.
    pub image: String,
    /// Team.
    pub user: String,
    /// Whether it is an unclaimed member of a pool.
    #[serde(rename = "isPool")]
    pub is_pool: bool,
    /// Program started in it; empty if none.
    pub cmd: String,
    /// Arguments of that program.
    pub args: Vec<String>,
    /// Environment of every process; absent in lists.
    #[serde(default, rename = "envVars", skip_serializing_if = "Option::is_none")]
    pub env_vars: Option<BTreeMap<String, String>>,
    /// Requested timeout in seconds.
    pub timeout: u64,
    /// Idle timeout in seconds; -1 if disabled.
    pub idle_timeout: i64,
    /// Whether it is paused instead of killed at the timeout.
    #[serde(rename = "autoPause")]
    pub auto_pause: bool,
    /// Whether traffic resumes the paused sandbox.
    #[serde(rename = "autoResume")]
    pub auto_resume: bool,
    /// Working directory of commands, unless it is the user's home.
    pub workdir: Option<String>,
    /// CPUs as a Kubernetes quantity.
    pub cpu: String,
    /// Memory as a Kubernetes quantity.
    pub memory: String,
    /// CPU limit.
    pub cpu_limit: String,
    /// Memory limit.
    pub memory_limit: String,
    /// Default port of requests that name none.
    pub port: u16,
    /// `creating`, `running`, `paused`, or a transition between these.
    pub status: String,
    /// Whether it is parked: idle, and saved on the disk until it is needed (Shoal extension). Its
    /// status is `running`.
    #[serde(default)]
    pub parked: bool,
    /// Creation time.
    pub created_at: String,
    /// Time at which it is killed or paused.
    pub expires_at: String,
    /// Driver; absent before it is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// `pooled` if claimed from a pool, `cold` if newly started, or what it was resumed from (Shoal
    /// extension); absent before it is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Labels.
    pub metadata: BTreeMap<String, String>,
}

/// Request to resume a paused sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ResumeSandbox {
    /// Timeout in seconds; the original one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
}

/// A list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "{T}List"))]
pub struct Items<T> {
    /// Items.
    pub items: Vec<T>,
}

/// Request for resource usage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AskMetrics {
    /// Sandbox names or ids; all running sandboxes if empty.
    #[serde(default)]
    pub names: Vec<String>,
}

/// Resource usage of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SandboxUse {
    /// Sandbox name.
    pub sandbox: String,
    /// Sandbox id.
    pub id: String,
    /// CPU usage in thousandths of a core.
    pub cpu_milli: u64,
    /// Memory usage in bytes.
    pub memory_bytes: u64,
    /// Memory usage in MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: u64,
    /// Bytes written to disk.
    pub disk_bytes: u64,
    /// Time of the sample.
    pub sampled_at: String,
}

/// Logs of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SandboxLogs {
    /// Sandbox name, or the requested id if it has ended.
    pub sandbox: String,
    /// Lines, each prefixed by time and level.
    pub logs: String,
    /// Time of the request.
    pub fetched_at: String,
}

/// An event of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// Type: `created`, `updated`, `paused`, `resumed`, `parked`, `woken`, `snapshotted`, `killed`.
    pub kind: String,
    /// Time.
    pub at: String,
    /// Sandbox id.
    pub sandbox: String,
    /// Sandbox name, while it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Template id.
    pub template: String,
    /// Further details by name.
    pub detail: BTreeMap<String, String>,
}

/// An event of a sandbox, as in the stream of events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SandboxNotice {
    /// Type: `created`, `updated`, `paused`, `resumed`, `snapshotted`, `killed`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Time.
    pub at: String,
    /// Sandbox id.
    pub sandbox_id: String,
    /// Sandbox name, while it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Team: its name if it is the key's own, else its id.
    pub user: String,
    /// Template id.
    pub template: String,
    /// Further details by name.
    pub detail: BTreeMap<String, String>,
}

/// A command line for a login shell in a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunCommand {
    /// Command line.
    pub command: String,
    /// User; the template's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Working directory; the template's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Timeout in seconds: 1 to 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
}

/// Result of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RanCommand {
    /// Sandbox name.
    pub sandbox: String,
    /// Command line.
    pub command: String,
    /// Standard output. Invalid UTF-8 is replaced.
    pub output: String,
    /// Standard error.
    pub error_output: String,
    /// Exit code; -1 if it did not exit.
    pub exit_code: i32,
    /// Reason why it did not exit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether the output exceeded the limit; the command is killed then.
    pub truncated: bool,
    /// Start time.
    pub executed_at: String,
}

/// A directory entry of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    /// Name.
    pub name: String,
    /// Path.
    pub path: String,
    /// Whether it is a directory or a symlink to one.
    pub is_dir: bool,
    /// Size in bytes.
    pub size: u64,
}

/// Limits and usage of a team.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RateLimits {
    /// Rate limit of each route; absent if unlimited. Response headers show the remaining calls.
    pub calls: Option<CallLimit>,
    /// Running sandboxes; paused ones do not count.
    pub sandboxes: Share,
    /// Number of them that are starting.
    pub starting: usize,
    /// CPU limit of running sandboxes in thousandths of a core.
    pub cpu_milli: OpenShare,
    /// Maximum timeout of a sandbox in seconds.
    pub max_timeout: u64,
}

/// A rate limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CallLimit {
    /// Calls per period.
    pub calls: u32,
    /// Period in seconds.
    pub seconds: u64,
}

/// Usage of a limited resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Share {
    /// Amount used.
    pub used: u64,
    /// Limit.
    pub limit: u64,
}

/// Usage of a resource that may be unlimited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OpenShare {
    /// Amount used.
    pub used: u64,
    /// Limit; unlimited if absent.
    pub limit: Option<u64>,
}
