//! Bodies of Shoal's own API under `/api/v1`: keys, images, templates, status.
//!
//! Every answer is an [`Envelope`] beside a real HTTP status. Moments are RFC 3339 in UTC, sizes
//! are bytes unless a name says otherwise.

mod catalogue;
mod pool;
mod sandbox;
mod status;
mod team;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::catalogue::{
    CapturedParts, Catalogue, CatalogueWarning, IF_MATCH, RefusedCatalogue, ReplaceCatalogue,
    ResolvedTemplate, ResolvedValue,
};
pub use self::pool::{Pool, PoolError, PoolMember, RemovedMembers};
pub use self::sandbox::{
    AskMetrics, CallLimit, Event, FileEntry, Items, LONGEST, NewSandbox, OpenShare, RanCommand,
    RateLimits, ResumeSandbox, RunCommand, Sandbox, SandboxLogs, SandboxUse, Share,
    TIMEOUT_SECONDS,
};
pub use self::status::{Runtime, Status, Totals};
pub use self::team::{NewTeamLimits, Team};

/// Builds a template of the installation: the answer is a [`RequestedBuild`](crate::build::RequestedBuild)
/// that is begun.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildTemplate {
    /// Whether nothing is taken from what was done before. Means something from admin keys only.
    #[serde(default)]
    pub force: bool,
}

/// Where all of it is found.
pub const PREFIX: &str = "/api/v1";

/// The code of an answer that is a success.
pub const OK: &str = "0";

/// The content type of an answer that comes in lines of JSON, an [`ImageEvent`] each.
pub const NDJSON: &str = "application/x-ndjson";

/// What every answer is wrapped in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope<T> {
    /// [`OK`], or the HTTP status as text.
    pub code: String,
    /// `ok`, or what failed and what to do.
    pub message: String,
    /// The message of a failure once more, where Agent-Sandbox's clients look for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The answer; none when the call failed or has nothing to tell.
    pub data: Option<T>,
}

impl<T> Envelope<T> {
    /// Wraps a success.
    #[must_use]
    pub fn ok(data: T) -> Self {
        Self {
            code: OK.to_owned(),
            message: "ok".to_owned(),
            error: None,
            data: Some(data),
        }
    }

    /// Wraps a failure.
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

/// Asks for an API key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewKey {
    /// What its holder calls it: 1 to 128 characters.
    pub name: String,
    /// The team it speaks for, made when there is none; the caller's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// Whether it may make keys, images and templates.
    #[serde(default)]
    pub admin: bool,
}

/// What may be shown of an API key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// Its id.
    pub id: String,
    /// What its holder calls it.
    pub name: String,
    /// The team it speaks for.
    pub team: String,
    /// Whether it may make keys, images and templates.
    pub admin: bool,
    /// Its beginning and its end.
    pub mask: String,
    /// When it was made.
    pub created_at: String,
    /// Whether it is the one that asked.
    pub own: bool,
}

/// A key that was just made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MintedKey {
    /// Its record.
    #[serde(flatten)]
    pub key: Key,
    /// The key itself: told this once.
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
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// What it was asked for as.
    pub name: String,
    /// `sha256:` and 64 hexadecimal digits of its configuration.
    pub digest: String,
    /// How many layers it has.
    pub layers: usize,
    /// Its size on disk, layers that it shares counted in full.
    pub size_bytes: u64,
    /// Who its processes run as, when it says.
    pub user: Option<String>,
    /// Where its processes start, when it says.
    pub workdir: Option<String>,
    /// When it came to this machine.
    pub created_at: String,
}

/// Asks for an image from a registry, or for `mmdebstrap:<suite>`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PullImage {
    /// `[registry/]repository[:tag][@digest]`.
    pub name: String,
    /// The account at the registry; empty when the password is a bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Its password or token.
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

/// Asks to take in an OCI layout or a `docker save` archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImportImage {
    /// Where it lies on the server's machine: an absolute path.
    pub path: String,
    /// What it shall be called.
    pub name: String,
}

/// One line of the answer to a pull or an import. The last is `done` or `error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum ImageEvent {
    /// A step went on.
    Progress {
        /// A layer's short digest, or a step's name.
        step: String,
        /// How much of it is done: bytes, or packages where packages are installed.
        done: u64,
        /// Of how much, when that is known.
        total: Option<u64>,
    },
    /// The image is here.
    Done {
        /// The image.
        image: Image,
    },
    /// It could not be had.
    Error {
        /// The HTTP status it would have been, as text.
        code: String,
        /// What failed and what to do.
        message: String,
    },
}

/// Asks for a template over an image that is on the server's machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewTemplate {
    /// What it shall be called: 1 to 128 of a-z, 0-9, `_` and `-`.
    pub name: String,
    /// The image.
    pub image: String,
    /// Thousandths of a processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_milli: Option<u32>,
    /// Memory in MiB.
    #[serde(default, rename = "memoryMB", skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u32>,
    /// What a sandbox may write beside the image, in MiB.
    #[serde(
        default,
        rename = "diskSizeMB",
        skip_serializing_if = "Option::is_none"
    )]
    pub disk_size_mb: Option<u32>,
    /// Processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// The OCI runtime; the server's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// What a pause or a snapshot keeps when nobody says: `filesystem`, or that and `memory`, which
    /// is meant when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_contents: Option<Vec<String>>,
    /// The most thousandths of a processor that a sandbox can be given while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cpu_milli: Option<u32>,
    /// Who commands run as; who the image says when absent, else root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Where commands start; where the image says when absent, else the user's home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Environment of every process, over the image's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Whether other teams may use it.
    #[serde(default)]
    pub public: bool,
    /// One line for people.
    #[serde(default)]
    pub description: String,
}

