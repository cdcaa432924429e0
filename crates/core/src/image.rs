//! Image names, and the port to fetch images.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::BoxFuture;
use crate::auth::Principal;
use crate::clock::Timestamp;
use crate::ports::NotServed;

/// The name of an image: a registry reference (`ghcr.io/org/app:1`, `python:3.11`), or
/// `mmdebstrap:<suite>` for one bootstrapped from the distribution's mirror.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageName(String);

/// A text that is not an image name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid image name {0:?}: expected [registry/]repository[:tag][@digest]")]
pub struct InvalidImageName(String);

impl ImageName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The suite of an image that is bootstrapped from the distribution's mirror.
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

/// An image that is stored on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The requested name.
    pub name: ImageName,
    /// `sha256:` and the 64 hexadecimal digits of its configuration's digest.
    pub digest: String,
    /// Digests of its layers, lowest first.
    pub layers: Vec<String>,
    /// Bytes on disk, shared layers counted in full.
    pub size_bytes: u64,
    /// The user of its processes, if it sets one.
    pub user: Option<String>,
    /// The working directory of its processes, if it sets one.
    pub workdir: Option<String>,
    /// Its environment, `NAME=value`.
    pub env: Vec<String>,
    /// Its entry point.
    #[serde(default)]
    pub entrypoint: Vec<String>,
    /// Its command, or the arguments of its entry point.
    #[serde(default)]
    pub cmd: Vec<String>,
    /// When it was stored on this node.
    pub created_at: Timestamp,
}

/// An image name whose image was fetched with credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivateImage {
    /// The name.
    pub name: ImageName,
    /// The digest of the image that all teams may use under this name anyway, if known.
    pub open: Option<String>,
}

/// Credentials for a registry.
#[derive(Clone, PartialEq, Eq)]
pub struct RegistryAuth {
    /// The account; empty when the password is a bearer token that the registry accepts as it is.
    pub username: String,
    /// Its password or token; never shown.
    pub password: String,
    /// The AWS region in which username and password, an access key and its secret, are exchanged
    /// for registry credentials. `None` when they already are registry credentials.
    pub aws_region: Option<String>,
}

impl fmt::Debug for RegistryAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryAuth")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// Progress of one step of a long operation on an image, for a progress bar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The step: a layer's short digest, or a name. The same step reports repeatedly.
    pub step: String,
    /// The amount done, in bytes; in packages while packages are installed.
    pub done: u64,
    /// The total amount, if known.
    pub total: Option<u64>,
}

/// Receives progress. Must not block.
pub trait ProgressSink: Send + Sync {
    /// Takes one report.
    fn report(&self, progress: Progress);
}

/// Ignores progress.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl ProgressSink for NoProgress {
    fn report(&self, _progress: Progress) {}
}

