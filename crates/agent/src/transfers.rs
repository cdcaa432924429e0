//! Transfers that run beside the passes: one for each checkpoint.

use std::collections::HashMap;

use parking_lot::Mutex;
use shoal_checkpoint::Key;
use tokio::task::JoinHandle;

/// Transfers by checkpoint. Dropped, they end.
#[derive(Debug, Default)]
pub(crate) struct Transfers(Mutex<HashMap<Key, JoinHandle<()>>>);

impl Transfers {
    /// Starts a transfer, unless one of the checkpoint is under way.
    pub(crate) fn start(&self, key: &Key, transfer: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.0.lock();
        running.retain(|_, transfer| !transfer.is_finished());
        if !running.contains_key(key) {
            running.insert(key.clone(), tokio::spawn(transfer));
        }
    }

    /// Ends the transfer of a checkpoint, and waits until it does nothing any more.
    pub(crate) async fn stop(&self, key: &Key) {
        let running = self.0.lock().remove(key);
        if let Some(running) = running {
            running.abort();
            // It was cancelled, or has ended.
            let _ = running.await;
        }
    }
}

impl Drop for Transfers {
    fn drop(&mut self) {
        for running in self.0.get_mut().values() {
            running.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn a_checkpoint_has_one_transfer_at_a_time() {
        let transfers = Transfers::default();
        let key: Key = "1".repeat(32).parse().unwrap();
        let (begun, held) = (Arc::new(Notify::new()), Arc::new(()));
        let (signal, guard) = (Arc::clone(&begun), Arc::clone(&held));
        transfers.start(&key, async move {
            let _guard = guard;
            signal.notify_one();
            std::future::pending::<()>().await;
        });
        begun.notified().await;
        transfers.start(&key, async { panic!("a second one") });
        assert_eq!(Arc::strong_count(&held), 2);
        transfers.stop(&key).await;
        assert_eq!(Arc::strong_count(&held), 1, "it has ended");
        transfers.stop(&key).await;
        let signal = Arc::clone(&begun);
        transfers.start(&key, async move { signal.notify_one() });
        begun.notified().await;
    }
}
