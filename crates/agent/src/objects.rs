//! Checkpoints outside of the node: in a bucket, or in a directory that nodes share.
//!
//! ```text
//! <url>/<cluster>/<namespace>/<key>/…                the files of a checkpoint
//! <url>/<cluster>/<namespace>/<key>/manifest.json    the last one that is written, and the first one that is deleted
//! ```
//!
//! The contents are not trusted: an id is of one manifest, and the manifest has the digests of all files.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use futures_util::TryStreamExt;
use object_store::buffered::BufWriter;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Location;
use object_store::prefix::PrefixStore;
use object_store::{Error, ObjectStore, ObjectStoreExt};
use shoal_checkpoint::{
    CheckpointId, Key, LARGEST_MANIFEST, MANIFEST, Manifest, SavedFile, Store, StoreError,
};
use tokio::fs::File;
use tokio::io::{AsyncWriteExt, copy};
use url::Url;

use crate::transfers::{ReceiveError, manifest_of, receive};

/// Settings of the stores are variables of the environment with one of these prefixes, as for other clients of them.
const SETTINGS: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

/// The size of the parts of a file that are written at once, in bytes.
const PART: usize = 16 << 20;

/// Why a checkpoint was not copied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ObjectsError {
    /// The store fails, or has no such object.
    #[error("the object store: {0}")]
    Objects(#[from] Error),
    /// The checkpoint is damaged, or the node's disk fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file cannot be read.
    #[error("{0}: {1}")]
    File(String, std::io::Error),
    /// The store has other files.
    #[error("the object store: {0}")]
    Receive(#[from] ReceiveError),
}

/// The checkpoints of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Objects {
    objects: Arc<dyn ObjectStore>,
}

impl Objects {
    /// The checkpoints of a cluster at a URL: `s3://…`, `gs://…`, `az://…`, or `file:///…` of a directory that is there.
    /// `environment` has the settings of the store.
    pub(crate) fn open(
        url: &Url,
        cluster: &str,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, Error> {
        if let ("file", Ok(directory)) = (url.scheme(), url.to_file_path()) {
            let files = LocalFileSystem::new_with_prefix(directory)?;
            // A directory without files would be listed as a checkpoint.
            let files = files.with_automatic_cleanup(true).with_fsync(true);
            return Ok(Self::below(files, &Location::default().join(cluster)));
        }
        let is_setting = |name: &str| SETTINGS.iter().any(|prefix| name.starts_with(prefix));
        let settings = environment.into_iter().filter(|(name, _)| is_setting(name));
        let (objects, prefix) = object_store::parse_url_opts(url, settings)?;
        Ok(Self::below(objects, &prefix.join(cluster)))
    }

    pub(crate) fn below(objects: impl ObjectStore, prefix: &Location) -> Self {
        Self {
            objects: Arc::new(PrefixStore::new(objects, prefix.clone())),
        }
    }

    /// Copies a checkpoint from the node. It is visible when it is complete.
    pub(crate) async fn put(
        &self,
        store: &Store,
        namespace: &str,
        id: &CheckpointId,
    ) -> Result<(), ObjectsError> {
        let bytes = store.read_manifest(namespace, id.key())?;
        let manifest = store.manifest(namespace, id)?;
        let place = place(namespace, id.key());
        for SavedFile { name, .. } in &manifest.files {
            let mut file = File::from_std(store.open(namespace, id.key(), name)?);
            let location = within(&place, name);
            let mut writer = BufWriter::with_capacity(Arc::clone(&self.objects), location, PART);
            let copied = copy(&mut file, &mut writer).await;
            let failed = |error| ObjectsError::File(name.clone(), error);
            copied.map_err(failed)?;
            writer.shutdown().await.map_err(failed)?;
        }
        self.objects
            .put(&place.join(MANIFEST), bytes.into())
            .await?;
        Ok(())
    }

    /// The manifest of a checkpoint.
    pub(crate) async fn manifest(
        &self,
        namespace: &str,
        id: &CheckpointId,
    ) -> Result<(Vec<u8>, Manifest), ObjectsError> {
        let location = place(namespace, id.key()).join(MANIFEST);
        let found = self.objects.get(&location).await?;
        if found.meta.size > LARGEST_MANIFEST {
            return Err(ReceiveError::Longer(MANIFEST.to_owned()).into());
        }
        let bytes = found.bytes().await?.to_vec();
        let manifest = manifest_of(id, &bytes)?;
        Ok((bytes, manifest))
    }

    /// Copies the files of a checkpoint into a directory. They are not verified.
    pub(crate) async fn get(
        &self,
        namespace: &str,
        id: &CheckpointId,
        manifest: &Manifest,
        directory: &Path,
    ) -> Result<(), ObjectsError> {
        let place = place(namespace, id.key());
        for saved in &manifest.files {
            let found = self.objects.get(&within(&place, &saved.name)).await?;
            receive(
                directory,
                saved,
                found.into_stream().err_into::<ObjectsError>(),
            )
            .await?;
        }
        Ok(())
    }

    /// Deletes a checkpoint: hides it first. One that is gone is no error.
    pub(crate) async fn delete(&self, namespace: &str, key: &Key) -> Result<(), ObjectsError> {
        let place = place(namespace, key);
        let manifest = within(&place, MANIFEST);
        let found = self.objects.list(Some(&place));
        let found: Vec<Location> = found.map_ok(|found| found.location).try_collect().await?;
        let others = found.into_iter().filter(|file| *file != manifest);
        for file in [manifest.clone()].into_iter().chain(others) {
            match self.objects.delete(&file).await {
                Err(Error::NotFound { .. }) => {}
                deleted => deleted?,
            }
        }
        Ok(())
    }

    /// The checkpoints of which there is a file: namespaces and keys.
    pub(crate) async fn list(&self) -> Result<BTreeSet<(String, Key)>, ObjectsError> {
        let mut found = BTreeSet::new();
        let namespaces = self.objects.list_with_delimiter(None).await?;
        for namespace in namespaces.common_prefixes {
            let within = self.objects.list_with_delimiter(Some(&namespace)).await?;
            let keys = within.common_prefixes.iter();
            let keys = keys.filter_map(|place| place.filename()?.parse::<Key>().ok());
            let name = namespace.filename().unwrap_or_default();
            found.extend(keys.map(|key| (name.to_owned(), key)));
        }
        Ok(found)
    }
}

fn place(namespace: &str, key: &Key) -> Location {
    Location::default().join(namespace).join(key.as_str())
}

/// The location of a file, whose name has up to two parts.
fn within(place: &Location, name: &str) -> Location {
    let parts = name.split('/');
    parts.fold(place.clone(), |place, part| place.join(part))
}

#[cfg(test)]
mod tests;
