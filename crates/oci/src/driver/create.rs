//! Starting a run of a sandbox.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shoal_core::detail::Chain;
use shoal_core::driver::{self as report, DriverError, Phases, Start, StartReport, StartSpec};
use shoal_core::id::SandboxId;
use shoal_core::resources::{MilliCpu, Resources};
use shoal_core::template::RuntimeName;
use shoal_node::blocking;
use shoal_node::manifest::{self, Header, Manifest};
use shoal_node::modes;
use shoal_node::network::Slot;
use shoal_node::output;
use shoal_node::rootfs::{Layers, USERS};
use tokio::sync::OwnedSemaphorePermit;

use super::origin::Origin;
use super::{Shared, destroy, failed, identity, paused, slot};
use crate::bundle::{Bundle, own_files};
use crate::runtime::{self, From, Runtime};

/// The first user id of the node for sandboxes with a user namespace. Lower ids belong to the node's
/// own users.
const FIRST_USER: u32 = 1 << 20;

/// The processor time of a starting sandbox, whatever its own limit is. A start is the node's work,
/// and a small sandbox must not wait longer for it. gVisor shows its programs as many processors as
/// the limit it starts with, and at least two.
pub(super) const CPU_AT_START: MilliCpu = MilliCpu(2000);

/// The name of the mount point in the directory of a sandbox's root.
const ROOT: &str = "root";

pub(super) async fn create(
    shared: Arc<Shared>,
    order: StartSpec,
) -> Result<StartReport, DriverError> {
    // The snapshot must exist until the runtime has opened its files.
    let lock = match order.start {
        Start::Snapshot { id, .. } => Some(shared.snapshot_lock(id)),
        Start::Image(_) | Start::Paused { .. } => None,
    };
    let _reading = match &lock {
        Some(lock) => Some(lock.read().await),
        None => None,
    };
    let origin = find_origin(&shared, &order).await?;
    if let Start::Paused { network, .. } = order.start {
        paused::prepare_resume(shared.clone(), order.id.clone(), network).await?;
    }
    let runtime = choose(&shared, origin.runtime(&order))?.clone();
    origin.check(&runtime)?;
    check_privileged(&order, &runtime)?;
    let mut phases = Phases::default();
    let _turn = take_turn(&shared, &mut phases).await?;
    // Check before making anything: the cleanup of a failed start must not touch an existing sandbox.
    let is_again = matches!(order.start, Start::Paused { .. });
    let directory = shared.home.sandbox(order.id.as_str());
    let exists = blocking(move || Ok::<_, DriverError>(directory.exists())).await?;
    if shared.live.lock().contains_key(&order.id) || exists != is_again {
        return Err(failed("make the sandbox")(
            io::ErrorKind::AlreadyExists.into(),
        ));
    }
    let slot = slot::take(&shared, &order, &mut phases).await?;
    let (id, index) = (order.id.clone(), slot.index);
    let mut report = StartReport {
        isolation: runtime.info.isolation,
        origin: origin_of(origin.has_memory()),
        phases,
        address: slot.address.into(),
        envd_version: String::new(),
        keeps_connections: order.keep_connections && runtime.info.keeps_connections,
        runtime: runtime.info.name.clone(),
    };
    let attempt = Attempt {
        shared: shared.clone(),
        order,
        runtime,
        slot,
        origin,
    };
    let made = blocking(move || attempt.run()).await;
    let watched = made.and_then(|made| {
        (report.phases.rootfs, report.phases.start) = (made.rootfs, made.start);
        shared
            .watch(made.manifest, made.pid)
            .map_err(failed("watch the sandbox"))
    });
    match watched {
        Ok(()) => Ok(report),
        Err(error) => {
            undo(shared, &id, index, is_again).await;
            Err(error)
        }
    }
}

async fn find_origin(shared: &Arc<Shared>, order: &StartSpec) -> Result<Origin, DriverError> {
    if let Start::Paused { .. } = order.start {
        shared.digests.stop(&order.id).await;
    }
    let (searched, wanted) = (shared.clone(), order.clone());
    blocking(move || Origin::find(&searched, &wanted)).await
}

/// Refuses a privileged sandbox on a runtime that would give it the rights of the machine.
fn check_privileged(order: &StartSpec, runtime: &Runtime) -> Result<(), DriverError> {
    if !order.privileged || runtime.info.nested_containers {
        return Ok(());
    }
    Err(DriverError::Unsupported {
        runtime: runtime.info.name.clone(),
        operation: "run containers in a sandbox",
        instead: "runsc",
    })
}

