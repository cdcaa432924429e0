//! Quotas: how many sandboxes a team and the machine may have, and how much they may use.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::id::TeamId;
pub use shoal_core::ports::sandboxes::QuotaExceeded;
use shoal_core::resources::{Mib, MilliCpu, Resources};
use shoal_core::sandbox::SandboxRecord;

/// The resources that count against the quota of a team.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) cpu: MilliCpu,
    pub(crate) memory: Mib,
}

impl Load {
    /// The load of a sandbox with these limits.
    pub(crate) fn of(resources: &Resources) -> Self {
        Self {
            cpu: resources.cpu,
            memory: resources.memory,
        }
    }

    /// The load of a sandbox, with a resize under way counted at the larger value.
    pub(crate) fn kept(record: &SandboxRecord) -> Self {
        Self {
            cpu: record.cpu_kept(),
            memory: record.memory_kept(),
        }
    }

    /// The part that exceeds `other`.
    pub(crate) fn beyond(self, other: Self) -> Self {
        Self {
            cpu: MilliCpu(self.cpu.0.saturating_sub(other.cpu.0)),
            memory: Mib(self.memory.0.saturating_sub(other.memory.0)),
        }
    }

    /// The sum of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            cpu: MilliCpu(self.cpu.0.saturating_add(other.cpu.0)),
            memory: Mib(self.memory.0.saturating_add(other.memory.0)),
        }
    }
}

/// All reservations, shared with the guards that release them.
pub(crate) type SharedReservations = Arc<Mutex<Reservations>>;

/// Reservations for sandboxes that are about to start or to grow.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    /// The reservations of each team.
    pub(super) by_team: BTreeMap<TeamId, TeamReservations>,
    /// Sandboxes not yet running, on this machine. Excludes claimed pool members: they run already.
    pub(super) new: usize,
}

/// The reservations of a team.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct TeamReservations {
    pub(super) sandboxes: usize,
    pub(super) load: Load,
}

/// A reservation for one sandbox, or for the growth of one. Dropping it releases it.
#[derive(Debug)]
pub(crate) struct QuotaReservation {
    reservations: SharedReservations,
    team: TeamId,
    kept: TeamReservations,
    /// Whether the sandbox does not run yet.
    new: bool,
}

impl Drop for QuotaReservation {
    fn drop(&mut self) {
        let mut reservations = self.reservations.lock();
        reservations.new -= usize::from(self.new);
        if let Some(of_team) = reservations.by_team.get_mut(&self.team) {
            of_team.sandboxes -= self.kept.sandboxes;
            of_team.load = of_team.load.beyond(self.kept.load);
            if *of_team == TeamReservations::default() {
                reservations.by_team.remove(&self.team);
            }
        }
    }
}

impl QuotaReservation {
    /// Reserves `kept` for a team. `new` when the sandbox does not run yet.
    pub(super) fn keep(
        all: &SharedReservations,
        reservations: &mut Reservations,
        team: TeamId,
        kept: TeamReservations,
        new: bool,
    ) -> Self {
        reservations.new += usize::from(new);
        let of_team = reservations.by_team.entry(team).or_default();
        of_team.sandboxes += kept.sandboxes;
        of_team.load = of_team.load.and(kept.load);
        Self {
            reservations: all.clone(),
            team,
            kept,
            new,
        }
    }
}
