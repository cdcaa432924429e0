//! Readers of `/proc`.

use std::fs;

/// Limit of processes listed.
const MAX_PROCESSES: usize = 10_000;

/// A size in `/proc/meminfo` or `/proc/PID/status`, in bytes.
pub(crate) fn size(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(found, _)| *found == name)?;
    let kib: u64 = value.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib << 10)
}

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessMemory {
    /// Resident memory, mapped files included.
    pub(crate) resident: u64,
    /// An upper bound of the mapped files in it: mappings that are not private and writable.
    pub(crate) mapped_max: u64,
}

impl ProcessMemory {
    /// Reads it. `None` if the process does not exist.
    pub(crate) fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    fn parse(status: &str) -> Option<Self> {
        let (all, resident) = (size(status, "VmSize")?, size(status, "VmRSS")?);
        let private = size(status, "VmData").unwrap_or_default();
        Some(Self {
            resident,
            mapped_max: resident.min(all.saturating_sub(private)),
        })
    }
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
    fn mapped_files_are_bounded_by_what_is_not_private() {
        let parse = |all: u64, private: u64, resident: u64| {
            let text = format!("VmSize:\t{all} kB\nVmRSS:\t{resident} kB\nVmData:\t{private} kB\n");
            ProcessMemory::parse(&text).unwrap()
        };
        assert_eq!(parse(900, 700, 600).mapped_max, 200 << 10);
        assert_eq!(parse(900, 100, 600).mapped_max, 600 << 10);
        assert_eq!(parse(900, 1000, 600).mapped_max, 0);
        let without_private = "VmSize: 900 kB\nVmRSS: 600 kB\n";
        assert_eq!(
            ProcessMemory::parse(without_private).unwrap().mapped_max,
            600 << 10
        );
        assert_eq!(ProcessMemory::parse("Name: kthreadd\n"), None);
        assert!(ProcessMemory::read(i32::try_from(std::process::id()).unwrap()).is_some());
        assert_eq!(ProcessMemory::read(i32::MAX), None);
    }

    #[test]
    fn values_are_read_in_bytes_and_by_their_whole_name() {
        let text = "MemTotal:  100 kB\nMemFree: 10 kB\nHugePages_Free: 3\n";
        assert_eq!(size(text, "MemFree"), Some(10 << 10));
        assert_eq!(size(text, "Free"), None);
        assert_eq!(size("nonsense", "MemFree"), None);
    }

    #[test]
    fn this_process_is_listed() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(processes().any(|pid| pid == own));
    }
}
