//! Teams and their limits.

use crate::BoxFuture;
use crate::auth::TeamSlug;
use crate::id::TeamId;
use crate::limits::TeamLimits;

use super::StoreError;

/// Keeps teams and their limits.
pub trait TeamStore: Send + Sync {
    /// The team with this slug; creates it as `fresh` when there is none.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn team(&self, slug: &TeamSlug, fresh: TeamId) -> BoxFuture<'_, Result<TeamId, StoreError>>;

    /// Every team, by its slug.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn teams(&self) -> BoxFuture<'_, Result<Vec<(TeamSlug, TeamId)>, StoreError>>;

    /// The limits of every team that has its own.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn team_limits(&self) -> BoxFuture<'_, Result<Vec<(TeamId, TeamLimits)>, StoreError>>;

    /// Writes the limits of a team.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn put_team_limits(
        &self,
        team: TeamId,
        limits: TeamLimits,
    ) -> BoxFuture<'_, Result<(), StoreError>>;
}