/// Why an image is not available.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The image exists neither on this node nor in the registry.
    #[error("image {0} was not found")]
    NotFound(ImageName),
    /// The registry could not be reached.
    #[error("registry {registry} cannot be reached: {detail}")]
    Unreachable {
        /// Host and port.
        registry: String,
        /// The network error.
        detail: String,
    },
    /// The registry requires (other) credentials.
    #[error("registry {0} refused the credentials, or wants some")]
    Unauthorized(String),
    /// The image has no variant for this machine's architecture.
    #[error("image {0} has no variant for linux/{1}")]
    WrongArchitecture(ImageName, &'static str),
    /// The content does not match its digest, or cannot be parsed.
    #[error("image {name} is corrupt: {detail}")]
    Corrupt {
        /// The image.
        name: ImageName,
        /// The problem.
        detail: String,
    },
    /// A layer has forbidden contents, or more than is allowed.
    #[error("image {name} is refused: {detail}")]
    Refused {
        /// The image.
        name: ImageName,
        /// The contents.
        detail: String,
    },
    /// A required tool is missing or failed.
    #[error("{tool} failed: the server's log says why")]
    Tool {
        /// The program.
        tool: &'static str,
        /// The end of its output.
        detail: String,
    },
    /// The image is still in use.
    #[error("image {0} is in use by {1}")]
    InUse(ImageName, String),
    /// The disk is full.
    #[error("no space left for image {0}")]
    NoSpace(ImageName),
    /// Reading or writing failed.
    #[error("cannot {action} a file of the server: its log says why")]
    Io {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The backend does not serve this.
    #[error(transparent)]
    NotServed(#[from] NotServed),
}

/// From where an image may be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Any registry: an operator named the image.
    Anywhere,
    /// Registries at public addresses, and those that the operator listed: a tenant named the
    /// image, but this machine connects.
    Public,
}

impl Reach {
    /// The registries from which an image that the caller names may be fetched.
    #[must_use]
    pub fn of(principal: &Principal) -> Self {
        if principal.admin {
            Self::Anywhere
        } else {
            Self::Public
        }
    }
}

/// The configuration of an image in a registry. Reading it fetches no layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageConfig {
    /// `sha256:` and 64 hexadecimal digits of the configuration. [`Image::digest`] is the same.
    pub digest: String,
    /// Digests of the unpacked layers, lowest first.
    pub layers: Vec<String>,
    /// Compressed size of all layers in bytes, as the manifest declares it.
    pub download_bytes: u64,
    /// The user of its processes, if it names one.
    pub user: Option<String>,
    /// The working directory of its processes, if it names one.
    pub workdir: Option<String>,
    /// Its environment, `NAME=value`.
    pub env: Vec<String>,
    /// Its entry point.
    pub entrypoint: Vec<String>,
    /// Its command, or the arguments of the entry point.
    pub cmd: Vec<String>,
}

/// Reads the configuration of images in registries, without pulling them.
///
/// A backend that does not run sandboxes itself needs no more: it validates a template and merges the
/// image's values before any node has the image.
pub trait ImageConfigs: Send + Sync {
    /// Reads the manifest and the configuration of an image for this platform. Both are checked
    /// against their digests. Nothing is stored.
    ///
    /// # Errors
    /// See [`ImageError`]. [`ImageError::Refused`] for an image that no registry has
    /// (`mmdebstrap:<suite>`).
    fn read_config(
        &self,
        name: ImageName,
        auth: Option<RegistryAuth>,
        reach: Reach,
    ) -> BoxFuture<'_, Result<ImageConfig, ImageError>>;
}

/// The images on this node.
pub trait Images: Send + Sync {
    /// Every image on this node.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Image>, ImageError>>;

    /// The image called `name`, if it is on this node.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn find(&self, name: &ImageName) -> BoxFuture<'_, Result<Option<Image>, ImageError>>;

    /// Fetches an image, unless it is already present. A partial image is never visible, and
    /// concurrent calls for one image share one download.
    ///
    /// # Errors
    /// See [`ImageError`].
    fn pull(
        &self,
        name: ImageName,
        auth: Option<RegistryAuth>,
        progress: std::sync::Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>>;

    /// The same for an image that a tenant names. Connects only to registries that
    /// [`Reach::Public`] allows, and an error reveals nothing about other addresses.
    ///
    /// # Errors
    /// See [`ImageError`].
    fn pull_public(
        &self,
        name: ImageName,
        auth: Option<RegistryAuth>,
        progress: std::sync::Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>>;

    /// Imports an OCI layout (a directory or a tar archive) or a `docker save` archive.
    ///
    /// # Errors
    /// See [`ImageError`].
    fn import(
        &self,
        path: PathBuf,
        name: ImageName,
        progress: std::sync::Arc<dyn ProgressSink>,
    ) -> BoxFuture<'_, Result<Image, ImageError>>;

    /// Removes the image and the layers that no other image uses. Idempotent.
    ///
    /// # Errors
    /// [`ImageError::InUse`] while a sandbox uses it.
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
