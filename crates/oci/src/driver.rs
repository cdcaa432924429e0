//! The driver for OCI runtimes on one machine.

mod carry;
mod create;
mod destroy;
mod digests;
mod identity;
mod idle;
mod inventory;
mod open;
mod origin;
mod paused;
mod port;
mod resize;
mod save;
mod slot;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_core::detail::HostDetail;
use shoal_core::driver::{Capabilities, DriverError, DriverEvent, Owner};
use shoal_core::id::{ExecutionId, SandboxId, SnapshotId};
use shoal_core::resources::Mib;
use shoal_core::state::FailReason;
use shoal_images::LayerSource;
use shoal_node::blocking;
use shoal_node::cgroup::Hierarchy;
use shoal_node::daemon::envd_layers;
use shoal_node::disk::{Disk, DiskConfig, Room};
use shoal_node::home::Home;
use shoal_node::machine;
use shoal_node::manifest::Manifest;
use shoal_node::network::{Network, NetworkConfig};
use shoal_node::output;
use shoal_node::saved::{FileName, Stamp};
use shoal_node::watch::Watched;
use tokio::sync::{Mutex as AsyncMutex, RwLock, Semaphore, mpsc};

use self::digests::Digests;
pub use self::open::OpenDriverError;
use self::open::Parts;
use crate::export::Transfers;
use crate::runtime::{Kind, Runtime, RuntimeConfig};

/// The most events that wait for the engine. Backpressure: watchers of output wait when it is full.
const EVENTS_WAITING: usize = 1024;

/// The number of verified memory files to remember.
const VERIFIED_MAX: usize = 4096;

/// How often disk usage is checked where the kernel does not bound it.
const DISK_WATCH: Duration = Duration::from_secs(2);

/// The configuration of the driver.
#[derive(Debug, Clone)]
pub struct OciConfig {
    /// The data directory.
    pub data: PathBuf,
    /// The daemon that runs inside sandboxes.
    pub envd: PathBuf,
    /// The OCI runtimes.
    pub runtimes: RuntimeConfig,
    /// The network slots.
    pub network: NetworkConfig,
    /// The disk of sandboxes.
    pub disk: DiskConfig,
    /// The number of sandboxes that start at once. Further starts wait.
    pub starts: usize,
}

/// Runs sandboxes on this machine, in all OCI runtimes that it found. One driver serves them all,
/// because they share the data directory, disk quotas, network slots and snapshots.
#[derive(Clone)]
pub struct OciDriver {
    shared: Arc<Shared>,
}

struct Shared {
    home: Home,
    capabilities: Capabilities,
    runtimes: Vec<Runtime>,
    hierarchy: Hierarchy,
    disk: Disk,
    network: Network,
    layers: Arc<dyn LayerSource>,
    /// The directory of the layers with daemons, and the name of the layer for new sandboxes.
    envd_layers: PathBuf,
    envd: FileName,
    /// Locks of snapshots: starts from one read-lock it, its removal write-locks it.
    snapshots: Mutex<HashMap<SnapshotId, Arc<RwLock<()>>>>,
    /// The memory files that were verified.
    verified: Mutex<HashSet<Stamp>>,
    digests: Arc<Digests>,
    turns: Arc<Semaphore>,
    /// The running exports and imports.
    transfers: Transfers,
    /// The sandboxes whose end will be reported. A sandbox being destroyed is not among them.
    live: Mutex<HashMap<SandboxId, Manifest>>,
    /// Whether the first inventory, which recovers the previous server's sandboxes, was taken.
    taken_over: AtomicBool,
    events: mpsc::Sender<DriverEvent>,
    incoming: AsyncMutex<mpsc::Receiver<DriverEvent>>,
}

