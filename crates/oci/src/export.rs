//! A snapshot as one file, to be carried to another installation.
//!
//! The file is a tar archive without compression, with these members in this order, and a seal
//! behind it:
//!
//! ```text
//! export.json      what the file is, and which key sealed it
//! manifest.json    the manifest of the snapshot, with the digests of its memory
//! envd             the daemon that runs in the memory
//! memory/<name>    what the runtime wrote, as the manifest lists it
//! files/…          what the sandbox wrote: the upper directory of its overlay
//! ```
//!
//! The seal is a digest of every byte before it and a MAC of that digest. An archive is taken for
//! hostile until the seal has been compared, and the one of a stranger whom the caller trusts
//! stays so: it is unpacked by the code that unpacks the layers of images, member by member, and
//! every name is expected, parsed, or refused.
//!
//! What overlayfs keeps as devices and as attributes `trusted.*`, the archive has as records of
//! its own ([`shoal_images::unpack`]): no device and no such attribute is taken from an archive.
//! The overlay's `work` directory is not in it.

mod archive;
mod receive;
mod seal;
mod stop;
mod upper;

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use shoal_core::driver::{DriverError, ExportKey};
use shoal_images::unpack::Limits;

pub(crate) use self::archive::{Archive, Entry};
pub(crate) use self::receive::{Terms, receive};
pub(crate) use self::stop::{Stop, Transfers};
pub(crate) use self::upper::write_upper;

/// What the first member begins with, so that another archive is not taken for an export.
const FORMAT: &str = "shoal-snapshot-export";
/// The version that is written and read. Version 1 was not sealed.
const VERSION: u32 = 2;
/// The names in the archive.
const EXPORT: &str = "export.json";
const MANIFEST: &str = "manifest.json";
pub(crate) const ENVD: &str = "envd";
const MEMORY: &str = "memory";
const FILES: &str = "files";

/// What an export says of itself.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Head {
    format: String,
    version: u32,
    /// What tells the key that sealed it from others.
    #[serde(default)]
    key: String,
    /// What the engine wants to know of it again.
    note: String,
}

impl Head {
    /// Of an export with this note, sealed with this key.
    pub(crate) fn new(note: String, key: &ExportKey) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            key: key.id(),
            note,
        }
    }
}

/// Writes the members before the memory.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write_head<W: io::Write>(
    archive: &mut Archive<W>,
    head: &Head,
    manifest: &shoal_node::saved::Manifest,
) -> io::Result<()> {
    archive.small(EXPORT, &serde_json::to_vec_pretty(head)?)?;
    archive.small(MANIFEST, &serde_json::to_vec_pretty(manifest)?)
}

/// Takes in an archive without its seal, as if it were sealed with a key of this installation:
/// the door for fuzzing, behind which lies everything that an import passes through. `directory`
/// is empty.
///
/// # Errors
/// When it is refused; a part of it is in the directory then.
pub fn receive_bytes(archive: &[u8], directory: &Path, limits: &Limits) -> Result<(), DriverError> {
    let Ok(key) = ExportKey::from_secret(&[b'k'; 32]) else {
        unreachable!("the secret is long enough")
    };
    let mut sealed = archive.to_vec();
    sealed.extend_from_slice(&seal::Seal::new(&blake3::hash(archive), &key).to_bytes());
    let terms = Terms {
        key: &key,
        trust: true,
        limits: *limits,
        accept: &|_| Ok(shoal_node::rootfs::USERS),
        make_files: &|path| std::fs::create_dir(path),
        stop: &Stop::never(),
    };
    let length = sealed.len() as u64;
    receive(&sealed[..], length, directory, &terms).map(drop)
}

#[cfg(test)]
mod tests;
