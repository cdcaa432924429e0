//! Reservations in the quotas of teams and of the machine.

use shoal_core::id::TeamId;
use shoal_core::resources::{Mib, MilliCpu};

use super::Sandboxes;
use super::quota::{Load, QuotaExceeded, QuotaReservation, Reservations, TeamReservations};
use crate::access::owner_of_members;

impl Sandboxes {
    /// Reserves a new sandbox of `team` with this load. The registry counts the sandbox before the
    /// reservation is dropped.
    pub(crate) fn reserve_new(
        &self,
        team: TeamId,
        load: Load,
    ) -> Result<QuotaReservation, QuotaExceeded> {
        self.reserve(team, Some(load), Some(self.limits.sandboxes))
    }

    /// Reserves a pool member, which runs already, for `team`.
    pub(crate) fn reserve_claimed(
        &self,
        team: TeamId,
        load: Load,
    ) -> Result<QuotaReservation, QuotaExceeded> {
        self.reserve(team, Some(load), None)
    }

    /// Reserves a new pool member, which counts for no team.
    pub(crate) fn reserve_member(&self) -> Result<QuotaReservation, QuotaExceeded> {
        self.reserve(owner_of_members(), None, Some(self.limits.sandboxes))
    }

    /// Reserves `more` for a team that must have `free` left.
    pub(crate) fn reserve_more(
        &self,
        team: TeamId,
        more: Load,
        free: Load,
    ) -> Result<QuotaReservation, QuotaExceeded> {
        let mut reservations = self.reservations.lock();
        self.must_have_left(&reservations, team, free)?;
        let kept = TeamReservations {
            sandboxes: 0,
            load: more,
        };
        Ok(QuotaReservation::keep(
            &self.reservations,
            &mut reservations,
            team,
            kept,
            false,
        ))
    }

    /// Checks that a team has `asked` left. The installation's own builds and pool members have no quota.
    fn must_have_left(
        &self,
        reservations: &Reservations,
        team: TeamId,
        asked: Load,
    ) -> Result<(), QuotaExceeded> {
        let limits = self.parts.access.limits_of(team);
        let kept = reservations.by_team.get(&team).copied().unwrap_or_default();
        let taken = self.registry.load_of(team).and(kept.load);
        if let Some(limit) = limits.cpu {
            let left = MilliCpu(limit.0.saturating_sub(taken.cpu.0));
            if asked.cpu > left {
                let asked = asked.cpu;
                return Err(QuotaExceeded::Cpu { asked, left });
            }
        }
        if let Some(limit) = limits.memory {
            let left = Mib(limit.0.saturating_sub(taken.memory.0));
            if asked.memory > left {
                let asked = asked.memory;
                return Err(QuotaExceeded::Memory { asked, left, limit });
            }
        }
        Ok(())
    }

    /// `load` is `None` for a sandbox that does not count towards its team's quota. `in_all` is the limit of the machine, for a
    /// sandbox that does not run yet.
    fn reserve(
        &self,
        team: TeamId,
        load: Option<Load>,
        in_all: Option<usize>,
    ) -> Result<QuotaReservation, QuotaExceeded> {
        let mut reservations = self.reservations.lock();
        let (all, of_team) = self.registry.count(team);
        let kept = reservations.by_team.get(&team).copied().unwrap_or_default();
        if let Some(load) = load {
            let most = self.parts.access.limits_of(team).sandboxes;
            let most = most.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
            if let Some(most) = most.filter(|most| of_team + kept.sandboxes >= *most) {
                return Err(QuotaExceeded::Team(most));
            }
            self.must_have_left(&reservations, team, load)?;
        }
        let all = all + reservations.new;
        if let Some(most) = in_all.filter(|most| all >= *most) {
            return Err(QuotaExceeded::Installation(most));
        }
        let kept = TeamReservations {
            sandboxes: 1,
            load: load.unwrap_or_default(),
        };
        Ok(QuotaReservation::keep(
            &self.reservations,
            &mut reservations,
            team,
            kept,
            in_all.is_some(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_util;

    #[tokio::test]
    async fn the_installation_has_no_share_that_its_members_could_use_up() {
        let directory = tempfile::tempdir().unwrap();
        let mut parts = test_util::parts(directory.path());
        parts.config.limits.cpu_per_team = Some(MilliCpu(1000));
        parts.config.limits.sandboxes_per_team = 1;
        let engine = test_util::open(parts).await;
        let sandboxes = &engine.shared.sandboxes;
        let load = Load {
            cpu: MilliCpu(800),
            memory: Mib(512),
        };
        let room = |team| sandboxes.reserve_new(team, load);
        let _members = [room(owner_of_members()), room(owner_of_members())].map(Result::unwrap);
        let team = TeamId::from_entropy([9; 16]);
        let _one = room(team).unwrap();
        assert_eq!(room(team).err(), Some(QuotaExceeded::Team(1)));
    }
}
