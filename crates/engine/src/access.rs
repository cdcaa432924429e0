//! Access: keys, teams with their limits, tokens of sandboxes, and allowed runtimes.

mod key_cache;
mod keys;
mod limits;
mod runtimes;
mod teams;
mod tokens;

use std::sync::{Arc, LazyLock};

use shoal_core::auth::{Principal, TokenSeed};
use shoal_core::clock::Clock;
use shoal_core::driver::Capabilities;
use shoal_core::id::TeamId;
use shoal_core::store::{KeyStore, StoreError, TeamStore};

pub use self::key_cache::KeyLifetime;
pub use self::keys::{FirstKeyError, KeyError};
pub use self::limits::{TeamError, TeamView};
pub use self::runtimes::RuntimeForbidden;

use self::key_cache::KeyCache;
use self::limits::OwnLimits;
use self::teams::Slugs;
use crate::config::{AllowedRuntimes, EngineConfig, Limits};
use crate::work::Work;

/// The principal of the installation itself: it builds its templates, fills its pools, and resolves
/// the names of its catalogue.
pub(crate) static INSTALLATION: LazyLock<Principal> = LazyLock::new(Principal::installation);

/// The team that owns pool members until they are handed out: the installation's.
pub(crate) fn owner_of_members() -> TeamId {
    INSTALLATION.team
}

/// Keys, teams, their limits, and the tokens that open sandboxes.
pub(crate) struct Access {
    keys: Arc<dyn KeyStore>,
    teams: Arc<dyn TeamStore>,
    clock: Arc<dyn Clock>,
    limits: Limits,
    runtimes: AllowedRuntimes,
    machine: Capabilities,
    seed: TokenSeed,
    cache: KeyCache,
    slugs: Slugs,
    own_limits: OwnLimits,
    work: Work,
}

impl Access {
    /// Reads teams and their limits. Tokens are derived from `seed`; `machine` bounds all limits.
    pub(crate) async fn load(
        keys: Arc<dyn KeyStore>,
        teams: Arc<dyn TeamStore>,
        clock: Arc<dyn Clock>,
        config: &EngineConfig,
        machine: Capabilities,
        seed: TokenSeed,
        work: Work,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            slugs: Slugs::load(teams.teams().await?),
            own_limits: OwnLimits::load(teams.team_limits().await?),
            keys,
            teams,
            clock,
            limits: config.limits.clone(),
            runtimes: config.runtimes.clone(),
            machine,
            seed,
            cache: KeyCache::default(),
            work,
        })
    }
}
