//! How many files and connections this process may have open, and for what.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What is enough for any machine; more would only make tables larger.
const MOST: u64 = 1 << 20;

/// What systems give who asks for nothing.
const USUAL: usize = 1024;

/// For the server's own work, which has to go on whatever tenants do: the database, logs, the
/// runtimes that it starts, the ends of sandboxes.
const OWN: usize = 256;

/// For each sandbox that runs: its process, and a connection to its daemon.
const OF_SANDBOX: usize = 2;

/// What a call of the API has open while it is under way, beside the connection that it came by: a
/// connection to a daemon, a file.
const OF_CALL: usize = 2;

/// How many of each there may be, so that all together fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Connections of clients.
    pub(crate) clients: usize,
    /// Connections into sandboxes, of the gateway.
    pub(crate) upstreams: usize,
    /// Calls of the API at once.
    pub(crate) calls: usize,
}

impl Shares {
    /// Divides `limit` on a server for so many sandboxes.
    pub(crate) fn of(limit: usize, sandboxes: usize) -> Self {
        let own = OWN.min(limit / 4);
        let of_sandboxes = (sandboxes.saturating_mul(OF_SANDBOX)).min(limit / 4);
        let rest = limit - own - of_sandboxes;
        // A client of HTTP/1.1 has one request at a time. One of HTTP/2 has many, each of which
        // takes a place of its own among those of the upstreams, or of the calls.
        Self {
            clients: (rest * 3 / 8).max(1),
            upstreams: (rest * 3 / 8).max(1),
            calls: (rest / 4 / OF_CALL).max(1),
        }
    }
}

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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_limit_is_the_highest_that_may_be() {
        let limit = raise();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(soft, hard.min(MOST).max(soft));
        assert!(limit >= USUAL && limit as u64 <= soft);
    }

    proptest! {
        #[test]
        fn all_together_fit_and_leave_something(limit in 64..2_000_000usize, sandboxes in 0..100_000usize) {
            let shares = Shares::of(limit, sandboxes);
            let taken = shares.clients + shares.upstreams + OF_CALL * shares.calls;
            let left = OWN.min(limit / 4) + (OF_SANDBOX * sandboxes).min(limit / 4);
            prop_assert!(taken + left <= limit);
            prop_assert!(shares.clients > 0 && shares.upstreams > 0 && shares.calls > 0);
        }
    }

    #[test]
    fn a_server_with_few_descriptors_serves_hundreds() {
        let shares = Shares::of(2048, 1000);
        assert_eq!(
            (shares.clients, shares.upstreams, shares.calls),
            (480, 480, 160)
        );
    }
}
