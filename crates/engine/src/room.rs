//! How many sandboxes there may be at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::id::TeamId;
pub use shoal_core::ports::sandboxes::NoRoom;
use shoal_core::resources::{Mib, MilliCpu, Resources};
use shoal_core::sandbox::SandboxRecord;

use crate::access::owner_of_members;
use crate::engine::Shared;

/// What sandboxes have of the machine together, as far as a team's share of it is counted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) cpu: MilliCpu,
    pub(crate) memory: Mib,
}

impl Load {
    /// What a sandbox with these limits has.
    pub(crate) fn of(resources: &Resources) -> Self {
        Self {
            cpu: resources.cpu,
            memory: resources.memory,
        }
    }

    /// What counts as a sandbox's own.
    pub(crate) fn kept(record: &SandboxRecord) -> Self {
        Self {
            cpu: record.cpu_kept(),
            memory: record.memory_kept(),
        }
    }

    /// What is more than in `other`.
    pub(crate) fn beyond(self, other: Self) -> Self {
        Self {
            cpu: MilliCpu(self.cpu.0.saturating_sub(other.cpu.0)),
            memory: Mib(self.memory.0.saturating_sub(other.memory.0)),
        }
    }

    /// Both together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            cpu: MilliCpu(self.cpu.0.saturating_add(other.cpu.0)),
            memory: Mib(self.memory.0.saturating_add(other.memory.0)),
        }
    }
}

/// The places that are kept.
pub(crate) type Coming = Arc<Mutex<Kept>>;

/// How many sandboxes are about to be, and what they are about to have.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Of each tenant.
    by_team: BTreeMap<TeamId, OfTeam>,
    /// On this machine. What is a tenant's soon, and runs already, is none of them.
    new: usize,
}

/// What is kept for a tenant.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct OfTeam {
    sandboxes: usize,
    load: Load,
}

/// A place that is kept for a sandbox, or more of the machine for one that is there.
#[derive(Debug)]
pub(crate) struct Room {
    coming: Coming,
    team: TeamId,
    kept: OfTeam,
    /// Whether it is not running yet.
    new: bool,
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut coming = self.coming.lock();
        coming.new -= usize::from(self.new);
        if let Some(of_team) = coming.by_team.get_mut(&self.team) {
            of_team.sandboxes -= self.kept.sandboxes;
            of_team.load = of_team.load.beyond(self.kept.load);
            if *of_team == OfTeam::default() {
                coming.by_team.remove(&self.team);
            }
        }
    }
}

impl Shared {
    /// Whether one more sandbox of `team` may run, with so much of the machine; its place is kept until
    /// the answer is dropped, by when it is known itself.
    pub(crate) fn room_for_one(&self, team: TeamId, load: Load) -> Result<Room, NoRoom> {
        self.room(team, Some(load), Some(self.config.limits.sandboxes))
    }

    /// The same for a sandbox that runs already, and is to be the team's.
    pub(crate) fn room_in_team(&self, team: TeamId, load: Load) -> Result<Room, NoRoom> {
        self.room(team, Some(load), None)
    }

    /// The same for a sandbox that is no team's.
    pub(crate) fn room_for_member(&self) -> Result<Room, NoRoom> {
        self.room(owner_of_members(), None, Some(self.config.limits.sandboxes))
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
        Ok(self.keep(&mut coming, team, kept, false))
    }

    /// Whether a team may have so much more. The installation's own builds and members are nobody's
    /// share.
    fn must_have_left(&self, coming: &Kept, team: TeamId, asked: Load) -> Result<(), NoRoom> {
        let limits = self.access.limits_of(team);
        let kept = coming.by_team.get(&team).copied().unwrap_or_default();
        let taken = self.entries.load_of(team).and(kept.load);
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
        let (all, of_team) = self.entries.count(team);
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
        Ok(self.keep(&mut coming, team, kept, in_all.is_some()))
    }

    fn keep(&self, coming: &mut Kept, team: TeamId, kept: OfTeam, new: bool) -> Room {
        coming.new += usize::from(new);
        let of_team = coming.by_team.entry(team).or_default();
        of_team.sandboxes += kept.sandboxes;
        of_team.load = of_team.load.and(kept.load);
        Room {
            coming: self.coming.clone(),
            team,
            kept,
            new,
        }
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
        let shared = &engine.shared;
        let load = Load {
            cpu: MilliCpu(800),
            memory: Mib(512),
        };
        let room = |team| shared.room_for_one(team, load);
        let _members = [room(owner_of_members()), room(owner_of_members())].map(Result::unwrap);
        let team = TeamId::from_entropy([9; 16]);
        let _one = room(team).unwrap();
        assert_eq!(room(team).err(), Some(NoRoom::Team(1)));
    }
}
