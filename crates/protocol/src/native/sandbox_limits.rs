//! Limits and tokens of a sandbox.

use serde::{Deserialize, Serialize};

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
