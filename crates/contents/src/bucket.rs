//! Buckets of S3 and of compatible stores.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::path::Path as Key;
use object_store::prefix::PrefixStore;
use object_store::{Error, ObjectStore, RetryConfig};
use shoal_core::store::StoreError;

use crate::detail;

/// How often a request is tried again, and how long that may take. Calls of the API wait for it.
const RETRIES: usize = 3;
const RETRIED: Duration = Duration::from_secs(20);

const SCHEME: &str = "s3://";

/// A bucket, or a part of it, by URL: `s3://bucket/prefix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    name: String,
    prefix: Key,
}

/// No URL of a bucket.
#[derive(Debug, thiserror::Error)]
#[error("no URL like s3://bucket/prefix")]
pub struct InvalidBucket;

impl FromStr for Bucket {
    type Err = InvalidBucket;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = text.strip_prefix(SCHEME).ok_or(InvalidBucket)?;
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_named =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        let is_plain = |byte: u8| is_named(byte) || byte == b'/';
        if name.is_empty() || !name.bytes().all(is_named) || !prefix.bytes().all(is_plain) {
            return Err(InvalidBucket);
        }
        Ok(Self {
            name: name.to_owned(),
            prefix: Key::parse(prefix).map_err(|_| InvalidBucket)?,
        })
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.name)?;
        if !self.prefix.as_ref().is_empty() {
            write!(f, "/{}", self.prefix)?;
        }
        Ok(())
    }
}

impl Bucket {
    /// The objects of the bucket. Credentials, region and endpoint come from the environment, under the names that other clients of
    /// S3 use (`AWS_…`).
    ///
    /// # Errors
    /// When the environment lacks a required variable.
    pub(crate) fn open(&self) -> Result<Arc<dyn ObjectStore>, Error> {
        self.open_with(AmazonS3Builder::from_env())
    }

    /// The same with other settings than those of the environment.
    pub(crate) fn open_with(
        &self,
        builder: AmazonS3Builder,
    ) -> Result<Arc<dyn ObjectStore>, Error> {
        let retry = RetryConfig {
            max_retries: RETRIES,
            retry_timeout: RETRIED,
            ..RetryConfig::default()
        };
        let bucket = builder.with_bucket_name(&self.name).with_retry(retry);
        Ok(self.below(bucket.build()?))
    }

    /// The part of the bucket that is ours.
    pub(crate) fn below(&self, objects: impl ObjectStore) -> Arc<dyn ObjectStore> {
        Arc::new(PrefixStore::new(objects, self.prefix.clone()))
    }
}

/// A request that failed: when it may succeed later, callers try again.
pub(crate) fn failed(error: &Error) -> StoreError {
    let said = detail(error);
    match error {
        Error::Generic { .. } => StoreError::Unavailable(said),
        _ => StoreError::Failed(said),
    }
}
