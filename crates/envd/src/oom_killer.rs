//! Kills the largest process before the sandbox runs out of memory.
//!
//! To the host, a gVisor sandbox is a single process. When its memory is used up the host kernel
//! kills all of it, including unsaved files and the state of every kernel. So while a requested
//! process runs, the daemon polls the free memory, the more often the less is left, and kills the
//! largest process in time. A kernel that has executed code counts for as long as it lives, because
//! its threads outlive a cell. Without such processes there is no polling. Under the host's own
//! kernel (runc) the killer is disabled, because Linux kills processes itself.
//!
//! Memory of gVisor's own kernel is not accounted to the sandbox: a fork bomb of ten thousand
//! processes still ends it.

mod selection;
mod usage;
mod victims;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, getpid, kill_process};
use tokio::sync::watch;
use tokio::time::sleep;

use self::selection::{ProcessSizes, RecentKills};
use self::usage::{MIB, MIN_INTERVAL, MemoryUsage};
use self::victims::{Victim, Victims};
use crate::log::Log;
use crate::process::Status;
use crate::procfs;

/// Delay before the first check. Most commands end sooner.
const FIRST_CHECK_DELAY: Duration = Duration::from_millis(20);

/// Buffer size for `/proc/meminfo`; the fields used are at its start.
const MEMINFO_MAX: usize = 4 << 10;

/// Whether the kernel lacks an OOM killer for the sandbox, that is, whether it is gVisor.
pub(crate) fn is_needed() -> bool {
    let version = fs::read_to_string("/proc/version").unwrap_or_default();
    version.to_ascii_lowercase().contains("gvisor")
}

/// Monitors memory and kills processes.
#[derive(Debug)]
pub(crate) struct OomKiller {
    /// Number of active processes and kernels.
    active: watch::Sender<usize>,
    /// Memory of the sandbox in MiB, as set by the control plane; 0 if unset. The kernel reports
    /// the value at its start only.
    total_mib: AtomicU32,
    killed: Mutex<HashSet<i32>>,
    victims: Mutex<Victims>,
}

/// Keeps the monitor active until dropped.
#[derive(Debug)]
pub(crate) struct ActiveGuard(Arc<OomKiller>);

impl Drop for ActiveGuard {
    fn drop(&mut self) {
        self.0.active.send_modify(|active| *active -= 1);
    }
}

impl Default for OomKiller {
    fn default() -> Self {
        Self {
            active: watch::Sender::new(0),
            total_mib: AtomicU32::new(0),
            killed: Mutex::default(),
            victims: Mutex::default(),
        }
    }
}

impl OomKiller {
    /// Registers an active process or kernel.
    pub(crate) fn track_active(self: &Arc<Self>) -> ActiveGuard {
        self.active.send_modify(|active| *active += 1);
        ActiveGuard(Arc::clone(self))
    }

    /// Sets the memory of the sandbox.
    pub(crate) fn set_total_mib(&self, mib: u32) {
        self.total_mib.store(mib, Ordering::Relaxed);
    }

    /// Whether this process was killed for its memory. Clears the mark.
    pub(crate) fn take_killed(&self, pid: i32) -> bool {
        self.killed.lock().remove(&pid)
    }

    /// Describes why a process ended, if it was killed for memory. Clears the mark.
    pub(crate) fn take_reason(&self, pid: i32, status: Status) -> Option<String> {
        self.victims.lock().take_reason(pid, status)
    }

    /// Monitors memory until reading it fails.
    ///
    /// # Errors
    /// If `/proc/meminfo` cannot be read.
    pub(crate) async fn run(&self, log: &Log) -> io::Result<()> {
        let meminfo = File::open("/proc/meminfo")?;
        let mut active = self.active.subscribe();
        let mut killed: Option<RecentKills> = None;
        // The sender lives in `self`, so this ends only with the daemon.
        while active.wait_for(|active| *active > 0).await.is_ok() {
            sleep(FIRST_CHECK_DELAY).await;
            let mut sizes: Option<ProcessSizes> = None;
            while *active.borrow() > 0 {
                let mut allocated = self.usage();
                sizes = sizes.filter(|sizes| sizes.is_fresh(allocated));
                if allocated.is_low() && sizes.is_none() {
                    sizes = Some(self.measure(allocated));
                }
                let mut usage = allocated;
                let proven = sizes.as_ref().is_some_and(|sizes| sizes.prove_low(usage));
                if usage.poll_interval().is_none() && !proven {
                    let mapped = mapped_files(&meminfo)?;
                    // Reading is slow, and allocations continue.
                    allocated = self.usage();
                    usage = allocated.without_mapped(mapped);
                }
                let poll_interval = usage.poll_interval();
                let pending = killed.is_some_and(|killed| killed.is_pending(allocated));
                if poll_interval.is_none() && !pending {
                    killed = self.largest(&mut sizes, allocated).map(|(size, pid)| {
                        self.kill(pid, size, usage, log);
                        RecentKills::and(killed, size, allocated.used)
                    });
                }
                sleep(poll_interval.unwrap_or(MIN_INTERVAL)).await;
            }
        }
        Ok(())
    }

