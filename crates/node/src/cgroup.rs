//! Limits and counters of the kernel, on machines with cgroup v1, v2, or both.
//!
//! Our own code instead of a library's, for two reasons. Each controller is looked up where it is
//! mounted, so that *hybrid* machines (some controllers in v1, others in v2) work. And killing a
//! sandbox depends on it: every process of a sandbox is in its group from the first one on, so all
//! of them can be found and killed, however they were started.

mod files;
mod freeze;
mod kill;
mod usage;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use shoal_core::resources::{Mib, MilliCpu, Resources};

use self::files::{keyed, read, write};
use crate::machine;

/// The period over which processor time is counted, in microseconds: the kernel's default.
const CPU_PERIOD_MICROS: u64 = 100_000;

/// The cgroup controllers that we use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Controller {
    Cpu,
    Cpuacct,
    Memory,
    Pids,
    Freezer,
}

const CONTROLLERS: [(Controller, &str); 5] = [
    (Controller::Cpu, "cpu"),
    (Controller::Cpuacct, "cpuacct"),
    (Controller::Memory, "memory"),
    (Controller::Pids, "pids"),
    (Controller::Freezer, "freezer"),
];

/// The mount point of a controller, and its version of cgroups.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mount {
    V1(PathBuf),
    V2(PathBuf),
}

/// The controllers of this machine.
#[derive(Debug, Clone)]
pub struct Hierarchy {
    places: BTreeMap<Controller, Mount>,
    /// All mounted hierarchies: OCI runtimes also make groups in hierarchies that we do not use.
    roots: Vec<PathBuf>,
    /// The path below which this installation's groups are, in each hierarchy.
    parent: PathBuf,
}

/// The weight of a group, capped at the machine's size: a limit that cannot be used must not take
/// processor time from neighbours.
fn weighed(cpu: MilliCpu, machine: MilliCpu) -> MilliCpu {
    cpu.min(machine)
}

/// One group: the same path in every hierarchy.
#[derive(Debug, Clone)]
pub struct Cgroup {
    places: BTreeMap<Controller, Mount>,
    /// Its path in each hierarchy.
    all: Vec<PathBuf>,
}

impl Hierarchy {
    /// Finds the controllers. New groups are created below `parent`, a relative path.
    ///
    /// # Errors
    /// Names a required controller that is not mounted.
    pub fn detect(parent: &Path) -> io::Result<Self> {
        let mountinfo = fs::read_to_string("/proc/self/mountinfo")?;
        let places = places(&mountinfo, |path| {
            fs::read_to_string(path.join("cgroup.controllers")).unwrap_or_default()
        })?;
        let roots = mounts(&mountinfo).map(|mount| mount.point.into()).collect();
        Ok(Self {
            places,
            roots,
            parent: parent.to_owned(),
        })
    }

    /// Creates the group `name` with these limits.
    ///
    /// # Errors
    /// When the kernel refuses; call [`Cgroup::remove`] on [`Hierarchy::group`] then.
    pub fn create(&self, name: &str, limits: &Resources) -> io::Result<Cgroup> {
        let group = self.group(name);
        for place in group.places.values() {
            match place {
                Mount::V1(path) => fs::create_dir_all(path)?,
                Mount::V2(path) => {
                    let root = self.v2_root();
                    files::delegate(&root, path)?;
                    fs::create_dir_all(path)?;
                }
            }
        }
        group.set_limits(limits)?;
        Ok(group)
    }

    /// The group `name`, whether or not it exists.
    pub fn group(&self, name: &str) -> Cgroup {
        let relative = self.parent.join(name);
        let places = self.places.iter().map(|(controller, place)| {
            let place = match place {
                Mount::V1(root) => Mount::V1(root.join(&relative)),
                Mount::V2(root) => Mount::V2(root.join(&relative)),
            };
            (*controller, place)
        });
        let all = self.roots.iter().map(|root| root.join(&relative)).collect();
        Cgroup {
            places: places.collect(),
            all,
        }
    }

    /// The path of the group `name` as OCI runtimes want it.
    pub fn oci_path(&self, name: &str) -> PathBuf {
        Path::new("/").join(&self.parent).join(name)
    }

    /// The names of the groups of this installation.
    ///
    /// # Errors
    /// When a hierarchy cannot be read.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for root in &self.roots {
            let Ok(entries) = fs::read_dir(root.join(&self.parent)) else {
                continue;
            };
            for entry in entries {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    names.push(entry.file_name().to_string_lossy().into_owned());
                }
            }
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Removes the parent groups if they are empty.
    pub fn remove_parents(&self) {
        for root in &self.roots {
            let parents = self
                .parent
                .ancestors()
                .filter(|parent| *parent != Path::new(""));
            // A parent that another installation or group still uses stays.
            let _ = parents
                .map(|parent| root.join(parent))
                .try_for_each(fs::remove_dir);
        }
    }

    fn v2_root(&self) -> PathBuf {
        let v2 = self
            .places
            .values()
            .find(|place| matches!(place, Mount::V2(_)));
        v2.map(|place| place.path().to_owned()).unwrap_or_default()
    }
}

impl Mount {
    fn path(&self) -> &Path {
        match self {
            Self::V1(path) | Self::V2(path) => path,
        }
    }
}

