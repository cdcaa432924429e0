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

mod choice;
mod memory;
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

use self::choice::{Ended, Sizes};
use self::memory::{MIB, Memory, OFTEN};
use self::victims::{Victim, Victims};
use crate::log::Log;
use crate::process::Status;
use crate::procfs;

/// Delay before the first check. Most commands end sooner.
const FIRST: Duration = Duration::from_millis(20);

/// Buffer size for `/proc/meminfo`; the fields used are at its start.
const MEMINFO: usize = 4 << 10;

/// Whether the kernel lacks an OOM killer for the sandbox, that is, whether it is gVisor.
pub(crate) fn is_ours() -> bool {
    let version = fs::read_to_string("/proc/version").unwrap_or_default();
    version.to_ascii_lowercase().contains("gvisor")
}

/// Monitors memory and kills processes.
#[derive(Debug)]
pub(crate) struct Want {
    /// Number of active processes and kernels.
    busy: watch::Sender<usize>,
    /// Memory of the sandbox in MiB, as set by the control plane; 0 if unset. The kernel reports
    /// the value at its start only.
    total_mib: AtomicU32,
    ended: Mutex<HashSet<i32>>,
    victims: Mutex<Victims>,
}

/// Keeps the monitor active until dropped.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Want>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.send_modify(|busy| *busy -= 1);
    }
}

impl Default for Want {
    fn default() -> Self {
        Self {
            busy: watch::Sender::new(0),
            total_mib: AtomicU32::new(0),
            ended: Mutex::default(),
            victims: Mutex::default(),
        }
    }
}

impl Want {
    /// Registers an active process or kernel.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.busy.send_modify(|busy| *busy += 1);
        Busy(Arc::clone(self))
    }

    /// Sets the memory of the sandbox.
    pub(crate) fn has(&self, mib: u32) {
        self.total_mib.store(mib, Ordering::Relaxed);
    }

    /// Whether this process was killed for its memory. Clears the mark.
    pub(crate) fn has_ended(&self, pid: i32) -> bool {
        self.ended.lock().remove(&pid)
    }

    /// Describes why a process ended, if it was killed for memory. Clears the mark.
    pub(crate) fn reason(&self, pid: i32, status: Status) -> Option<String> {
        self.victims.lock().reason(pid, status)
    }

    /// Monitors memory until reading it fails.
    ///
    /// # Errors
    /// If `/proc/meminfo` cannot be read.
    pub(crate) async fn look_after(&self, log: &Log) -> io::Result<()> {
        let meminfo = File::open("/proc/meminfo")?;
        let mut busy = self.busy.subscribe();
        let mut ended: Option<Ended> = None;
        // The sender lives in `self`, so this ends only with the daemon.
        while busy.wait_for(|busy| *busy > 0).await.is_ok() {
            sleep(FIRST).await;
            let mut sizes: Option<Sizes> = None;
            while *busy.borrow() > 0 {
                let memory = self.look(&meminfo)?;
                sizes = sizes.filter(|sizes| sizes.hold(memory));
                if memory.is_short() && sizes.is_none() {
                    sizes = Some(self.ask(memory));
                }
                let pause = memory.pause();
                if pause.is_none() && !ended.is_some_and(|ended| ended.explains(memory)) {
                    let known = sizes.as_mut().and_then(Sizes::largest);
                    let largest = known.or_else(|| {
                        let fresh = sizes.insert(self.ask(memory));
                        fresh.largest()
                    });
                    ended = largest.map(|(size, pid)| {
                        self.end(pid, size, memory, log);
                        Ended::and(ended, size, memory.taken)
                    });
                }
                sleep(pause.unwrap_or(OFTEN)).await;
            }
        }
        Ok(())
    }

    /// Reads the memory usage.
    fn look(&self, meminfo: &File) -> io::Result<Memory> {
        let mut text = [0; MEMINFO];
        let length = meminfo.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(text.get(..length).unwrap_or_default());
        let read = Memory::read(&text).ok_or(io::ErrorKind::InvalidData)?;
        Ok(self.known(read))
    }

    /// Replaces the total by the control plane's value, if set.
    fn known(&self, read: Memory) -> Memory {
        match self.total_mib.load(Ordering::Relaxed) {
            0 => read,
            mib => Memory {
                total: u64::from(mib) * MIB,
                ..read
            },
        }
    }

    fn ask(&self, memory: Memory) -> Sizes {
        let own = getpid().as_raw_pid();
        let mut ended = self.ended.lock();
        // Drop processes that have exited: only kernels are queried by `has_ended`.
        ended.retain(|pid| fs::exists(format!("/proc/{pid}")).unwrap_or_default());
        Sizes::ask(memory, |pid| pid == own || ended.contains(&pid))
    }

    fn end(&self, pid: i32, size: u64, memory: Memory, log: &Log) {
        self.ended.lock().insert(pid);
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let victim = Victim {
            pid,
            name: name.trim_end().to_owned(),
            size,
            total: memory.total,
        };
        let own = getpid().as_raw_pid();
        self.victims.lock().note(&victim, own, procfs::parent);
        if let Some(process) = Pid::from_raw(pid) {
            // It may have exited on its own.
            let _ = kill_process(process, Signal::KILL);
        }
        let entry = log.warn("want", "process killed: out of memory");
        let entry = entry.with("pid", pid).with("name", name.trim_end());
        let entry = entry.with("mib", size / MIB);
        entry.with("total_mib", memory.total / MIB).send();
    }
}

#[cfg(test)]
mod tests {
    use super::memory::memory;
    use super::*;

    #[test]
    fn the_control_planes_total_wins() {
        let want = Want::default();
        let read = memory(2048, 1);
        assert_eq!(want.known(read), read);
        want.has(4096);
        assert_eq!(want.known(read).total, 4096 * MIB);
        assert_eq!(want.known(read).taken, MIB);
    }

    #[test]
    fn memory_usage_is_read_every_time() {
        let place = tempfile::NamedTempFile::new().unwrap();
        let want = Want::default();
        for mib in [10, 20, 5] {
            let text = format!("MemTotal: 1048576 kB\nAnonPages: {} kB\n", mib << 10);
            fs::write(place.path(), text).unwrap();
            let seen = want.look(place.as_file()).unwrap();
            assert_eq!((seen.total, seen.taken), (1024 * MIB, mib * MIB));
        }
        fs::write(place.path(), "nothing").unwrap();
        assert!(want.look(place.as_file()).is_err());
    }

    #[test]
    fn a_killed_process_is_not_chosen_again() {
        let want = Want::default();
        let (own, parent) = (getpid(), rustix::process::getppid().unwrap());
        let chosen = || {
            let mut sizes = want.ask(memory(256, 100));
            let all = std::iter::from_fn(|| sizes.largest());
            all.map(|(_, pid)| pid).collect::<Vec<_>>()
        };
        let pid = parent.as_raw_pid();
        assert!(!chosen().contains(&own.as_raw_pid()));
        // The list ends early when another process shrinks in the meantime.
        assert!((0..100).any(|_| chosen().contains(&pid)));
        want.ended.lock().insert(pid);
        assert!(!chosen().contains(&pid));
        assert!(want.has_ended(pid), "remembered while it exists");
    }

    #[tokio::test]
    async fn the_monitor_is_active_while_something_runs() {
        let want = Arc::<Want>::default();
        let busy = [want.busy(), want.busy()];
        assert_eq!(*want.busy.borrow(), 2);
        drop(busy);
        assert_eq!(*want.busy.borrow(), 0);
        want.ended.lock().insert(7);
        assert!(want.has_ended(7) && !want.has_ended(7));
    }
}
