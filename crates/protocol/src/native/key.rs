//! API keys.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Request for a new API key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewKey {
    /// Display name: 1 to 128 characters.
    pub name: String,
    /// Team of the key, created if missing; the caller's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// Whether it may create keys, images and templates.
    #[serde(default)]
    pub admin: bool,
}

/// An API key without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// Key id.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Team.
    pub team: String,
    /// Whether it may create keys, images and templates.
    pub admin: bool,
    /// First and last characters of the secret.
    pub mask: String,
    /// Creation time.
    pub created_at: String,
    /// Whether the request was made with this key.
    pub own: bool,
}

/// A new key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct MintedKey {
    /// The key without its secret.
    #[serde(flatten)]
    pub key: Key,
    /// The secret, shown only once.
    pub secret: String,
}

impl fmt::Debug for MintedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MintedKey")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}
