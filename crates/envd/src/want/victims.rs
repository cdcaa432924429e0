//! Which processes were killed for their memory, so that the end of a command has its reason.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use tokio::time::Instant;

use super::memory::MIB;
use crate::process::Status;

/// How long the end of a process may take to be noticed. Its id is not kept for longer once it
/// has gone, since another process may get it.
const NOTICED: Duration = Duration::from_secs(10);

/// How far up the parents of a process are followed.
const DEPTH: usize = 32;

/// What a shell exits with when SIGKILL ended its last command.
const KILLED_CHILD: i32 = 128 + libc::SIGKILL;

/// A process that was killed for its memory.
#[derive(Debug, Clone)]
pub(super) struct Victim {
    pub(super) pid: i32,
    pub(super) name: String,
    /// What it had, in bytes.
    pub(super) size: u64,
    /// What the sandbox has, in bytes.
    pub(super) total: u64,
}

/// Victims by their own ids and by those of their ancestors.
#[derive(Debug, Default)]
pub(super) struct Victims(HashMap<i32, (Victim, Instant)>);

impl Victims {
    /// Notes a victim, before it is killed. `own` is the daemon, where its ancestors end.
    pub(super) fn note(&mut self, victim: &Victim, own: i32, parent: impl Fn(i32) -> Option<i32>) {
        let now = Instant::now();
        self.0.retain(|pid, (_, at)| {
            now.duration_since(*at) < NOTICED || fs::exists(format!("/proc/{pid}")).unwrap_or(true)
        });
        let above = |pid: &i32| parent(*pid).filter(|parent| *parent > 1 && *parent != own);
        for pid in std::iter::successors(Some(victim.pid), above).take(DEPTH) {
            self.0.insert(pid, (victim.clone(), now));
        }
    }

    /// Why a process ended so, if memory is the reason: it was killed for it, or it is a shell that
    /// passes on that its command was.
    pub(super) fn reason(&mut self, pid: i32, status: Status) -> Option<String> {
        let (victim, _) = self.0.remove(&pid)?;
        let killed = match status {
            Status::Killed(signal) => signal == libc::SIGKILL && victim.pid == pid,
            Status::Exited(code) => code == KILLED_CHILD,
        };
        killed.then(|| {
            format!(
                "out of memory: {} was killed, which had {} MiB of the sandbox's {} MiB",
                victim.name,
                victim.size / MIB,
                victim.total / MIB
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 30 is the child of 20, that of 10, and that of the daemon.
    fn victims() -> Victims {
        let mut victims = Victims::default();
        let victim = Victim {
            pid: 30,
            name: "python3".to_owned(),
            size: 400 * MIB,
            total: 512 * MIB,
        };
        victims.note(&victim, 1, |pid| (pid > 1).then_some((pid - 10).max(1)));
        victims
    }

    #[test]
    fn the_end_of_a_victim_has_its_reason_once() {
        let mut victims = victims();
        let reason = victims.reason(30, Status::Killed(libc::SIGKILL));
        assert_eq!(
            reason.as_deref(),
            Some("out of memory: python3 was killed, which had 400 MiB of the sandbox's 512 MiB")
        );
        assert_eq!(victims.reason(30, Status::Killed(libc::SIGKILL)), None);
    }

    #[test]
    fn a_shell_that_passes_it_on_has_the_reason_too() {
        for pid in [10, 20] {
            assert!(victims().reason(pid, Status::Exited(137)).is_some());
            assert_eq!(victims().reason(pid, Status::Exited(1)), None);
            // Killed by another: a deadline, a client.
            assert_eq!(victims().reason(pid, Status::Killed(libc::SIGKILL)), None);
        }
        assert_eq!(victims().reason(1, Status::Exited(137)), None);
        assert_eq!(victims().reason(40, Status::Killed(libc::SIGKILL)), None);
    }
}
