//! Saves whose digests are computed later.

use std::fs::{self, File};
use std::io::{self, Write};

use super::{FILE, SavedDirectory, SavedManifest, Stamp, Unreadable};

/// File name of a manifest that replaces the one in its directory.
const NEXT: &str = "manifest.json.next";

impl SavedDirectory {
    /// Computes the digests that the manifest lacks, and replaces it. `going_on` fails when the work is cancelled.
    /// Returns the stamp of the files that were read; `None` if no digest was missing.
    ///
    /// # Errors
    /// When the save is missing, damaged or unreadable, when the disk is full, and when the work is cancelled. The
    /// manifest is unchanged then.
    pub fn add_digests(
        &self,
        going_on: impl Fn() -> io::Result<()>,
    ) -> Result<Option<Stamp>, Unreadable> {
        let early = SavedManifest::read(&self.0)?;
        if early.has_digests() {
            return Ok(None);
        }
        let mut manifest = early.clone();
        for file in &mut manifest.memory {
            *file = file.add_digest(&self.memory(), &going_on)?;
        }
        let stamp = manifest.stamp(&self.0);
        // After the stamp, which would otherwise cover a file that was changed after it was read.
        early.verify(&self.0)?;
        let replaced = self
            .write_synced(NEXT, &manifest)
            .and_then(|()| fs::rename(self.0.join(NEXT), self.0.join(FILE)));
        if replaced.is_err() {
            // The first error is the one to report.
            let _ = fs::remove_file(self.0.join(NEXT));
        }
        replaced?;
        Ok(stamp)
    }

    pub(super) fn write_synced(&self, name: &str, manifest: &SavedManifest) -> io::Result<()> {
        let mut file = File::create(self.0.join(name))?;
        file.write_all(&serde_json::to_vec_pretty(manifest)?)?;
        file.sync_all()
    }
}
