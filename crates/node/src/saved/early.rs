//! Letting the disk begin to write what is saved.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::libc;

/// Lets the disk begin with the files of a directory, while the processor does something else: whoever
/// asks for all of it to be written waits for the rest alone. Not while they are being filled,
/// which that slows down.
pub(super) fn begin_to_write(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let begun = File::open(entry.path()).and_then(|file| begin_with(&file));
        if let Err(error) = begun {
            // It is written later.
            tracing::debug!(%error, "a file is written later");
        }
    }
}

#[expect(unsafe_code, reason = "no wrapper of this call is safe to use")]
fn begin_with(file: &File) -> io::Result<()> {
    // SAFETY: it takes an open descriptor and numbers, and touches no memory.
    let begun =
        unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    if begun == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}
