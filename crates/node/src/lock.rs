//! Keeps two servers off one directory.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::modes;

/// How long it is waited for: a server that was killed lets go of its locks with its last child,
/// which may be just about to become an OCI runtime.
const PATIENCE: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(20);

/// Whether another process has the lock of `directory`. Not so when there is no such directory.
///
/// # Errors
/// When the lock cannot be looked at.
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

/// Takes the lock `file` of `directory`, waiting a moment for a server that is just ending. Held
/// until the file is dropped, or the process ends.
///
/// # Errors
/// When another process has it, or the file cannot be made.
pub fn take(directory: &Path) -> io::Result<File> {
    // Who can open the file can hold the lock.
    let lock = modes::create_file(&directory.join("lock"))?;
    let end = Instant::now() + PATIENCE;
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
