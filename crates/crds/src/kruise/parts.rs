//! Parts that several kinds share.

use serde::{Deserialize, Serialize};

/// How a sandbox is paused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PauseStrategy {
    /// The strategy: `Stop` if absent.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<PauseStrategyKind>,
    /// How a hibernation keeps the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hibernate_strategy: Option<HibernateStrategy>,
}

/// The strategies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PauseStrategyKind {
    /// The pod is deleted; only volumes keep their contents.
    #[default]
    Stop,
    /// A checkpoint keeps the state.
    Hibernate,
}

/// How a hibernation keeps the state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HibernateStrategy {
    /// `Snapshot`.
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
}

/// A runtime that the sandbox needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeRef {
    /// Its name.
    pub name: String,
}

/// A reference to a SandboxTemplate of the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateRef {
    /// Its name.
    pub name: String,
    /// Its kind.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Its group and version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
}

/// Commands that run inside the sandbox around an upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle {
    /// Before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_upgrade: Option<LifecycleHook>,
    /// After it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_upgrade: Option<LifecycleHook>,
}

/// A command that runs inside the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LifecycleHook {
    /// The command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecHook>,
    /// The seconds that it may take: 60 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
}

/// A command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecHook {
    /// The program and its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
}

/// How a change of the template reaches the pod. Without it, the pod is updated in place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradePolicy {
    /// The policy.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<UpgradePolicyKind>,
}

/// The policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpgradePolicyKind {
    /// The pod is replaced.
    #[default]
    Recreate,
    /// The pod is replaced by one that starts from a checkpoint of its files.
    CheckpointRestore,
}
