//! The driver: what the engine orders, done on this machine.

mod carry;
mod create;
mod destroy;
mod identity;
mod idle;
mod inventory;
mod open;
mod origin;
mod paused;
mod port;
mod resize;
mod save;

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

pub use self::open::OpenError;
use self::open::Parts;
use crate::export::Transfers;
use crate::runtime::{Kind, Runtime, RuntimeConfig};

/// How many events may wait for the engine; what writes more is made to wait.
const EVENTS_WAITING: usize = 1024;

/// Of how many memories is remembered that every byte has been looked at.
const VERIFIED_MAX: usize = 4096;

/// How often the disk of a sandbox is looked at where the kernel does not bound it.
const DISK_WATCH: Duration = Duration::from_secs(2);

/// What the driver is made with.
#[derive(Debug, Clone)]
pub struct OciConfig {
    /// Where everything is kept.
    pub data: PathBuf,
    /// The daemon that runs inside sandboxes.
    pub envd: PathBuf,
    /// The OCI runtimes.
    pub runtimes: RuntimeConfig,
    /// The network slots.
    pub network: NetworkConfig,
    /// The disk of sandboxes.
    pub disk: DiskConfig,
    /// How many sandboxes are started at once; more wait for their turn.
    pub starts: usize,
}

/// Runs sandboxes on this machine.
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
    /// Where the layers with daemons are, and the name of the one for new sandboxes.
    envd_layers: PathBuf,
    envd: FileName,
    /// Read by whoever starts from a snapshot, written by whoever removes it.
    snapshots: Mutex<HashMap<SnapshotId, Arc<RwLock<()>>>>,
    /// The memories whose every byte has been looked at.
    verified: Mutex<HashSet<Stamp>>,
    turns: Arc<Semaphore>,
    /// The exports and imports that go on.
    transfers: Transfers,
    /// The sandboxes whose end is to be reported: a sandbox that is being destroyed is not here.
    live: Mutex<HashMap<SandboxId, Manifest>>,
    /// Whether what the last server left has been searched for.
    taken_over: AtomicBool,
    events: mpsc::Sender<DriverEvent>,
    incoming: AsyncMutex<mpsc::Receiver<DriverEvent>>,
}

impl OciDriver {
    /// Whether this machine has what the driver needs. Makes nothing, so that it can be asked
    /// before anything is made.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn check(config: &OciConfig) -> Result<(), OpenError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(OpenError::NotRoot);
        }
        open::runtimes(&config.runtimes, Path::new("/"))?;
        File::open(&config.envd).map_err(|source| OpenError::NoDaemon {
            path: config.envd.clone(),
            source,
        })?;
        Ok(())
    }

    /// Sets everything up; for a caller on the runtime. What fails leaves nothing set up.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(config: OciConfig, layers: Arc<dyn LayerSource>) -> Result<Self, OpenError> {
        Self::check(&config)?;
        let part = |part| move |source| OpenError::Part { part, source };
        let states = [Kind::Runsc.program(), Kind::Runc.program()];
        let home = Home::open(&config.data, &states).map_err(part("the data directory"))?;
        let opened = Parts::open(&config, &home);
        let parts = opened.inspect_err(|_| {
            // The first error is the one that counts.
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

    /// The short name of this installation, which is in the names of all that it makes.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.shared.home.instance
    }

    /// Puts a copy of this installation's authority where clients of other users may read it, and says
    /// where: they cannot read the data directory.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn publish_authority(&self, authority: &Path) -> io::Result<PathBuf> {
        self.shared.home.publish_authority(authority)
    }

    /// Takes away what is kept ready, and what is needed only while there are sandboxes when
    /// there are none. Sandboxes that run go on.
    ///
    /// # Errors
    /// When something stays.
    pub async fn close(&self) -> io::Result<()> {
        self.shared.transfers.end().await;
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
    /// The group of a sandbox, in every hierarchy.
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

    /// Whether a team may hold more of the disk, told before anything is made.
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

    /// Notes that every byte of a memory has been looked at. What is forgotten is looked at again.
    fn note_verified(&self, stamp: Stamp) {
        let mut verified = self.verified.lock();
        if verified.len() >= VERIFIED_MAX {
            verified.clear();
        }
        verified.insert(stamp);
    }

    /// The lock of a snapshot, there or not.
    fn snapshot_lock(&self, id: SnapshotId) -> Arc<RwLock<()>> {
        self.snapshots.lock().entry(id).or_default().clone()
    }

    /// Reports the end of a sandbox, unless it is being destroyed or another run has begun. Where
    /// no reason is given the kernel's counters tell it.
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

    /// Watches a sandbox that runs: its end, and what its daemon writes.
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

    /// Ends when the sandbox has written more than its share and has been killed for it; never
    /// where the kernel keeps it within its share.
    async fn disk_overrun(self: &Arc<Self>, id: &SandboxId, share: Mib) {
        if self.disk.is_bounded() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(DISK_WATCH).await;
            let (shared, id) = (self.clone(), id.clone());
            let over = move || {
                // A directory that cannot be read is being taken away.
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

/// Says which step failed; a full disk has a name of its own.
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
