//! Readers of `/proc`.

use std::fs;

/// Limit of processes listed.
const MAX_PROCESSES: usize = 10_000;

/// A value of `/proc/meminfo` or `/proc/PID/status`, in bytes.
pub(crate) fn meminfo(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(found, _)| *found == name)?;
    let kib: u64 = value.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib << 10)
}

/// Whether most of a process's resident memory can be its own: its private mappings are as large as
/// half of it. False for a process that mainly maps files.
pub(crate) fn is_mostly_private(pid: i32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = |name| meminfo(&text, name).unwrap_or_default();
    value("VmData") > value("VmRSS") / 2
}

/// All process ids. Empty if `/proc` is unreadable.
pub(crate) fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.take(MAX_PROCESSES)
}

/// The parent of a process, if both exist.
pub(crate) fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything, including parentheses and blanks.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_existing_process_has_a_parent() {
        let own = i32::try_from(std::process::id()).unwrap();
        let known = rustix::process::getppid().unwrap();
        assert_eq!(parent(own), Some(known.as_raw_pid()));
        assert_eq!(parent(i32::MAX), None);
    }

    #[test]
    fn memory_of_a_program_is_mostly_private() {
        let own = i32::try_from(std::process::id()).unwrap();
        // More than the program's file has.
        let held = std::hint::black_box(vec![1_u8; 512 << 20]);
        assert!(is_mostly_private(own));
        drop(held);
        assert!(!is_mostly_private(i32::MAX));
    }

    #[test]
    fn values_are_read_in_bytes_and_by_their_whole_name() {
        let text = "MemTotal:  100 kB\nMemFree: 10 kB\nHugePages_Free: 3\n";
        assert_eq!(meminfo(text, "MemFree"), Some(10 << 10));
        assert_eq!(meminfo(text, "Free"), None);
        assert_eq!(meminfo("nonsense", "MemFree"), None);
    }

    #[test]
    fn this_process_is_listed() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(processes().any(|pid| pid == own));
    }
}
