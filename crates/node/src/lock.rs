//! Prevents two servers from using one directory.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::modes;

/// How long to wait for the lock. A killed server's lock is held until its last child closes it,
/// and that child may be about to exec an OCI runtime.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(20);

/// Whether another process holds the lock of `directory`; false if that does not exist.
///
/// # Errors
/// When the lock cannot be checked.
pub(crate) fn is_taken(directory: &Path) -> io::Result<bool> {
    let lock = match File::open(directory.join("lock")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        lock => lock?,
    };
    match lock.try_lock() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Takes the lock `file` of `directory`, and waits briefly for a server that is stopping. Held
/// until the file is dropped or the process ends.
///
/// # Errors
/// When another process holds it, or the file cannot be created.
pub fn take(directory: &Path) -> io::Result<File> {
    // Any user who can open the file can hold the lock.
    let lock = modes::create_file(&directory.join("lock"))?;
    let end = Instant::now() + LOCK_TIMEOUT;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if Instant::now() < end => std::thread::sleep(RETRY),
            Err(TryLockError::WouldBlock) => {
                let text = format!(
                    "{} is in use by another shoal serve: stop it, or choose another --data",
                    directory.display()
                );
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}
