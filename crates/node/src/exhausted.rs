//! Distinguishing an exhausted system from a missing file.

use std::io;
use std::time::{Duration, Instant};

/// How long an operation is retried on an exhausted system, and how often.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Whether the system had no descriptor or no memory left. Such an error says nothing about whether
/// a file exists.
pub fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS];
    if let Some(number) = error.raw_os_error() {
        return exhausted.contains(&number);
    }
    // An error with a file's name has the I/O error as its source.
    let mut cause = error.get_ref().and_then(|inner| inner.source());
    while let Some(inner) = cause {
        if let Some(error) = inner.downcast_ref::<io::Error>() {
            return is_exhausted(error);
        }
        cause = inner.source();
    }
    false
}

/// Runs `work`, and retries it while the system is exhausted. Blocks.
///
/// # Errors
/// The errors of `work`.
pub fn retry_exhausted<T>(mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let end = Instant::now() + RETRY_TIMEOUT;
    loop {
        match work() {
            Err(error) if is_exhausted(&error) && Instant::now() < end => {
                std::thread::sleep(RETRY_INTERVAL)
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_exhausted_system_is_retried() {
        let mut tries = 0;
        let done = retry_exhausted(|| {
            tries += 1;
            if tries < 3 {
                Err(io::Error::from_raw_os_error(libc::EMFILE))
            } else {
                Ok(tries)
            }
        });
        assert_eq!(done.unwrap(), 3);
        let missing = retry_exhausted(|| Err::<(), _>(io::Error::from_raw_os_error(libc::ENOENT)));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn an_error_with_a_file_name_is_recognised() {
        #[derive(Debug, thiserror::Error)]
        #[error("a file: {0}")]
        struct Named(#[source] io::Error);
        let named = |number| {
            let error = io::Error::from_raw_os_error(number);
            io::Error::new(error.kind(), Named(error))
        };
        assert!(is_exhausted(&named(libc::EMFILE)));
        assert!(!is_exhausted(&named(libc::EACCES)));
    }
}
