//! Images on the server's machine.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An image on the server's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Requested name.
    pub name: String,
    /// `sha256:` digest of its configuration.
    pub digest: String,
    /// Number of layers.
    pub layers: usize,
    /// Size on disk, with shared layers counted in full.
    pub size_bytes: u64,
    /// Default user, if set.
    pub user: Option<String>,
    /// Default working directory, if set.
    pub workdir: Option<String>,
    /// Time of import.
    pub created_at: String,
}

/// Request to pull an image from a registry, or to create `mmdebstrap:<suite>`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PullImage {
    /// `[registry/]repository[:tag][@digest]`.
    pub name: String,
    /// Registry account; empty if the password is a bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Registry password or token.
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

/// Request to import an OCI layout or a `docker save` archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImportImage {
    /// Absolute path on the server's machine.
    pub path: String,
    /// Name of the image.
    pub name: String,
}

/// One line of the response to a pull or an import. The last is `done` or `error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum ImageEvent {
    /// Progress of a step.
    Progress {
        /// A layer's short digest, or the name of a step.
        step: String,
        /// Amount done: bytes, or packages during an installation.
        done: u64,
        /// Total amount, if known.
        total: Option<u64>,
    },
    /// Completed.
    Done {
        /// The image.
        image: Image,
    },
    /// Failed.
    Error {
        /// The equivalent HTTP status, as text.
        code: String,
        /// The error and its remedy.
        message: String,
    },
}