impl Cgroup {
    /// The files to which a process writes `0` to join the group.
    pub fn entrances(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = self
            .places
            .values()
            .map(|place| place.path().join("cgroup.procs"))
            .collect();
        files.sort_unstable();
        files.dedup();
        files
    }

    /// Applies all limits.
    ///
    /// # Errors
    /// When the kernel refuses one.
    pub fn set_limits(&self, limits: &Resources) -> io::Result<()> {
        self.set_cpu(limits.cpu)?;
        self.set_memory(limits.memory)?;
        let pids = self.path(Controller::Pids);
        write(&pids.join("pids.max"), limits.pids)
    }

    /// Applies a processor limit to the running group.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn set_cpu(&self, cpu: MilliCpu) -> io::Result<()> {
        let quota = u64::from(cpu.0) * CPU_PERIOD_MICROS / 1000;
        let weight = u64::from(weighed(cpu, machine::cpu()).0);
        match self.place(Controller::Cpu) {
            Mount::V1(path) => {
                write(&path.join("cpu.cfs_period_us"), CPU_PERIOD_MICROS)?;
                write(&path.join("cpu.cfs_quota_us"), quota)?;
                write(&path.join("cpu.shares"), (weight * 1024 / 1000).max(2))
            }
            Mount::V2(path) => {
                write(
                    &path.join("cpu.max"),
                    format!("{quota} {CPU_PERIOD_MICROS}"),
                )?;
                write(&path.join("cpu.weight"), (weight / 10).clamp(1, 10_000))
            }
        }
    }

    /// Applies a memory limit, without swap.
    ///
    /// # Errors
    /// When the kernel refuses it, as it does below the current usage.
    pub fn set_memory(&self, memory: Mib) -> io::Result<()> {
        match self.place(Controller::Memory) {
            Mount::V1(path) => files::limit_memory_v1(path, memory.bytes()),
            Mount::V2(path) => {
                let swap = path.join("memory.swap.max");
                if swap.exists() {
                    write(&swap, 0)?;
                }
                write(&path.join("memory.max"), memory.bytes())
            }
        }
    }

    /// How many of the group's processes the kernel has OOM-killed.
    pub fn oom_kills(&self) -> u64 {
        let file = match self.place(Controller::Memory) {
            Mount::V1(path) => path.join("memory.oom_control"),
            Mount::V2(path) => path.join("memory.events"),
        };
        // A removed group has killed none.
        keyed(&file, "oom_kill").unwrap_or(0)
    }

    /// The processes of the group.
    ///
    /// # Errors
    /// When it cannot be read. A removed group has no processes.
    pub fn processes(&self) -> io::Result<Vec<i32>> {
        let mut all = Vec::new();
        for entrance in self.entrances() {
            match fs::read_to_string(entrance) {
                Ok(text) => all.extend(text.lines().filter_map(|line| line.parse::<i32>().ok())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// Removes the group; its processes must have ended. Idempotent.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove(&self) -> io::Result<()> {
        self.all
            .iter()
            .try_for_each(|path| files::remove_tree(path))
    }

    fn place(&self, controller: Controller) -> &Mount {
        // `places` has every controller: detection fails when one is missing.
        self.places
            .get(&controller)
            .unwrap_or_else(|| unreachable!("{controller:?} is detected"))
    }

    fn path(&self, controller: Controller) -> &Path {
        self.place(controller).path()
    }
}

/// One mounted hierarchy.
struct CgroupMount<'a> {
    point: &'a str,
    is_v2: bool,
    options: &'a str,
}

fn mounts(mountinfo: &str) -> impl Iterator<Item = CgroupMount<'_>> {
    mountinfo.lines().filter_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?;
        let mut filesystem = filesystem.split(' ');
        let is_v2 = match filesystem.next()? {
            "cgroup" => false,
            "cgroup2" => true,
            _ => return None,
        };
        Some(CgroupMount {
            point,
            is_v2,
            options: filesystem.nth(1).unwrap_or_default(),
        })
    })
}

/// Finds each controller in a `mountinfo`. `controllers` reads which ones a v2 root offers.
fn places(
    mountinfo: &str,
    controllers: impl Fn(&Path) -> String,
) -> io::Result<BTreeMap<Controller, Mount>> {
    let mut found = BTreeMap::new();
    for mount in mounts(mountinfo) {
        let point = Path::new(mount.point);
        let offered = if mount.is_v2 {
            // In v2, usage counters come with `cpu`, and freezing comes with every group.
            let own = controllers(point);
            if own.contains("cpu") {
                format!("{own} cpuacct freezer")
            } else {
                own
            }
        } else {
            mount.options.replace(',', " ")
        };
        for (controller, name) in CONTROLLERS {
            if offered.split_whitespace().any(|word| word == name) {
                let place = if mount.is_v2 { Mount::V2 } else { Mount::V1 };
                found
                    .entry(controller)
                    .or_insert_with(|| place(point.into()));
            }
        }
    }
    match CONTROLLERS
        .iter()
        .find(|(controller, _)| !found.contains_key(controller))
    {
        Some((_, name)) => Err(io::Error::other(format!(
            "no cgroup controller `{name}` is mounted"
        ))),
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests;
