//! Statuses that wait for a moment, because a better one is about to follow.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long a status waits that only reports progress towards readiness. A pod that is ready within
/// this time costs one write, not four. Pods of a busy cluster take hundreds of milliseconds.
const HELD: Duration = Duration::from_secs(1);

/// So many held statuses are remembered without a look at their age.
const MANY_HELD: usize = 10_000;
/// A status that has been due for so long is of a deleted sandbox.
const FORGET_HELD: Duration = Duration::from_secs(600);

/// The least time between two statuses of a pool. Every claim changes its numbers twice.
const PACE: Duration = Duration::from_secs(1);

/// When the status of each object was last written, by UID. The first change is written at once.
#[derive(Default)]
pub(crate) struct Paced(Mutex<HashMap<String, Instant>>);

impl Paced {
    /// How much longer the status of an object waits. `None` when it is written now.
    pub(crate) fn wait(&self, uid: &str, now: Instant) -> Option<Duration> {
        let mut written = self.0.lock();
        if written.len() >= MANY_HELD {
            written.retain(|_, at| now < *at + PACE);
        }
        match written.get(uid) {
            Some(at) if now < *at + PACE => Some(*at + PACE - now),
            _ => {
                written.insert(uid.to_owned(), now);
                None
            }
        }
    }
}

/// When the held status of each object must be written, by UID.
#[derive(Default)]
pub(crate) struct Held(Mutex<HashMap<String, Instant>>);

impl Held {
    /// How much longer the status of an object waits. `None` when it must be written now.
    pub(crate) fn wait(&self, uid: &str) -> Option<Duration> {
        let now = Instant::now();
        let mut held = self.0.lock();
        if held.len() >= MANY_HELD {
            held.retain(|_, until| now < *until + FORGET_HELD);
        }
        let until = *held.entry(uid.to_owned()).or_insert(now + HELD);
        (now < until).then(|| until - now)
    }

    /// Forgets an object, whose status is written or needs no write.
    pub(crate) fn clear(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_status_is_written_at_once_and_the_next_after_a_second() {
        let (paced, start) = (Paced::default(), Instant::now());
        assert_eq!(paced.wait("a", start), None);
        assert_eq!(paced.wait("a", start + PACE / 4), Some(PACE * 3 / 4));
        assert_eq!(paced.wait("b", start), None);
        assert_eq!(paced.wait("a", start + PACE), None);
        assert_eq!(paced.wait("a", start + PACE), Some(PACE));
    }
}
