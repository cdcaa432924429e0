//! What ends a program that wants more memory than the sandbox has, before the sandbox ends.
//!
//! Linux chooses a process and ends that. To the machine a whole sandbox of gVisor is one process:
//! when its memory is used up, all of it ends, with every file that was not saved and every kernel
//! that remembered something. So while something runs that was asked for, the daemon looks how much
//! is left, the more often the less it is, and ends the largest process in time. Where nothing runs
//! it does not wake up. Under the machine's own kernel it is not needed, and not done.
//!
//! What the kernel in user space needs for itself is not counted in the sandbox: ten thousand
//! processes that have forked one another still end it.

use std::collections::HashSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::log::Log;
use crate::procfs;

const MIB: u64 = 1 << 20;

/// How long something has to run before anybody looks: most of what is asked for is over by then.
const FIRST: Duration = Duration::from_millis(20);

/// How often it is looked at least, and at most. A look takes a third of a millisecond.
const SELDOM: Duration = Duration::from_secs(1);
const OFTEN: Duration = Duration::from_millis(10);

/// How many bytes programs may take in a second: twice what was measured in gVisor.
const RATE: u64 = 2 << 30;

/// How long the memory of a process that has ended may take to come back: gVisor gives it back behind
/// the end, and slowly where the machine is busy.
const FREED: Duration = Duration::from_secs(2);

/// Whether nobody else ends processes for their memory: the kernel is gVisor, which says so.
pub(crate) fn is_ours() -> bool {
    let version = fs::read_to_string("/proc/version").unwrap_or_default();
    version.to_ascii_lowercase().contains("gvisor")
}

/// Looks after the memory.
#[derive(Debug)]
pub(crate) struct Want {
    /// How much runs that was asked for.
    busy: watch::Sender<usize>,
    /// How much there is, in MiB, as the control plane says; 0 when it has not. The kernel only knows
    /// what there was when it started.
    total_mib: AtomicU32,
    ended: Mutex<HashSet<i32>>,
}

/// Something runs, until this is dropped.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Want>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.send_modify(|busy| *busy -= 1);
    }
}

/// Processes that were ended, whose memory may not be back yet.
#[derive(Debug, Clone, Copy)]
struct Ended {
    /// When the last of them was.
    at: Instant,
    /// What they had, in bytes.
    size: u64,
    /// What was taken when the last of them was ended, in bytes.
    taken: u64,
}

/// What a sandbox has and uses, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Memory {
    total: u64,
    /// What programs have written to: nobody gets it back but by their end.
    taken: u64,
}

impl Default for Want {
    fn default() -> Self {
        Self {
            busy: watch::Sender::new(0),
            total_mib: AtomicU32::new(0),
            ended: Mutex::default(),
        }
    }
}

impl Want {
    /// Says that something runs.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.busy.send_modify(|busy| *busy += 1);
        Busy(Arc::clone(self))
    }

    /// Notes how much memory there is.
    pub(crate) fn has(&self, mib: u32) {
        self.total_mib.store(mib, Ordering::Relaxed);
    }

    /// What there is, and what is taken.
    fn look(&self, text: &str) -> Option<Memory> {
        let read = Memory::read(text)?;
        Some(match self.total_mib.load(Ordering::Relaxed) {
            0 => read,
            mib => Memory {
                total: u64::from(mib) * MIB,
                ..read
            },
        })
    }

    /// Whether a process was ended for its memory. Says so once.
    pub(crate) fn has_ended(&self, pid: i32) -> bool {
        self.ended.lock().remove(&pid)
    }

    /// Looks after the memory, for ever.
    pub(crate) async fn look_after(&self, log: &Log) {
        let mut busy = self.busy.subscribe();
        let mut ended: Option<Ended> = None;
        loop {
            if busy.wait_for(|busy| *busy > 0).await.is_err() {
                return;
            }
            sleep(FIRST).await;
            while *busy.borrow() > 0 {
                let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
                let Some(memory) = self.look(&text) else {
                    log.warn("want", "the memory cannot be looked at").send();
                    return;
                };
                let pause = memory.pause();
                if pause.is_none() && !ended.is_some_and(|ended| ended.explains(memory)) {
                    let size = self.end_largest(memory, log);
                    ended = size.map(|size| Ended::and(ended, size, memory.taken));
                }
                sleep(pause.unwrap_or(OFTEN)).await;
            }
        }
    }

    /// Ends the largest process. Says what it had, in bytes.
    fn end_largest(&self, memory: Memory, log: &Log) -> Option<u64> {
        let own = rustix::process::getpid().as_raw_pid();
        let mut ended = self.ended.lock();
        // Nobody asks for those that were not kernels.
        ended.retain(|pid| fs::exists(format!("/proc/{pid}")).unwrap_or_default());
        let others = procfs::processes().filter(|pid| *pid != own && !ended.contains(pid));
        let largest = others.filter_map(|pid| Some((size_of(pid)?, pid))).max();
        let (size, pid) = largest.filter(|(size, _)| *size > 0)?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        ended.insert(pid);
        // It may have ended by itself.
        let _ = kill_process(Pid::from_raw(pid)?, Signal::KILL);
        let entry = log.warn("want", "a process was ended: the memory is used up");
        let entry = entry.with("pid", pid).with("name", name.trim_end());
        let entry = entry.with("mib", size / MIB);
        entry.with("total_mib", memory.total / MIB).send();
        Some(size)
    }
}

