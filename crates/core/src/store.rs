//! The ports behind which records are kept, one for each aggregate.
//!
//! A call that has returned survives a crash of the server. Each part of the engine takes only the
//! traits of the records that it owns.

mod builds;
mod catalogue;
mod idempotency;
mod images;
mod keys;
mod pools;
mod sandboxes;
mod session_files;
mod session_memories;
mod session_secrets;
mod sessions;
mod snapshots;
mod teams;
mod templates;

use serde::{Deserialize, Serialize};

use crate::detail::HostDetail;

pub use self::builds::BuildStore;
pub use self::catalogue::{CatalogueStore, StoredCatalogue};
pub use self::idempotency::{IdempotencyClaim, IdempotencyStore};
pub use self::images::PrivateImageStore;
pub use self::keys::KeyStore;
pub use self::pools::PoolStore;
pub use self::sandboxes::SandboxStore;
pub use self::session_files::{ContentStore, RowChange, SessionFileStore};
pub use self::session_memories::SessionMemoryStore;
pub use self::session_secrets::{SealedSecret, SessionSecretStore};
pub use self::sessions::SessionStore;
pub use self::snapshots::SnapshotStore;
pub use self::teams::TeamStore;
pub use self::templates::TemplateStore;

/// How often a record was written. A commit names the version that it read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub u64);

/// A stored value and its version.
#[derive(Debug, Clone, PartialEq)]
pub struct Versioned<T> {
    /// The version.
    pub version: Version,
    /// The value.
    pub value: T,
}

/// Why the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another commit came first: read again and decide again.
    #[error("the record has changed: expected version {expected:?}")]
    Conflict {
        /// The version that the caller named.
        expected: Option<Version>,
    },
    /// A stored record cannot be read.
    #[error("the record {key} cannot be read: {detail}")]
    Corrupt {
        /// The key of the record.
        key: String,
        /// The problem of the record.
        detail: String,
    },
    /// The disk is full.
    #[error("no space left for the store")]
    NoSpace,
    /// The store is on another machine and does not answer.
    #[error("the storage does not answer: try again")]
    Unavailable(#[source] HostDetail),
    /// The store itself failed.
    #[error("the store failed: the server's log says why")]
    Failed(#[source] HostDetail),
}

impl StoreError {
    /// A failure of the store, with its message.
    #[must_use]
    pub fn failed(said: impl ToString) -> Self {
        Self::Failed(HostDetail::new(said))
    }
}

/// Every aggregate in one store, for the code that assembles the engine.
pub trait Store:
    SandboxStore
    + IdempotencyStore
    + TemplateStore
    + CatalogueStore
    + SnapshotStore
    + BuildStore
    + PoolStore
    + PrivateImageStore
    + TeamStore
    + KeyStore
    + SessionStore
    + SessionSecretStore
    + SessionMemoryStore
{
}

impl<T> Store for T where
    T: SandboxStore
        + IdempotencyStore
        + TemplateStore
        + CatalogueStore
        + SnapshotStore
        + BuildStore
        + PoolStore
        + PrivateImageStore
        + TeamStore
        + KeyStore
        + SessionStore
        + SessionSecretStore
        + SessionMemoryStore
{
}
