//! How many sandboxes there may be at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::id::TeamId;

use crate::engine::Shared;
use crate::pool;

/// There are as many sandboxes as there may be. Those that are paused are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// Of one tenant.
    #[error("you have reached the limit of {0} sandboxes at once")]
    Team(usize),
    /// On this machine.
    #[error("the server has reached its limit of {0} sandboxes at once")]
    Node(usize),
}

/// The places that are kept.
pub(crate) type Coming = Arc<Mutex<Kept>>;

/// How many sandboxes are about to be.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Of each tenant.
    by_team: BTreeMap<TeamId, usize>,
    /// On this machine. What is a tenant's soon, and runs already, is none of them.
    new: usize,
}

/// A place that is kept for a sandbox.
#[derive(Debug)]
pub(crate) struct Room {
    coming: Coming,
    team: TeamId,
    /// Whether it is not running yet.
    new: bool,
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut coming = self.coming.lock();
        coming.new -= usize::from(self.new);
        if let Some(count) = coming.by_team.get_mut(&self.team) {
            *count -= 1;
            if *count == 0 {
                coming.by_team.remove(&self.team);
            }
        }
    }
}

impl Shared {
    /// Whether one more sandbox of `team` may run; its place is kept until the answer is dropped,
    /// by when it is known itself.
    pub(crate) fn room_for_one(&self, team: TeamId) -> Result<Room, NoRoom> {
        let limits = &self.config.limits;
        self.room(
            team,
            Some(limits.sandboxes_per_team),
            Some(limits.sandboxes),
        )
    }

    /// The same for a sandbox that runs already, and is to be the team's.
    pub(crate) fn room_in_team(&self, team: TeamId) -> Result<Room, NoRoom> {
        self.room(team, Some(self.config.limits.sandboxes_per_team), None)
    }

    /// The same for a sandbox that is no team's.
    pub(crate) fn room_for_member(&self) -> Result<Room, NoRoom> {
        self.room(pool::owner(), None, Some(self.config.limits.sandboxes))
    }

    /// `in_all` is how many the machine may have, for one that does not run yet.
    fn room(
        &self,
        team: TeamId,
        per_team: Option<usize>,
        in_all: Option<usize>,
    ) -> Result<Room, NoRoom> {
        let mut coming = self.coming.lock();
        let (all, of_team) = self.entries.count(team);
        let of_team = of_team + coming.by_team.get(&team).copied().unwrap_or(0);
        if let Some(most) = per_team.filter(|most| of_team >= *most) {
            return Err(NoRoom::Team(most));
        }
        let all = all + coming.new;
        if let Some(most) = in_all.filter(|most| all >= *most) {
            return Err(NoRoom::Node(most));
        }
        let new = in_all.is_some();
        coming.new += usize::from(new);
        *coming.by_team.entry(team).or_default() += 1;
        Ok(Room {
            coming: self.coming.clone(),
            team,
            new,
        })
    }
}
