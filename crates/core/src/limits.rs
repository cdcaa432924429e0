//! The resources that one sandbox and one team may use.
//!
//! A number from a request, a template, a snapshot or a label becomes a limit only as [`Granted`].
//! Only [`Bounds::grant`] makes one, and [`StartSpec`](crate::driver::StartSpec) and
//! [`Resizer::resize`](crate::driver::Resizer::resize) accept nothing else.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::resources::{InvalidResources, Mib, MilliCpu, Resources};

/// The memory reserved for the server and the kernel: its minimum, its maximum, and in between this
/// fraction of the machine's memory.
const RESERVE: (Mib, Mib, u32) = (Mib(128), Mib(2048), 16);

/// The fraction of a small disk that is the default share of a sandbox.
const DISK_PART: u32 = 4;

/// The smallest default share: it is not reduced further to fit [`DISK_PART`] sandboxes.
const DISK_LEAST: Mib = Mib(4096);

/// The machine's resources for sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Processor time per second.
    pub cpu: MilliCpu,
    /// Memory, including that of the kernel and the server.
    pub memory: Mib,
    /// The disk of all sandboxes, without the server's reserve; `None` if it is not bounded.
    pub disk: Option<Mib>,
}

/// The operator's limits for one sandbox; `None` allows as much as the machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerSandbox {
    /// Processor time per second.
    pub cpu: Option<MilliCpu>,
    /// Memory.
    pub memory: Option<Mib>,
    /// Disk.
    pub disk: Option<Mib>,
}

/// The source of a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounder {
    /// The machine.
    Machine,
    /// The operator, with this setting.
    Setting(&'static str),
    /// The template.
    Template,
}

impl fmt::Display for Bounder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => f.write_str("this machine has for one sandbox"),
            Self::Setting(name) => write!(f, "one sandbox may have here (`{name}`)"),
            Self::Template => f.write_str("the template allows"),
        }
    }
}

/// Why limits are not granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotGranted {
    /// A limit is invalid on any machine.
    #[error(transparent)]
    Invalid(#[from] InvalidResources),
    /// A limit exceeds its bound.
    #[error("{asked} of {what} are more than {by}: at most {most}")]
    TooMuch {
        /// The resource.
        what: &'static str,
        /// The requested amount.
        asked: String,
        /// The bound.
        most: String,
        /// The source of the bound.
        by: Bounder,
    },
}

/// The limits of one execution, granted by [`Bounds::grant`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    resources: Resources,
    cpu_ceiling: MilliCpu,
}

impl Granted {
    /// The limits.
    #[must_use]
    pub fn resources(&self) -> Resources {
        self.resources
    }

    /// The highest processor limit for resizes: at least the current limit.
    #[must_use]
    pub fn cpu_ceiling(&self) -> MilliCpu {
        self.cpu_ceiling
    }
}

/// The upper bounds of one sandbox, with their sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    cpu: (MilliCpu, Bounder),
    memory: (Mib, Bounder),
    disk: (Mib, Bounder),
}

impl Bounds {
    /// The lower of the machine's and the installation's bounds.
    #[must_use]
    pub fn new(machine: &Machine, allowed: &PerSandbox) -> Self {
        let cpu = least(machine.cpu, allowed.cpu, "limits.cpu_per_sandbox");
        let usable = Mib(machine.memory.0 - reserve(machine.memory).0.min(machine.memory.0));
        let memory = least(usable, allowed.memory, "limits.memory_per_sandbox");
        let all = machine.disk.unwrap_or(Mib(u32::MAX));
        let disk = match allowed.disk {
            Some(_) => least(all, allowed.disk, "limits.disk_per_sandbox"),
            None => (usual_disk(machine.disk), Bounder::Machine),
        };
        Self { cpu, memory, disk }
    }

