//! Saves whose digests are computed later.

use std::fs::{self, File};
use std::io::{self, Write};

use super::{FILE, MemoryFile, Parts, SavedDirectory, SavedManifest, Unreadable};
use crate::disk::Disk;

/// File name of a manifest that replaces the one in its directory.
const NEXT: &str = "manifest.json.next";

impl SavedDirectory {
    /// Like [`SavedDirectory::publish`], without reading the memory back: the manifest has the inodes of its files, until
    /// [`SavedDirectory::add_digests`].
    ///
    /// # Errors
    /// When the disk is full or fails; `place` does not exist then.
    pub fn publish_undigested(
        &self,
        parts: Parts,
        disk: &Disk,
        place: &Self,
    ) -> io::Result<SavedManifest> {
        // Before the manifest: one that is found after a power failure shows that the rest is on disk, too.
        disk.sync()?;
        let memory = self.memory_files(&parts, MemoryFile::with_inode)?;
        let manifest = SavedManifest::new(parts, memory);
        self.write_synced(FILE, &manifest)?;
        fs::rename(&self.0, &place.0)?;
        Ok(manifest)
    }

    /// Computes the digests that the manifest lacks, and replaces it. `going_on` fails when the work is cancelled.
    /// Returns the new manifest; `None` if it lacked none.
    ///
    /// # Errors
    /// When the save is missing, damaged or unreadable, when the disk is full, and when the work is cancelled. The
    /// manifest is unchanged then.
    pub fn add_digests(
        &self,
        going_on: impl Fn() -> io::Result<()>,
    ) -> Result<Option<SavedManifest>, Unreadable> {
        let mut manifest = SavedManifest::read(&self.0)?;
        if manifest.has_digests() {
            return Ok(None);
        }
        for file in &mut manifest.memory {
            *file = file.add_digest(&self.memory(), &going_on)?;
        }
        self.write_synced(NEXT, &manifest)?;
        fs::rename(self.0.join(NEXT), self.0.join(FILE))?;
        Ok(Some(manifest))
    }

    fn write_synced(&self, name: &str, manifest: &SavedManifest) -> io::Result<()> {
        let mut file = File::create(self.0.join(name))?;
        file.write_all(&serde_json::to_vec_pretty(manifest)?)?;
        file.sync_all()
    }
}