fn origin_of(restored: bool) -> report::StartKind {
    if restored {
        report::StartKind::Restored
    } else {
        report::StartKind::Cold
    }
}

/// The turn of a start: it ends with the returned permit.
#[tracing::instrument(level = "debug", name = "driver.queue", skip_all)]
async fn take_turn(
    shared: &Shared,
    phases: &mut Phases,
) -> Result<OwnedSemaphorePermit, DriverError> {
    let begun = Instant::now();
    let turn = shared.turns.clone().acquire_owned().await;
    phases.queue = begun.elapsed();
    turn.map_err(|_| DriverError::NodeFull("turn"))
}

/// Removes the remains of a failed start. Remains of the removal itself are cleared when it is
/// repeated; the error of the start is the one that counts.
async fn undo(shared: Arc<Shared>, id: &SandboxId, slot: u32, resumed: bool) {
    // A slot belongs to the sandbox once the manifest names it, and is released with it.
    let directory = shared.home.sandbox(id.as_str());
    let held = blocking(move || manifest::holds_slot(&directory)).await;
    if !held.unwrap_or(true) {
        shared.network.release(slot).await;
    }
    let cleared = if resumed {
        paused::rollback_resume(shared, id.clone()).await
    } else {
        destroy::destroy(shared, id.clone()).await
    };
    if let Err(left) = cleared {
        tracing::warn!(sandbox.id = %id, error = %Chain(&left), "a failed sandbox is not cleared");
    }
}

fn choose<'a>(shared: &'a Shared, asked: Option<&RuntimeName>) -> Result<&'a Runtime, DriverError> {
    let found = match asked {
        Some(asked) => shared
            .runtimes
            .iter()
            .find(|runtime| runtime.info.name == *asked),
        None => shared.runtimes.first(),
    };
    found.ok_or_else(|| match asked {
        Some(asked) => DriverError::RuntimeNotFound {
            asked: asked.clone(),
            available: super::names(&shared.runtimes),
        },
        None => DriverError::NodeFull("runtime"),
    })
}

/// Makes a directory accessible to `user` alone.
fn seal(directory: &Path, user: u32) -> io::Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    std::os::unix::fs::chown(directory, Some(user), None)
}

/// A sandbox being created. After a failure [`destroy::destroy`] removes its remains.
struct Attempt {
    shared: Arc<Shared>,
    order: StartSpec,
    runtime: Runtime,
    slot: Slot,
    origin: Origin,
}

struct Started {
    manifest: Manifest,
    pid: i32,
    rootfs: Duration,
    start: Duration,
}

impl Attempt {
    fn run(self) -> Result<Started, DriverError> {
        let begun = Instant::now();
        let rootfs = tracing::debug_span!("rootfs").entered();
        // A paused sandbox already has its disk space, and a resume may free some.
        if !matches!(self.order.start, Start::Paused { .. }) {
            self.shared.has_room(self.order.owner)?;
        }
        let directory = self.shared.home.sandbox(self.order.id.as_str());
        let manifest = self
            .write_manifest(&directory)
            .map_err(failed("write the manifest"))?;
        let root = self
            .make_root()
            .map_err(failed("make the root file system"))?;
        let output = self
            .write_bundle(&directory, &root)
            .map_err(failed("write the bundle"))?;
        drop(rootfs);
        let rootfs = begun.elapsed();
        let begun = Instant::now();
        let starting = tracing::debug_span!("runtime.start").entered();
        // The checkpoint is verified while the runtime reads it. The sandbox is not reported before
        // both have ended.
        let (pid, verified) = std::thread::scope(|scope| {
            let verified = scope.spawn(|| self.origin.verify(&self.shared));
            let pid = self.start(&directory, output, &manifest);
            (pid, verified.join())
        });
        drop(starting);
        verified.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let pid = pid.map_err(failed("start the OCI runtime"))?;
        Ok(Started {
            manifest,
            pid,
            rootfs,
            start: begun.elapsed(),
        })
    }

