//! Work that outlives the call that began it: a stop waits for it.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// The work under way, and whether the server stops. Cheap to clone: all clones are one.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    stopping: CancellationToken,
    under_way: Arc<watch::Sender<usize>>,
}

impl Default for Work {
    fn default() -> Self {
        Self {
            stopping: CancellationToken::new(),
            under_way: Arc::new(watch::Sender::new(0)),
        }
    }
}

impl Work {
    /// Runs `work` to its end on a task of its own, whether or not the caller waits. Its log lines and
    /// spans belong to the caller's span.
    pub(crate) fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let under_way = self.begin();
        let work = async move {
            let outcome = work.await;
            drop(under_way);
            outcome
        };
        tokio::spawn(work.in_current_span())
    }

    /// Runs `work` on a task of its own until the server stops: the next start recovers from any point
    /// at which it is cut off.
    pub(crate) fn spawn_until_stop(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stopping = self.stopping.clone();
        self.spawn(async move {
            // Its output says only which of the two came first.
            let _ = stopping.run_until_cancelled(work).await;
        });
    }

    /// Counts as work under way until the answer is dropped.
    pub(crate) fn begin(&self) -> UnderWay {
        self.under_way.send_modify(|count| *count += 1);
        UnderWay(self.under_way.clone())
    }

    /// Tells all work that the server stops.
    pub(crate) fn stop(&self) {
        self.stopping.cancel();
    }

    /// Whether the server stops.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Completes when the server stops.
    pub(crate) async fn stopping(&self) {
        self.stopping.cancelled().await;
    }

    /// Completes when no work is under way.
    pub(crate) async fn drained(&self) {
        let mut under_way = self.under_way.subscribe();
        // The sender lives as long as `self`.
        let _ = under_way.wait_for(|count| *count == 0).await;
    }
}

/// A piece of work under way.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<watch::Sender<usize>>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_stop_waits_for_work_and_cuts_off_what_the_next_start_recovers() {
        let work = Work::default();
        let (end, ended) = oneshot::channel::<()>();
        let spawned = work.spawn(ended);
        work.spawn_until_stop(std::future::pending());
        let panicked = work.spawn(async { panic!("on purpose") });
        panicked.await.unwrap_err();
        assert!(!work.is_stopping());
        work.stop();
        work.stopping().await;
        assert!(work.drained().now_or_never().is_none());
        end.send(()).unwrap();
        spawned.await.unwrap().unwrap();
        work.drained().await;
    }
}
