//! Time in which the sandbox runs.
//!
//! While a sandbox is saved its clocks stand still or jump ahead, as its kernel likes: a process
//! that was given a minute must find the rest of it when it goes on, and not be killed for a night
//! on disk. So the control plane says `/freeze` before it saves, and from then on no deadline
//! comes nearer until it says `/unfreeze` or `/init`.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// When time stood still.
#[derive(Debug, Clone, Copy, Default)]
struct Stops {
    /// Since when, if it stands still now.
    since: Option<Instant>,
    /// For how long altogether, before.
    before: Duration,
}

/// The time in which the sandbox runs, shared by all that wait for it.
#[derive(Debug)]
pub(crate) struct ActiveTime(watch::Sender<Stops>);

/// A moment of active time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ActiveDeadline {
    at: Instant,
    /// How long time had stood still when this was set.
    before: Duration,
}

impl Default for ActiveTime {
    fn default() -> Self {
        Self(watch::Sender::new(Stops::default()))
    }
}

impl ActiveTime {
    /// The moment that will be `at` if time does not stand still until then.
    pub(crate) fn deadline(&self, at: Instant) -> ActiveDeadline {
        let before = self.0.borrow().before;
        ActiveDeadline { at, before }
    }

    /// Lets time stand still. Nothing happens when it does.
    pub(crate) fn freeze(&self) {
        self.0.send_if_modified(|stops| {
            let runs = stops.since.is_none();
            if runs {
                stops.since = Some(Instant::now());
            }
            runs
        });
    }

    /// Lets time go on. Nothing happens when it does.
    pub(crate) fn unfreeze(&self) {
        self.0.send_if_modified(|stops| {
            let since = stops.since.take();
            stops.before += since.map_or(Duration::ZERO, |since| since.elapsed());
            since.is_some()
        });
    }

    /// What comes of something within some time, if it ends in that.
    pub(crate) async fn timeout<F: Future>(&self, time: Duration, future: F) -> Option<F::Output> {
        let deadline = self.deadline(Instant::now() + time);
        tokio::select! {
            biased;
            output = future => Some(output),
            () = self.sleep_until(Some(deadline)) => None,
        }
    }

    /// Waits for a moment, for ever when there is none.
    pub(crate) async fn sleep_until(&self, deadline: Option<ActiveDeadline>) {
        let Some(deadline) = deadline else {
            return std::future::pending().await;
        };
        let mut changes = self.0.subscribe();
        loop {
            let stops = *changes.borrow_and_update();
            let arrives = async {
                match stops.since {
                    None => {
                        let later = stops.before.saturating_sub(deadline.before);
                        tokio::time::sleep_until(deadline.at + later).await;
                    }
                    Some(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                // A change that is there already counts first: a clock that has jumped ahead
                // wakes all who sleep before anybody can say that time stood still.
                biased;
                changed = changes.changed() => if changed.is_err() { return },
                () = arrives => if !changes.has_changed().unwrap_or(false) { return },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_that_stands_still_is_not_counted() {
        let time = ActiveTime::default();
        let begun = Instant::now();
        let deadline = time.deadline(begun + Duration::from_secs(10));
        let waiting = time.sleep_until(Some(deadline));
        let stops = async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            for _ in 0..2 {
                time.freeze();
            }
            tokio::time::sleep(Duration::from_secs(3600)).await;
            for _ in 0..2 {
                time.unfreeze();
            }
        };
        tokio::join!(waiting, stops);
        assert_eq!(begun.elapsed().as_secs(), 3610);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_of_later_does_not_get_what_was_lost_before() {
        let time = ActiveTime::default();
        time.freeze();
        tokio::time::sleep(Duration::from_secs(60)).await;
        time.unfreeze();
        let begun = Instant::now();
        let deadline = time.deadline(begun + Duration::from_secs(5));
        time.sleep_until(Some(deadline)).await;
        assert_eq!(begun.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_comes_while_time_stands_still() {
        let time = ActiveTime::default();
        let deadline = time.deadline(Instant::now() + Duration::from_secs(1));
        time.freeze();
        let waited =
            tokio::time::timeout(Duration::from_secs(99), time.sleep_until(Some(deadline)));
        assert!(waited.await.is_err());
    }
}
