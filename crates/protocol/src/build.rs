//! Bodies of template builds: E2B's build system, versions 2 and 3, which the server and the
//! command line share.
//!
//! ```text
//!   POST /v3/templates                                NewBuild    ─▶ RequestedBuild
//!   GET  /templates/{id}/files/{hash}                             ─▶ FileLink, then PUT of a tar
//!   POST /v2/templates/{id}/builds/{build}            BuildStart
//!   GET  /templates/{id}/builds/{build}/status        StatusQuery ─▶ BuildStatus
//!   DELETE /templates/{id}/builds/{build}                         cancels it (ours)
//! ```
//!
//! Shoal adds to it what a Dockerfile of several stages needs: [`BuildStart::stages`],
//! `fromStage`, the sources `fromStage` and `fromImage` of a `COPY`, and [`Step::line`]. Clients
//! of E2B send none of it, and need none of it to read the answers.

mod place;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use place::{InvalidPlace, Part, Place};

/// The most log entries in one [`BuildStatus`].
pub const LOG_PAGE: usize = 100;

/// Asks for a build, and for its template when there is none of the name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewBuild {
    /// What the template is called; may carry a tag: `name:tag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The same, as older clients say it; counts when there is no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// Tags that the build gets when it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// Processors of its sandboxes; the server's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_count: Option<u32>,
    /// Memory of its sandboxes in MiB; the server's default when absent.
    #[serde(default, rename = "memoryMB", skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u32>,
}

/// A build that waits for its files and its steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestedBuild {
    /// The template.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// The build: a UUID.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// Whether other teams may use the template.
    pub public: bool,
    /// What the template is called, with its namespace.
    pub names: Vec<String>,
    /// The tags that the build gets.
    pub tags: Vec<String>,
    /// What the template is called, bare.
    pub aliases: Vec<String>,
}

/// Whether the files of a hash are there, and where they go if not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLink {
    /// Whether they are.
    pub present: bool,
    /// Where the archive is put, without a key: the address is the permission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers to be sent with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
}

/// What a build does. Exactly one of `from_image`, `from_template` and `from_stage` is said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildStart {
    /// The image it stands on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_image: Option<String>,
    /// Who asks the image's registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_image_registry: Option<Registry>,
    /// The template it stands on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_template: Option<String>,
    /// Ours: the stage it stands on, by its place in `stages`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_stage: Option<usize>,
    /// Ours: what is built before it, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    /// Whether nothing is taken from the cache.
    #[serde(default)]
    pub force: bool,
    /// What is done, in order.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// Ours: the variables of `ENV` steps that every process of a sandbox gets, as Docker has it.
    /// E2B's clients send none: their variables end with the build and the start command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep_env: Vec<String>,
    /// What is started when all is done, and runs in every sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_cmd: Option<String>,
    /// What succeeds once that is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_cmd: Option<String>,
}

/// Ours: a stage of a Dockerfile, of which others take files or stand on. Exactly one of
/// `from_image`, `from_template` and `from_stage` is said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stage {
    /// What the Dockerfile calls it; shown in logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The image it stands on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_image: Option<String>,
    /// Who asks the image's registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_image_registry: Option<Registry>,
    /// The template it stands on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_template: Option<String>,
    /// The stage it stands on: an earlier one, by its place in [`BuildStart::stages`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_stage: Option<usize>,
    /// What is done, in order.
    #[serde(default)]
    pub steps: Vec<Step>,
}

/// One step of a build.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// `COPY`, `ADD`, `RUN`, `ENV`, `ARG`, `WORKDIR` or `USER`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it is done with; what each means depends on the kind (spec: E2B's build system).
    ///
    /// In the values of `ENV` and `ARG` the server puts `$NAME`, `${NAME}`, `${NAME:-word}`,
    /// `${NAME-word}`, `${NAME:+word}` and `${NAME+word}` as the variables are before the step.
    /// `\$`, `\\` and `\}` are the character itself; any other backslash is a backslash.
    #[serde(default)]
    pub args: Vec<String>,
    /// The archive with the files that a `COPY` takes from the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_hash: Option<String>,
    /// Whether this step and all after it are done anew, whatever the cache has.
    #[serde(default)]
    pub force: bool,
    /// Ours, for a `COPY` without `files_hash`: the stage that its source is a path of, by its
    /// place in [`BuildStart::stages`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_stage: Option<usize>,
    /// Ours, for a `COPY` without `files_hash`: the image that its source is a path of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_image: Option<String>,
    /// Ours: the line of the Dockerfile it came from, from 1. It changes nothing, the cache least
    /// of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// Who asks an image's registry.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Registry {
    /// An account.
    Registry {
        /// Its name.
        username: String,
        /// Its password or token.
        password: String,
    },
    /// Amazon's.
    #[serde(rename_all = "camelCase")]
    Aws {
        /// The id of the key.
        aws_access_key_id: String,
        /// The key.
        aws_secret_access_key: String,
        /// Where the registry is.
        aws_region: String,
    },
    /// Google's.
    #[serde(rename_all = "camelCase")]
    Gcp {
        /// The key of a service account: a JSON document as text.
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

/// What is asked of a build's state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusQuery {
    /// How many log entries the caller has.
    #[serde(default)]
    pub logs_offset: usize,
    /// How many it takes at most; [`LOG_PAGE`] when absent, and never more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// The least weighty level it wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
}

