//! Takes over from the previous server: running sandboxes, and parts of unfinished ones.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use shoal_core::driver::{DriverError, Found, FoundPaused};
use shoal_core::id::SandboxId;
use shoal_node::blocking;
use shoal_node::manifest::{self, Manifest};
use shoal_node::saved::{self, SavedDirectory};

use super::{Shared, destroy, digests, failed};

/// Finds every sandbox. The first call also watches those that run, removes pieces that belong to
/// none, and starts the pool of network slots. Later calls remove nothing: a sandbox that looks half
/// made may just be starting.
pub(super) async fn inventory(shared: Arc<Shared>) -> Result<Vec<Found>, DriverError> {
    let searched = shared.clone();
    let survey = blocking(move || Survey::take(&searched))
        .await
        .map_err(failed("search"))?;
    if shared.taken_over.swap(true, Ordering::AcqRel) {
        return blocking(move || Ok(survey.list(&shared))).await;
    }
    let taken = take_over(&shared, survey).await;
    if taken.is_err() {
        shared.taken_over.store(false, Ordering::Release);
    }
    taken
}

async fn take_over(shared: &Arc<Shared>, survey: Survey) -> Result<Vec<Found>, DriverError> {
    for id in &survey.strays {
        tracing::info!(sandbox.id = %id, "clearing what belongs to no sandbox");
        destroy::destroy(shared.clone(), id.clone()).await?;
    }
    let named = shared.clone();
    blocking(move || saved::show_whole(&named.disk.paused(), &named.disk))
        .await
        .map_err(failed("show what was saved"))?;
    let slots = held_slots(shared, &survey)
        .await
        .map_err(failed("look for network slots"))?;
    let mut found = Vec::new();
    for (manifest, pid) in survey.sandboxes {
        let (id, execution) = (manifest.id.clone(), manifest.execution);
        let alive = match pid {
            Some(pid) => {
                let frozen = (shared.clone(), manifest.clone());
                blocking(move || {
                    thaw(&frozen.0, &frozen.1);
                    Ok::<(), DriverError>(())
                })
                .await?;
                shared.watch(manifest, pid).is_ok()
            }
            None => false,
        };
        let (searched, of) = (shared.clone(), id.clone());
        let paused = blocking(move || Ok::<_, DriverError>(paused(&searched, &of))).await?;
        found.push(Found {
            id,
            execution,
            alive,
            paused,
        });
    }
    let saved = shared.clone();
    blocking(move || clear_saved(&saved))
        .await
        .map_err(failed("clear what was half saved"))?;
    digests::begin_all(shared)
        .await
        .map_err(failed("look for missing digests"))?;
    clear_slots(shared, slots)
        .await
        .map_err(failed("clear network slots"))?;
    shared.network.start();
    Ok(found)
}

/// The network slots of sandboxes. A reboot removes all slots but not the manifests that name them, so
/// an index in a manifest may belong to another sandbox now.
async fn held_slots(shared: &Arc<Shared>, survey: &Survey) -> io::Result<BTreeSet<u32>> {
    let named: Vec<_> = survey
        .sandboxes
        .iter()
        .map(|(manifest, _)| (shared.home.sandbox(manifest.id.as_str()), manifest.slot))
        .collect();
    let shared = shared.clone();
    blocking(move || {
        let taken = shared.network.taken()?;
        let mut held = BTreeSet::new();
        for (directory, slot) in named {
            if !manifest::holds_slot(&directory)? {
                continue;
            }
            if taken.contains(&slot) {
                held.insert(slot);
            } else {
                manifest::disown_slot(&directory)?;
            }
        }
        Ok(held)
    })
    .await
}

/// The checkpoint of a sandbox, if it has one.
fn paused(shared: &Shared, id: &SandboxId) -> Option<FoundPaused> {
    let place = SavedDirectory::of_paused(&shared.disk, id);
    let manifest = saved::SavedManifest::read(place.directory()).ok()?;
    Some(FoundPaused {
        execution: manifest.execution,
        saved: manifest.saved,
    })
}

