//! Images by name, and the port through which they are had.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::BoxFuture;
use crate::auth::Principal;
use crate::clock::Timestamp;

/// How an image is named: a registry reference (`ghcr.io/org/app:1`, `python:3.11`) or
/// `mmdebstrap:<suite>` for one that is made from the distribution's mirror.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageName(String);

/// A text that cannot name an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid image name {0:?}: expected [registry/]repository[:tag][@digest]")]
pub struct InvalidImageName(String);

impl ImageName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The suite, when the image is made from the distribution's mirror.
    #[must_use]
    pub fn mmdebstrap_suite(&self) -> Option<&str> {
        self.0.strip_prefix("mmdebstrap:")
    }
}

impl FromStr for ImageName {
    type Err = InvalidImageName;

    fn from_str(text: &str) -> Result<Self, InvalidImageName> {
        let good = |b: u8| b.is_ascii_alphanumeric() || b"._-/:@+".contains(&b);
        let plain = !text.contains("..") && !text.starts_with(['-', '/', '.', ':', '@']);
        if (1..=512).contains(&text.len()) && text.bytes().all(good) && plain {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidImageName(text.chars().take(128).collect()))
        }
    }
}

impl TryFrom<String> for ImageName {
    type Error = InvalidImageName;

    fn try_from(text: String) -> Result<Self, InvalidImageName> {
        text.parse()
    }
}

impl From<ImageName> for String {
    fn from(name: ImageName) -> Self {
        name.0
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An image that is on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// What it was asked for as.
    pub name: ImageName,
    /// What it is: `sha256:` and 64 hexadecimal digits of its configuration.
    pub digest: String,
    /// Digests of its layers, lowest first.
    pub layers: Vec<String>,
    /// Bytes on disk, shared layers counted in full.
    pub size_bytes: u64,
    /// Who its processes run as, when it says.
    pub user: Option<String>,
    /// Where its processes start, when it says.
    pub workdir: Option<String>,
    /// Its environment, `NAME=value`.
    pub env: Vec<String>,
    /// What it starts, before the command.
    #[serde(default)]
    pub entrypoint: Vec<String>,
    /// The command, or the entry point's arguments.
    #[serde(default)]
    pub cmd: Vec<String>,
    /// When it came to this node.
    pub created_at: Timestamp,
}

/// A name whose image was fetched with somebody's account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivateImage {
    /// The name.
    pub name: ImageName,
    /// The digest of the image that everybody may use under it all the same, if one is known.
    pub open: Option<String>,
}

/// What a registry wants to know of the caller.
#[derive(Clone, PartialEq, Eq)]
pub struct RegistryAuth {
    /// Account; empty when the password is a bearer token that the registry takes as it is.
    pub username: String,
    /// Its password or token; never shown.
    pub password: String,
    /// The region of AWS where the two are exchanged for an account: they are a key and its secret. None
    /// when they are the account.
    pub aws_region: Option<String>,
}

impl fmt::Debug for RegistryAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryAuth")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// A step of a long work on an image, for a progress bar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// What is going on: a layer's short digest, or a step's name. The same step reports again.
    pub step: String,
    /// How much of it is done, in bytes; in packages where packages are installed.
    pub done: u64,
    /// Of how much, when that is known.
    pub total: Option<u64>,
}

/// Hears of progress. Must not block.
pub trait ProgressSink: Send + Sync {
    /// Takes one report.
    fn report(&self, progress: Progress);
}

/// Hears nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl ProgressSink for NoProgress {
    fn report(&self, _progress: Progress) {}
}

