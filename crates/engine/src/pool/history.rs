//! The recent history of a pool, for its operator.

use std::collections::VecDeque;
use std::time::Duration;

use shoal_core::catalogue::EntryName;
use shoal_core::clock::Timestamp;
use shoal_core::pool::PoolBounds;
use shoal_core::ports::pools::{ClaimTimes, PoolSample};

use super::members::{Pool, PoolMembers};

/// The least time between two samples.
const EVERY: Duration = Duration::from_secs(60);

/// How many samples are kept: twelve hours.
const SAMPLES: usize = 720;

/// How many times of claims are kept.
const TIMES: usize = 100;

/// The samples and times of one pool.
#[derive(Debug, Default)]
pub(super) struct History {
    samples: VecDeque<PoolSample>,
    times: VecDeque<Duration>,
}

impl History {
    fn sample(&mut self, sample: PoolSample) {
        let last = self.samples.back();
        if last.is_some_and(|last| sample.at.since(last.at) < EVERY) {
            return;
        }
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    pub(super) fn claimed(&mut self, took: Duration) {
        if self.times.len() == TIMES {
            self.times.pop_front();
        }
        self.times.push_back(took);
    }

    /// How long the last claims took.
    pub(super) fn claim_times(&self) -> Option<ClaimTimes> {
        let mut sorted: Vec<Duration> = self.times.iter().copied().collect();
        sorted.sort_unstable();
        // The nearest rank.
        let quantile = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100);
            sorted.get(rank.saturating_sub(1)).copied()
        };
        Some(ClaimTimes {
            median: quantile(50)?,
            p99: quantile(99)?,
        })
    }
}

impl Pool {
    /// The pool at this moment.
    pub(super) fn now(&self, bounds: &PoolBounds, now: Timestamp) -> PoolSample {
        PoolSample {
            at: now,
            size: self.size(bounds, now),
            ready: self.ready(),
            parked: self.parked(),
            claimed: self.claims,
            misses: self.misses,
        }
    }
}

impl PoolMembers {
    /// Takes a sample of a pool, unless the last one is young.
    pub(super) fn sample(&self, entry: &EntryName, bounds: &PoolBounds, now: Timestamp) {
        let mut pools = self.by_entry.lock();
        let pool = pools.entry(entry.clone()).or_default();
        let sample = pool.now(bounds, now);
        pool.history.sample(sample);
    }

    /// The samples of a pool and its present state, oldest first.
    pub(super) fn history(
        &self,
        entry: &EntryName,
        bounds: &PoolBounds,
        now: Timestamp,
    ) -> Vec<PoolSample> {
        let pools = self.by_entry.lock();
        let Some(pool) = pools.get(entry) else {
            return Vec::new();
        };
        let samples = pool.history.samples.iter().copied();
        samples.chain([pool.now(bounds, now)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> PoolSample {
        PoolSample {
            at: Timestamp::from_unix_seconds(seconds),
            size: 1,
            ready: 1,
            parked: 0,
            claimed: 0,
            misses: 0,
        }
    }

    #[test]
    fn a_sample_is_kept_each_minute_for_some_hours() {
        let mut history = History::default();
        for second in [0, 59, 60, 100, 120] {
            history.sample(at(second));
        }
        assert_eq!(history.samples, [at(0), at(60), at(120)]);
        for minute in 3..2_000 {
            history.sample(at(minute * 60));
        }
        assert_eq!(history.samples.len(), SAMPLES);
        assert_eq!(history.samples.back(), Some(&at(1_999 * 60)));
    }

    #[test]
    fn the_times_are_those_of_the_last_claims() {
        let mut history = History::default();
        assert_eq!(history.claim_times(), None);
        history.claimed(Duration::from_secs(9));
        let only = history.claim_times().map(|times| (times.median, times.p99));
        assert_eq!(only, Some((Duration::from_secs(9), Duration::from_secs(9))));
        for n in 1..=100 {
            history.claimed(Duration::from_millis(n));
        }
        let times = history.claim_times();
        let expected = ClaimTimes {
            median: Duration::from_millis(50),
            p99: Duration::from_millis(99),
        };
        assert_eq!(times, Some(expected));
    }
}