/// How far a build is, and what it has said since [`StatusQuery::logs_offset`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildStatus {
    /// The template.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// The build.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// How far it is.
    pub status: Progress,
    /// The entries as lines of text.
    #[serde(default)]
    pub logs: Vec<String>,
    /// The entries.
    #[serde(default)]
    pub log_entries: Vec<LogEntry>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

/// How far a build is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// For its steps.
    Waiting,
    /// It is at work.
    Building,
    /// It is done: sandboxes start from it.
    Ready,
    /// It failed, or was cancelled.
    Error,
}

impl Progress {
    /// Whether nothing more will come.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Ready | Self::Error)
    }
}

/// How weighty a log entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// For those who look for a mistake.
    Debug,
    /// What happens.
    Info,
    /// What may be a mistake.
    Warn,
    /// What is one.
    Error,
}

/// What a build said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// When: RFC 3339 in UTC.
    pub timestamp: String,
    /// What.
    pub message: String,
    /// How weighty it is.
    pub level: Level,
    /// Which step said it: a [`Place`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

/// Why a build failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reason {
    /// What failed, for people.
    pub message: String,
    /// Which step failed: a [`Place`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// What was said last.
    #[serde(default)]
    pub log_entries: Vec<LogEntry>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_sdk_sends_is_read() {
        let body = json!({
            "fromImage": "ubuntu:22.04",
            "force": false,
            "steps": [
                {"type": "COPY", "args": ["f.txt", "/tmp/f.txt", "", ""], "filesHash": "ab", "force": false},
                {"type": "RUN", "args": ["echo hi"], "force": true},
            ],
            "startCmd": "sleep 1",
            "fromImageRegistry": {"type": "registry", "username": "u", "password": "p"},
            "unheardOf": 1,
        });
        let start: BuildStart = serde_json::from_value(body).unwrap();
        assert_eq!(start.steps[0].files_hash.as_deref(), Some("ab"));
        assert!(start.steps[1].force && start.stages.is_empty());
        let aws = json!({"type": "aws", "awsAccessKeyId": "a", "awsSecretAccessKey": "s", "awsRegion": "r"});
        assert!(serde_json::from_value::<Registry>(aws).is_ok());
        let gcp = json!({"type": "gcp", "serviceAccountJson": "{}"});
        assert!(serde_json::from_value::<Registry>(gcp).is_ok());
    }

    #[test]
    fn a_plain_build_is_sent_as_the_sdk_sends_it() {
        let start = BuildStart {
            from_image: Some("debian".into()),
            steps: vec![Step {
                kind: "RUN".into(),
                args: vec!["true".into()],
                ..Step::default()
            }],
            ..BuildStart::default()
        };
        assert_eq!(
            serde_json::to_value(start).unwrap(),
            json!({"fromImage": "debian", "force": false,
                   "steps": [{"type": "RUN", "args": ["true"], "force": false}]})
        );
        let new = NewBuild {
            name: Some("x".into()),
            memory_mb: Some(512),
            cpu_count: Some(2),
            ..NewBuild::default()
        };
        assert_eq!(
            serde_json::to_value(new).unwrap(),
            json!({"name": "x", "memoryMB": 512, "cpuCount": 2})
        );
    }

    #[test]
    fn passwords_are_not_printed() {
        let account = Registry::Registry {
            username: "u".into(),
            password: "hunter2".into(),
        };
        assert!(!format!("{account:?}").contains("hunter2"));
    }
}