    /// The memory in use, including mapped files.
    fn usage(&self) -> MemoryUsage {
        self.with_configured_total(MemoryUsage::read())
    }

    /// Replaces the total by the control plane's value, if set.
    fn with_configured_total(&self, read: MemoryUsage) -> MemoryUsage {
        match self.total_mib.load(Ordering::Relaxed) {
            0 => read,
            mib => MemoryUsage {
                total: u64::from(mib) * MIB,
                ..read
            },
        }
    }

    /// The largest process and its size, by sizes that were read ahead if they still hold.
    fn largest(&self, sizes: &mut Option<ProcessSizes>, usage: MemoryUsage) -> Option<(u64, i32)> {
        let ahead = sizes.as_mut().and_then(ProcessSizes::pop_largest);
        ahead.or_else(|| sizes.insert(self.measure(usage)).pop_largest())
    }

    fn measure(&self, usage: MemoryUsage) -> ProcessSizes {
        let own = getpid().as_raw_pid();
        let mut killed = self.killed.lock();
        // Drop processes that have exited: only kernels are queried by `take_killed`.
        killed.retain(|pid| fs::exists(format!("/proc/{pid}")).unwrap_or_default());
        ProcessSizes::measure(usage, |pid| pid == own || killed.contains(&pid))
    }

    fn kill(&self, pid: i32, size: u64, usage: MemoryUsage, log: &Log) {
        self.killed.lock().insert(pid);
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let victim = Victim {
            pid,
            name: name.trim_end().to_owned(),
            size,
            total: usage.total,
        };
        let own = getpid().as_raw_pid();
        self.victims.lock().record(&victim, own, procfs::parent);
        if let Some(process) = Pid::from_raw(pid) {
            // It may have exited on its own.
            let _ = kill_process(process, Signal::KILL);
        }
        let entry = log.warn("memory", "process killed: out of memory");
        let entry = entry.with("pid", pid).with("name", name.trim_end());
        let entry = entry.with("mib", size / MIB);
        entry.with("total_mib", usage.total / MIB).send();
    }
}

/// The size of all mapped files, in bytes.
///
/// gVisor scans the memory for this: up to 100 ms while a process allocates, and longer on a busy
/// host. A process can use up a small sandbox in that time.
fn mapped_files(meminfo: &File) -> io::Result<u64> {
    let mut text = [0; MEMINFO_MAX];
    let length = meminfo.read_at(&mut text, 0)?;
    let text = String::from_utf8_lossy(text.get(..length).unwrap_or_default());
    let size = procfs::size(&text, "Mapped").ok_or(io::ErrorKind::InvalidData)?;
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::usage::usage;
    use super::*;

    #[test]
    fn the_control_planes_total_wins() {
        let oom_killer = OomKiller::default();
        let read = usage(2048, 1);
        assert_eq!(oom_killer.with_configured_total(read), read);
        oom_killer.set_total_mib(4096);
        assert_eq!(oom_killer.with_configured_total(read).total, 4096 * MIB);
        assert_eq!(oom_killer.with_configured_total(read).used, MIB);
    }

    #[test]
    fn mapped_files_are_read_in_bytes() {
        let meminfo = tempfile::NamedTempFile::new().unwrap();
        assert!(mapped_files(meminfo.as_file()).is_err());
        fs::write(meminfo.path(), "MemTotal: 9 kB\nMapped: 2048 kB\n").unwrap();
        assert_eq!(mapped_files(meminfo.as_file()).unwrap(), 2 * MIB);
    }

    #[test]
    fn a_killed_process_is_not_chosen_again() {
        let oom_killer = OomKiller::default();
        let (own, parent) = (getpid(), rustix::process::getppid().unwrap());
        let chosen = || {
            let mut sizes = oom_killer.measure(usage(256, 100));
            let all = std::iter::from_fn(|| sizes.pop_largest());
            all.map(|(_, pid)| pid).collect::<Vec<_>>()
        };
        let pid = parent.as_raw_pid();
        assert!(!chosen().contains(&own.as_raw_pid()));
        // The list ends early when another process shrinks in the meantime.
        assert!((0..100).any(|_| chosen().contains(&pid)));
        oom_killer.killed.lock().insert(pid);
        assert!(!chosen().contains(&pid));
        assert!(oom_killer.take_killed(pid), "remembered while it exists");
    }

    #[tokio::test]
    async fn the_monitor_is_active_while_something_runs() {
        let oom_killer = Arc::<OomKiller>::default();
        let active = [oom_killer.track_active(), oom_killer.track_active()];
        assert_eq!(*oom_killer.active.borrow(), 2);
        drop(active);
        assert_eq!(*oom_killer.active.borrow(), 0);
        oom_killer.killed.lock().insert(7);
        assert!(oom_killer.take_killed(7) && !oom_killer.take_killed(7));
    }
}
