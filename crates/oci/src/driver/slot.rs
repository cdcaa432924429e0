//! The network slot of a run.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use shoal_core::driver::{DriverError, PausedNetwork, Phases, Start, StartSpec};
use shoal_node::blocking;
use shoal_node::manifest::{self, Manifest};
use shoal_node::network::Slot;

use super::{Shared, destroy, failed};

/// A network slot with the rules of the order.
#[tracing::instrument(level = "debug", name = "network.slot", skip_all)]
pub(super) async fn take(
    shared: &Arc<Shared>,
    order: &StartSpec,
    phases: &mut Phases,
) -> Result<Slot, DriverError> {
    let begun = Instant::now();
    let slot = match take_again(shared, order).await? {
        Some(kept) => Ok(Some(kept)),
        None => shared.network.take(&order.egress).await,
    };
    let slot = slot.map_err(failed("make a network slot"))?;
    phases.network = begun.elapsed();
    slot.ok_or(DriverError::NodeFull("network slot"))
}

/// The slot that was kept for this run, if there is one. One that cannot be used again is released.
async fn take_again(shared: &Arc<Shared>, order: &StartSpec) -> Result<Option<Slot>, DriverError> {
    let kept = Start::Paused {
        memory: true,
        network: PausedNetwork::Kept,
    };
    if order.start != kept {
        return Ok(None);
    }
    let directory = shared.home.sandbox(order.id.as_str());
    let held = move || -> io::Result<Option<u32>> {
        let manifest = Manifest::read(&directory)?;
        let holds = manifest::holds_slot(&directory)?;
        Ok(manifest.filter(|_| holds).map(|manifest| manifest.slot))
    };
    let held = blocking(held).await.map_err(failed("read the manifest"))?;
    let Some(index) = held else {
        return Ok(None);
    };
    match shared.network.take_again(index, &order.egress).await {
        Ok(slot) => Ok(Some(slot)),
        Err(error) => {
            tracing::warn!(sandbox.id = %order.id, %error, "a sandbox gets another network, without its connections");
            let released = destroy::release_slot(shared, &order.id).await;
            released.map_err(failed("take the network slot away"))?;
            Ok(None)
        }
    }
}
