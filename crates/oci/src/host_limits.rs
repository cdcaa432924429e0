//! Limits of the kernel that all sandboxes share.

use std::fs;
use std::io;

/// How many inotify instances root, and with it the sandboxes of all runtimes that share the
/// machine's kernel, may have. The usual 128 are used up by a few sandboxes that watch files, and
/// then no other can. Each costs about a kilobyte, and descriptors bound them for each process.
const INOTIFY_INSTANCES: u64 = 1 << 16;
const INOTIFY_FILE: &str = "/proc/sys/fs/inotify/max_user_instances";

/// Raises what is too low; lowers nothing.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn raise() -> io::Result<()> {
    raise_to(INOTIFY_FILE, INOTIFY_INSTANCES)
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