impl Ended {
    /// With one more, which had that `size` when so much was `taken`.
    fn and(earlier: Option<Self>, size: u64, taken: u64) -> Self {
        let earlier = earlier.filter(|earlier| earlier.at.elapsed() < FREED);
        Self {
            at: Instant::now(),
            size: size + earlier.map_or(0, |earlier| earlier.size),
            taken,
        }
    }

    /// Whether what is taken now may be what these had: then nobody else is ended for it. Not when it
    /// became more, for others go on; not when most of it is back; and not for ever.
    fn explains(self, memory: Memory) -> bool {
        memory.taken < self.taken + memory.rest() / 4
            && memory.taken + self.size / 2 > self.taken
            && self.at.elapsed() < FREED
    }
}

impl Memory {
    /// Reads `/proc/meminfo`. Files that are mapped are not counted: the machine takes those back.
    fn read(text: &str) -> Option<Self> {
        let value = |name| procfs::meminfo(text, name);
        Some(Self {
            total: value("MemTotal")?,
            taken: value("AnonPages")? + value("Shmem").unwrap_or_default(),
        })
    }

    /// How much may not be taken: what the kernel in user space needs itself (some 60 MiB with what it
    /// runs beside it), and what is taken until a process has ended.
    fn rest(self) -> u64 {
        (self.total / 16 + 80 * MIB).min(self.total / 2)
    }

    /// For how long nothing can happen; none when it is too late for that.
    fn pause(self) -> Option<Duration> {
        let left = (self.total - self.rest()).checked_sub(self.taken)?;
        let pause = Duration::from_millis(left.saturating_mul(1000) / RATE);
        Some(pause.clamp(OFTEN, SELDOM))
    }
}

/// How much of its memory a process has written to or read.
fn size_of(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(total: u64, taken: u64) -> Memory {
        Memory {
            total: total * MIB,
            taken: taken * MIB,
        }
    }

    #[test]
    fn what_is_mapped_of_files_is_not_counted() {
        let text = "MemTotal:        2097152 kB\nMemFree:          186892 kB\n\
                    Cached:          1639080 kB\nAnonPages:        200000 kB\n\
                    Mapped:          1500000 kB\nShmem:             65536 kB\n";
        let read = Memory::read(text).unwrap();
        assert_eq!(read.total, 2048 * MIB);
        assert_eq!(read.taken, (200_000 + 65_536) << 10);
        assert_eq!(Memory::read("MemTotal: 1 kB"), None);
        // What the control plane says is newer.
        let want = Want::default();
        assert_eq!(want.look(text), Some(read));
        want.has(4096);
        assert_eq!(want.look(text).unwrap().total, 4096 * MIB);
    }

    #[test]
    fn the_less_is_left_the_sooner_it_is_looked_again() {
        assert_eq!(memory(4096, 100).pause(), Some(SELDOM));
        assert_eq!(memory(2048, 1400).pause(), Some(Duration::from_millis(214)));
        assert_eq!(memory(2048, 1835).pause(), Some(OFTEN));
        assert_eq!(memory(2048, 1841).pause(), None);
        // A small sandbox has half of what it was given, at least.
        assert_eq!(memory(128, 60).pause(), Some(OFTEN));
        assert_eq!(memory(128, 65).pause(), None);
        assert_eq!(memory(0, 1).pause(), None);
    }

    #[test]
    fn a_process_has_a_size_until_it_ends() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(size_of(own).unwrap() > MIB);
        assert_eq!(size_of(i32::MAX), None);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_ended_for_what_is_about_to_come_back() {
        // 96 MiB are not to be taken.
        let first = Ended::and(None, 40 * MIB, 162 * MIB);
        assert!(first.explains(memory(256, 165)));
        // Others go on.
        assert!(!first.explains(memory(256, 190)));
        let second = Ended::and(Some(first), 50 * MIB, 190 * MIB);
        assert!(second.explains(memory(256, 150)));
        // It came back, and it was not enough.
        assert!(!second.explains(memory(256, 145)));
        // It does not come back.
        tokio::time::advance(FREED).await;
        assert!(!second.explains(memory(256, 190)));
        assert_eq!(Ended::and(Some(second), MIB, 0).size, MIB);
    }

    #[tokio::test]
    async fn it_is_asked_for_as_long_as_something_runs() {
        let want = Arc::<Want>::default();
        let busy = [want.busy(), want.busy()];
        assert_eq!(*want.busy.borrow(), 2);
        drop(busy);
        assert_eq!(*want.busy.borrow(), 0);
        want.ended.lock().insert(7);
        assert!(want.has_ended(7) && !want.has_ended(7));
    }
}
