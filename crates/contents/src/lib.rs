//! The contents of session files under their digests, in an object store.
//!
//! Contents are at `<first two digits>/<digest>`. They are never changed, only written and deleted. What is read is compared with its
//! digest, so that a damaged or exchanged object is an error, and never a user's file.

#![forbid(unsafe_code)]

mod remote;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{Error, ObjectStore, ObjectStoreExt};
use sha2::{Digest as _, Sha256};
use shoal_core::BoxFuture;
use shoal_core::detail::{Chain, HostDetail};
use shoal_core::ports::sessions::files::Digest;
use shoal_core::store::{ContentStore, StoreError};

/// Contents in an object store.
#[derive(Debug, Clone)]
pub struct ObjectContents {
    objects: Arc<dyn ObjectStore>,
    /// Whether it is elsewhere: then a failure passes.
    remote: bool,
}

impl ObjectContents {
    /// Contents in a directory, which is made when it is missing. What was written survives a loss of power.
    ///
    /// # Errors
    /// When the directory cannot be made or read.
    pub fn in_directory(directory: &Path) -> Result<Self, StoreError> {
        std::fs::create_dir_all(directory).map_err(failed)?;
        let files = LocalFileSystem::new_with_prefix(directory).map_err(failed)?;
        Ok(Self::new(Arc::new(files.with_fsync(true))))
    }

    /// Contents in the object store of a cloud, which a URL names: `s3://bucket/prefix`, `gs://bucket/prefix` or
    /// `az://container/prefix`. Credentials, region and endpoint come from the environment, under the names that the
    /// clouds' own tools use. Nothing is asked of the store yet.
    ///
    /// # Errors
    /// When the URL names no store, or the environment lacks what it needs.
    pub fn at(url: &str) -> Result<Self, StoreError> {
        Ok(Self {
            objects: remote::open(url)?,
            remote: true,
        })
    }

    /// Contents in any object store.
    #[must_use]
    pub fn new(objects: Arc<dyn ObjectStore>) -> Self {
        Self {
            objects,
            remote: false,
        }
    }

    /// A request that failed.
    fn failed(&self, error: &Error) -> StoreError {
        let said = HostDetail::new(format_args!("contents of session files: {}", Chain(error)));
        if self.remote {
            StoreError::Unavailable(said)
        } else {
            StoreError::Failed(said)
        }
    }
}

fn failed(error: impl std::error::Error) -> StoreError {
    let error: &dyn std::error::Error = &error;
    StoreError::failed(format_args!("contents of session files: {}", Chain(error)))
}

/// Where contents are.
fn key(digest: Digest) -> Key {
    let digest = digest.to_string();
    Key::from_iter([&digest[..2], digest.as_str()])
}

impl ContentStore for ObjectContents {
    fn put(&self, digest: Digest, contents: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let put = self.objects.put(&key(digest), contents.into()).await;
            put.map(drop).map_err(|error| self.failed(&error))
        })
    }

    fn get(&self, digest: Digest) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        Box::pin(async move {
            let found = match self.objects.get(&key(digest)).await {
                Ok(found) => found,
                Err(Error::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(self.failed(&error)),
            };
            let contents = found.bytes().await.map_err(|error| self.failed(&error))?;
            if Sha256::digest(&contents).as_slice() != digest.0 {
                return Err(StoreError::Corrupt {
                    key: format!("contents {digest}"),
                    detail: "they have another digest".to_owned(),
                });
            }
            Ok(Some(contents))
        })
    }

    fn delete(&self, digest: Digest) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            match self.objects.delete(&key(digest)).await {
                Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(self.failed(&error)),
            }
        })
    }

    fn all(&self) -> BoxStream<'_, Result<Digest, StoreError>> {
        let objects = self.objects.list(None).map_err(|error| self.failed(&error));
        // Anything else in there is not ours.
        let digests = objects.try_filter_map(async |object| {
            Ok(object
                .location
                .filename()
                .and_then(|name| name.parse().ok()))
        });
        digests.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(contents: &[u8]) -> Digest {
        Digest(Sha256::digest(contents).into())
    }

    #[tokio::test]
    async fn contents_are_kept_under_their_digest() {
        let directory = tempfile::tempdir().unwrap();
        let contents = ObjectContents::in_directory(&directory.path().join("new")).unwrap();
        let text = Bytes::from_static(b"text");
        let at = digest(&text);
        assert_eq!(contents.get(at).await.unwrap(), None);
        contents.put(at, text.clone()).await.unwrap();
        contents.put(at, text.clone()).await.unwrap();
        assert_eq!(contents.get(at).await.unwrap(), Some(text));
        let all: Vec<_> = contents.all().try_collect().await.unwrap();
        assert_eq!(all, [at]);
        contents.delete(at).await.unwrap();
        contents.delete(at).await.unwrap();
        assert_eq!(contents.get(at).await.unwrap(), None);
    }

    #[tokio::test]
    async fn damaged_contents_are_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let contents = ObjectContents::in_directory(directory.path()).unwrap();
        let at = digest(b"text");
        contents.put(at, Bytes::from_static(b"tent")).await.unwrap();
        let read = contents.get(at).await.unwrap_err();
        assert!(matches!(read, StoreError::Corrupt { .. }), "{read}");
    }
}
