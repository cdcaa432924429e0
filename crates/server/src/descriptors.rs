//! How many files and connections this process may have open.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What is enough for any machine; more would only make tables larger.
const MOST: u64 = 1 << 20;

/// What systems give who asks for nothing.
const USUAL: usize = 1024;

/// Raises the limit as far as may be, and says what it is. Systems start a process with few, so
/// that old programs do not break; each connection here needs two.
pub(crate) fn raise() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return USUAL;
    };
    let wanted = hard.min(MOST).max(soft);
    let limit = match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        Ok(()) => wanted,
        Err(error) => {
            tracing::warn!(%error, "the limit of open files stays {soft}");
            soft
        }
    };
    usize::try_from(limit.min(MOST)).unwrap_or(USUAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_highest_that_may_be() {
        let limit = raise();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(soft, hard.min(MOST).max(soft));
        assert!(limit >= USUAL && limit as u64 <= soft);
    }
}
