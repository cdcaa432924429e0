//! The use of sandboxes over time.
//!
//! Kept in memory: fine for an hour, then coarse for a week. A restart of the server begins anew.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::RwLock;
use shoal_core::clock::Timestamp;
use shoal_core::id::SandboxId;
pub use shoal_core::ports::observe::Sample;
use shoal_core::ports::observe::Traffic;
use shoal_core::resources::Usage;
use shoal_core::sandbox::SandboxRecord;

/// Fine samples kept: an hour of one every 5 s.
const FINE: usize = 720;
/// One sample in so many is kept for longer: every 5 minutes.
const COARSE_EVERY: u64 = 60;
/// Coarse samples kept: a week.
const COARSE: usize = 2016;

/// The samples of all sandboxes.
#[derive(Debug, Default)]
pub(crate) struct Samples(RwLock<HashMap<SandboxId, History>>);

#[derive(Debug, Default)]
struct History {
    fine: VecDeque<Sample>,
    coarse: VecDeque<Sample>,
    taken: u64,
    last: Option<(Timestamp, Usage)>,
    /// The disk that the last reading found in use.
    disk: Option<u64>,
}

impl History {
    fn take(&mut self, at: Timestamp, usage: &Usage, record: &SandboxRecord) {
        let resources = &record.spec.resources;
        let disk_used = usage.disk_bytes.min(resources.disk.bytes());
        self.disk = Some(disk_used);
        let Some((last, before)) = self.last.replace((at, *usage)) else {
            // Processor time and traffic are differences: the first reading is where counting begins.
            return;
        };
        let (cpus, since) = (resources.cpu.whole(), at.since(last));
        let sample = Sample {
            at,
            cpu_count: cpus,
            cpu_used_percent: percent(before.cpu_nanos, usage.cpu_nanos, since, cpus),
            memory_used: usage.memory_bytes,
            memory_total: resources.memory.bytes(),
            memory_cache: usage.cache_bytes,
            disk_used,
            disk_total: resources.disk.bytes(),
            network: Some(Traffic {
                received: rate(before.received_bytes, usage.received_bytes, since),
                sent: rate(before.sent_bytes, usage.sent_bytes, since),
            }),
        };
        self.keep(sample);
    }

    /// Adds a sample of a parked sandbox, which uses its disk only.
    fn rest(&mut self, at: Timestamp, record: &SandboxRecord) {
        // Its next run counts processor time anew.
        self.last = None;
        let Some(disk_used) = self.disk else {
            return;
        };
        let resources = &record.spec.resources;
        let sample = Sample {
            at,
            cpu_count: resources.cpu.whole(),
            cpu_used_percent: 0.0,
            memory_used: 0,
            memory_total: resources.memory.bytes(),
            memory_cache: 0,
            disk_used,
            disk_total: resources.disk.bytes(),
            network: Some(Traffic::default()),
        };
        self.keep(sample);
    }

    fn keep(&mut self, sample: Sample) {
        push(&mut self.fine, sample, FINE);
        if self.taken.is_multiple_of(COARSE_EVERY) {
            push(&mut self.coarse, sample, COARSE);
        }
        self.taken += 1;
    }

    /// Oldest first: the coarse ones that are older than the fine ones, then those.
    fn between(&self, start: Option<Timestamp>, end: Option<Timestamp>) -> Vec<Sample> {
        let fine_from = self.fine.front().map(|sample| sample.at);
        let coarse = self
            .coarse
            .iter()
            .filter(|s| fine_from.is_none_or(|from| s.at < from));
        let within = |s: &&Sample| {
            start.is_none_or(|start| s.at >= start) && end.is_none_or(|end| s.at <= end)
        };
        coarse.chain(&self.fine).filter(within).copied().collect()
    }
}

fn push(samples: &mut VecDeque<Sample>, sample: Sample, most: usize) {
    if samples.len() >= most {
        samples.pop_front();
    }
    samples.push_back(sample);
}

/// The average growth of a counter, a second. One that began anew has not grown.
fn rate(before: u64, after: u64, since: Duration) -> u64 {
    let grown = u128::from(after.saturating_sub(before)) * 1000;
    u64::try_from(grown / since.as_millis().max(1)).unwrap_or(u64::MAX)
}

/// The share of `cpus` processors that was used between two readings of a counter.
fn percent(before: u64, after: u64, since: Duration, cpus: u32) -> f32 {
    let nanos = since.as_secs_f64() * 1e9 * f64::from(cpus.max(1));
    if nanos <= 0.0 {
        return 0.0;
    }
    #[expect(clippy::cast_precision_loss, reason = "a percentage needs few digits")]
    let used = after.saturating_sub(before) as f64;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a percentage needs few digits"
    )]
    let percent = (used / nanos * 100.0).clamp(0.0, 100.0) as f32;
    percent
}

