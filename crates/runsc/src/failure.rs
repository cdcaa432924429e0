//! Why the wrapper refuses a container.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use shoal_checkpoint::{InvalidId, Refusal, StoreError};

/// Why a container does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("cannot run {}: {error}", path.display())]
    Runtime { path: PathBuf, error: io::Error },
    #[error("{what}: {error}")]
    Io { what: String, error: io::Error },
    #[error("the bundle's config.json cannot be read: {0}")]
    Spec(#[from] serde_json::Error),
    #[error("the bundle lacks {0}")]
    Incomplete(&'static str),
    #[error("annotation shoal.dev/restore-from: {0}")]
    Name(#[from] InvalidId),
    #[error(
        "annotation {0} is not allowed: of gVisor's annotations a pod may have those of its volumes alone"
    )]
    Annotation(String),
    #[error("checkpoint {id} cannot be restored: {error}")]
    Store { id: String, error: StoreError },
    #[error("checkpoint {id} cannot be restored: {error}")]
    Refused { id: String, error: Refusal },
    #[error(
        "container {0:?} of a restored pod with shared volumes has ended: the pod starts again as a whole"
    )]
    StartsAgain(String),
    #[error("the restore of container {0:?} was interrupted: the pod starts again as a whole")]
    Interrupted(String),
    #[error("checkpoint {id} is not on this node, and was not fetched: {why}")]
    NotFetched { id: String, why: String },
    #[error("checkpoint {id} was not restored, and the sandbox was ended: {why}")]
    NotRestored { id: String, why: String },
}

impl Failure {
    pub(crate) fn io(what: impl std::fmt::Display, error: io::Error) -> Self {
        Self::Io {
            what: what.to_string(),
            error,
        }
    }

    /// Reports the failure to the shim, which reads the log, and on the standard error.
    pub(crate) fn tell(&self, log: Option<&Path>) {
        let message = format!("shoal-runsc: {self}");
        eprintln!("{message}");
        let file = log.map(|log| File::options().append(true).create(true).open(log));
        if let Some(Ok(mut file)) = file {
            let line = serde_json::json!({"level": "error", "msg": message});
            // The standard error has it.
            let _ = writeln!(file, "{line}");
        }
    }
}
