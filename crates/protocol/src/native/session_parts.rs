//! Bodies of the secrets and memories of sessions.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The value of a secret. It is in no answer.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetSecret {
    /// The value: 1 to 32768 bytes of text, without NUL.
    pub value: String,
}

impl fmt::Debug for SetSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SetSecret { value: … }")
    }
}

/// A secret of a session, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SessionSecret {
    /// Its name, and that of its variable.
    pub name: String,
    /// Whether windows have it as a variable. That ends with the machine; activated without a machine, it is for the next
    /// one.
    pub active: bool,
    /// When its value was set.
    pub set_at: String,
}

/// The text of a memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutMemory {
    /// The text: at most 65536 bytes.
    pub text: String,
}

/// A memory of a session in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SessionMemoryEntry {
    /// Its name.
    pub name: String,
    /// The length of its text.
    pub bytes: u64,
    /// When it was written.
    pub updated_at: String,
}

/// A memory of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SessionMemory {
    /// Its name.
    pub name: String,
    /// Its text.
    pub text: String,
    /// When it was written.
    pub updated_at: String,
}
