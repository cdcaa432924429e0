//! How many sandboxes teams run and start, over time.
//!
//! Kept in memory: a bucket each five minutes, for a week. A restart of the server begins anew.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::RwLock;
use shoal_core::clock::Timestamp;
use shoal_core::id::TeamId;
pub use shoal_core::ports::observe::TeamSample;

/// How long a bucket is.
const BUCKET: Duration = Duration::from_secs(300);

/// How many are kept: a week.
const BUCKETS: usize = 2016;

#[derive(Debug, Clone, Copy)]
struct Bucket {
    number: i64,
    concurrent: u64,
    starts: u64,
}

/// The buckets of all teams, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct TeamMetrics(RwLock<HashMap<TeamId, VecDeque<Bucket>>>);

fn bucket_seconds() -> i64 {
    i64::try_from(BUCKET.as_secs()).unwrap_or(i64::MAX)
}

impl TeamMetrics {
    fn change(&self, team: TeamId, at: Timestamp, change: impl FnOnce(&mut Bucket)) {
        let number = at.unix_seconds().div_euclid(bucket_seconds());
        let mut all = self.0.write();
        let buckets = all.entry(team).or_default();
        if buckets.back().is_none_or(|last| last.number != number) {
            if buckets.len() >= BUCKETS {
                buckets.pop_front();
            }
            buckets.push_back(Bucket {
                number,
                concurrent: 0,
                starts: 0,
            });
        }
        if let Some(last) = buckets.back_mut() {
            change(last);
        }
    }

    /// Notes that a sandbox of a team was started.
    pub(crate) fn note_start(&self, team: TeamId, at: Timestamp) {
        self.change(team, at, |bucket| {
            bucket.starts += 1;
            bucket.concurrent = bucket.concurrent.max(1);
        });
    }

    /// Notes how many sandboxes each team runs. A team that ran some a moment ago and runs none now is
    /// noted too.
    pub(crate) fn note_running(&self, mut running: HashMap<TeamId, u64>, at: Timestamp) {
        for team in self.0.read().keys() {
            running.entry(*team).or_insert(0);
        }
        for (team, count) in running {
            self.change(team, at, |bucket| {
                bucket.concurrent = bucket.concurrent.max(count);
            });
        }
    }

    /// The samples of a team between two moments, the oldest first.
    pub(crate) fn between(
        &self,
        team: TeamId,
        start: Timestamp,
        end: Timestamp,
    ) -> Vec<TeamSample> {
        let all = self.0.read();
        let buckets = all.get(&team).into_iter().flatten();
        let samples = buckets.map(|bucket| {
            #[expect(clippy::cast_precision_loss, reason = "a rate needs few digits")]
            let start_rate = bucket.starts as f64 / BUCKET.as_secs_f64();
            TeamSample {
                at: Timestamp::from_unix_seconds(bucket.number * bucket_seconds()),
                concurrent: bucket.concurrent,
                start_rate,
            }
        });
        // A bucket counts when any of it is within.
        samples
            .filter(|sample| sample.at <= end && sample.at + BUCKET > start)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_has_the_most_that_ran_and_the_rate_of_starts() {
        let (metrics, team) = (TeamMetrics::default(), TeamId::from_entropy([1; 16]));
        let at = Timestamp::from_unix_seconds;
        for (second, running) in [(10, 2), (20, 5), (290, 1), (310, 3), (900, 0)] {
            metrics.note_running(HashMap::from([(team, running)]), at(second));
        }
        for second in [15, 16, 17] {
            metrics.note_start(team, at(second + 900));
        }
        let found = metrics.between(team, at(0), at(1000));
        let shown: Vec<_> = found
            .iter()
            .map(|s| (s.at.unix_seconds(), s.concurrent))
            .collect();
        assert_eq!(shown, [(0, 5), (300, 3), (900, 1)]);
        assert!((found[2].start_rate - 0.01).abs() < 1e-9);
        assert_eq!(metrics.between(team, at(301), at(899)).len(), 1);
        let other = TeamId::from_entropy([2; 16]);
        assert!(metrics.between(other, at(0), at(1000)).is_empty());
    }

    #[test]
    fn a_week_is_kept() {
        let (metrics, team) = (TeamMetrics::default(), TeamId::from_entropy([1; 16]));
        for number in 0..3000 {
            metrics.note_start(team, Timestamp::from_unix_seconds(number * 300));
        }
        let all = metrics.between(
            team,
            Timestamp::from_unix_seconds(0),
            Timestamp::from_unix_seconds(i64::from(u32::MAX)),
        );
        assert_eq!(all.len(), BUCKETS);
    }
}
