//! Bodies of sessions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The machine of a session. Values that are absent are those of its template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SessionMachine {
    /// Processors: 1 to 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_count: Option<u32>,
    /// Memory in GiB: 1 to 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_gb: Option<u32>,
    /// The model of its GPUs: A10G, A100, T4, L4 or H100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// The number of its GPUs: 1 to 8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_count: Option<u32>,
    /// Whether containers run inside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub privileged: bool,
    /// The image of the container in which commands run. Needs `privileged`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub docker_image: Option<String>,
    /// An external machine: `username@host:port`. Needs `ssh_private_key`, and excludes all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_connection: Option<String>,
    /// The private key of the external machine: Ed25519 or ECDSA, without a passphrase. It is in no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_private_key: Option<String>,
}

/// A session to make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewSession {
    /// Your labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// The machine that it gets.
    #[serde(default)]
    pub machine: SessionMachine,
    /// Whether its machine is kept for a day after its last command, instead of an hour.
    #[serde(default)]
    pub persist: bool,
    /// Whether requests to its preview start its machine.
    #[serde(default)]
    pub wake_on_request: bool,
}

/// Changes of a session. Absent fields stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeSession {
    /// Your labels, in place of the former.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Whether its machine is kept for a day after its last command, instead of an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persist: Option<bool>,
    /// Whether requests to its preview start its machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_on_request: Option<bool>,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// Its id.
    pub id: String,
    /// Your labels.
    pub metadata: BTreeMap<String, String>,
    /// The machine that it gets.
    pub machine: SessionMachine,
    /// Whether its machine is kept for a day after its last command, instead of an hour.
    pub persist: bool,
    /// The host name of its preview, for its whole life.
    pub public_hostname: String,
    /// Where everybody who knows this URL reaches port 8080 of its machine.
    pub preview_url: String,
    /// Whether requests to its preview start its machine.
    pub wake_on_request: bool,
    /// When it was made.
    pub created_at: String,
    /// When its last command ended, or its machine started, or it was made.
    pub last_execution: String,
    /// Its present sandbox; absent when it has none, and for an external machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// The fingerprint of its external machine's host key, once it was connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_host_key: Option<String>,
    /// The system of its present machine, and, in brackets, why it is not what the session is to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The isolation of its present machine: `gvisor`, `namespaces` (runc), or `microvm`, which needs KVM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// When its machine ends unless it is used; absent while a command runs, and without a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<String>,
    /// Its open windows.
    pub windows: Vec<SessionWindow>,
}

/// An open window of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SessionWindow {
    /// Its name.
    pub name: String,
    /// The command that runs in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<String>,
    /// When it was last used.
    pub active_at: String,
}

/// A command for a window of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionCommand {
    /// The command line.
    pub command: String,
    /// The window, by default `main`. It opens when it is not open. A command that runs in it is cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
}

/// A line of the answer to a command: perhaps a notice, then output, and at last one of the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum SessionOutput {
    /// A warning about its machine, which has just started: that it differs from the session's machine type. Comes
    /// first.
    Notice {
        /// A sentence for people.
        message: String,
    },
    /// Text on its terminal.
    Output {
        /// The text.
        data: String,
    },
    /// It has exited.
    Exit {
        /// Its exit code.
        code: i32,
    },
    /// A later command, or a request, has cancelled it.
    Cancelled,
    /// Its window or its machine has ended.
    Lost {
        /// Why.
        reason: String,
    },
}

/// A reset of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResetSession {
    /// The token of the answer to a request without one. It confirms the reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// The result of a request for a reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SessionReset {
    /// Whether the machine has ended. Otherwise, send the token to confirm it.
    pub done: bool,
    /// The token that confirms the reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Until when it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}