/// A template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// Its id.
    #[serde(rename = "templateID")]
    pub id: String,
    /// What it is called.
    pub names: Vec<String>,
    /// The tags of its builds, in order; none for a template over an image.
    #[serde(default)]
    pub tags: Vec<String>,
    /// `ready`, or the status of its first build while no build has succeeded: `waiting`,
    /// `building` or `error`.
    #[serde(default = "ready")]
    pub state: String,
    /// Why the latest build failed, when it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The image its sandboxes start from; empty while no build has succeeded.
    pub image: String,
    /// Thousandths of a processor.
    pub cpu_milli: u32,
    /// Memory in MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: u32,
    /// What a sandbox may write beside the image, in MiB.
    #[serde(rename = "diskSizeMB")]
    pub disk_size_mb: u32,
    /// Processes and threads.
    pub pids: u32,
    /// The OCI runtime, when it names one.
    pub runtime: Option<String>,
    /// What a pause or a snapshot keeps when nobody says.
    #[serde(default)]
    pub persistent_contents: Vec<String>,
    /// The most thousandths of a processor that a sandbox can be given while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cpu_milli: Option<u32>,
    /// Who commands run as.
    pub user: String,
    /// Where commands start, when it says.
    pub workdir: Option<String>,
    /// Environment of every process.
    pub env: BTreeMap<String, String>,
    /// Whether other teams may use it.
    pub public: bool,
    /// Whether it belongs to the installation rather than to a team.
    pub stock: bool,
    /// One line for people.
    pub description: String,
    /// When it was first made.
    pub created_at: String,
    /// When its present build was made.
    pub updated_at: String,
}

/// The state of a template that sandboxes can start from.
fn ready() -> String {
    Template::READY.to_owned()
}

impl Template {
    /// The state of a template that sandboxes can start from.
    pub const READY: &str = "ready";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_has_its_three_fields_always_and_a_failure_is_told_twice() {
        let ok = serde_json::to_value(Envelope::ok(1)).unwrap();
        assert_eq!(
            ok,
            serde_json::json!({"code": "0", "message": "ok", "data": 1})
        );
        let failed = serde_json::to_value(Envelope::<()>::failed(404, "no")).unwrap();
        assert_eq!(
            failed,
            serde_json::json!({"code": "404", "message": "no", "error": "no", "data": null})
        );
    }

    #[test]
    fn secrets_are_not_printed() {
        let pull = PullImage {
            name: "a".into(),
            username: Some("u".into()),
            password: Some("hunter2".into()),
        };
        assert!(!format!("{pull:?}").contains("hunter2"));
    }

    #[test]
    fn an_event_says_what_it_is() {
        let event = ImageEvent::Progress {
            step: "s".into(),
            done: 1,
            total: None,
        };
        assert_eq!(
            serde_json::to_value(event).unwrap(),
            serde_json::json!({"type": "progress", "step": "s", "done": 1, "total": null})
        );
    }
}

/// Other limits for a sandbox that runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResizeSandbox {
    /// Processors, as a number or as Kubernetes writes it: `2`, `"1.5"`, `"500m"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<serde_json::Value>,
    /// Memory, as a number of MiB or as Kubernetes writes it: `512`, `"1Gi"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<serde_json::Value>,
}

/// The tokens of a sandbox after a rotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxTokens {
    /// The sandbox's id.
    pub sandbox: String,
    /// What opens its daemon; none when the sandbox is not secured.
    pub envd_access_token: Option<String>,
    /// What opens its ports; none when they are public.
    pub traffic_access_token: Option<String>,
}

/// The limits of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxResources {
    /// Thousandths of a processor.
    pub cpu_milli: u32,
    /// Memory in MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: u32,
    /// What it may write, in MiB.
    #[serde(rename = "diskSizeMB")]
    pub disk_size_mb: u32,
    /// Processes and threads.
    pub pids: u32,
}

/// A snapshot to be written to a file of the server's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportSnapshot {
    /// What it is called: a name or id, with a tag if it is not `default`.
    pub snapshot: String,
    /// The file, which must not be there yet: an absolute path on the server's machine.
    pub path: String,
}

/// A file with a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportedSnapshot {
    /// The file.
    pub path: String,
    /// How large it is.
    pub bytes: u64,
}

/// A snapshot to be taken in from a file of the server's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportSnapshot {
    /// The file: an absolute path on the server's machine.
    pub path: String,
    /// What it shall be called; what it was called when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Take it in although another installation exported it. Its memory goes into the runtime, and
    /// its programs run, as whoever made the file wrote them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trust: bool,
}

/// A snapshot that was taken in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImportedSnapshot {
    /// What sandboxes are started from.
    #[serde(rename = "snapshotID")]
    pub snapshot_id: String,
    /// What was kept: `filesystem` or `memory,filesystem`.
    pub contents: String,
}
