//! The use of a team's quota.

use std::collections::BTreeMap;

use shoal_core::auth::Principal;
pub use shoal_core::ports::observe::Use;
use shoal_core::resources::MilliCpu;
use shoal_core::sandbox::Purpose;
use shoal_core::state::StateKind;

use super::Sandboxes;

impl Sandboxes {
    /// The use of the team of `principal`.
    pub(crate) fn usage(&self, principal: &Principal) -> Use {
        self.count_use(|team| team == principal.team)
    }

    /// The use of all teams together, for admins only.
    pub(crate) fn usage_of_all(&self, principal: &Principal) -> Option<Use> {
        principal.admin.then(|| self.count_use(|_| true))
    }

    fn count_use(&self, counts: impl Fn(shoal_core::id::TeamId) -> bool) -> Use {
        let mut records = self.registry.records();
        records.retain(|record| counts(record.team));
        let mut states = BTreeMap::new();
        let mut teams = std::collections::HashSet::new();
        let (mut counted, mut starting, mut cpu, mut memory) = (0, 0, 0u32, 0u64);
        for record in &records {
            let kind = record.state.kind();
            if record.spec.purpose == Purpose::Use {
                *states.entry(kind.to_string()).or_insert(0) += 1;
            }
            // A member of a pool is no tenant's.
            if record.pool_member().is_none() {
                teams.insert(record.team);
            }
            starting += usize::from(matches!(
                kind,
                StateKind::Creating | StateKind::Resuming | StateKind::Waking
            ));
            if kind != StateKind::Paused {
                counted += 1;
                cpu = cpu.saturating_add(record.cpu_kept().0);
                memory += u64::from(record.spec.resources.memory.0);
            }
        }
        Use {
            states,
            counted,
            starting,
            cpu: MilliCpu(cpu),
            memory_mib: memory,
            teams: teams.len(),
        }
    }
}
