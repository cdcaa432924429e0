//! How many sandboxes there may be at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::id::TeamId;
use shoal_core::resources::MilliCpu;

use crate::engine::Shared;
use crate::pool;

/// There are as many sandboxes as there may be. Those that are paused are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// Of one tenant.
    #[error("you have reached the limit of {0} sandboxes at once")]
    Team(usize),
    /// The processor time of one tenant: a sandbox needs so much, and there is so much left.
    #[error("the sandbox needs {asked} of cpu, and your team has {left} left")]
    Cpu {
        /// How much it needs.
        asked: MilliCpu,
        /// How much is left.
        left: MilliCpu,
    },
    /// On this machine.
    #[error("the server has reached its limit of {0} sandboxes at once")]
    Node(usize),
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
    /// Processor time, in thousandths of a processor.
    cpu: u32,
}

/// A place that is kept for a sandbox, or more processor time for one that is there.
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
            of_team.cpu -= self.kept.cpu;
            if *of_team == OfTeam::default() {
                coming.by_team.remove(&self.team);
            }
        }
    }
}

impl Shared {
    /// Whether one more sandbox of `team` may run, with so much processor time; its place is kept
    /// until the answer is dropped, by when it is known itself.
    pub(crate) fn room_for_one(&self, team: TeamId, cpu: MilliCpu) -> Result<Room, NoRoom> {
        let limits = &self.config.limits;
        self.room(
            team,
            Some((limits.sandboxes_per_team, cpu)),
            Some(limits.sandboxes),
        )
    }

    /// The same for a sandbox that runs already, and is to be the team's.
    pub(crate) fn room_in_team(&self, team: TeamId, cpu: MilliCpu) -> Result<Room, NoRoom> {
        let per_team = (self.config.limits.sandboxes_per_team, cpu);
        self.room(team, Some(per_team), None)
    }

    /// The same for a sandbox that is no team's.
    pub(crate) fn room_for_member(&self) -> Result<Room, NoRoom> {
        self.room(pool::owner(), None, Some(self.config.limits.sandboxes))
    }

    /// Keeps `more` processor time for a team that must have `free` left. An error is how much it has.
    pub(crate) fn room_for_cpu(
        &self,
        team: TeamId,
        more: MilliCpu,
        free: MilliCpu,
    ) -> Result<Room, MilliCpu> {
        let mut coming = self.coming.lock();
        if let Some(left) = self.cpu_left(&coming, team).filter(|left| free > *left) {
            return Err(left);
        }
        let kept = OfTeam {
            sandboxes: 0,
            cpu: more.0,
        };
        Ok(self.keep(&mut coming, team, kept, false))
    }

    /// How much processor time a team has left; all there is when it may have any.
    fn cpu_left(&self, coming: &Kept, team: TeamId) -> Option<MilliCpu> {
        let quota = self.config.limits.cpu_per_team;
        let quota = quota.filter(|_| team != pool::owner())?;
        let kept = coming.by_team.get(&team).map_or(0, |kept| kept.cpu);
        let taken = self.entries.cpu_of(team).0.saturating_add(kept);
        Some(MilliCpu(quota.0.saturating_sub(taken)))
    }

    /// `per_team` is how many the team may have, and how much processor time this one does; `in_all`
    /// is how many the machine may have, for one that does not run yet.
    fn room(
        &self,
        team: TeamId,
        per_team: Option<(usize, MilliCpu)>,
        in_all: Option<usize>,
    ) -> Result<Room, NoRoom> {
        let mut coming = self.coming.lock();
        let (all, of_team) = self.entries.count(team);
        let kept = coming.by_team.get(&team).copied().unwrap_or_default();
        // The installation's own builds and members are nobody's share.
        if let Some((most, cpu)) = per_team.filter(|_| team != pool::owner()) {
            if of_team + kept.sandboxes >= most {
                return Err(NoRoom::Team(most));
            }
            if let Some(left) = self.cpu_left(&coming, team).filter(|left| cpu > *left) {
                return Err(NoRoom::Cpu { asked: cpu, left });
            }
        }
        let all = all + coming.new;
        if let Some(most) = in_all.filter(|most| all >= *most) {
            return Err(NoRoom::Node(most));
        }
        let kept = OfTeam {
            sandboxes: 1,
            cpu: per_team.map_or(0, |(_, cpu)| cpu.0),
        };
        Ok(self.keep(&mut coming, team, kept, in_all.is_some()))
    }

    fn keep(&self, coming: &mut Kept, team: TeamId, kept: OfTeam, new: bool) -> Room {
        coming.new += usize::from(new);
        let of_team = coming.by_team.entry(team).or_default();
        of_team.sandboxes += kept.sandboxes;
        of_team.cpu += kept.cpu;
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
        let room = |team| shared.room_for_one(team, MilliCpu(800));
        let _members = [room(pool::owner()), room(pool::owner())].map(Result::unwrap);
        let team = TeamId::from_entropy([9; 16]);
        let _one = room(team).unwrap();
        assert_eq!(room(team).err(), Some(NoRoom::Team(1)));
    }
}
