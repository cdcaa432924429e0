//! A snapshot in one file, for import by another installation.
//!
//! The file is an uncompressed tar archive with these members in this order, followed by a seal:
//!
//! ```text
//! export.json      the format, and the id of the sealing key
//! manifest.json    the manifest of the snapshot, with the digests of its memory
//! envd             the daemon that runs in the memory
//! memory/<name>    the runtime's checkpoint, as listed in the manifest
//! files/…          the sandbox's writable layer: the upper directory of its overlay
//! ```
//!
//! The seal is a digest of all preceding bytes and a MAC of that digest. An archive is hostile
//! until the seal has been verified. One of a stranger whom the caller trusts remains so. The code
//! that unpacks image layers unpacks it member by member, and every name is expected, parsed, or
//! refused.
//!
//! Overlayfs stores whiteouts as devices and attributes `trusted.*`; the archive has records of its
//! own for them ([`shoal_images::unpack`]). No device and no such attribute is accepted from an
//! archive. The overlay's `work` directory is not included.

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

/// Magic value of the first member, so that another archive is not mistaken for an export.
const FORMAT: &str = "shoal-snapshot-export";
/// The supported version. Version 1 was not sealed.
const VERSION: u32 = 2;
/// The member names.
const EXPORT: &str = "export.json";
const MANIFEST: &str = "manifest.json";
pub(crate) const ENVD: &str = "envd";
const MEMORY: &str = "memory";
const FILES: &str = "files";

/// The first member of an export.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Head {
    format: String,
    version: u32,
    /// The id of the key that sealed it.
    #[serde(default)]
    key: String,
    /// The engine's own data, returned at an import.
    note: String,
}

impl Head {
    /// For an export with this note and this key.
    pub(crate) fn new(note: String, key: &ExportKey) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            key: key.id(),
            note,
        }
    }
}

/// Writes the members in front of the memory.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write_head<W: io::Write>(
    archive: &mut Archive<W>,
    head: &Head,
    manifest: &shoal_node::saved::SavedManifest,
) -> io::Result<()> {
    archive.small(EXPORT, &serde_json::to_vec_pretty(head)?)?;
    archive.small(MANIFEST, &serde_json::to_vec_pretty(manifest)?)
}

/// Imports an archive without a seal as one that this installation sealed. This is
/// the entry point for fuzzing: it covers all code that an import passes through. `directory` is
/// empty.
///
/// # Errors When it is refused; a part of it is then in the directory.
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
