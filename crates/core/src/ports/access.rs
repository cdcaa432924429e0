//! API keys, the teams they belong to, and the limits of a team.

use crate::BoxFuture;
use crate::auth::{ApiKey, KeyRecord, Principal, TeamSlug};
use crate::driver::DriverError;
use crate::id::{KeyId, TeamId};
use crate::limits::TeamLimits;
use crate::ports::{NoEntropy, NotServed};
use crate::quota::Quota;
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
    /// The backend has no such team, and does not make one.
    #[error("team {0} does not exist")]
    NoTeam(TeamSlug),
    /// A key asked for its own removal.
    #[error("a key cannot remove itself")]
    Itself,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system has no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// The backend does not serve this.
    #[error(transparent)]
    NotServed(#[from] NotServed),
}

/// A key to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// Its team.
    pub team: TeamSlug,
    /// Its name.
    pub name: String,
    /// Whether it may act for all teams.
    pub admin: bool,
    /// The limits of its sandboxes together. Cannot be changed later.
    pub quota: Option<Quota>,
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
    /// The backend does not serve this.
    #[error(transparent)]
    NotServed(#[from] NotServed),
}

/// A team, with its limits and its present use.
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

/// The API keys of all teams.
pub trait Keys: Send + Sync {
    /// The holder of a key; none when the key is unknown.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn authenticate<'a>(
        &'a self,
        key: &'a ApiKey,
    ) -> BoxFuture<'a, Result<Option<Principal>, StoreError>>;

    /// Completes when the key of `principal` is deleted, at once when it already is. Watches from the
    /// call on, not from the first poll.
    fn deleted(&self, principal: &Principal) -> BoxFuture<'static, ()>;

    /// Makes a key for a team, and the team when it is new. The secret is returned this once.
    ///
    /// # Errors
    /// [`KeyError::Forbidden`] when `by` belongs to another team and is no admin.
    fn create<'a>(
        &'a self,
        by: &'a Principal,
        new: NewKey,
    ) -> BoxFuture<'a, Result<(ApiKey, KeyRecord), KeyError>>;

    /// The keys of the team of `by`, or of all teams for an admin.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn list<'a>(&'a self, by: &'a Principal) -> BoxFuture<'a, Result<Vec<KeyRecord>, KeyError>>;

    /// Renames a key.
    ///
    /// # Errors
    /// See [`KeyError`].
    fn rename<'a>(
        &'a self,
        by: &'a Principal,
        id: KeyId,
        name: &'a str,
    ) -> BoxFuture<'a, Result<KeyRecord, KeyError>>;

    /// Deletes a key, which is refused from then on.
    ///
    /// # Errors
    /// See [`KeyError`].
    fn delete<'a>(&'a self, by: &'a Principal, id: KeyId) -> BoxFuture<'a, Result<(), KeyError>>;
}

/// Teams and their limits.
pub trait Teams: Send + Sync {
    /// The team of `by`, or all teams for an admin.
    ///
    /// # Errors
    /// When the store or the disk cannot be read.
    fn list<'a>(&'a self, by: &'a Principal) -> BoxFuture<'a, Result<Vec<TeamView>, TeamError>>;

    /// The limits of the team of `principal`.
    fn limits(&self, principal: &Principal) -> TeamLimits;

    /// Sets the limits of a team, and makes the team when it is new. Absent limits are the
    /// installation's.
    ///
    /// # Errors
    /// [`TeamError::Forbidden`] when `by` is no admin.
    fn set_limits<'a>(
        &'a self,
        by: &'a Principal,
        team: &'a TeamSlug,
        limits: TeamLimits,
    ) -> BoxFuture<'a, Result<(), TeamError>>;

    /// The short name of a team.
    fn slug(&self, team: TeamId) -> Option<TeamSlug>;
}
