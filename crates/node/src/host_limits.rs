//! Kernel limits that all sandboxes share.

use std::fs;
use std::io;

/// A limit: its file and its minimum.
type Limit = (&'static str, u64);

const LIMITS: [Limit; 8] = [
    // The inotify instances of root, which all sandboxes on the machine's kernel share. The default
    // of 128 is used up by a few sandboxes that watch files. Each instance costs about a kilobyte,
    // and the descriptor limit bounds them for each process.
    ("/proc/sys/fs/inotify/max_user_instances", 1 << 16),
    // Every thread has one of these, and a gVisor sandbox has about 30 threads. The default of
    // 32768 allows a thousand sandboxes. This is the kernel's maximum, which systemd sets too.
    ("/proc/sys/kernel/pid_max", 1 << 22),
    // The ARP entries of all sandboxes' namespaces, a few each, share one table. When it is full,
    // sandboxes lose the network; the default of 1024 allows about 300. Beyond the second threshold
    // the table is cleaned on every insertion, beyond the first one from time to time. The third is
    // raised first, so that it is never below the others.
    ("/proc/sys/net/ipv4/neigh/default/gc_thresh3", 1 << 17),
    ("/proc/sys/net/ipv4/neigh/default/gc_thresh2", 1 << 16),
    ("/proc/sys/net/ipv4/neigh/default/gc_thresh1", 1 << 15),
    ("/proc/sys/net/ipv6/neigh/default/gc_thresh3", 1 << 17),
    ("/proc/sys/net/ipv6/neigh/default/gc_thresh2", 1 << 16),
    ("/proc/sys/net/ipv6/neigh/default/gc_thresh1", 1 << 15),
];

/// Raises limits that are too low; never lowers one. A limit that the kernel refuses to raise is
/// logged, and bounds the number of sandboxes.
pub fn raise() {
    for (file, least) in LIMITS {
        match raise_to(file, least) {
            // The kernel has no such limit, or this namespace does not show it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(file, least, %error, "a kernel limit stays low, and many sandboxes may reach it");
            }
            Ok(()) => {}
        }
    }
}

fn raise_to(file: &str, least: u64) -> io::Result<()> {
    let present = fs::read_to_string(file)?;
    if present
        .trim()
        .parse::<u64>()
        .is_ok_and(|present| present >= least)
    {
        return Ok(());
    }
    fs::write(file, least.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_high_enough_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("limit");
        for (before, after) in [
            ("128\n", "1000"),
            ("5000\n", "5000\n"),
            ("1000\n", "1000\n"),
        ] {
            fs::write(&file, before).unwrap();
            raise_to(file.to_str().unwrap(), 1000).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), after);
        }
    }
}
