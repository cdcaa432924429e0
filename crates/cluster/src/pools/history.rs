//! The recent past of pools, as this replica has seen it: claims at other replicas are not counted here.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use shoal_core::clock::Timestamp;
use shoal_core::ports::pools::PoolSample;

use crate::identity::Key;

/// The time between two samples.
pub(super) const EVERY: Duration = Duration::from_secs(60);

/// How many samples of a pool are kept: twelve hours.
const SAMPLES: usize = 720;

/// Claims and samples of all pools.
#[derive(Debug, Default)]
pub(crate) struct PoolHistory {
    counts: Mutex<BTreeMap<Key, PoolCounts>>,
    samples: Mutex<BTreeMap<String, VecDeque<PoolSample>>>,
}

/// Creates since the start of the replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolCounts {
    /// Those that took a member.
    pub(super) claimed: u64,
    /// Those that found none.
    pub(super) misses: u64,
}

impl PoolHistory {
    /// Counts a create from a pool.
    pub(crate) fn count(&self, pool: Key, found: bool) {
        let mut counts = self.counts.lock();
        let of_pool = counts.entry(pool).or_default();
        if found {
            of_pool.claimed += 1;
        } else {
            of_pool.misses += 1;
        }
    }

    /// Forgets the counts of pools that are gone.
    pub(super) fn keep(&self, is_known: impl Fn(&Key) -> bool) {
        self.counts.lock().retain(|pool, _| is_known(pool));
    }

    pub(super) fn counts(&self, pool: &Key) -> PoolCounts {
        self.counts.lock().get(pool).copied().unwrap_or_default()
    }

    /// Adds samples of all pools there are.
    pub(super) fn add(&self, now: BTreeMap<String, PoolSample>) {
        let mut all = self.samples.lock();
        all.retain(|name, _| now.contains_key(name));
        for (name, sample) in now {
            let samples = all.entry(name).or_default();
            if samples.len() == SAMPLES {
                samples.pop_front();
            }
            samples.push_back(sample);
        }
    }

    /// The samples of a pool, oldest first.
    pub(super) fn of(&self, name: &str) -> Vec<PoolSample> {
        let all = self.samples.lock();
        let samples = all.get(name).into_iter().flatten();
        samples.copied().collect()
    }
}

/// Samples by name. Pools of one name in several namespaces are added up.
pub(super) fn sums(
    pools: impl IntoIterator<Item = (String, PoolSample)>,
) -> BTreeMap<String, PoolSample> {
    let mut sums: BTreeMap<String, PoolSample> = BTreeMap::new();
    for (name, sample) in pools {
        let at = sample.at;
        let sum = sums.entry(name).or_insert(PoolSample { at, ..NOTHING });
        sum.size += sample.size;
        sum.ready += sample.ready;
        sum.claimed += sample.claimed;
        sum.misses += sample.misses;
    }
    sums
}

const NOTHING: PoolSample = PoolSample {
    at: Timestamp::from_unix_seconds(0),
    size: 0,
    ready: 0,
    parked: 0,
    claimed: 0,
    misses: 0,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(minute: i64, ready: usize) -> PoolSample {
        PoolSample {
            at: Timestamp::from_unix_seconds(60 * minute),
            size: 2,
            ready,
            ..NOTHING
        }
    }

    fn named(name: &str, sample: PoolSample) -> (String, PoolSample) {
        (name.to_owned(), sample)
    }

    #[test]
    fn a_pool_has_the_samples_of_half_a_day() {
        let history = PoolHistory::default();
        for minute in 0..800 {
            history.add(sums([named("code", sample(minute, 1))]));
        }
        let kept = history.of("code");
        assert_eq!((kept.len(), kept[0].at), (SAMPLES, sample(80, 1).at));
        // Those of one name are added up, and those that are gone are forgotten.
        history.add(sums([
            named("other", sample(800, 1)),
            named("other", sample(800, 2)),
        ]));
        assert_eq!(history.of("code"), []);
        let sum = PoolSample {
            size: 4,
            ..sample(800, 3)
        };
        assert_eq!(history.of("other"), [sum]);
    }

    #[test]
    fn creates_are_counted_by_pool() {
        let history = PoolHistory::default();
        let pool = |name: &str| ("ns".to_owned(), name.to_owned());
        history.count(pool("code"), true);
        history.count(pool("code"), false);
        let counts = PoolCounts {
            claimed: 1,
            misses: 1,
        };
        assert_eq!(history.counts(&pool("code")), counts);
        assert_eq!(history.counts(&pool("other")), PoolCounts::default());
        history.keep(|known| *known != pool("code"));
        assert_eq!(history.counts(&pool("code")), PoolCounts::default());
    }
}
