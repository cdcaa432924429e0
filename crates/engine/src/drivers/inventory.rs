//! The inventory of all drivers when the server starts.

use std::collections::HashMap;
use std::sync::Arc;

use shoal_core::driver::{Driver, DriverError, Found};
use shoal_core::id::SandboxId;
use shoal_core::sandbox::SandboxRecord;

use super::{Drivers, Index, recorded};

/// The sandboxes that each driver found.
pub(crate) struct Inventory {
    found: HashMap<SandboxId, HashMap<Index, Found>>,
}

impl Drivers {
    /// Asks every driver for its sandboxes.
    pub(crate) async fn inventory(&self) -> Result<Inventory, DriverError> {
        let mut found: HashMap<SandboxId, HashMap<Index, Found>> = HashMap::new();
        for (index, driver) in self.all.iter().enumerate() {
            for sandbox in driver.inventory().await? {
                let of_id = found.entry(sandbox.id.clone()).or_default();
                of_id.insert(index, sandbox);
            }
        }
        Ok(Inventory { found })
    }

    /// Takes what the driver of a sandbox found of it. If no driver offers its runtime any more, it
    /// belongs to the driver that found it.
    pub(crate) fn take_found(
        &self,
        inventory: &mut Inventory,
        record: &SandboxRecord,
    ) -> Option<Found> {
        let of_id = inventory.found.get_mut(&record.id)?;
        let runtime = recorded(record);
        if runtime.is_some_and(|name| !self.by_runtime.contains_key(name))
            && let Some(index) = of_id.keys().next()
        {
            self.without_runtime
                .lock()
                .insert(record.id.clone(), *index);
        }
        of_id.remove(&self.index_of(record, runtime))
    }

    /// The sandboxes that no record claims, each with its driver.
    pub(crate) fn unclaimed(&self, inventory: Inventory) -> Vec<(SandboxId, Arc<dyn Driver>)> {
        let left = inventory.found.into_iter();
        left.flat_map(|(id, of_id)| {
            let drivers = of_id.into_keys().map(|index| self.all[index].clone());
            drivers
                .map(|driver| (id.clone(), driver))
                .collect::<Vec<_>>()
        })
        .collect()
    }
}
