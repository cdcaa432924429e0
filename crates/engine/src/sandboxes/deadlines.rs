//! The timers of sandboxes: deadlines and the limits of transient states.
//!
//! One ordered set, and one task that sleeps until its first moment: deadlines are met to the
//! millisecond, and ten thousand timers cost no more than one.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_core::clock::{Clock, Timestamp};
use shoal_core::id::SandboxId;
use tokio::sync::Notify;

/// The timers, one for each sandbox at most.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    moments: Mutex<Moments>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Moments {
    ordered: BTreeSet<(Timestamp, SandboxId)>,
    of: HashMap<SandboxId, Timestamp>,
}

impl Deadlines {
    /// Sets the timer of `id`, or clears it.
    pub(crate) fn set(&self, id: &SandboxId, moment: Option<Timestamp>) {
        {
            let mut moments = self.moments.lock();
            if let Some(earlier) = moments.of.remove(id) {
                moments.ordered.remove(&(earlier, id.clone()));
            }
            if let Some(moment) = moment {
                moments.of.insert(id.clone(), moment);
                moments.ordered.insert((moment, id.clone()));
            }
        }
        self.changed.notify_one();
    }

    /// Waits until a timer expires, and removes it. For one caller.
    pub(crate) async fn due(&self, clock: &Arc<dyn Clock>) -> SandboxId {
        loop {
            let next = self
                .moments
                .lock()
                .ordered
                .first()
                .map(|(moment, _)| *moment);
            match next {
                Some(moment) if moment <= clock.now() => {
                    if let Some(id) = self.take_first() {
                        return id;
                    }
                }
                Some(moment) => tokio::select! {
                    () = clock.sleep_until(moment) => {}
                    () = self.changed.notified() => {}
                },
                None => self.changed.notified().await,
            }
        }
    }

    fn take_first(&self) -> Option<SandboxId> {
        let mut moments = self.moments.lock();
        let (_, id) = moments.ordered.pop_first()?;
        moments.of.remove(&id);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_util::ManualClock;

    #[tokio::test]
    async fn the_next_due_is_the_earliest_and_the_last_word_counts() {
        let manual = ManualClock::new();
        let clock: Arc<dyn Clock> = manual.clone();
        let deadlines = Deadlines::default();
        let id = |text: &str| text.parse::<SandboxId>().unwrap();
        let at = |millis| Some(Timestamp::from_unix_millis(millis));
        deadlines.set(&id("ia"), at(30));
        deadlines.set(&id("ib"), at(20));
        deadlines.set(&id("ic"), at(10));
        deadlines.set(&id("ic"), at(40));
        deadlines.set(&id("ib"), None);
        manual.advance_to(Timestamp::from_unix_millis(30));
        assert_eq!(deadlines.due(&clock).await, id("ia"));
        let mut next = Box::pin(deadlines.due(&clock));
        tokio::select! {
            biased;
            id = &mut next => panic!("{id} is not due"),
            () = tokio::task::yield_now() => {}
        }
        manual.advance_to(Timestamp::from_unix_millis(40));
        assert_eq!(next.await, id("ic"));
    }
}
