//! The owner of a bucket: an object names the installation. The first to write it is the owner.

use std::sync::atomic::{AtomicBool, Ordering};

use object_store::path::Path as Key;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use shoal_core::store::StoreError;

use crate::bucket;

/// The name of the object.
const OWNER: &str = "owner";

/// How often it is looked for: before and after it is written.
const LOOKS: usize = 2;

/// An installation's claim to a bucket.
#[derive(Debug)]
pub(crate) struct Claim {
    bucket: String,
    installation: String,
    /// Whether it is the owner. An owner stays one.
    owned: AtomicBool,
}

impl Claim {
    pub(crate) fn new(bucket: String, installation: String) -> Self {
        Self {
            bucket,
            installation,
            owned: AtomicBool::new(false),
        }
    }

    /// Makes the installation the owner, unless it is.
    ///
    /// # Errors
    /// When another one is, or that is not known now.
    pub(crate) async fn ensure(&self, objects: &dyn ObjectStore) -> Result<(), StoreError> {
        if !self.owned.load(Ordering::Acquire) {
            // Calls that come at the same time do not wait for each other: the bucket may not answer.
            self.take(objects).await?;
            self.owned.store(true, Ordering::Release);
        }
        Ok(())
    }

    async fn take(&self, objects: &dyn ObjectStore) -> Result<(), StoreError> {
        let key = Key::from(OWNER);
        // Also a store that ignores the condition of the write keeps its first owner, unless two come at the same moment.
        for _ in 0..LOOKS {
            match objects.get(&key).await {
                Ok(found) => {
                    let owner = found
                        .bytes()
                        .await
                        .map_err(|error| bucket::failed(&error))?;
                    return self.compare(&String::from_utf8_lossy(&owner));
                }
                Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(bucket::failed(&error)),
            }
            let new = PutOptions::from(PutMode::Create);
            let owner = self.installation.clone().into();
            match objects.put_opts(&key, owner, new).await {
                Ok(_) | Err(Error::AlreadyExists { .. }) => {}
                Err(error) => return Err(bucket::failed(&error)),
            }
        }
        Err(StoreError::failed(format_args!(
            "{}/{OWNER} was written, and is not there",
            self.bucket
        )))
    }

    fn compare(&self, owner: &str) -> Result<(), StoreError> {
        let (bucket, own) = (&self.bucket, &self.installation);
        if owner == own {
            return Ok(());
        }
        Err(StoreError::failed(format_args!(
            "{bucket} has the session files of another installation, {owner:.64}, which would lose them; this one is {own}. Set \
             sessions.contents to a place of its own. If that installation is gone for good, delete {bucket}/{OWNER}"
        )))
    }
}
