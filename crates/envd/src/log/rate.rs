//! Rate limiting.

use std::time::{Duration, Instant};

/// A token bucket: `burst` events at once, then one every `interval`.
#[derive(Debug)]
pub(crate) struct Rate {
    burst: u32,
    interval: Duration,
    left: u32,
    filled_at: Instant,
    refused: u64,
}

impl Rate {
    /// A full bucket at `now`.
    pub(crate) fn new(burst: u32, interval: Duration, now: Instant) -> Self {
        Self {
            burst,
            interval,
            left: burst,
            filled_at: now,
            refused: 0,
        }
    }

    /// Takes a token. Returns the number of refusals since the last success.
    pub(crate) fn allow(&mut self, now: Instant) -> Option<u64> {
        let passed = now.saturating_duration_since(self.filled_at);
        let earned = passed.as_nanos() / self.interval.as_nanos().max(1);
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(earned).min(self.burst);
            self.filled_at = now;
        }
        if self.left == 0 {
            self.refused += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_the_interval_limits_and_refusals_are_counted() {
        let start = Instant::now();
        let mut rate = Rate::new(2, Duration::from_millis(10), start);
        assert_eq!(rate.allow(start), Some(0));
        assert_eq!(rate.allow(start), Some(0));
        assert_eq!(rate.allow(start), None);
        assert_eq!(rate.allow(start + Duration::from_millis(9)), None);
        assert_eq!(rate.allow(start + Duration::from_millis(10)), Some(2));
        let later = start + Duration::from_secs(60);
        assert_eq!(rate.allow(later), Some(0));
        assert_eq!(rate.allow(later), Some(0));
        assert_eq!(rate.allow(later), None);
    }
}
