//! `GET /metrics`: resource usage of the sandbox.
//!
//! CPU usage is computed between two requests, so nothing is measured without requests.

mod group;

use std::fs;

use parking_lot::Mutex;
use shoal_protocol::metrics::Metrics;

use self::group::Group;
use crate::clock::unix_now;
use crate::procfs;

/// Measures resource usage.
#[derive(Default)]
pub(crate) struct Meter(Mutex<Option<Times>>);

/// CPU time since boot, in ticks over all CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    busy: u64,
    total: u64,
}

/// Memory in bytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Memory {
    total: u64,
    used: u64,
    cached: u64,
}

impl Meter {
    /// Takes a measurement. Unknown values are 0.
    pub(crate) fn measure(&self) -> Metrics {
        let group = Group::own();
        let count = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let limit = group.processors();
        let cpu = self.cpu_percent(count, limit.zip(group.ticks()));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "limits are positive and small"
        )]
        let count = limit.map_or(count, |limit| limit.ceil() as u64);
        let of_kernel = || fs::read_to_string("/proc/meminfo").map(|text| memory(&text));
        let memory = group.memory().or_else(|| of_kernel().ok());
        let memory = memory.unwrap_or_default();
        let (disk_total, disk_used) = disk();
        const MIB: u64 = 1 << 20;
        Metrics {
            ts: unix_now(),
            cpu_count: u32::try_from(count).unwrap_or(u32::MAX),
            cpu_used_pct: cpu,
            mem_total: memory.total,
            mem_used: memory.used,
            mem_cache: memory.cached,
            disk_total,
            disk_used,
            mem_total_mib: memory.total / MIB,
            mem_used_mib: memory.used / MIB,
        }
    }

    /// `limited` is how many processors the container may use, and how many ticks it has used.
    fn cpu_percent(&self, count: u64, limited: Option<(f64, u64)>) -> f64 {
        if let Some((limit, busy)) = limited
            && let Some(total) = uptime()
        {
            // The kernel has run for longer than the container: the first sample is meaningless.
            let now = Times { busy, total };
            let before = self.0.lock().replace(now).unwrap_or(now);
            return percent(before, now, limit);
        }
        let of_kernel = || {
            let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
            times(&stat).or_else(|| times_of_processes(count))
        };
        let Some(now) = of_kernel() else {
            return 0.0;
        };
        let before = self.0.lock().replace(now);
        percent(before.unwrap_or(Times { busy: 0, total: 0 }), now, 1.0)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "precise enough for a percentage"
)]
fn percent(before: Times, now: Times, processors: f64) -> f64 {
    let busy = now.busy.saturating_sub(before.busy) as f64;
    let total = now.total.saturating_sub(before.total) as f64 * processors;
    if total <= 0.0 {
        return 0.0;
    }
    (busy / total * 10_000.0).round().clamp(0.0, 10_000.0) / 100.0
}

/// Parses `/proc/stat`. `None` if all counters are zero, as in gVisor.
fn times(stat: &str) -> Option<Times> {
    let line = stat.lines().find(|line| line.starts_with("cpu "))?;
    let fields: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal; guest times are included in `user` and
    // `nice`.
    let total: u64 = fields.iter().take(8).sum();
    let idle: u64 = fields.iter().skip(3).take(2).sum();
    (total > 0).then_some(Times {
        busy: total.saturating_sub(idle),
        total,
    })
}

/// Sums the CPU time of all processes; the total is uptime × CPUs.
fn times_of_processes(count: u64) -> Option<Times> {
    let uptime = uptime()?;
    let times = procfs::processes().filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        ticks(&stat)
    });
    Some(Times {
        busy: times.sum(),
        // USER_HZ is 100 on every Linux.
        total: uptime * count,
    })
}

/// Hundredths of a second since the kernel has started.
fn uptime() -> Option<u64> {
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let mut numbers = uptime.split(['.', ' ']);
    let seconds = numbers.next()?.parse::<u64>().ok()?;
    let hundredths = numbers.next()?.parse::<u64>().ok()?;
    Some(seconds * 100 + hundredths)
}

/// CPU ticks of a process and its reaped children.
fn ticks(stat: &str) -> Option<u64> {
    // The name may contain anything, but ends at the last parenthesis.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields = rest.split_whitespace().skip(11).take(4);
    Some(fields.filter_map(|field| field.parse::<u64>().ok()).sum())
}

fn memory(text: &str) -> Memory {
    let value = |name| procfs::size(text, name);
    let total = value("MemTotal").unwrap_or(0);
    let available = value("MemAvailable").or_else(|| value("MemFree"));
    Memory {
        total,
        used: total.saturating_sub(available.unwrap_or(total)),
        cached: value("Cached").unwrap_or(0) + value("SReclaimable").unwrap_or(0),
    }
}

/// Size and usage of the root file system in bytes.
fn disk() -> (u64, u64) {
    let Ok(stat) = rustix::fs::statvfs("/") else {
        return (0, 0);
    };
    let total = stat.f_blocks.saturating_mul(stat.f_frsize);
    let available = stat.f_bavail.saturating_mul(stat.f_frsize);
    (total, total.saturating_sub(available))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_busy_unless_idle_or_waiting() {
        let stat = "cpu  10 1 9 70 10 0 0 0 5 5\ncpu0 1 2 3 4\n";
        assert_eq!(
            times(stat),
            Some(Times {
                busy: 20,
                total: 100
            })
        );
        assert_eq!(times("cpu  0 0 0 0 0 0 0 0 0 0\n"), None);
        assert_eq!(times(""), None);
    }

    #[test]
    fn usage_is_measured_between_two_requests() {
        let before = Times {
            busy: 20,
            total: 100,
        };
        let now = Times {
            busy: 70,
            total: 300,
        };
        assert!((percent(before, now, 1.0) - 25.0).abs() < 1e-9);
        assert!((percent(before, now, 0.5) - 50.0).abs() < 1e-9);
        let all = Times {
            busy: 420,
            total: 300,
        };
        assert!((percent(before, all, 2.0) - 100.0).abs() < 1e-9);
        assert!(percent(now, now, 1.0).abs() < 1e-9);
        assert!(percent(now, before, 1.0).abs() < 1e-9);
    }

    #[test]
    fn ticks_are_parsed_after_any_process_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 0 0 0 0 0 1 2 3 4 20 0 1";
        assert_eq!(ticks(stat), Some(10));
        assert_eq!(ticks("nonsense"), None);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "MemTotal:  100 kB\nMemFree: 10 kB\nMemAvailable: 40 kB\nCached: 5 kB\n";
        let expected = Memory {
            total: 100 << 10,
            used: 60 << 10,
            cached: 5 << 10,
        };
        assert_eq!(memory(text), expected);
        assert_eq!(memory(""), Memory::default());
    }

    #[test]
    fn this_machine_can_be_measured() {
        let metrics = Meter::default().measure();
        assert!(metrics.cpu_count >= 1 && metrics.mem_total > 0 && metrics.disk_total > 0);
        assert!(metrics.mem_used <= metrics.mem_total);
        assert!(times_of_processes(1).is_some());
    }
}