impl Samples {
    /// Whether a sandbox has no sample yet that clients see.
    pub(crate) fn is_new(&self, id: &SandboxId) -> bool {
        let all = self.0.read();
        all.get(id).is_none_or(|history| history.taken == 0)
    }

    /// The samples of a sandbox between two moments, the oldest first.
    pub(crate) fn between(
        &self,
        id: &SandboxId,
        start: Option<Timestamp>,
        end: Option<Timestamp>,
    ) -> Vec<Sample> {
        let all = self.0.read();
        let history = all.get(id);
        history.map_or_else(Vec::new, |history| history.between(start, end))
    }

    /// Adds a reading of a sandbox.
    pub(crate) fn add(&self, at: Timestamp, usage: &Usage, record: &SandboxRecord) {
        let mut all = self.0.write();
        let history = all.entry(record.id.clone()).or_default();
        history.take(at, usage, record);
    }

    /// Adds a sample of a parked sandbox.
    pub(crate) fn rest(&self, at: Timestamp, record: &SandboxRecord) {
        // A sandbox that has ended meanwhile has no history any more.
        if let Some(history) = self.0.write().get_mut(&record.id) {
            history.rest(at, record);
        }
    }

    pub(crate) fn forget(&self, id: &SandboxId) {
        self.0.write().remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_util;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_unix_seconds(second)
    }

    #[test]
    fn processor_time_becomes_a_share_of_all_processors() {
        let record = test_util::record("ia");
        let mut history = History::default();
        let used = |cpu_nanos| Usage {
            cpu_nanos,
            ..Usage::default()
        };
        history.take(at(0), &used(0), &record);
        history.take(at(5), &used(5_000_000_000), &record);
        history.take(at(10), &used(25_000_000_000), &record);
        let shares: Vec<f32> = history
            .between(None, None)
            .iter()
            .map(|s| s.cpu_used_percent)
            .collect();
        // Two processors: one second a second of one is a half. No sample is made up for the beginning.
        assert_eq!(shares, [50.0, 100.0]);
    }

    #[test]
    fn traffic_is_what_came_since_the_sample_before() {
        let record = test_util::record("ia");
        let mut history = History::default();
        let counted = |received_bytes, sent_bytes| Usage {
            received_bytes,
            sent_bytes,
            ..Usage::default()
        };
        history.take(at(0), &counted(1000, 0), &record);
        history.take(at(5), &counted(6000, 50), &record);
        // After a resume, another interface counts anew.
        history.take(at(10), &counted(10, 60), &record);
        history.rest(at(15), &record);
        let rates: Vec<_> = history
            .between(None, None)
            .iter()
            .filter_map(|s| s.network)
            .map(|traffic| (traffic.received, traffic.sent))
            .collect();
        assert_eq!(rates, [(1000, 10), (0, 2), (0, 0)]);
    }

    #[test]
    fn a_parked_sandbox_uses_its_disk_alone_and_counts_anew_when_it_wakes() {
        let record = test_util::record("ia");
        let mut history = History::default();
        let used = |seconds: u64| Usage {
            cpu_nanos: seconds * 1_000_000_000,
            memory_bytes: 7,
            disk_bytes: 9,
            ..Usage::default()
        };
        history.take(at(0), &used(0), &record);
        history.take(at(5), &used(5), &record);
        history.rest(at(10), &record);
        history.take(at(15), &used(1), &record);
        history.take(at(20), &used(6), &record);
        let seen: Vec<_> = history
            .between(None, None)
            .iter()
            .map(|s| (s.at, s.cpu_used_percent, s.memory_used, s.disk_used))
            .collect();
        let expected = [
            (at(5), 50.0, 7, 9),
            (at(10), 0.0, 0, 9),
            (at(20), 50.0, 7, 9),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_parked_sandbox_that_has_ended_gets_no_history() {
        let record = test_util::record("ia");
        let samples = Samples::default();
        samples.rest(at(0), &record);
        assert!(samples.0.read().is_empty());
    }

    #[test]
    fn old_samples_become_fewer_and_are_still_in_order() {
        let record = test_util::record("ia");
        let mut history = History::default();
        for n in 0..2_000 {
            history.take(at(n * 5), &Usage::default(), &record);
        }
        let all = history.between(None, None);
        assert!(all.len() < 800 && all.len() > FINE);
        assert!(all.windows(2).all(|pair| pair[0].at < pair[1].at));
        assert_eq!(all[0].at, at(5));
        let part = history.between(Some(at(9_000)), Some(at(9_020)));
        assert_eq!(part.len(), 5);
    }
}
