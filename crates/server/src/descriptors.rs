//! The limit of open files, and its division.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Enough for any machine; more only enlarges kernel tables.
const MOST: u64 = 1 << 20;

/// The usual default of a system.
const USUAL: usize = 1024;

/// Reserved for the server's own work, whatever tenants do: the database, logs, runtimes, the ends of
/// sandboxes.
const OWN: usize = 256;

/// For each running sandbox: its process, and a connection to its daemon.
const OF_SANDBOX: usize = 2;

/// For each running API call, in addition to its own connection: a connection to a daemon, a file.
const OF_CALL: usize = 2;

/// The maximum number of each, so that all fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Connections of clients.
    pub(crate) clients: usize,
    /// Connections into sandboxes, of the gateway.
    pub(crate) upstreams: usize,
    /// Concurrent API calls.
    pub(crate) calls: usize,
}

impl Shares {
    /// Divides `limit` on a server with up to `sandboxes` sandboxes.
    pub(crate) fn of(limit: usize, sandboxes: usize) -> Self {
        let own = OWN.min(limit / 4);
        let of_sandboxes = (sandboxes.saturating_mul(OF_SANDBOX)).min(limit / 4);
        let rest = limit - own - of_sandboxes;
        // An HTTP/1.1 client has one request at a time. An HTTP/2 client has many; each counts among
        // the upstreams or the calls.
        Self {
            clients: (rest * 3 / 8).max(1),
            upstreams: (rest * 3 / 8).max(1),
            calls: (rest / 4 / OF_CALL).max(1),
        }
    }
}

/// Raises the limit as far as allowed and returns it. Systems start processes with a low limit for
/// old programs, and each proxied connection needs two descriptors.
pub(crate) fn raise() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return USUAL;
    };
    let wanted = hard.min(MOST).max(soft);
    let limit = match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        Ok(()) => wanted,
        Err(error) => {
            tracing::warn!(%error, "cannot raise the limit of open files from {soft}");
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
    fn the_limit_is_the_highest_allowed() {
        let limit = raise();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(soft, hard.min(MOST).max(soft));
        assert!(limit >= USUAL && limit as u64 <= soft);
    }

    proptest! {
        #[test]
        fn all_shares_fit_together_with_the_reserves(limit in 64..2_000_000usize, sandboxes in 0..100_000usize) {
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
