//! What each team may have, and has.

use std::collections::HashMap;

use parking_lot::RwLock;
use shoal_core::auth::{Principal, TeamSlug};
use shoal_core::driver::Owner;
use shoal_core::id::TeamId;
use shoal_core::limits::{Bounds, PerSandbox, TeamLimits};
pub use shoal_core::ports::access::{TeamError, TeamView};
use shoal_core::resources::Mib;

use crate::engine::{Engine, Shared};
use crate::entropy::{self};
use crate::pool;

/// How many times the memory of the machine the sandboxes of a team may have together when nothing is
/// said: one that waits for work uses an eighth of what it may have, or less.
const MEMORY_TIMES: u32 = 8;

/// Of ten parts of the disk, those that one team may hold when nothing is said: whoever fills them leaves
/// the others room to create, write, pause and take snapshots.
const DISK_PARTS: u32 = 8;

/// The limits of teams that have some of their own.
#[derive(Debug, Default)]
pub(crate) struct OwnLimits(RwLock<HashMap<TeamId, TeamLimits>>);

impl OwnLimits {
    pub(crate) fn load(limits: Vec<(TeamId, TeamLimits)>) -> Self {
        Self(RwLock::new(limits.into_iter().collect()))
    }

    fn of(&self, team: TeamId) -> TeamLimits {
        self.0.read().get(&team).copied().unwrap_or_default()
    }
}

impl Engine {
    /// The teams that `by` may see: its own, or all for an admin.
    ///
    /// # Errors
    /// When the store or the disk cannot be read.
    pub async fn teams(&self, by: &Principal) -> Result<Vec<TeamView>, TeamError> {
        let shared = &self.shared;
        let mut teams = shared.store.teams().await?;
        teams.retain(|(_, team)| by.admin || *team == by.team);
        let mut views = Vec::new();
        for (slug, team) in teams {
            let (_, sandboxes) = shared.entries.count(team);
            let load = shared.entries.load_of(team);
            let disk = shared.driver.disk_use(team).await?;
            views.push(TeamView {
                slug,
                limits: shared.limits_of(team),
                sandboxes,
                cpu: load.cpu,
                memory: load.memory,
                disk_bytes: disk.map(|disk| disk.bytes),
                snapshots: shared.snapshots.of_team(team),
            });
        }
        Ok(views)
    }

    /// What the team of `principal` may have.
    #[must_use]
    pub fn team_limits(&self, principal: &Principal) -> TeamLimits {
        self.shared.limits_of(principal.team)
    }

    /// Sets the limits of a team, which is made when there is none: what is not said is as for the others.
    ///
    /// # Errors
    /// [`TeamError::Forbidden`] when `by` is no admin.
    pub async fn set_team_limits(
        &self,
        by: &Principal,
        slug: &TeamSlug,
        limits: TeamLimits,
    ) -> Result<(), TeamError> {
        if !by.admin {
            return Err(TeamError::Forbidden);
        }
        let (shared, fresh) = (&self.shared, TeamId::from_entropy(entropy::bytes()?));
        let team = shared.store.team(slug, fresh).await?;
        shared.teams.add(slug.clone(), team);
        shared.store.put_team_limits(team, limits).await?;
        shared.own_limits.0.write().insert(team, limits);
        Ok(())
    }
}

impl Shared {
    /// What a team may have in all. The installation has no limits of a team.
    pub(crate) fn limits_of(&self, team: TeamId) -> TeamLimits {
        if team == pool::owner() {
            return TeamLimits::default();
        }
        let (config, machine) = (&self.config.limits, self.driver.capabilities());
        let memory = Mib(machine.memory.0.saturating_mul(MEMORY_TIMES));
        let disk = machine.disk.map(|disk| Mib(disk.0 / 10 * DISK_PARTS));
        let usual = TeamLimits {
            sandboxes: Some(u32::try_from(config.sandboxes_per_team).unwrap_or(u32::MAX)),
            cpu: config.cpu_per_team,
            memory: Some(config.memory_per_team.unwrap_or(memory)),
            disk: config.disk_per_team.or(disk),
            snapshots: Some(config.snapshots_per_team),
        };
        self.own_limits.of(team).or(usual)
    }

    /// Who the disk of a team's sandboxes is counted for.
    pub(crate) fn owner(&self, team: TeamId) -> Owner {
        Owner {
            team,
            disk: self.limits_of(team).disk,
        }
    }

    /// What one sandbox of a team may have. The installation's own may have all of the disk: what is
    /// built once is everybody's.
    pub(crate) fn bounds(&self, team: TeamId) -> Bounds {
        let machine = self.driver.capabilities().machine();
        let allowed = self.config.limits.per_sandbox;
        if team == pool::owner() {
            let disk = machine.disk.or(allowed.disk);
            return Bounds::new(&machine, &PerSandbox { disk, ..allowed });
        }
        Bounds::new(&machine, &allowed)
    }
}
