//! Bodies of the routes of sandboxes, with Agent-Sandbox's fields.
//!
//! Their names are as that system spells them, mixed as they are: its clients read them.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How long a sandbox lives when nothing is said, in seconds.
pub const TIMEOUT_SECONDS: u64 = 1800;

/// The timeout that asks for the longest life there is.
pub const LONGEST: i64 = -1;

/// Asks for a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewSandbox {
    /// What it shall be called; `sbx-<template>-<id>` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The template it starts from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// The image, over that of the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Whose it shall be: the team of the key, whom else to name is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// A program that is started as soon as the sandbox runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmd: Option<String>,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Environment of every process, over that of the template.
    #[serde(default, rename = "envVars", skip_serializing_if = "Option::is_none")]
    pub env_vars: Option<BTreeMap<String, String>>,
    /// How long it lives, in seconds: [`TIMEOUT_SECONDS`] when absent, as long as it may when
    /// [`LONGEST`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
    /// How long it may be idle, in seconds: only [`LONGEST`] yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<i64>,
    /// Whether it is paused at its end, and not removed.
    #[serde(default, rename = "autoPause", skip_serializing_if = "Option::is_none")]
    pub auto_pause: Option<bool>,
    /// Whether traffic to it wakes it when it is paused.
    #[serde(
        default,
        rename = "autoResume",
        skip_serializing_if = "Option::is_none"
    )]
    pub auto_resume: Option<bool>,
    /// Where commands start, over that of the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Processors, as a number or as Kubernetes writes it: `2`, `"500m"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Value>,
    /// Memory, as a number of MiB or as Kubernetes writes it: `512`, `"1Gi"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Value>,
    /// The most processors: what it gets, with `cpu` the least that would do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<Value>,
    /// The most memory: what it gets, with `memory` the least that would do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<Value>,
    /// The port that is meant when a request names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<NonZeroU16>,
    /// Labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
}

/// A sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// What it is called.
    pub name: String,
    /// Its id.
    pub id: String,
    /// What its template is called, or that one's id.
    pub template: String,
    /// The image of its root.
    pub image: String,
    /// The team whose it is.
    pub user: String,
    /// Whether it waits in a pool for somebody to ask for it.
    #[serde(rename = "isPool")]
    pub is_pool: bool,
    /// The program that was started in it; empty when none was.
    pub cmd: String,
    /// That program's arguments.
    pub args: Vec<String>,
    /// Environment of every process; absent in lists.
    #[serde(default, rename = "envVars", skip_serializing_if = "Option::is_none")]
    pub env_vars: Option<BTreeMap<String, String>>,
    /// How long it was to live, in seconds.
    pub timeout: u64,
    /// How long it may be idle, in seconds; [`LONGEST`] when that does not matter.
    pub idle_timeout: i64,
    /// Whether it is paused at its end, and not removed.
    #[serde(rename = "autoPause")]
    pub auto_pause: bool,
    /// Whether traffic to it wakes it when it is paused.
    #[serde(rename = "autoResume")]
    pub auto_resume: bool,
    /// Where commands start, when that is not the user's home.
    pub workdir: Option<String>,
    /// Processors, as Kubernetes writes them.
    pub cpu: String,
    /// Memory, as Kubernetes writes it.
    pub memory: String,
    /// The most processors.
    pub cpu_limit: String,
    /// The most memory.
    pub memory_limit: String,
    /// The port that is meant when a request names none.
    pub port: u16,
    /// `creating`, `running`, `paused`, or how it is on its way from one to another.
    pub status: String,
    /// When it was created.
    pub created_at: String,
    /// When it ends, or is paused, by itself.
    pub expires_at: String,
    /// What runs it; absent before anything does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// `pooled` when it was ready in a pool, `cold` when it was started for whoever asked, or what it
    /// went on from (ours); absent before anything runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Labels.
    pub metadata: BTreeMap<String, String>,
}

/// Asks for a paused sandbox to go on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumeSandbox {
    /// For how many seconds; as long as it was to live when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
}

/// A list of something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Items<T> {
    /// What there is.
    pub items: Vec<T>,
}

/// Asks what sandboxes use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskMetrics {
    /// Which, by names or ids; all that run when there are none.
    #[serde(default)]
    pub names: Vec<String>,
}

/// What a sandbox uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxUse {
    /// What it is called.
    pub sandbox: String,
    /// Its id.
    pub id: String,
    /// Thousandths of a processor.
    pub cpu_milli: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The same in MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: u64,
    /// Bytes that it has written.
    pub disk_bytes: u64,
    /// When that was.
    pub sampled_at: String,
}

/// What was written in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxLogs {
    /// Its name, or the id by which it was asked for when it has ended.
    pub sandbox: String,
    /// Lines, each with its moment and level before it.
    pub logs: String,
    /// When they were read.
    pub fetched_at: String,
}

/// Something that happened to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// What: `created`, `updated`, `paused`, `resumed`, `snapshotted`, `killed`.
    pub kind: String,
    /// When.
    pub at: String,
    /// The sandbox's id.
    pub sandbox: String,
    /// Its name, while it lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its template's id.
    pub template: String,
    /// More of it, by name.
    pub detail: BTreeMap<String, String>,
}

/// A line for a login shell in a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunCommand {
    /// The line.
    pub command: String,
    /// As whom; the template's user when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Where; the template's directory when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// For how many seconds at most: 1 to 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RanCommand {
    /// The sandbox's name.
    pub sandbox: String,
    /// The line.
    pub command: String,
    /// What it printed. What is no UTF-8 is replaced.
    pub output: String,
    /// What it printed as errors.
    pub error_output: String,
    /// Its exit code; -1 when it did not end by itself.
    pub exit_code: i32,
    /// Why it did not end by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether it printed more than is shown; it was ended then.
    pub truncated: bool,
    /// When it began.
    pub executed_at: String,
}

/// What lies in a directory of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    /// The last part of its path.
    pub name: String,
    /// Where it is.
    pub path: String,
    /// Whether it is a directory, or a link to one.
    pub is_dir: bool,
    /// Its bytes.
    pub size: u64,
}

/// What a team may have, and has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RateLimits {
    /// How often each route may be called; absent when as often as one likes. How much of it is left
    /// is in the headers of each answer.
    pub calls: Option<CallLimit>,
    /// Sandboxes at once; those that are paused are not counted.
    pub sandboxes: Share,
    /// How many of them are on their way to run.
    pub starting: usize,
    /// Thousandths of a processor, of those that are counted.
    pub cpu_milli: OpenShare,
    /// The longest life of a sandbox, in seconds.
    pub max_timeout: u64,
}

/// So many calls of one route in so long a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallLimit {
    /// How many.
    pub calls: u32,
    /// In how many seconds.
    pub seconds: u64,
}

/// A part of what one may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// How much one has.
    pub used: u64,
    /// How much one may have.
    pub limit: u64,
}

/// A part of what one may have, which may be all there is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenShare {
    /// How much one has.
    pub used: u64,
    /// How much one may have; as much as there is when absent.
    pub limit: Option<u64>,
}