    /// Bounds that allow every valid limit, for tests of drivers alone.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn none() -> Self {
        Self {
            cpu: (MilliCpu(u32::MAX), Bounder::Machine),
            memory: (Mib(u32::MAX), Bounder::Machine),
            disk: (Mib(u32::MAX), Bounder::Machine),
        }
    }

    /// The permitted limits nearest to `wanted`, for templates written for machines of any size.
    #[must_use]
    pub fn nearest(&self, wanted: Resources) -> Resources {
        Resources {
            cpu: wanted.cpu.min(self.cpu.0),
            memory: wanted.memory.min(self.memory.0),
            disk: wanted.disk.min(self.disk.0),
            pids: wanted.pids,
        }
    }

    /// Grants an execution the limits `wanted`. Limits up to the default are reduced to the
    /// available resources, so that the default fits every machine. The ceiling is reduced to the bound.
    ///
    /// # Errors [`NotGranted`] when a limit is invalid, or exceeds both the default and its bound.
    pub fn grant(&self, wanted: Resources, cpu_ceiling: MilliCpu) -> Result<Granted, NotGranted> {
        wanted.validate()?;
        let usual = Resources::default();
        let resources = Resources {
            cpu: within("cpu", wanted.cpu, usual.cpu, self.cpu)?,
            memory: within("memory", wanted.memory, usual.memory, self.memory)?,
            disk: within("disk", wanted.disk, usual.disk, self.disk)?,
            pids: wanted.pids,
        };
        Ok(Granted {
            resources,
            cpu_ceiling: cpu_ceiling.min(self.cpu.0).max(resources.cpu),
        })
    }

    /// Grants other limits to an execution that has `now`. It may keep what it has. Beyond that the
    /// bounds apply, and `cpu_ceiling` for processor time.
    ///
    /// # Errors
    /// See [`Bounds::grant`].
    pub fn regrant(
        &self,
        now: &Resources,
        wanted: Resources,
        cpu_ceiling: MilliCpu,
    ) -> Result<Granted, NotGranted> {
        wanted.validate()?;
        let (cpu, memory) = (self.cpu.0.max(now.cpu), self.memory.0.max(now.memory));
        no_more("cpu", wanted.cpu, cpu, self.cpu.1)?;
        no_more("memory", wanted.memory, memory, self.memory.1)?;
        no_more("cpu", wanted.cpu, cpu_ceiling, Bounder::Template)?;
        Ok(Granted {
            resources: Resources {
                disk: now.disk,
                pids: now.pids,
                ..wanted
            },
            cpu_ceiling,
        })
    }
}

/// The memory reserved for the server and the kernel.
#[must_use]
pub fn reserve(memory: Mib) -> Mib {
    let (least, most, part) = RESERVE;
    Mib(memory.0 / part).clamp(least, most)
}

/// The default disk of a sandbox: the default share, or a fraction of a disk that is too small for
/// several of those.
fn usual_disk(disk: Option<Mib>) -> Mib {
    let usual = Resources::default().disk;
    disk.map_or(usual, |disk| {
        let part = Mib(disk.0 / DISK_PART);
        let half = Mib(disk.0 / 2);
        part.max(DISK_LEAST).min(half).min(usual).max(Mib(16))
    })
}

/// Checks a processor limit against the template's maximum.
///
/// # Errors
/// [`NotGranted::TooMuch`] when it is higher.
pub fn within_template(asked: MilliCpu, most: MilliCpu) -> Result<(), NotGranted> {
    no_more("cpu", asked, most, Bounder::Template)
}

fn least<T: Ord + Copy>(machine: T, allowed: Option<T>, setting: &'static str) -> (T, Bounder) {
    match allowed {
        Some(allowed) if allowed < machine => (allowed, Bounder::Setting(setting)),
        _ => (machine, Bounder::Machine),
    }
}

fn within<T: Ord + Copy + fmt::Display>(
    what: &'static str,
    asked: T,
    usual: T,
    (most, by): (T, Bounder),
) -> Result<T, NotGranted> {
    if asked > usual {
        no_more(what, asked, most, by)?;
    }
    Ok(asked.min(most))
}

fn no_more<T: Ord + Copy + fmt::Display>(
    what: &'static str,
    asked: T,
    most: T,
    by: Bounder,
) -> Result<(), NotGranted> {
    if asked > most {
        return Err(NotGranted::TooMuch {
            what,
            asked: asked.to_string(),
            most: most.to_string(),
            by,
        });
    }
    Ok(())
}

/// The limits of a team. `None` means no limit of the team's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TeamLimits {
    /// Sandboxes that are not paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandboxes: Option<u32>,
    /// Their total processor time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<MilliCpu>,
    /// Their total memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Mib>,
    /// The disk of its sandboxes, paused ones included, its snapshots and its builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Mib>,
    /// Snapshots that are kept under a name or an id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<u32>,
}

impl TeamLimits {
    /// These limits, with those of `usual` where they are not set.
    #[must_use]
    pub fn or(self, usual: Self) -> Self {
        Self {
            sandboxes: self.sandboxes.or(usual.sandboxes),
            cpu: self.cpu.or(usual.cpu),
            memory: self.memory.or(usual.memory),
            disk: self.disk.or(usual.disk),
            snapshots: self.snapshots.or(usual.snapshots),
        }
    }
}

#[cfg(test)]
mod tests;
