//! The contents of session files under their digests, in an object store.
//!
//! Contents are at `<first two digits>/<digest>`. They are never changed, only written and deleted. Each read compares the
//! digest, so that a damaged or exchanged object is an error, and never a user's file.
//!
//! A server deletes objects that its own sessions do not name. So a bucket has an [owner](claim).

#![forbid(unsafe_code)]

mod bucket;
mod claim;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{Error, ObjectStore, ObjectStoreExt};
use sha2::{Digest as _, Sha256};
use shoal_core::BoxFuture;
use shoal_core::detail::{Chain, HostDetail};
use shoal_core::ports::sessions::files::Digest;
use shoal_core::store::{ContentStore, StoreError};

pub use self::bucket::{Bucket, InvalidBucket};
use self::claim::Claim;

/// How many objects of a bucket are read at the same time.
const PARALLEL: usize = 8;

/// Contents in an object store.
#[derive(Debug, Clone)]
pub struct ObjectContents {
    objects: Arc<dyn ObjectStore>,
    /// The directory of the objects. None in a bucket.
    directory: Option<Arc<Path>>,
    /// None in a directory of the server's own.
    claim: Option<Arc<Claim>>,
}

impl ObjectContents {
    /// Contents in a directory, which is made when it is missing. Writes survive a loss of power.
    ///
    /// # Errors
    /// When the directory cannot be made or read.
    pub fn in_directory(directory: &Path) -> Result<Self, StoreError> {
        std::fs::create_dir_all(directory).map_err(failed)?;
        let files = LocalFileSystem::new_with_prefix(directory).map_err(failed)?;
        Ok(Self {
            objects: Arc::new(files.with_fsync(true)),
            directory: Some(directory.into()),
            claim: None,
        })
    }

    /// Contents in a bucket, for the installation with this id. Credentials, region and endpoint come from the environment. Nothing
    /// is asked of the bucket yet.
    ///
    /// # Errors
    /// When the environment lacks a variable that the bucket needs.
    pub fn in_bucket(bucket: &Bucket, installation: &str) -> Result<Self, StoreError> {
        let objects = bucket.open().map_err(failed)?;
        Ok(Self::owned(objects, bucket, installation))
    }

    /// Contents in the objects of a bucket.
    fn owned(objects: Arc<dyn ObjectStore>, bucket: &Bucket, installation: &str) -> Self {
        let claim = Claim::new(bucket.to_string(), installation.to_owned());
        Self {
            objects,
            directory: None,
            claim: Some(Arc::new(claim)),
        }
    }

    /// Makes the installation the owner of its bucket, unless it is. Nothing is read, written or deleted before: every other call
    /// tries again.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the bucket does not answer; [`StoreError::Failed`] when another installation is the owner, or
    /// the bucket refuses.
    pub async fn claim(&self) -> Result<(), StoreError> {
        match &self.claim {
            Some(claim) => claim.ensure(&*self.objects).await,
            None => Ok(()),
        }
    }

    /// A request that failed.
    fn failed(&self, error: &Error) -> StoreError {
        match self.claim {
            Some(_) => bucket::failed(error),
            None => failed(error),
        }
    }
}

fn failed(error: impl std::error::Error) -> StoreError {
    StoreError::Failed(detail(&error))
}

fn detail(error: &dyn std::error::Error) -> HostDetail {
    HostDetail::new(format_args!("contents of session files: {}", Chain(error)))
}

/// Where contents are.
fn key(digest: Digest) -> Key {
    let digest = digest.to_string();
    Key::from_iter([&digest[..2], digest.as_str()])
}

fn is_intact(contents: &[u8], digest: Digest) -> bool {
    Sha256::digest(contents).as_slice() == digest.0
}

/// Reads contents in a directory. None if they are missing or do not have their digest. Blocking.
fn read(directory: &Path, digest: Digest) -> Result<Option<Bytes>, StoreError> {
    let path: PathBuf = directory.join(key(digest).as_ref());
    match std::fs::read(path) {
        Ok(contents) => Ok(is_intact(&contents, digest).then(|| contents.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

/// The object, if it is ours.
fn digest_at(key: &Key) -> Option<Digest> {
    let digest = key.filename()?.parse().ok()?;
    (*key == self::key(digest)).then_some(digest)
}

impl ContentStore for ObjectContents {
    fn put(&self, digest: Digest, contents: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.claim().await?;
            let put = self.objects.put(&key(digest), contents.into()).await;
            put.map(drop).map_err(|error| self.failed(&error))
        })
    }

    fn get(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        Box::pin(async move {
            self.claim().await?;
            let found = match self.objects.get(&key(digest)).await {
                Ok(found) => found,
                Err(Error::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(self.failed(&error)),
            };
            let contents = found.bytes().await.map_err(|error| self.failed(&error))?;
            if !is_intact(&contents, digest) {
                return Err(StoreError::Corrupt {
                    key: format!("contents {digest}"),
                    detail: "they have another digest".to_owned(),
                });
            }
            Ok(Some(contents))
        })
    }

    fn get_all(
        &self,
        digests: Vec<Digest>,
    ) -> BoxFuture<'_, Result<Vec<Option<Bytes>>, StoreError>> {
        Box::pin(async move {
            if let Some(directory) = self.directory.clone() {
                // One thread for all: handing a small file to a thread takes longer than to read it.
                let all = move || {
                    let read = digests.into_iter().map(|digest| read(&directory, digest));
                    read.collect()
                };
                let read = tokio::task::spawn_blocking(all);
                return read.await.map_err(failed)?;
            }
            let read = digests
                .into_iter()
                .map(async |digest| match self.get(digest).await {
                    Err(StoreError::Corrupt { .. }) => Ok(None),
                    contents => contents,
                });
            stream::iter(read).buffered(PARALLEL).try_collect().await
        })
    }

    fn delete(&self, digest: Digest) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.claim().await?;
            match self.objects.delete(&key(digest)).await {
                Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(self.failed(&error)),
            }
        })
    }

    fn all(&self) -> BoxStream<'_, Result<Digest, StoreError>> {
        let claimed = stream::once(self.claim());
        let digests = claimed.map_ok(|()| {
            let objects = self.objects.list(None);
            objects
                .map_err(|error| self.failed(&error))
                .try_filter_map(async |object| Ok(digest_at(&object.location)))
        });
        digests.try_flatten().boxed()
    }
}