/// Why an image could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Neither here nor where it was looked for.
    #[error("image {0} was not found")]
    NotFound(ImageName),
    /// The registry could not be reached.
    #[error("registry {registry} cannot be reached: {detail}")]
    Unreachable {
        /// Host and port.
        registry: String,
        /// What the network said.
        detail: String,
    },
    /// The registry wants (other) credentials.
    #[error("registry {0} refused the credentials, or wants some")]
    Unauthorized(String),
    /// There is none for this machine's architecture.
    #[error("image {0} has no variant for linux/{1}")]
    WrongArchitecture(ImageName, &'static str),
    /// What came is not what its digest says, or cannot be read.
    #[error("image {name} is corrupt: {detail}")]
    Corrupt {
        /// The image.
        name: ImageName,
        /// What was wrong with it.
        detail: String,
    },
    /// A layer holds what must not be unpacked, or more than is allowed.
    #[error("image {name} is refused: {detail}")]
    Refused {
        /// The image.
        name: ImageName,
        /// What it holds.
        detail: String,
    },
    /// A tool that is needed is missing or failed.
    #[error("{tool} failed: the server's log says why")]
    Tool {
        /// The program.
        tool: &'static str,
        /// The end of what it said.
        detail: String,
    },
    /// Something still stands on it.
    #[error("image {0} is in use by {1}")]
    InUse(ImageName, String),
    /// The disk is full.
    #[error("no space left for image {0}")]
    NoSpace(ImageName),
    /// Reading or writing failed.
    #[error("cannot {action} a file of the server: its log says why")]
    Io {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// From where an image may be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reach {
    /// From anywhere: an operator has said its name.
    Anywhere,
    /// From registries at public addresses, and those that the operator has listed: a tenant has said
    /// its name, and this machine asks.
    Public,
}

impl Reach {
    /// What may be asked for an image that the caller names.
    #[must_use]
    pub fn of(principal: &Principal) -> Self {
        if principal.admin {
            Self::Anywhere
        } else {
            Self::Public
        }
    }
}

/// Images on this node.
pub trait Images: Send + Sync {
    /// Every image that is here.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Image>, ImageError>>;

    /// The image called `name`, when it is here.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn find(&self, name: &ImageName) -> BoxFuture<'_, Result<Option<Image>, ImageError>>;

    /// Brings the image here; what is already here is not fetched again. Half an image is never
    /// visible, and calls for one image share one download.
    ///
    /// # Errors
    /// See [`ImageError`].
    fn pull(
        &self,
        name: ImageName,
        auth: Option<RegistryAuth>,
        progress: std::sync::Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>>;

    /// The same for an image that a tenant names: only registries that [`Reach::Public`] means are
    /// asked, and an error does not tell what is at an address that is not.
    ///
    /// # Errors
    /// See [`ImageError`].
    fn pull_public(
        &self,
        name: ImageName,
        auth: Option<RegistryAuth>,
        progress: std::sync::Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>>;

    /// Takes in an OCI layout (a directory or a tar archive) or a `docker save` archive.
    ///
    /// # Errors
    /// See [`ImageError`].
    fn import(
        &self,
        path: PathBuf,
        name: ImageName,
        progress: std::sync::Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>>;

    /// Forgets the image; layers that nothing else stands on go with it. Success when it is not
    /// there.
    ///
    /// # Errors
    /// [`ImageError::InUse`] while a sandbox stands on it.
    fn remove(&self, name: &ImageName) -> BoxFuture<'_, Result<(), ImageError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_names_cannot_be_paths_or_flags() {
        for good in [
            "python:3.11",
            "ghcr.io/a/b@sha256:00",
            "127.0.0.1:5000/x",
            "mmdebstrap:bookworm",
        ] {
            assert!(good.parse::<ImageName>().is_ok(), "{good}");
        }
        for bad in ["", "/etc/passwd", "../x", "a/../b", "--help", "a b", "a\n"] {
            assert!(bad.parse::<ImageName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_registry_password_is_not_printed() {
        let auth = RegistryAuth {
            username: "u".into(),
            password: "hunter2".into(),
            aws_region: None,
        };
        assert!(!format!("{auth:?}").contains("hunter2"));
    }
}
