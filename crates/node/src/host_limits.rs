//! Limits of the kernel that all sandboxes share.

use std::fs;
use std::io;

/// One limit: its file, and the least that it is to be.
type Limit = (&'static str, u64);

const LIMITS: [Limit; 8] = [
    // How many inotify instances root, and with it the sandboxes of all runtimes that share the
    // machine's kernel, may have. The usual 128 are used up by a few sandboxes that watch files, and
    // then no other can. Each costs about a kilobyte, and descriptors bound them for each process.
    ("/proc/sys/fs/inotify/max_user_instances", 1 << 16),
    // Every thread has a number of these, and a gVisor sandbox has some 30: the usual 32768 are a
    // thousand sandboxes. As high as the kernel goes, and systemd sets it.
    ("/proc/sys/kernel/pid_max", 1 << 22),
    // The namespaces of all sandboxes have their neighbours in one table, a few each. When it is full
    // they do not reach one another: the usual 1024 are some 300 sandboxes. From the second on it is
    // cleaned up whenever one is added, and from the first on by and by. The third goes first, for
    // there is no moment then in which it is below the others.
    ("/proc/sys/net/ipv4/neigh/default/gc_thresh3", 1 << 17),
    ("/proc/sys/net/ipv4/neigh/default/gc_thresh2", 1 << 16),
    ("/proc/sys/net/ipv4/neigh/default/gc_thresh1", 1 << 15),
    ("/proc/sys/net/ipv6/neigh/default/gc_thresh3", 1 << 17),
    ("/proc/sys/net/ipv6/neigh/default/gc_thresh2", 1 << 16),
    ("/proc/sys/net/ipv6/neigh/default/gc_thresh1", 1 << 15),
];

/// Raises what is too low; lowers nothing. What the kernel refuses is told, and bounds how many
/// sandboxes there can be.
pub fn raise() {
    for (file, least) in LIMITS {
        match raise_to(file, least) {
            // It is not limited, or not from here.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(file, least, %error, "a limit of the kernel stays low: many sandboxes may reach it");
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
    fn what_is_high_enough_stays() {
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
