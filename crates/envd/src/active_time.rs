//! Time during which the sandbox runs.
//!
//! While a sandbox is saved its clocks stop or jump ahead, depending on the kernel. A process with
//! a timeout of a minute must get the rest of it after resume, and not be killed because of a night
//! on disk. So the control plane calls `/freeze` before it saves. No deadline advances until
//! `/unfreeze` or `/init`.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Periods in which time was frozen.
#[derive(Debug, Clone, Copy, Default)]
struct FreezeState {
    /// Start of the current period, if frozen.
    since: Option<Instant>,
    /// Total of earlier periods.
    before: Duration,
}

/// Time during which the sandbox runs, shared by all timers.
#[derive(Debug)]
pub(crate) struct ActiveTime(watch::Sender<FreezeState>);

/// A deadline in active time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ActiveDeadline {
    at: Instant,
    /// Total frozen time when the deadline was set.
    before: Duration,
}

impl Default for ActiveTime {
    fn default() -> Self {
        Self(watch::Sender::new(FreezeState::default()))
    }
}

impl ActiveTime {
    /// The deadline at `at`, if time is not frozen until then.
    pub(crate) fn deadline(&self, at: Instant) -> ActiveDeadline {
        let before = self.0.borrow().before;
        ActiveDeadline { at, before }
    }

    /// Freezes time. Idempotent.
    pub(crate) fn freeze(&self) {
        self.0.send_if_modified(|state| {
            let runs = state.since.is_none();
            if runs {
                state.since = Some(Instant::now());
            }
            runs
        });
    }

    /// Resumes time. Idempotent.
    pub(crate) fn unfreeze(&self) {
        self.0.send_if_modified(|state| {
            let since = state.since.take();
            state.before += since.map_or(Duration::ZERO, |since| since.elapsed());
            since.is_some()
        });
    }

    /// Runs a future with a timeout in active time.
    pub(crate) async fn timeout<F: Future>(&self, time: Duration, future: F) -> Option<F::Output> {
        let deadline = self.deadline(Instant::now() + time);
        tokio::select! {
            biased;
            output = future => Some(output),
            () = self.sleep_until(Some(deadline)) => None,
        }
    }

    /// Sleeps until the deadline, or forever without one.
    pub(crate) async fn sleep_until(&self, deadline: Option<ActiveDeadline>) {
        let Some(deadline) = deadline else {
            return std::future::pending().await;
        };
        let mut changes = self.0.subscribe();
        loop {
            let state = *changes.borrow_and_update();
            let arrives = async {
                match state.since {
                    None => {
                        let later = state.before.saturating_sub(deadline.before);
                        tokio::time::sleep_until(deadline.at + later).await;
                    }
                    Some(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                // A pending change wins. A clock that jumped ahead wakes all sleepers before a
                // freeze can be observed.
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
    async fn frozen_time_does_not_count() {
        let time = ActiveTime::default();
        let begun = Instant::now();
        let deadline = time.deadline(begun + Duration::from_secs(10));
        let waiting = time.sleep_until(Some(deadline));
        let state = async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            for _ in 0..2 {
                time.freeze();
            }
            tokio::time::sleep(Duration::from_secs(3600)).await;
            for _ in 0..2 {
                time.unfreeze();
            }
        };
        tokio::join!(waiting, state);
        assert_eq!(begun.elapsed().as_secs(), 3610);
    }

    #[tokio::test(start_paused = true)]
    async fn earlier_freezes_do_not_extend_a_new_deadline() {
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
    async fn no_deadline_passes_while_time_is_frozen() {
        let time = ActiveTime::default();
        let deadline = time.deadline(Instant::now() + Duration::from_secs(1));
        time.freeze();
        let waited =
            tokio::time::timeout(Duration::from_secs(99), time.sleep_until(Some(deadline)));
        assert!(waited.await.is_err());
    }
}
