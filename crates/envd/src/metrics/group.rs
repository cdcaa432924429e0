//! Limits and usage of the container's control group, where the container sees it. In a pod of the machine's own kernel,
//! `/proc` describes the whole node.

use std::fs;
use std::path::{Path, PathBuf};

use super::Memory;

/// Where a container sees its group.
const ROOT: &str = "/sys/fs/cgroup";

/// A limit of cgroup v1 that is none: larger than any memory.
const UNLIMITED: u64 = 1 << 60;

/// The group, in either version of the file system.
pub(super) struct Group(PathBuf);

impl Group {
    pub(super) fn own() -> Self {
        Self(ROOT.into())
    }

    /// Memory, if it is limited. Pages of files that are not in use count as free.
    pub(super) fn memory(&self) -> Option<Memory> {
        let (limit, used, stat) = match self.number("memory.max") {
            Some(limit) => (limit, self.number("memory.current")?, "memory.stat"),
            None => (
                self.number("memory/memory.limit_in_bytes")?,
                self.number("memory/memory.usage_in_bytes")?,
                "memory/memory.stat",
            ),
        };
        let stat = self.text(stat).unwrap_or_default();
        let first = |names: [&str; 2]| names.iter().find_map(|name| field(&stat, name));
        let idle = first(["total_inactive_file", "inactive_file"]).unwrap_or(0);
        (limit < UNLIMITED).then(|| Memory {
            total: limit,
            used: used.saturating_sub(idle).min(limit),
            cached: first(["total_cache", "file"]).unwrap_or(0),
        })
    }

    /// The number of processors, if it is limited.
    #[expect(clippy::cast_precision_loss, reason = "both are below a billion")]
    pub(super) fn processors(&self) -> Option<f64> {
        let (quota, period) = match self.text("cpu.max") {
            Some(text) => {
                let mut words = text.split_whitespace();
                (words.next()?.parse().ok()?, words.next()?.parse().ok()?)
            }
            None => (
                self.number("cpu/cpu.cfs_quota_us")?,
                self.number("cpu/cpu.cfs_period_us")?,
            ),
        };
        (period > 0 && quota > 0).then(|| quota as f64 / period as f64)
    }

    /// Processor time in ticks of ten milliseconds.
    pub(super) fn ticks(&self) -> Option<u64> {
        let stat = self.text("cpu.stat");
        let of_v2 = stat.and_then(|stat| field(&stat, "usage_usec"));
        of_v2
            .map(|micros| micros / 10_000)
            .or_else(|| Some(self.number("cpuacct/cpuacct.usage")? / 10_000_000))
    }

    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(Path::join(&self.0, name)).ok()
    }

    /// A file with one number. `max` and `-1`, which mean no limit, are none.
    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.trim().parse().ok()
    }
}

/// A field of a file with a name and a number on each line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(files: &[(&str, &str)]) -> (tempfile::TempDir, Group) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let group = Group(root.path().to_owned());
        (root, group)
    }

    #[test]
    fn both_versions_tell_the_same() {
        let two = [
            ("memory.max", "1000\n"),
            ("memory.current", "700\n"),
            ("memory.stat", "anon 300\nfile 400\ninactive_file 100\n"),
            ("cpu.max", "150000 100000\n"),
            ("cpu.stat", "usage_usec 2000000\nuser_usec 1\n"),
        ];
        let one = [
            ("memory/memory.limit_in_bytes", "1000\n"),
            ("memory/memory.usage_in_bytes", "700\n"),
            (
                "memory/memory.stat",
                "inactive_file 5\ntotal_cache 400\ntotal_inactive_file 100\n",
            ),
            ("cpu/cpu.cfs_quota_us", "150000\n"),
            ("cpu/cpu.cfs_period_us", "100000\n"),
            ("cpuacct/cpuacct.usage", "2000000000\n"),
        ];
        let memory = Memory {
            total: 1000,
            used: 600,
            cached: 400,
        };
        for files in [two.as_slice(), one.as_slice()] {
            let (_root, group) = group(files);
            assert_eq!(group.memory(), Some(Memory { ..memory }));
            assert_eq!((group.processors(), group.ticks()), (Some(1.5), Some(200)));
        }
    }

    #[test]
    fn without_a_limit_there_is_none() {
        let (_root, empty) = group(&[]);
        assert_eq!((empty.memory(), empty.processors()), (None, None));
        let (_root, two) = group(&[("memory.max", "max\n"), ("cpu.max", "max 100000\n")]);
        assert_eq!((two.memory(), two.processors()), (None, None));
        let (_root, one) = group(&[
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/memory.usage_in_bytes", "1\n"),
            ("cpu/cpu.cfs_quota_us", "-1\n"),
            ("cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!((one.memory(), one.processors()), (None, None));
    }
}
