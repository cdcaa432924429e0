//! What one sandbox may have of the machine, and what a team may have in all.
//!
//! A number that a request, a template, a snapshot or a label says becomes a limit of a run only as
//! [`Granted`], which nothing but [`Bounds::grant`] makes: [`CreateOrder`](crate::driver::CreateOrder)
//! and [`Driver::resize`](crate::driver::Driver::resize) take nothing else.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::resources::{InvalidResources, Mib, MilliCpu, Resources};

/// The least and the most memory that is kept for the server and the kernel, and the part of the
/// machine's memory that is kept between them.
const RESERVE: (Mib, Mib, u32) = (Mib(128), Mib(2048), 16);

/// The share of a disk that a sandbox has where that is less than the default share.
const DISK_PART: u32 = 4;

/// A share is not made smaller than this to let [`DISK_PART`] sandboxes fill theirs.
const DISK_LEAST: Mib = Mib(4096);

/// What there is for sandboxes here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Processor time a second.
    pub cpu: MilliCpu,
    /// Memory, that of the kernel and the server included.
    pub memory: Mib,
    /// Disk of all sandboxes, without what is kept for the server; none where it is not bounded.
    pub disk: Option<Mib>,
}

/// What an installation allows one sandbox; as much as the machine has where nothing is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerSandbox {
    /// Processor time a second.
    pub cpu: Option<MilliCpu>,
    /// Memory.
    pub memory: Option<Mib>,
    /// Disk.
    pub disk: Option<Mib>,
}

/// Who sets a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounder {
    /// The machine has no more.
    Machine,
    /// The operator allows no more, by this setting.
    Setting(&'static str),
    /// The template allows no more.
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
    /// A limit makes no sense on any machine.
    #[error(transparent)]
    Invalid(#[from] InvalidResources),
    /// A limit is more than may be had.
    #[error("{asked} of {what} are more than {by}: at most {most}")]
    TooMuch {
        /// Of what.
        what: &'static str,
        /// How much was asked for.
        asked: String,
        /// How much may be had.
        most: String,
        /// Who allows no more.
        by: Bounder,
    },
}

/// The limits of one run, which have passed [`Bounds::grant`].
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

    /// The most processor time that can be given in place: as much as the limit, or more.
    #[must_use]
    pub fn cpu_ceiling(&self) -> MilliCpu {
        self.cpu_ceiling
    }
}

/// What one sandbox may have at most, and who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    cpu: (MilliCpu, Bounder),
    memory: (Mib, Bounder),
    disk: (Mib, Bounder),
}

impl Bounds {
    /// The least of what the machine has and what the installation allows.
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

    /// Bounds that every valid limit is within: for drivers that are tested alone.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn none() -> Self {
        Self {
            cpu: (MilliCpu(u32::MAX), Bounder::Machine),
            memory: (Mib(u32::MAX), Bounder::Machine),
            disk: (Mib(u32::MAX), Bounder::Machine),
        }
    }

    /// The limits nearest to `wanted` that may be had: for what an operator wrote for machines of any
    /// size.
    #[must_use]
    pub fn nearest(&self, wanted: Resources) -> Resources {
        Resources {
            cpu: wanted.cpu.min(self.cpu.0),
            memory: wanted.memory.min(self.memory.0),
            disk: wanted.disk.min(self.disk.0),
            pids: wanted.pids,
        }
    }

    /// The limits that a run has which is to have `wanted`. What is no more than the default is given as
    /// far as there is: it fits every machine. The ceiling is lowered to what may be had.
    ///
    /// # Errors
    /// [`NotGranted`] when a limit makes no sense, or is more than the default and than may be had.
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

    /// Other limits for a run that has `now`: what it has already it may keep, and of the rest no more
    /// than may be had, nor more processor time than `cpu_ceiling`.
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

/// The memory that is kept for the server and the kernel.
#[must_use]
pub fn reserve(memory: Mib) -> Mib {
    let (least, most, part) = RESERVE;
    Mib(memory.0 / part).clamp(least, most)
}

/// The disk that a sandbox has when nothing is said: the default share, or a part of a disk that is too
/// small for some of them.
fn usual_disk(disk: Option<Mib>) -> Mib {
    let usual = Resources::default().disk;
    disk.map_or(usual, |disk| {
        let part = Mib(disk.0 / DISK_PART);
        let half = Mib(disk.0 / 2);
        part.max(DISK_LEAST).min(half).min(usual).max(Mib(16))
    })
}

/// Whether a template allows so much processor time.
///
/// # Errors
/// [`NotGranted::TooMuch`] when it does not.
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

/// What a team may have in all. Where nothing is said there is no limit of the team's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TeamLimits {
    /// Sandboxes that are not paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandboxes: Option<u32>,
    /// Processor time of those, together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<MilliCpu>,
    /// Memory of those, together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Mib>,
    /// Disk: what its sandboxes, paused ones included, its snapshots and its builds hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Mib>,
    /// Snapshots that are kept under a name or an id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<u32>,
}

impl TeamLimits {
    /// These limits, and `usual` where nothing is said.
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
