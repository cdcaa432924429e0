//! Which process is ended for its memory, and when the next.

use std::fs;
use std::time::Duration;

use tokio::time::Instant;

use super::memory::Memory;
use crate::procfs;

/// How long the memory of a process that has ended may take to come back: gVisor gives it back behind
/// the end, and slowly where the machine is busy.
const FREED: Duration = Duration::from_secs(2);

/// Processes that were ended, whose memory may not be back yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    /// When the last of them was.
    pub(super) at: Instant,
    /// What they had, in bytes.
    pub(super) size: u64,
    /// What was taken when the last of them was ended, in bytes.
    pub(super) taken: u64,
}

/// Which processes are the largest. It takes long to ask for each where the machine is busy, so it is
/// asked before the memory is used up.
#[derive(Debug)]
pub(super) struct Sizes {
    /// Sizes in bytes, and processes, the largest last.
    found: Vec<(u64, i32)>,
    /// What was taken when it was asked for, in bytes.
    taken: u64,
}

impl Ended {
    /// With one more, which had that `size` when so much was `taken`.
    pub(super) fn and(earlier: Option<Self>, size: u64, taken: u64) -> Self {
        let earlier = earlier.filter(|earlier| earlier.at.elapsed() < FREED);
        Self {
            at: Instant::now(),
            size: size + earlier.map_or(0, |earlier| earlier.size),
            taken,
        }
    }

    /// Whether what is taken now may be what these had: then nobody else is ended for it. Not when it
    /// became more, for others go on; not when most of it is back; and not for ever.
    pub(super) fn explains(self, memory: Memory) -> bool {
        memory.taken < self.taken + memory.rest() / 4
            && memory.taken + self.size / 2 > self.taken
            && self.at.elapsed() < FREED
    }
}

impl Sizes {
    /// How large the processes are that are not `spared`.
    pub(super) fn ask(memory: Memory, spared: impl Fn(i32) -> bool) -> Self {
        let others = procfs::processes().filter(|pid| !spared(*pid));
        let sizes = others.filter_map(|pid| Some((size_of(pid)?, pid)));
        let mut found: Vec<_> = sizes.filter(|(size, _)| *size > 0).collect();
        found.sort_unstable();
        Self {
            found,
            taken: memory.taken,
        }
    }

    /// Whether they are still much the same.
    pub(super) fn hold(&self, memory: Memory) -> bool {
        self.taken.abs_diff(memory.taken) < memory.rest() / 4
    }

    /// Takes out the largest that is still there, with what it has now. None when they are not what
    /// they were: then another may be the largest.
    pub(super) fn largest(&mut self) -> Option<(u64, i32)> {
        while let Some((size, pid)) = self.found.pop() {
            let now = size_of(pid).unwrap_or_default();
            if now > 0 && now < size / 2 {
                self.found.clear();
            } else if now > 0 {
                return Some((now, pid));
            }
        }
        None
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
    use crate::want::memory::{MIB, memory};

    #[test]
    fn processes_are_listed_by_their_size_but_those_that_are_spared() {
        let own = i32::try_from(std::process::id()).unwrap();
        let all = Sizes::ask(memory(256, 100), |_| false);
        assert!(all.found.is_sorted());
        assert!(all.found.iter().any(|(_, pid)| *pid == own));
        let others = Sizes::ask(memory(256, 100), |pid| pid == own);
        assert!(others.found.iter().all(|(_, pid)| *pid != own));
        // 20 MiB are a quarter of what is not to be taken.
        assert!(all.hold(memory(256, 119)) && all.hold(memory(256, 81)));
        assert!(!all.hold(memory(256, 120)) && !all.hold(memory(256, 80)));
    }

    #[test]
    fn a_process_that_has_become_small_is_not_the_largest() {
        let own = i32::try_from(std::process::id()).unwrap();
        let now = size_of(own).unwrap();
        let asked = |size| Sizes {
            found: vec![(1, i32::MAX), (size, own)],
            taken: 0,
        };
        let (found, pid) = asked(now).largest().unwrap();
        assert!(found >= now / 2 && pid == own);
        assert_eq!(asked(u64::MAX).largest(), None);
    }

    #[test]
    fn a_process_has_a_size_until_it_ends() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(size_of(own).unwrap() > MIB);
        assert_eq!(size_of(i32::MAX), None);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_ended_for_what_is_about_to_come_back() {
        // 80 MiB are not to be taken.
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
}