impl OciDriver {
    /// Checks that this machine meets the driver's requirements. It creates nothing.
    ///
    /// # Errors
    /// See [`OpenDriverError`].
    pub fn check(config: &OciConfig) -> Result<(), OpenDriverError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(OpenDriverError::NotRoot);
        }
        open::runtimes(&config.runtimes, Path::new("/"))?;
        File::open(&config.envd).map_err(|source| OpenDriverError::NoDaemon {
            path: config.envd.clone(),
            source,
        })?;
        Ok(())
    }

    /// Sets everything up, on the async runtime of the caller. A failure leaves nothing set up.
    ///
    /// # Errors
    /// See [`OpenDriverError`].
    pub fn open(config: OciConfig, layers: Arc<dyn LayerSource>) -> Result<Self, OpenDriverError> {
        Self::check(&config)?;
        let part = |part| move |source| OpenDriverError::Part { part, source };
        let states = [Kind::Runsc.program(), Kind::Runc.program()];
        let home = Home::open(&config.data, &states).map_err(part("the data directory"))?;
        let opened = Parts::open(&config, &home);
        let parts = opened.inspect_err(|_| {
            // The first error is the one to report.
            let _ = home.close();
        })?;
        let Parts {
            runtimes,
            hierarchy,
            disk,
            network,
            envd,
        } = parts;
        let capabilities = Capabilities {
            driver: "oci".to_owned(),
            runtimes: runtimes
                .iter()
                .map(|runtime| runtime.info.clone())
                .collect(),
            daemon: envd.to_string(),
            disk_limit: disk.describe().to_owned(),
            cpu: machine::cpu(),
            memory: machine::memory(),
            disk: disk.size(),
        };
        let (events, incoming) = mpsc::channel(EVENTS_WAITING);
        let shared = Shared {
            home,
            capabilities,
            runtimes,
            hierarchy,
            disk,
            network,
            layers,
            envd_layers: envd_layers(&config.data),
            envd,
            snapshots: Mutex::default(),
            verified: Mutex::default(),
            digests: Arc::default(),
            turns: Arc::new(Semaphore::new(config.starts.max(1))),
            transfers: Transfers::default(),
            live: Mutex::new(HashMap::new()),
            taken_over: AtomicBool::new(false),
            events,
            incoming: AsyncMutex::new(incoming),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// The short name of this installation. It is part of every name that the driver makes.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.shared.home.instance
    }

    /// Copies this installation's certificate authority to a place that other users can read, and
    /// returns the path. They cannot read the data directory.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn publish_authority(&self, authority: &Path) -> io::Result<PathBuf> {
        self.shared.home.publish_authority(authority)
    }

    /// Removes spare network slots. If there are no sandboxes, also removes what only they need.
    /// Running sandboxes keep running.
    ///
    /// # Errors
    /// When something remains.
    pub async fn close(&self) -> io::Result<()> {
        self.shared.transfers.end().await;
        self.shared.digests.finish().await;
        self.shared.network.close().await?;
        let shared = self.shared.clone();
        blocking(move || {
            shared.hierarchy.remove_parents();
            shared.disk.close(shared.home.is_in_use()?)?;
            shared.home.close()
        })
        .await
    }
}

impl Shared {
    /// The cgroup of a sandbox, in every hierarchy.
    fn group(&self, id: &SandboxId) -> shoal_node::cgroup::Cgroup {
        self.hierarchy.group(id.as_str())
    }

    /// Checks that the sandbox runs.
    fn must_live(&self, id: &SandboxId) -> Result<(), DriverError> {
        let lives = self.live.lock().contains_key(id);
        lives
            .then_some(())
            .ok_or_else(|| DriverError::NotFound(id.clone()))
    }

    /// The network slot of a sandbox that runs.
    fn slot_of(&self, id: &SandboxId) -> Result<u32, DriverError> {
        let live = self.live.lock();
        let slot = live.get(id).map(|manifest| manifest.slot);
        slot.ok_or_else(|| DriverError::NotFound(id.clone()))
    }

    /// Checks that a team may use more disk, before anything is made.
    fn has_room(&self, owner: Owner) -> Result<(), DriverError> {
        let room = self.disk.room(owner).map_err(failed("count the disk"))?;
        match (room, owner.disk) {
            (Room::TeamIsFull { used }, Some(limit)) => Err(DriverError::TeamDisk {
                used: Mib(u32::try_from(used >> 20).unwrap_or(u32::MAX)),
                limit,
            }),
            (Room::DiskIsFull, _) => Err(DriverError::NoSpace),
            (Room::Some | Room::TeamIsFull { .. }, _) => Ok(()),
        }
    }

