//! Transfers of checkpoints between this node and others, or an object store. They run beside the passes: one for each
//! checkpoint.

use std::collections::HashMap;
use std::path::Path;

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use parking_lot::Mutex;
use shoal_checkpoint::{CheckpointId, Key, Manifest, SavedFile, StoreError};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinHandle;

/// Why files from elsewhere are not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    /// The manifest is damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file cannot be written.
    #[error("{0}: {1}")]
    File(String, std::io::Error),
    /// The manifest is not that of the id.
    #[error("another checkpoint has this name there")]
    Another,
    /// A file is longer than its manifest says.
    #[error("{0} is longer than the checkpoint's manifest says")]
    Longer(String),
}

/// The manifest of a checkpoint, from bytes that arrived from elsewhere.
pub(crate) fn manifest_of(id: &CheckpointId, bytes: &[u8]) -> Result<Manifest, ReceiveError> {
    if !id.is_of(bytes) {
        return Err(ReceiveError::Another);
    }
    Ok(Manifest::parse(bytes).map_err(StoreError::from)?)
}

/// Writes a file that arrives in pieces to a directory. It is not verified.
pub(crate) async fn receive<E: From<ReceiveError>>(
    directory: &Path,
    saved: &SavedFile,
    pieces: impl Stream<Item = Result<Bytes, E>>,
) -> Result<(), E> {
    let path = directory.join(&saved.name);
    let failed = |error| ReceiveError::File(saved.name.clone(), error);
    if let Some(parent) = path.parent() {
        tokio::fs::create_dir_all(parent).await.map_err(failed)?;
    }
    let mut file = File::create_new(&path).await.map_err(failed)?;
    let mut left = saved.size;
    let mut pieces = std::pin::pin!(pieces);
    while let Some(piece) = pieces.try_next().await? {
        let longer = || ReceiveError::Longer(saved.name.clone());
        left = left.checked_sub(piece.len() as u64).ok_or_else(longer)?;
        file.write_all(&piece).await.map_err(failed)?;
    }
    Ok(file.flush().await.map_err(failed)?)
}

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
