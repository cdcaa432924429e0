//! Processes killed for memory, so that the end of a command can state the reason.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use tokio::time::Instant;

use super::usage::MIB;
use crate::process::Status;

/// How long a record outlives its process. Longer is unsafe, because the id may be reused.
const VICTIM_RETENTION: Duration = Duration::from_secs(10);

/// Limit of ancestors recorded per victim.
const MAX_ANCESTORS: usize = 32;

/// Exit code of a shell whose last command was killed by SIGKILL.
const KILLED_CHILD: i32 = 128 + libc::SIGKILL;

/// A process killed for memory.
#[derive(Debug, Clone)]
pub(super) struct Victim {
    pub(super) pid: i32,
    pub(super) name: String,
    /// Its size in bytes.
    pub(super) size: u64,
    /// The sandbox's memory in bytes.
    pub(super) total: u64,
}

/// Victims by their process id and by the ids of their ancestors.
#[derive(Debug, Default)]
pub(super) struct Victims(HashMap<i32, (Victim, Instant)>);

impl Victims {
    /// Records a victim before it is killed. The walk over its ancestors stops at `own`, the
    /// daemon.
    pub(super) fn record(
        &mut self,
        victim: &Victim,
        own: i32,
        parent: impl Fn(i32) -> Option<i32>,
    ) {
        let now = Instant::now();
        self.0.retain(|pid, (_, at)| {
            now.duration_since(*at) < VICTIM_RETENTION
                || fs::exists(format!("/proc/{pid}")).unwrap_or(true)
        });
        let above = |pid: &i32| parent(*pid).filter(|parent| *parent > 1 && *parent != own);
        for pid in std::iter::successors(Some(victim.pid), above).take(MAX_ANCESTORS) {
            self.0.insert(pid, (victim.clone(), now));
        }
    }

    /// Describes why a process ended, if it was killed for memory or is a shell that reports such a
    /// child.
    pub(super) fn take_reason(&mut self, pid: i32, status: Status) -> Option<String> {
        let (victim, _) = self.0.remove(&pid)?;
        let killed = match status {
            Status::Killed(signal) => signal == libc::SIGKILL && victim.pid == pid,
            Status::Exited(code) => code == KILLED_CHILD,
        };
        killed.then(|| {
            format!(
                "out of memory: {} was killed, having used {} MiB of the sandbox's {} MiB",
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

    /// 30 is a child of 20, which is a child of 10, which is a child of the daemon.
    fn victims() -> Victims {
        let mut victims = Victims::default();
        let victim = Victim {
            pid: 30,
            name: "python3".to_owned(),
            size: 400 * MIB,
            total: 512 * MIB,
        };
        victims.record(&victim, 1, |pid| (pid > 1).then_some((pid - 10).max(1)));
        victims
    }

    #[test]
    fn the_reason_of_a_victim_is_reported_once() {
        let mut victims = victims();
        let reason = victims.take_reason(30, Status::Killed(libc::SIGKILL));
        assert_eq!(
            reason.as_deref(),
            Some("out of memory: python3 was killed, having used 400 MiB of the sandbox's 512 MiB")
        );
        assert_eq!(victims.take_reason(30, Status::Killed(libc::SIGKILL)), None);
    }

    #[test]
    fn a_shell_that_reports_a_killed_child_has_the_reason() {
        for pid in [10, 20] {
            assert!(victims().take_reason(pid, Status::Exited(137)).is_some());
            assert_eq!(victims().take_reason(pid, Status::Exited(1)), None);
            // Killed for another reason: a deadline or a client.
            assert_eq!(
                victims().take_reason(pid, Status::Killed(libc::SIGKILL)),
                None
            );
        }
        assert_eq!(victims().take_reason(1, Status::Exited(137)), None);
        assert_eq!(
            victims().take_reason(40, Status::Killed(libc::SIGKILL)),
            None
        );
    }
}
