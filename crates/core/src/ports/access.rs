//! API keys, the teams they belong to, and what a team may have.

use crate::auth::TeamSlug;
use crate::driver::DriverError;
use crate::id::KeyId;
use crate::limits::TeamLimits;
use crate::ports::NoEntropy;
use crate::resources::{Mib, MilliCpu};
use crate::store::StoreError;

/// The longest name of a key, in characters.
pub const KEY_NAME_MAX: usize = 128;

/// Why a key was not made or changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// No such key exists, or it belongs to another team.
    #[error("API key {0} was not found")]
    NotFound(KeyId),
    /// The operation needs an admin key.
    #[error("only an admin key may do this")]
    Forbidden,
    /// The name is empty or too long.
    #[error("the name of a key has 1 to {KEY_NAME_MAX} characters")]
    InvalidName,
    /// A key asked for its own removal.
    #[error("a key cannot remove itself")]
    Itself,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system has no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}

/// Why the limits of a team were not shown or changed.
#[derive(Debug, thiserror::Error)]
pub enum TeamError {
    /// The operation needs an admin key.
    #[error("only an admin key may do this")]
    Forbidden,
    /// The disk use of the team cannot be read.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system has no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}

/// A team, with its limits and what it uses of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamView {
    /// Its short name.
    pub slug: TeamSlug,
    /// Its own limits, and the installation's where it has none.
    pub limits: TeamLimits,
    /// Sandboxes that are not paused.
    pub sandboxes: usize,
    /// Processor time of those.
    pub cpu: MilliCpu,
    /// Memory of those.
    pub memory: Mib,
    /// Bytes of the disk, where they are counted.
    pub disk_bytes: Option<u64>,
    /// Snapshots.
    pub snapshots: usize,
}
