//! Starts the write-back of saved files.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::libc;

/// Starts writing the files of a directory to disk in the background, so that a later sync waits
/// only for the rest. Call it after the files are complete: write-back slows down a file being
/// filled.
pub(super) fn start_writeback(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let started = File::open(entry.path()).and_then(|file| start_file(&file));
        if let Err(error) = started {
            // The later sync writes it.
            tracing::debug!(%error, "a file is written to disk later");
        }
    }
}

#[expect(unsafe_code, reason = "no wrapper of this call is safe to use")]
fn start_file(file: &File) -> io::Result<()> {
    // SAFETY: it takes an open descriptor and numbers, and touches no memory.
    let started =
        unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    if started == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}