    /// Before everything else, so that all later resources are known to belong to this sandbox.
    fn write_manifest(&self, directory: &Path) -> io::Result<Manifest> {
        match fs::create_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        seal(directory, 0)?;
        let origin = &self.origin;
        let manifest = Manifest {
            header: Header::default(),
            id: self.order.id.clone(),
            execution: self.order.execution,
            image: origin.image.clone(),
            layers: origin.stack.digests.clone(),
            runtime: self.runtime.info.name.clone(),
            slot: self.slot.index,
            disk: self.limits().disk,
            envd: origin.envd.to_string(),
            owner: Some(self.order.owner),
            resources: self.limits(),
            overhead: self.runtime.kind.overhead(),
        };
        manifest.write(directory)?;
        Ok(manifest)
    }

    /// Makes the mount point, which only root of the sandbox reaches: its files are its own, and a
    /// program that it marks to run as its owner must not be found by another user of the machine.
    fn make_mount_point(&self) -> io::Result<PathBuf> {
        let around = self.shared.home.root(self.order.id.as_str());
        modes::make(&around)?;
        let root_user = match self.runtime.kind.has_user_namespace() {
            true => self.first_user(),
            false => 0,
        };
        seal(&around, root_user)?;
        let point = around.join(ROOT);
        modes::make(&point)?;
        Ok(point)
    }

    fn limits(&self) -> Resources {
        self.order.limits.resources()
    }

    fn first_user(&self) -> u32 {
        FIRST_USER + self.slot.index * USERS
    }

    fn make_root(&self) -> io::Result<PathBuf> {
        let id = self.order.id.as_str();
        let own = self.shared.disk.path(id);
        let mut lower: Vec<PathBuf> = vec![self.shared.envd_layers.join(&self.origin.envd)];
        lower.extend(self.origin.stack.directories.iter().cloned());
        let layers = Layers {
            lower: &lower,
            own: &own,
        };
        let (disk, limit, owner) = (&self.shared.disk, self.limits().disk, self.order.owner);
        match (&self.order.start, &self.origin.saved) {
            (Start::Paused { .. }, Some(saved)) => {
                // Until the run has started, a rollback restores the files of the checkpoint.
                paused::take_back(disk, &saved.place, id)?;
                paused::guard(disk, &saved.place, id)?;
                disk.past_quota(saved.place.directory(), || saved.place.mark_begun(true))?;
            }
            (_, Some(saved)) => {
                disk.create_from(&saved.place.files(), id, limit, owner)?;
                identity::replace(&layers.upper(), saved.manifest.source.as_str(), id)?;
            }
            (_, None) => {
                disk.create(id, limit, owner)?;
                layers.prepare(&own_files(id))?;
            }
        }
        let target = self.make_mount_point()?;
        let mapped = self
            .runtime
            .kind
            .has_user_namespace()
            .then(|| self.first_user());
        layers.mount(&target, mapped)?;
        Ok(target)
    }

    fn write_bundle(&self, directory: &Path, root: &Path) -> io::Result<OwnedFd> {
        let id = self.order.id.as_str();
        let env: Vec<String> = self
            .order
            .env
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let bundle = Bundle {
            kind: self.runtime.kind,
            hostname: id,
            root,
            network_namespace: &self.slot.sandbox_namespace,
            cgroup: self.shared.hierarchy.oci_path(id),
            first_user: self.first_user(),
            env: &env,
            privileged: self.order.privileged,
        };
        let spec = bundle.spec().map_err(io::Error::other)?;
        fs::write(directory.join("config.json"), serde_json::to_vec(&spec)?)?;
        output::create(directory)
    }

    fn start(&self, directory: &Path, output: OwnedFd, manifest: &Manifest) -> io::Result<i32> {
        let id = self.order.id.as_str();
        let limits = self.limits();
        let at_start = Resources {
            cpu: CPU_AT_START.max(self.order.limits.cpu_ceiling()),
            ..manifest.in_group(limits)
        };
        let group = self.shared.hierarchy.create(id, &at_start)?;
        let start = runtime::Start {
            id,
            bundle: directory,
            output,
            groups: group.entrances(),
            from: match self.origin.memory() {
                Some(memory) => From::Memory(memory),
                None => From::Boot(self.order.guest_token.reveal()),
            },
            limit: limits.memory,
            privileged: self.order.privileged,
            keep_connections: self.order.keep_connections,
        };
        let pid = self.runtime.start(start)?;
        group.set_cpu(limits.cpu)?;
        Ok(pid)
    }
}
