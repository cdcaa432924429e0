//! Cancels work on a thread when its caller has gone, or when the server stops.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedRwLockReadGuard, RwLock};

/// The running exports and imports.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    ending: Arc<AtomicBool>,
    going_on: Arc<RwLock<()>>,
}

/// Whether work on another thread is still wanted. It counts as running until this is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    ending: Arc<AtomicBool>,
    dropped: Arc<AtomicBool>,
    _going_on: Option<Arc<OwnedRwLockReadGuard<()>>>,
}

/// Cancels the work when it is dropped.
#[derive(Debug)]
pub(crate) struct StopOnDrop(Arc<AtomicBool>);

impl Transfers {
    /// A flag for the work, and a guard for the future that waits for it.
    pub(crate) async fn begin(&self) -> (Stop, StopOnDrop) {
        let going_on = self.going_on.clone().read_owned().await;
        let dropped = Arc::new(AtomicBool::new(false));
        let stop = Stop {
            ending: self.ending.clone(),
            dropped: dropped.clone(),
            _going_on: Some(Arc::new(going_on)),
        };
        (stop, StopOnDrop(dropped))
    }

    /// Cancels all running work and waits for its end. No work starts after that.
    pub(crate) async fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
        drop(self.going_on.write().await);
    }
}

impl Stop {
    /// A flag that is never set.
    pub(crate) fn never() -> Self {
        Self {
            ending: Arc::default(),
            dropped: Arc::default(),
            _going_on: None,
        }
    }

    /// Fails when the work is cancelled.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.dropped.load(Ordering::Relaxed) {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        if self.ending.load(Ordering::Relaxed) {
            return Err(io::Error::other("the server is ending"));
        }
        Ok(())
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_end_stops_what_goes_on_and_waits_for_it() {
        let transfers = Transfers::default();
        let (first, _kept) = transfers.begin().await;
        let (second, dropped) = transfers.begin().await;
        drop(dropped);
        assert!(second.check().is_err() && first.check().is_ok());
        drop(second);
        let work = tokio::task::spawn_blocking(move || {
            while first.check().is_ok() {
                std::thread::yield_now();
            }
        });
        let within = std::time::Duration::from_secs(20);
        tokio::time::timeout(within, transfers.end()).await.unwrap();
        work.await.unwrap();
    }
}
