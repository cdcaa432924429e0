//! The contents of all sessions' files, and when they are deleted.
//!
//! Contents are written before a row names them, and are deleted after the last row that names them. In between, a
//! reader of [`Contents::using`] keeps those that no row names yet.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use shoal_core::detail::{Chain, HostDetail};
use shoal_core::ports::sessions::files::Digest;
use shoal_core::store::{ContentStore, SessionFileStore, StoreError};
use tokio::sync::{Notify, OwnedRwLockReadGuard, RwLock};

/// How many contents are written or deleted, and how many files of a machine are read, at the same time.
pub(crate) const PARALLEL: usize = 8;

/// How many contents are compared with the rows at once.
const SWEPT: usize = 512;

/// When deleting is tried again after a failure.
const AGAIN: Duration = Duration::from_secs(60);

/// How long a store that is well may take to answer.
const ANSWERS: Duration = Duration::from_secs(10);

/// The contents of all sessions' files. Cheap to clone.
#[derive(Clone)]
pub struct Contents(Arc<Inner>);

struct Inner {
    store: Arc<dyn ContentStore>,
    rows: Arc<dyn SessionFileStore>,
    /// Read from before contents are written until a row names them. Written while they are deleted.
    using: Arc<RwLock<()>>,
    /// Contents that a row has named, and perhaps none does any more.
    dropped: Mutex<BTreeSet<Digest>>,
    more: Notify,
}

/// Keeps contents that no row names yet. If none names them when it is dropped, they are deleted.
pub(crate) struct Using {
    contents: Contents,
    put: Mutex<Vec<Digest>>,
    _kept: OwnedRwLockReadGuard<()>,
}

impl Using {
    /// Rows name all that was written.
    pub(crate) fn named(self) {
        self.put.lock().clear();
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        let put = std::mem::take(&mut *self.put.lock());
        self.contents.may_be_unnamed(put);
    }
}

/// The digest of contents.
pub(crate) fn digest(contents: &[u8]) -> Digest {
    Digest(Sha256::digest(contents).into())
}

impl Contents {
    /// Contents in this store, which these rows name.
    #[must_use]
    pub fn new(store: Arc<dyn ContentStore>, rows: Arc<dyn SessionFileStore>) -> Self {
        Self(Arc::new(Inner {
            store,
            rows,
            using: Arc::default(),
            dropped: Mutex::default(),
            more: Notify::new(),
        }))
    }

    /// Keeps everything that is written from now on, until a row names it.
    pub(crate) async fn using(&self) -> Using {
        Using {
            contents: self.clone(),
            put: Mutex::default(),
            _kept: self.0.using.clone().read_owned().await,
        }
    }

    /// Writes contents.
    pub(crate) async fn put(
        &self,
        using: &Using,
        digest: Digest,
        contents: Bytes,
    ) -> Result<(), StoreError> {
        using.put.lock().push(digest);
        self.0.store.put(digest, contents).await
    }

    /// Writes several contents.
    pub(crate) async fn put_all(
        &self,
        using: &Using,
        all: impl Iterator<Item = Bytes>,
    ) -> Result<(), StoreError> {
        let all: Vec<Bytes> = all.collect();
        let digests = all.iter().map(|contents| digest(contents));
        using.put.lock().extend(digests);
        let store = &self.0.store;
        let put = stream::iter(all).map(|contents| store.put(digest(&contents), contents));
        put.buffer_unordered(PARALLEL).try_collect().await
    }

    /// Reads contents; none when they are lost.
    pub(crate) async fn get(&self, digest: Digest) -> Result<Option<Bytes>, StoreError> {
        self.0.store.get(digest).await
    }

    /// Reads several contents, in their order; none for those that are lost.
    pub(crate) async fn get_all(
        &self,
        digests: Vec<Digest>,
    ) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.0.store.get_all(digests).await
    }

    /// Asks the store for something small: whether it answers.
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        let asked = tokio::time::timeout(ANSWERS, self.0.store.get(digest(b"")));
        match asked.await {
            // Nothing, and something else, are answers too.
            Ok(Ok(_) | Err(StoreError::Corrupt { .. })) => Ok(()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StoreError::Unavailable(HostDetail::new(format_args!(
                "contents of session files: no answer within {ANSWERS:?}"
            )))),
        }
    }

    /// A row has ceased to name these.
    pub(crate) fn may_be_unnamed(&self, contents: Vec<Digest>) {
        if !contents.is_empty() {
            self.0.dropped.lock().extend(contents);
            self.0.more.notify_one();
        }
    }

    /// Deletes what no row names. First it looks at everything: the server may have ended in between. Never returns.
    pub async fn sweep(self) {
        while let Err(error) = self.sweep_all().await {
            tracing::warn!(error = %Chain(&error), "cannot look for contents that no session names");
            tokio::time::sleep(AGAIN).await;
        }
        loop {
            self.0.more.notified().await;
            if let Err(error) = self.sweep_dropped().await {
                tracing::warn!(error = %Chain(&error), "cannot delete contents that no session names");
                tokio::time::sleep(AGAIN).await;
                self.0.more.notify_one();
            }
        }
    }

    async fn sweep_all(&self) -> Result<(), StoreError> {
        let mut all = self.0.store.all().try_chunks(SWEPT);
        while let Some(some) = all.next().await {
            let some = some.map_err(|error| error.1)?;
            self.delete_unnamed(some).await?;
        }
        Ok(())
    }

    async fn sweep_dropped(&self) -> Result<(), StoreError> {
        loop {
            let some: Vec<Digest> = {
                let mut dropped = self.0.dropped.lock();
                let first = dropped.len().min(SWEPT);
                (0..first).filter_map(|_| dropped.pop_first()).collect()
            };
            if some.is_empty() {
                return Ok(());
            }
            if let Err(error) = self.delete_unnamed(some.clone()).await {
                self.0.dropped.lock().extend(some);
                return Err(error);
            }
        }
    }

    async fn delete_unnamed(&self, contents: Vec<Digest>) -> Result<(), StoreError> {
        let _nobody_writes = self.0.using.write().await;
        let unnamed = self.0.rows.unnamed(contents).await?;
        let deleted = stream::iter(unnamed).map(|digest| self.0.store.delete(digest));
        // All of them end before anybody writes again, also when one fails.
        let deleted: Vec<_> = deleted.buffer_unordered(PARALLEL).collect().await;
        deleted.into_iter().collect()
    }
}
