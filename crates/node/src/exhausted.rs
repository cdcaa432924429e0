//! Telling that the system has run out of something from that there is nothing.

use std::io;
use std::time::{Duration, Instant};

/// For how long what must be done is tried again, and how often.
const PATIENCE: Duration = Duration::from_secs(10);
const EVERY: Duration = Duration::from_millis(50);

/// Whether the system had no descriptor or no memory for what was asked. Such an error says nothing
/// of what is there.
pub fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS];
    if let Some(number) = error.raw_os_error() {
        return exhausted.contains(&number);
    }
    // One that was given a name has it as its source.
    let mut cause = error.get_ref().and_then(|inner| inner.source());
    while let Some(inner) = cause {
        if let Some(error) = inner.downcast_ref::<io::Error>() {
            return is_exhausted(error);
        }
        cause = inner.source();
    }
    false
}

/// Does what must be done, and tries again while the system has run out of something. Blocks.
///
/// # Errors
/// What `work` returns.
pub fn insist<T>(mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        match work() {
            Err(error) if is_exhausted(&error) && Instant::now() < end => std::thread::sleep(EVERY),
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_system_has_not_is_waited_for() {
        let mut tries = 0;
        let done = insist(|| {
            tries += 1;
            if tries < 3 {
                Err(io::Error::from_raw_os_error(libc::EMFILE))
            } else {
                Ok(tries)
            }
        });
        assert_eq!(done.unwrap(), 3);
        let missing = insist(|| Err::<(), _>(io::Error::from_raw_os_error(libc::ENOENT)));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn an_error_with_a_name_is_known_too() {
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
