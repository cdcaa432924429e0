//! How long a pool waits before it replaces sandboxes that have failed.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

/// The first wait. Each further one is twice as long.
const FIRST: Duration = Duration::from_secs(1);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(300);
/// A pool whose sandboxes have not failed for so long begins anew.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// The pools whose sandboxes have failed, with their revisions: a new template begins anew, and so does a new
/// leader.
#[derive(Debug, Default)]
pub(super) struct Backoff(Mutex<HashMap<(String, String), Failed>>);

#[derive(Clone, Copy, Debug)]
struct Failed {
    /// When the last wait ends.
    until: Timestamp,
    wait: Duration,
    /// How many have failed since the wait began.
    count: usize,
}

impl Backoff {
    /// Notes that so many sandboxes of a revision have failed. Those that fail while it waits wait as long.
    pub(super) fn failed(&self, pool: &str, revision: &str, count: usize, now: Timestamp) {
        let mut pools = self.0.lock();
        pools.retain(|_, failed| failed.until + FORGOTTEN > now);
        let key = (pool.to_owned(), revision.to_owned());
        let wait = match pools.get_mut(&key) {
            Some(failed) if failed.until > now => {
                failed.count += count;
                return;
            }
            Some(failed) => (failed.wait * 2).min(LONGEST),
            None => FIRST,
        };
        let failed = Failed {
            until: now + wait,
            wait,
            count,
        };
        pools.insert(key, failed);
    }

    /// How many failed sandboxes are not replaced yet, and how long; none if all are.
    pub(super) fn held(
        &self,
        pool: &str,
        revision: &str,
        now: Timestamp,
    ) -> Option<(usize, Duration)> {
        let key = (pool.to_owned(), revision.to_owned());
        let failed = *self.0.lock().get(&key)?;
        let left = Duration::try_from(failed.until.duration_since(now)).ok()?;
        (!left.is_zero()).then_some((failed.count, left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_wait_is_twice_as_long_up_to_the_longest() {
        let backoff = Backoff::default();
        let mut now = Timestamp::UNIX_EPOCH;
        let mut waits = Vec::new();
        for _ in 0..11 {
            assert_eq!(backoff.held("pool", "r", now), None);
            backoff.failed("pool", "r", 1, now);
            let (_, wait) = backoff.held("pool", "r", now).unwrap();
            waits.push(wait.as_secs());
            now += wait;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(backoff.held("other", "r", now), None);
        assert_eq!(backoff.held("pool", "fixed", now), None);
    }

    #[test]
    fn as_many_wait_as_have_failed() {
        let backoff = Backoff::default();
        let now = Timestamp::UNIX_EPOCH;
        backoff.failed("pool", "r", 2, now);
        backoff.failed("pool", "r", 1, now);
        assert_eq!(backoff.held("pool", "r", now), Some((3, SECOND)));
    }

    #[test]
    fn a_pool_that_recovers_begins_anew() {
        let backoff = Backoff::default();
        let mut now = Timestamp::UNIX_EPOCH;
        backoff.failed("pool", "r", 1, now);
        now += SECOND;
        backoff.failed("pool", "r", 1, now);
        now += 2 * SECOND + FORGOTTEN;
        backoff.failed("pool", "r", 1, now);
        assert_eq!(backoff.held("pool", "r", now), Some((1, SECOND)));
    }
}
