//! Faults of an image, before the image's name is known.
//!
//! A layer is shared by images, and a download by its callers. A fault therefore can be cloned and
//! names no image. It becomes an [`ImageError`] at the end of a call.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shoal_core::image::{ImageError, ImageName};
use shoal_node::Interrupted;

use super::unpack::UnpackError;

/// The cause of a failure.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Fault {
    #[error("not found")]
    NotFound,
    #[error("registry {registry} cannot be reached: {detail}")]
    Unreachable { registry: String, detail: String },
    #[error("registry {0} refused the credentials, or wants some")]
    Unauthorized(String),
    #[error("no variant for linux/{0}")]
    WrongArchitecture(&'static str),
    #[error("corrupt: {0}")]
    Corrupt(String),
    #[error("refused: {0}")]
    Refused(String),
    #[error("{tool} failed: {detail}")]
    Tool { tool: &'static str, detail: String },
    #[error("no space left")]
    NoSpace,
    #[error("cannot {action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: Arc<io::Error>,
    },
}

impl From<Interrupted> for Fault {
    /// A panic continues as it would have without the thread.
    fn from(interrupted: Interrupted) -> Self {
        interrupted.resume_panic();
        Self::refused("the program is ending")
    }
}

impl Fault {
    pub(crate) fn corrupt(detail: impl Into<String>) -> Self {
        Self::Corrupt(detail.into())
    }

    pub(crate) fn refused(detail: impl Into<String>) -> Self {
        Self::Refused(detail.into())
    }

    /// A failed system call; a full disk is a separate fault.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        if is_full(&source) {
            return Self::NoSpace;
        }
        Self::Io {
            action,
            path: path.to_owned(),
            source: Arc::new(source),
        }
    }

    /// The same fault without the network's error text. A tenant who names an image must not learn
    /// from it which addresses have a listener.
    pub(crate) fn without_details(self) -> Self {
        match self {
            Self::Unreachable { registry, detail } => {
                tracing::debug!(registry, detail, "a tenant's registry cannot be reached");
                let detail = "no answer from a registry at a public address (the setting \
                              images.private_registries names others that may be asked)";
                Self::Unreachable {
                    registry,
                    detail: detail.to_owned(),
                }
            }
            other => other,
        }
    }

    /// Whether a retry may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// The error of a call on the store at `root` without an image.
    pub(crate) fn of_store(self, root: &Path) -> ImageError {
        match self {
            Self::Io {
                action,
                path,
                source,
            } => ImageError::Io {
                action,
                path,
                source: io::Error::new(source.kind(), source),
            },
            other => ImageError::Io {
                action: "use the image store",
                path: root.to_owned(),
                source: io::Error::other(other),
            },
        }
    }

    /// The error of a call on the image `name`.
    pub(crate) fn of(self, name: &ImageName) -> ImageError {
        let name = name.clone();
        match self {
            Self::NotFound => ImageError::NotFound(name),
            Self::Unreachable { registry, detail } => ImageError::Unreachable { registry, detail },
            Self::Unauthorized(registry) => ImageError::Unauthorized(registry),
            Self::WrongArchitecture(arch) => ImageError::WrongArchitecture(name, arch),
            Self::Corrupt(detail) => ImageError::Corrupt { name, detail },
            Self::Refused(detail) => ImageError::Refused { name, detail },
            Self::Tool { tool, detail } => ImageError::Tool { tool, detail },
            Self::NoSpace => ImageError::NoSpace(name),
            Self::Io {
                action,
                path,
                source,
            } => ImageError::Io {
                action,
                path,
                source: io::Error::new(source.kind(), source),
            },
        }
    }
}

impl From<UnpackError> for Fault {
    fn from(error: UnpackError) -> Self {
        match error {
            UnpackError::Refused(why) => Self::Refused(why.to_string()),
            UnpackError::Corrupt(detail) => Self::Corrupt(detail),
            UnpackError::NoSpace => Self::NoSpace,
            UnpackError::Io {
                action,
                path,
                source,
            } => Self::io(action, &path, source),
        }
    }
}

/// Whether the disk or a quota is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_distinguished_in_every_operation() {
        let name: ImageName = "a".parse().unwrap();
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let fault = Fault::io("write", Path::new("/x"), full());
        assert!(matches!(fault.of(&name), ImageError::NoSpace(_)));
        let unpack = UnpackError::Io {
            action: "write",
            path: "x".into(),
            source: full(),
        };
        assert!(matches!(Fault::from(unpack), Fault::NoSpace));
    }

    #[test]
    fn only_network_failures_are_retried() {
        let unreachable = Fault::Unreachable {
            registry: "r".into(),
            detail: "reset".into(),
        };
        assert!(unreachable.is_transient());
        for fault in [Fault::NotFound, Fault::NoSpace, Fault::corrupt("x")] {
            assert!(!fault.is_transient(), "{fault}");
        }
    }
}
