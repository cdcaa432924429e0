//! What ends a program that wants more memory than the sandbox has, before the sandbox ends.
//!
//! Linux chooses a process and ends that. To the machine a whole sandbox of gVisor is one process:
//! when its memory is used up, all of it ends, with every file that was not saved and every kernel
//! that remembered something. So while something runs that was asked for, the daemon looks how much
//! is left, the more often the less it is, and ends the largest process in time. A kernel that has
//! executed something is such a thing as long as it lives: its threads go on between cells. Where
//! nothing runs it does not wake up. Under the machine's own kernel it is not needed, and not done.
//!
//! What the kernel in user space needs for itself is not counted in the sandbox: ten thousand
//! processes that have forked one another still end it.

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

/// How long something has to run before anybody looks: most of what is asked for is over by then.
const FIRST: Duration = Duration::from_millis(20);

/// How long what `/proc/meminfo` says can be; what is looked for is in the beginning.
const MEMINFO: usize = 4 << 10;

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
    victims: Mutex<Victims>,
}

/// Something runs, until this is dropped.
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
    /// Says that something runs.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.busy.send_modify(|busy| *busy += 1);
        Busy(Arc::clone(self))
    }

    /// Notes how much memory there is.
    pub(crate) fn has(&self, mib: u32) {
        self.total_mib.store(mib, Ordering::Relaxed);
    }

    /// Whether a process was ended for its memory. Says so once.
    pub(crate) fn has_ended(&self, pid: i32) -> bool {
        self.ended.lock().remove(&pid)
    }

    /// Why a process ended so, if memory is the reason. Says so once.
    pub(crate) fn reason(&self, pid: i32, status: Status) -> Option<String> {
        self.victims.lock().reason(pid, status)
    }

    /// Looks after the memory, for as long as it can be looked at.
    ///
    /// # Errors
    /// When `/proc/meminfo` cannot be read.
    pub(crate) async fn look_after(&self, log: &Log) -> io::Result<()> {
        let meminfo = File::open("/proc/meminfo")?;
        let mut busy = self.busy.subscribe();
        let mut ended: Option<Ended> = None;
        // Nobody is left to say that anything runs when this ends.
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

    /// What there is, and what is taken.
    fn look(&self, meminfo: &File) -> io::Result<Memory> {
        let mut text = [0; MEMINFO];
        let length = meminfo.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(text.get(..length).unwrap_or_default());
        let read = Memory::read(&text).ok_or(io::ErrorKind::InvalidData)?;
        Ok(self.known(read))
    }

    /// What was read, with what the control plane says.
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
        // Nobody asks for those that were not kernels.
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
            // It may have ended by itself.
            let _ = kill_process(process, Signal::KILL);
        }
        let entry = log.warn("want", "a process was ended: the memory is used up");
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
    fn what_the_control_plane_says_is_newer() {
        let want = Want::default();
        let read = memory(2048, 1);
        assert_eq!(want.known(read), read);
        want.has(4096);
        assert_eq!(want.known(read).total, 4096 * MIB);
        assert_eq!(want.known(read).taken, MIB);
    }

    #[test]
    fn what_is_taken_is_seen_anew_every_time() {
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
    fn one_that_was_ended_is_not_chosen_again() {
        let want = Want::default();
        let (own, parent) = (getpid(), rustix::process::getppid().unwrap());
        let chosen = || {
            let mut sizes = want.ask(memory(256, 100));
            let all = std::iter::from_fn(|| sizes.largest());
            all.map(|(_, pid)| pid).collect::<Vec<_>>()
        };
        let pid = parent.as_raw_pid();
        assert!(!chosen().contains(&own.as_raw_pid()));
        // Others that become small meanwhile end the list.
        assert!((0..100).any(|_| chosen().contains(&pid)));
        want.ended.lock().insert(pid);
        assert!(!chosen().contains(&pid));
        assert!(
            want.has_ended(pid),
            "it is remembered as long as it is there"
        );
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
