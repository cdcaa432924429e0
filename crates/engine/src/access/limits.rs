//! The limits and the usage of each team.

use std::collections::HashMap;

use parking_lot::RwLock;
use shoal_core::auth::{Principal, TeamSlug};
use shoal_core::driver::Owner;
use shoal_core::id::TeamId;
use shoal_core::limits::{Bounds, PerSandbox, TeamLimits};
pub use shoal_core::ports::access::{TeamError, TeamView};
use shoal_core::resources::Mib;

use super::{Access, owner_of_members};
use crate::random;

/// The default memory quota of a team, as a multiple of the machine's memory: an idle sandbox uses an
/// eighth of its limit, or less.
const MEMORY_TIMES: u32 = 8;

/// The default disk quota of a team, in tenths of the disk: a team that uses it up leaves space for the
/// others to create, write, pause and take snapshots.
const DISK_PARTS: u32 = 8;

/// The limits of teams with limits of their own.
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

impl Access {
    /// Sets the limits of a team, which is created if it does not exist. Absent limits are the defaults.
    ///
    /// # Errors
    /// [`TeamError::Forbidden`] when `by` is no admin.
    pub(crate) async fn set_team_limits(
        &self,
        by: &Principal,
        slug: &TeamSlug,
        limits: TeamLimits,
    ) -> Result<(), TeamError> {
        if !by.admin {
            return Err(TeamError::Forbidden);
        }
        let fresh = TeamId::from_entropy(random::bytes()?);
        let team = self.teams.team(slug, fresh).await?;
        self.slugs.add(slug.clone(), team);
        self.teams.put_team_limits(team, limits).await?;
        self.own_limits.0.write().insert(team, limits);
        Ok(())
    }
}

impl Access {
    /// The limits of a team. The installation itself has none.
    pub(crate) fn limits_of(&self, team: TeamId) -> TeamLimits {
        if team == owner_of_members() {
            return TeamLimits::default();
        }
        let (config, machine) = (&self.limits, &self.machine);
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

    /// The owner of the disk of a team's sandboxes.
    pub(crate) fn owner(&self, team: TeamId) -> Owner {
        Owner {
            team,
            disk: self.limits_of(team).disk,
        }
    }

    /// The limits of one sandbox of a team. The installation's own may have all of the disk: all
    /// teams share its builds.
    pub(crate) fn bounds(&self, team: TeamId) -> Bounds {
        let machine = self.machine.machine();
        let allowed = self.limits.per_sandbox;
        if team == owner_of_members() {
            let disk = machine.disk.or(allowed.disk);
            return Bounds::new(&machine, &PerSandbox { disk, ..allowed });
        }
        Bounds::new(&machine, &allowed)
    }
}
