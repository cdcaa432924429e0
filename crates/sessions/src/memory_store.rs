//! Rows and contents in memory, for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use shoal_core::BoxFuture;
use shoal_core::detail::HostDetail;
use shoal_core::ports::sessions::files::Digest;
use shoal_core::session::SessionId;
use shoal_core::session::files::FileRow;
use shoal_core::session::path::SessionPath;
use shoal_core::store::{ContentStore, RowChange, SessionFileStore, StoreError};

type Rows = BTreeMap<(SessionId, SessionPath), FileRow>;

/// Rows and contents. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct MemoryFiles {
    rows: Arc<Mutex<Rows>>,
    contents: Arc<Mutex<BTreeMap<Digest, Bytes>>>,
    fault: Arc<Mutex<Option<Fault>>>,
}

/// How the contents fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// They do not answer.
    Away,
    /// They are never done.
    Hangs,
    /// Nothing more can be written.
    Full,
}

impl MemoryFiles {
    /// How many contents are kept.
    pub(crate) fn kept(&self) -> usize {
        self.contents.lock().len()
    }

    /// The contents fail like this from now on; with none they are well.
    pub(crate) fn set_fault(&self, fault: Option<Fault>) {
        *self.fault.lock() = fault;
    }

    async fn answer(&self, writes: bool) -> Result<(), StoreError> {
        let fault = *self.fault.lock();
        match fault {
            Some(Fault::Away) => Err(StoreError::Unavailable(HostDetail::new("a fault"))),
            Some(Fault::Hangs) => std::future::pending().await,
            Some(Fault::Full) if writes => Err(StoreError::NoSpace),
            _ => Ok(()),
        }
    }
}

impl SessionFileStore for MemoryFiles {
    fn file_rows<'a>(
        &'a self,
        session: &'a SessionId,
    ) -> BoxFuture<'a, Result<Vec<(SessionPath, FileRow)>, StoreError>> {
        Box::pin(async move {
            let rows = self.rows.lock();
            let of_session = rows.iter().filter(|((of, _), _)| of == session);
            Ok(of_session
                .map(|((_, path), row)| (path.clone(), row.clone()))
                .collect())
        })
    }

    fn change_file_rows<'a>(
        &'a self,
        session: &'a SessionId,
        changes: Vec<RowChange>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut rows = self.rows.lock();
            for (path, row) in changes {
                let key = (session.clone(), path);
                match row {
                    Some(row) => drop(rows.insert(key, row)),
                    None => drop(rows.remove(&key)),
                }
            }
            Ok(())
        })
    }

    fn unnamed(&self, contents: Vec<Digest>) -> BoxFuture<'_, Result<Vec<Digest>, StoreError>> {
        Box::pin(async move {
            let rows = self.rows.lock();
            let named = |digest: &Digest| {
                rows.values()
                    .any(|row| row.contents().any(|named| named == *digest))
            };
            Ok(contents
                .into_iter()
                .filter(|digest| !named(digest))
                .collect())
        })
    }
}

impl ContentStore for MemoryFiles {
    fn put(&self, digest: Digest, contents: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.answer(true).await?;
            self.contents.lock().insert(digest, contents);
            Ok(())
        })
    }

    fn get(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        Box::pin(async move {
            self.answer(false).await?;
            Ok(self.contents.lock().get(&digest).cloned())
        })
    }

    fn get_all(
        &self,
        digests: Vec<Digest>,
    ) -> BoxFuture<'_, Result<Vec<Option<Bytes>>, StoreError>> {
        Box::pin(async move {
            self.answer(false).await?;
            let contents = self.contents.lock();
            Ok(digests
                .iter()
                .map(|digest| contents.get(digest).cloned())
                .collect())
        })
    }

    fn delete(&self, digest: Digest) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.answer(true).await?;
            self.contents.lock().remove(&digest);
            Ok(())
        })
    }

    fn all(&self) -> BoxStream<'_, Result<Digest, StoreError>> {
        let all: Vec<_> = self.contents.lock().keys().copied().map(Ok).collect();
        stream::iter(all).boxed()
    }
}