/// Thaws a sandbox that the previous server froze, unless that server saved it: then the engine
/// decides.
fn thaw(shared: &Shared, manifest: &Manifest) {
    let directory = shared.home.sandbox(manifest.id.as_str());
    let saved = paused(shared, &manifest.id);
    let is_saved = saved.is_some_and(|saved| saved.execution == manifest.execution);
    if !manifest::is_held(&directory) || is_saved {
        return;
    }
    let runtime = shared
        .runtimes
        .iter()
        .find(|runtime| runtime.info.name == manifest.runtime);
    if let Some(runtime) = runtime {
        // It may not be frozen: the crash came before that, or after it thawed.
        let thawed = runtime.set_frozen(manifest.id.as_str(), &directory, false);
        tracing::info!(sandbox.id = %manifest.id, ?thawed, "a sandbox was frozen");
        if thawed.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            // It may still be frozen: the next start tries again.
            return;
        }
    }
    let group = shared.group(&manifest.id);
    let restored = group
        .set_limits(&manifest.in_group(manifest.resources))
        .and_then(|()| manifest::mark_held(&directory, false));
    if let Err(error) = restored {
        tracing::warn!(sandbox.id = %manifest.id, %error, "a limit is not back");
    }
}

/// Removes incomplete checkpoints and snapshots, and checkpoints of no sandbox.
fn clear_saved(shared: &Shared) -> io::Result<()> {
    let disk = &shared.disk;
    for all in [disk.paused(), disk.snapshots()] {
        saved::clear_transient(&all, disk)?;
    }
    for entry in fs::read_dir(disk.paused())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Ok(id) = name.parse::<SandboxId>()
            && !shared.home.sandbox(&name).exists()
        {
            SavedDirectory::of_paused(disk, &id).remove(disk)?;
        }
    }
    Ok(())
}

/// The resources that exist on the node.
struct Survey {
    /// Each with its first process, if that runs.
    sandboxes: Vec<(Manifest, Option<i32>)>,
    /// Names with some pieces but no manifest.
    strays: Vec<SandboxId>,
}

impl Survey {
    /// The sandboxes, where this driver already knows which of them run.
    fn list(self, shared: &Shared) -> Vec<Found> {
        let live = shared.live.lock();
        let found = self.sandboxes.into_iter().map(|(manifest, _)| Found {
            alive: live
                .get(&manifest.id)
                .is_some_and(|known| known.execution == manifest.execution),
            paused: paused(shared, &manifest.id),
            id: manifest.id,
            execution: manifest.execution,
        });
        found.collect()
    }

    fn take(shared: &Shared) -> io::Result<Self> {
        let mut sandboxes = Vec::new();
        let mut names: BTreeSet<String> = shared.disk.names()?.into_iter().collect();
        names.extend(shared.hierarchy.names()?);
        for entry in fs::read_dir(shared.home.sandboxes())? {
            names.insert(entry?.file_name().to_string_lossy().into_owned());
        }
        let mut strays = Vec::new();
        for name in names {
            // Other names are not of this driver.
            let Ok(id) = name.parse::<SandboxId>() else {
                continue;
            };
            match Manifest::read(&shared.home.sandbox(&name))? {
                Some(manifest) if manifest.id == id => {
                    let pid = running(shared, &id);
                    sandboxes.push((manifest, pid));
                }
                _ => strays.push(id),
            }
        }
        Ok(Self { sandboxes, strays })
    }
}

/// The first process of a sandbox, if it runs. A reused process id is not in the sandbox's cgroup.
fn running(shared: &Shared, id: &SandboxId) -> Option<i32> {
    let text = fs::read_to_string(shared.home.sandbox(id.as_str()).join("pid")).ok()?;
    let pid = text.trim().parse().ok()?;
    shared
        .group(id)
        .processes()
        .ok()?
        .contains(&pid)
        .then_some(pid)
}

/// Removes the slots of no sandbox: spare ones of the previous server, and half-made ones.
async fn clear_slots(shared: &Arc<Shared>, used: BTreeSet<u32>) -> io::Result<()> {
    let searched = shared.clone();
    for index in blocking(move || searched.network.taken()).await? {
        if !used.contains(&index) {
            shared.network.release(index).await;
        }
    }
    let network = shared.clone();
    blocking(move || {
        let network = &network.network;
        let stray = network.stray_namespaces()?;
        stray
            .iter()
            .try_for_each(|file| network.remove_namespace(file))
    })
    .await
}
