//! Statuses that wait for a moment, because a better one is about to follow.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long a status waits that tells no more than progress towards readiness. A pod that is ready within
/// this time costs one write, not four. Pods of a busy cluster take hundreds of milliseconds.
const HELD: Duration = Duration::from_secs(1);

/// So many held statuses are remembered without a look at their age.
const MANY_HELD: usize = 10_000;
/// A status that has been due for so long is of a deleted sandbox.
const FORGET_HELD: Duration = Duration::from_secs(600);

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
