//! Limits of running sandboxes, and the teams that their disk counts for.

use std::sync::Arc;

use shoal_core::driver::{DiskUse, DriverError, Owner};
use shoal_core::id::{SandboxId, TeamId};
use shoal_core::limits::Granted;
use shoal_core::resources::Resources;
use shoal_node::blocking;
use shoal_node::manifest::Manifest;

use super::{Shared, failed};

/// The memory that must stay free when a limit shrinks, in MiB. With less, the next allocation would
/// end the sandbox.
const MARGIN_MIB: u64 = 16;

/// Sets limits of processor time and memory in place.
pub(super) async fn resize(
    shared: Arc<Shared>,
    id: SandboxId,
    limits: Granted,
) -> Result<(), DriverError> {
    let limits = limits.resources();
    let manifest = shared.live.lock().get(&id).cloned();
    let Some(manifest) = manifest else {
        return Err(DriverError::NotFound(id));
    };
    let worker = shared.clone();
    let manifest = blocking(move || change(&worker, manifest, limits)).await?;
    // It may have ended meanwhile.
    if let Some(live) = shared.live.lock().get_mut(&id) {
        *live = manifest;
    }
    Ok(())
}

fn change(shared: &Shared, manifest: Manifest, limits: Resources) -> Result<Manifest, DriverError> {
    let id = &manifest.id;
    let (group, before) = (shared.group(id), manifest.resources);
    if limits.memory < before.memory {
        let used = group.usage().map_err(failed("read counters"))?.memory_bytes;
        if manifest.in_group(limits).memory.bytes() < used + (MARGIN_MIB << 20) {
            return Err(DriverError::CannotResize(format!(
                "{} of memory are less than the sandbox uses ({} MiB)",
                limits.memory,
                used >> 20
            )));
        }
    }
    let mut next = manifest.clone();
    next.resources = Resources {
        cpu: limits.cpu,
        memory: limits.memory,
        ..before
    };
    // Written first: after a crash in between, the next start applies the requested limits.
    let directory = shared.home.sandbox(next.id.as_str());
    next.rewrite(&directory)
        .map_err(failed("write the manifest"))?;
    let set = group
        .set_memory(manifest.in_group(limits).memory)
        .and_then(|()| group.set_cpu(limits.cpu));
    set.map_err(|error| {
        // Restore the old limits. The first error is the one to report.
        let _ = group.set_memory(manifest.in_group(before).memory);
        let _ = group.set_cpu(before.cpu);
        let _ = manifest.rewrite(&directory);
        tracing::warn!(sandbox.id = %id, %error, "the kernel refuses a limit");
        DriverError::CannotResize(format!("the kernel refuses the limit ({})", error.kind()))
    })?;
    Ok(next)
}

/// Counts the disk of a sandbox for another team from now on.
pub(super) async fn set_owner(
    shared: Arc<Shared>,
    id: SandboxId,
    owner: Owner,
) -> Result<(), DriverError> {
    let known = shared.live.lock().get(&id).cloned();
    let directory = shared.home.sandbox(id.as_str());
    let worker = shared.clone();
    let of = id.clone();
    let given = move || {
        let manifest = match known {
            Some(manifest) => Some(manifest),
            None => Manifest::read(&directory).map_err(failed("read the manifest"))?,
        };
        let mut manifest = manifest.ok_or(DriverError::NotFound(of.clone()))?;
        if manifest.owner == Some(owner) {
            return Ok(());
        }
        let given = worker.disk.give(of.as_str(), manifest.owner, owner);
        given.map_err(failed("count the disk"))?;
        manifest.owner = Some(owner);
        let written = manifest.rewrite(&directory);
        written.map_err(failed("write the manifest"))
    };
    blocking(given).await?;
    // It may have ended meanwhile.
    if let Some(live) = shared.live.lock().get_mut(&id) {
        live.owner = Some(owner);
    }
    Ok(())
}

/// The disk usage of a team.
pub(super) async fn disk_use(
    shared: Arc<Shared>,
    team: TeamId,
) -> Result<Option<DiskUse>, DriverError> {
    let used = blocking(move || shared.disk.used(team)).await;
    let used = used.map_err(failed("count the disk"))?;
    Ok(used.map(|bytes| DiskUse { bytes }))
}
