//! How many sandboxes there may be at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::id::TeamId;
pub use shoal_core::ports::sandboxes::NoRoom;
use shoal_core::resources::{Mib, MilliCpu, Resources};
use shoal_core::sandbox::SandboxRecord;

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
    pub(super) by_team: BTreeMap<TeamId, OfTeam>,
    /// On this machine. What is a tenant's soon, and runs already, is none of them.
    pub(super) new: usize,
}

/// What is kept for a tenant.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct OfTeam {
    pub(super) sandboxes: usize,
    pub(super) load: Load,
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

impl Room {
    /// Reserves `kept` for a team. `new` when the sandbox does not run yet.
    pub(super) fn keep(
        all: &Coming,
        coming: &mut Kept,
        team: TeamId,
        kept: OfTeam,
        new: bool,
    ) -> Self {
        coming.new += usize::from(new);
        let of_team = coming.by_team.entry(team).or_default();
        of_team.sandboxes += kept.sandboxes;
        of_team.load = of_team.load.and(kept.load);
        Self {
            coming: all.clone(),
            team,
            kept,
            new,
        }
    }
}
