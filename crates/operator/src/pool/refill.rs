//! How fast a pool may be refilled: after a delay since the last loss of a member, and at a rate.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// So many pools are remembered without a look at their age.
const MANY_POOLS: usize = 1000;
/// A pool without a pass for so long is deleted or full.
const FORGET: Duration = Duration::from_secs(3600);

/// How long a refill waits for claims, which write to the same API server, and when it looks again.
const MOST_YIELD: Duration = Duration::from_secs(5);
const YIELD: Duration = Duration::from_millis(50);

/// The limits of all pools, and what each has used of them.
pub(crate) struct Refill {
    /// Members a second; no limit if zero.
    rate: f64,
    delay: Duration,
    pools: Mutex<HashMap<String, Pool>>,
}

/// The used budget of a pool.
struct Pool {
    /// How many members may be created at once: `max(1, rate)` at most.
    tokens: f64,
    /// When the tokens were counted.
    at: Instant,
    /// How many members there were then.
    members: usize,
    /// When the refill may begin.
    due: Instant,
    /// Since when claims come first.
    yields: Option<Instant>,
}

/// How many members may be created now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowed {
    pub(super) count: usize,
    /// When more may be created.
    pub(super) wait: Option<Duration>,
}

impl Refill {
    /// Limits of `rate` members a second, none if zero, and of `delay` after each loss of members.
    pub(crate) fn new(rate: f64, delay: Duration) -> Self {
        Self {
            rate,
            delay,
            pools: Mutex::default(),
        }
    }

    /// How many of the `wanted` members a pool may create, that has so many `members`. A pool that has lost none is
    /// filled at once: a new one, or one that is scaled up.
    ///
    /// While claims take members of it (`claims_wait`), a pool waits, but not for long.
    pub(super) fn allow(
        &self,
        uid: &str,
        members: usize,
        wanted: usize,
        claims_wait: bool,
        now: Instant,
    ) -> Allowed {
        let mut pools = self.pools.lock();
        if pools.len() >= MANY_POOLS {
            pools.retain(|_, pool| now.saturating_duration_since(pool.at) < FORGET);
        }
        let pool = pools.entry(uid.to_owned()).or_insert(Pool {
            tokens: self.rate.max(1.0),
            at: now,
            members,
            due: now,
            yields: None,
        });
        if members < pool.members {
            pool.due = now + self.delay;
        }
        pool.members = members;
        let passed = now.saturating_duration_since(pool.at).as_secs_f64();
        pool.tokens = (pool.tokens + passed * self.rate).min(self.rate.max(1.0));
        pool.at = now;
        if now < pool.due {
            let wait = (wanted > 0).then(|| pool.due - now);
            return Allowed { count: 0, wait };
        }
        if wanted == 0 {
            pool.yields = None;
        }
        // A rate is slow enough for claims.
        if wanted > 0 && self.rate == 0.0 && pool.must_yield(claims_wait, now) {
            let wait = Some(YIELD);
            return Allowed { count: 0, wait };
        }
        if self.rate == 0.0 {
            return Allowed {
                count: wanted,
                wait: None,
            };
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "tokens are neither negative nor more than the rate"
        )]
        let count = wanted.min(pool.tokens as usize);
        let missing = (1.0 - pool.tokens.fract()) / self.rate;
        let wait = (count < wanted).then(|| Duration::from_secs_f64(missing));
        Allowed { count, wait }
    }

    /// The pool has created so many members.
    #[expect(clippy::cast_precision_loss, reason = "pools are smaller")]
    pub(super) fn created(&self, uid: &str, count: usize) {
        if let Some(pool) = self.pools.lock().get_mut(uid) {
            pool.tokens = (pool.tokens - count as f64).max(0.0);
            pool.members += count;
        }
    }
}

impl Pool {
    /// Whether claims come first. They have for too long when many come all the time.
    fn must_yield(&mut self, claims_wait: bool, now: Instant) -> bool {
        let since = *self.yields.get_or_insert(now);
        let yields = claims_wait && now.saturating_duration_since(since) < MOST_YIELD;
        if !yields {
            self.yields = None;
        }
        yields
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn without_limits_all_are_created() {
        let (refill, now) = (Refill::new(0.0, Duration::ZERO), Instant::now());
        let all = Allowed {
            count: 300,
            wait: None,
        };
        assert_eq!(refill.allow("u", 0, 300, false, now), all);
        refill.created("u", 300);
        assert_eq!(refill.allow("u", 0, 300, false, now), all);
    }

    #[test]
    fn a_rate_is_a_bucket_for_each_pool() {
        let (refill, now) = (Refill::new(5.0, Duration::ZERO), Instant::now());
        assert_eq!(refill.allow("u", 0, 12, false, now).count, 5);
        refill.created("u", 5);
        let none = refill.allow("u", 5, 7, false, now);
        assert_eq!(
            none,
            Allowed {
                count: 0,
                wait: Some(seconds(0.2))
            }
        );
        assert_eq!(refill.allow("other", 0, 12, false, now).count, 5);
        assert_eq!(refill.allow("u", 5, 7, false, now + seconds(0.41)).count, 2);
        // Refused creates do not count.
        assert_eq!(refill.allow("u", 5, 7, false, now + seconds(0.41)).count, 2);
        // The bucket holds a second.
        assert_eq!(
            refill.allow("u", 5, 70, false, now + seconds(100.0)).count,
            5
        );
    }

    #[test]
    fn a_refill_waits_for_claims_but_not_for_long() {
        let (refill, now) = (Refill::new(0.0, Duration::ZERO), Instant::now());
        let count = |after: f64, claims_wait: bool| {
            let allowed = refill.allow("u", 0, 3, claims_wait, now + seconds(after));
            assert_eq!(allowed.wait.is_some(), allowed.count == 0);
            allowed.count
        };
        assert_eq!(
            [count(0.0, true), count(4.9, true), count(5.0, true)],
            [0, 0, 3]
        );
        assert_eq!(
            [count(6.0, true), count(7.0, false), count(12.0, true)],
            [0, 3, 0]
        );
    }

    #[test]
    fn a_rate_below_one_creates_one_at_a_time() {
        let (refill, now) = (Refill::new(0.5, Duration::ZERO), Instant::now());
        assert_eq!(refill.allow("u", 0, 3, false, now).count, 1);
        refill.created("u", 1);
        assert_eq!(refill.allow("u", 1, 2, false, now + seconds(1.0)).count, 0);
        assert_eq!(refill.allow("u", 1, 2, false, now + seconds(2.0)).count, 1);
    }

    #[test]
    fn each_loss_puts_the_refill_off() {
        let (refill, now) = (Refill::new(0.0, seconds(10.0)), Instant::now());
        assert_eq!(refill.allow("u", 0, 4, false, now).count, 4, "a new pool");
        refill.created("u", 4);
        let lost = |after: f64, members: usize| {
            refill.allow("u", members, 4 - members, false, now + seconds(after))
        };
        assert_eq!(
            lost(1.0, 3),
            Allowed {
                count: 0,
                wait: Some(seconds(10.0))
            }
        );
        assert_eq!(
            lost(5.0, 2),
            Allowed {
                count: 0,
                wait: Some(seconds(10.0))
            }
        );
        assert_eq!(
            lost(14.0, 2),
            Allowed {
                count: 0,
                wait: Some(seconds(1.0))
            }
        );
        assert_eq!(lost(15.0, 2).count, 2);
    }
}
