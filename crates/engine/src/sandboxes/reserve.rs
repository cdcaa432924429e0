//! Reservations in the quotas of teams and of the machine.

use shoal_core::id::TeamId;
use shoal_core::resources::{Mib, MilliCpu};

use super::Sandboxes;
use super::quota::{Kept, Load, NoRoom, OfTeam, Room};
use crate::access::owner_of_members;

impl Sandboxes {
    /// Whether one more sandbox of `team` may run, with so much of the machine; its place is kept until
    /// the answer is dropped, by when it is known itself.
    pub(crate) fn room_for_one(&self, team: TeamId, load: Load) -> Result<Room, NoRoom> {
        self.room(team, Some(load), Some(self.limits.sandboxes))
    }

    /// The same for a sandbox that runs already, and is to be the team's.
    pub(crate) fn room_in_team(&self, team: TeamId, load: Load) -> Result<Room, NoRoom> {
        self.room(team, Some(load), None)
    }

    /// The same for a sandbox that is no team's.
    pub(crate) fn room_for_member(&self) -> Result<Room, NoRoom> {
        self.room(owner_of_members(), None, Some(self.limits.sandboxes))
    }

    /// Keeps `more` of the machine for a team that must have `free` left. An error says of what it has
    /// too little, and how much.
    pub(crate) fn room_for_more(
        &self,
        team: TeamId,
        more: Load,
        free: Load,
    ) -> Result<Room, NoRoom> {
        let mut coming = self.coming.lock();
        self.must_have_left(&coming, team, free)?;
        let kept = OfTeam {
            sandboxes: 0,
            load: more,
        };
        Ok(Room::keep(&self.coming, &mut coming, team, kept, false))
    }

    /// Whether a team may have so much more. The installation's own builds and members are nobody's
    /// share.
    fn must_have_left(&self, coming: &Kept, team: TeamId, asked: Load) -> Result<(), NoRoom> {
        let limits = self.access.limits_of(team);
        let kept = coming.by_team.get(&team).copied().unwrap_or_default();
        let taken = self.registry.load_of(team).and(kept.load);
        if let Some(limit) = limits.cpu {
            let left = MilliCpu(limit.0.saturating_sub(taken.cpu.0));
            if asked.cpu > left {
                let asked = asked.cpu;
                return Err(NoRoom::Cpu { asked, left });
            }
        }
        if let Some(limit) = limits.memory {
            let left = Mib(limit.0.saturating_sub(taken.memory.0));
            if asked.memory > left {
                let asked = asked.memory;
                return Err(NoRoom::Memory { asked, left, limit });
            }
        }
        Ok(())
    }

    /// `load` is what a sandbox of the team has, if it is counted; `in_all` is how many the machine may
    /// have, for one that does not run yet.
    fn room(
        &self,
        team: TeamId,
        load: Option<Load>,
        in_all: Option<usize>,
    ) -> Result<Room, NoRoom> {
        let mut coming = self.coming.lock();
        let (all, of_team) = self.registry.count(team);
        let kept = coming.by_team.get(&team).copied().unwrap_or_default();
        if let Some(load) = load {
            let most = self.access.limits_of(team).sandboxes;
            let most = most.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
            if let Some(most) = most.filter(|most| of_team + kept.sandboxes >= *most) {
                return Err(NoRoom::Team(most));
            }
            self.must_have_left(&coming, team, load)?;
        }
        let all = all + coming.new;
        if let Some(most) = in_all.filter(|most| all >= *most) {
            return Err(NoRoom::Installation(most));
        }
        let kept = OfTeam {
            sandboxes: 1,
            load: load.unwrap_or_default(),
        };
        Ok(Room::keep(
            &self.coming,
            &mut coming,
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
        let room = |team| sandboxes.room_for_one(team, load);
        let _members = [room(owner_of_members()), room(owner_of_members())].map(Result::unwrap);
        let team = TeamId::from_entropy([9; 16]);
        let _one = room(team).unwrap();
        assert_eq!(room(team).err(), Some(NoRoom::Team(1)));
    }
}