    /// Records that a memory file was verified. A forgotten one is verified again.
    fn note_verified(&self, stamp: Stamp) {
        let mut verified = self.verified.lock();
        if verified.len() >= VERIFIED_MAX {
            verified.clear();
        }
        verified.insert(stamp);
    }

    /// The lock of a snapshot, whether it exists or not.
    fn snapshot_lock(&self, id: SnapshotId) -> Arc<RwLock<()>> {
        self.snapshots.lock().entry(id).or_default().clone()
    }

    /// Reports the end of a sandbox, unless it is being destroyed or another run has started. Without a
    /// known reason, the kernel's counters show whether it ran out of memory.
    async fn report_end(&self, id: SandboxId, execution: ExecutionId, known: Option<FailReason>) {
        let reported = {
            let mut live = self.live.lock();
            let present = live
                .get(&id)
                .is_some_and(|manifest| manifest.execution == execution);
            present.then(|| live.remove(&id)).is_some()
        };
        if reported {
            let group = self.group(&id);
            let kills = blocking(move || Ok::<_, io::Error>(group.oom_kills())).await;
            let out_of_memory = kills.is_ok_and(|kills| kills > 0);
            let counted = if out_of_memory {
                FailReason::OutOfMemory
            } else {
                FailReason::Exited
            };
            let reason = known.unwrap_or(counted);
            self.emit(DriverEvent::Failed {
                id,
                execution,
                reason,
            })
            .await;
        }
    }

    async fn emit(&self, event: DriverEvent) {
        // The receiver lives as long as `self` does.
        let _ = self.events.send(event).await;
    }

    /// Watches a running sandbox: its end, and the output of its daemon.
    fn watch(self: &Arc<Self>, manifest: Manifest, pid: i32) -> io::Result<()> {
        let (id, execution, disk) = (manifest.id.clone(), manifest.execution, manifest.disk);
        let watched = Watched::new(pid)?;
        let pipe = output::open(&self.home.sandbox(id.as_str()))?;
        self.live.lock().insert(id.clone(), manifest);
        let shared = self.clone();
        let of = id.clone();
        tokio::spawn(async move {
            let mut reader = output::Reader::new(pipe);
            while let Some(lines) = reader.next().await {
                shared
                    .emit(DriverEvent::Output {
                        id: of.clone(),
                        lines,
                    })
                    .await;
            }
        });
        let shared = self.clone();
        tokio::spawn(async move {
            let reason = tokio::select! {
                () = watched.ended() => None,
                () = shared.disk_overrun(&id, disk) => Some(FailReason::OutOfDisk),
            };
            shared.report_end(id, execution, reason).await;
        });
        Ok(())
    }

    /// Returns after killing a sandbox that exceeded its disk share. Never returns where the kernel
    /// enforces the share.
    async fn disk_overrun(self: &Arc<Self>, id: &SandboxId, share: Mib) {
        if self.disk.is_bounded() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(DISK_WATCH).await;
            let (shared, id) = (self.clone(), id.clone());
            let over = move || {
                // An unreadable directory is being removed.
                let over = shared.disk.usage(id.as_str()).unwrap_or(0) > share.bytes();
                if over {
                    shared.group(&id).kill()?;
                }
                Ok::<bool, io::Error>(over)
            };
            match blocking(over).await {
                Ok(true) => return,
                Ok(false) => (),
                Err(error) => tracing::warn!(%error, "the disk of a sandbox cannot be watched"),
            }
        }
    }
}

/// The names of runtimes, for people.
fn names(runtimes: &[Runtime]) -> String {
    let names: Vec<&str> = runtimes
        .iter()
        .map(|runtime| runtime.info.name.as_str())
        .collect();
    names.join(", ")
}

/// Converts an I/O error of a step. A full disk has an error of its own.
pub(crate) fn failed(step: &'static str) -> impl FnOnce(io::Error) -> DriverError {
    move |error| match error.kind() {
        io::ErrorKind::StorageFull => DriverError::NoSpace,
        io::ErrorKind::QuotaExceeded => DriverError::DiskQuota,
        io::ErrorKind::TimedOut => DriverError::TooSlow {
            step,
            detail: HostDetail::new(error),
        },
        _ => DriverError::Step {
            step,
            detail: HostDetail::new(error),
        },
    }
}
