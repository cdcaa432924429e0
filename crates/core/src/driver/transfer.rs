//! Exports and imports of snapshots.

use std::fmt;
use std::path::PathBuf;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::id::SnapshotId;
use crate::snapshot::Saved;

/// The minimum length of a secret for an export key, in bytes.
const SECRET_MIN: usize = 32;

/// The key that seals an installation's exports and authenticates its imports. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ExportKey([u8; 32]);

/// The secret is too short for a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an export key needs at least {SECRET_MIN} bytes: make one with `openssl rand -hex 32`")]
pub struct ShortSecret;

impl ExportKey {
    /// Derives the key from `secret`, without leading and trailing white space. Installations with
    /// the same secret accept each other's exports.
    ///
    /// # Errors
    /// When the secret is short enough to guess.
    pub fn from_secret(secret: &[u8]) -> Result<Self, ShortSecret> {
        let secret = secret.trim_ascii();
        if secret.len() < SECRET_MIN {
            return Err(ShortSecret);
        }
        Ok(Self(derived(secret, b"snapshot-export-key")))
    }

    /// The bytes of the key.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// An identifier that reveals nothing about the key.
    #[must_use]
    pub fn id(&self) -> String {
        hex::encode(&derived(&self.0, b"id")[..8])
    }
}

fn derived(secret: &[u8], purpose: &[u8]) -> [u8; 32] {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else {
        unreachable!("HMAC takes keys of any length")
    };
    mac.update(purpose);
    mac.finalize().into_bytes().into()
}

impl fmt::Debug for ExportKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExportKey(…)")
    }
}

/// A snapshot to export to a file of the node.
#[derive(Debug, Clone)]
pub struct ExportRequest {
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// The file. It must not exist yet.
    pub target: PathBuf,
    /// The text that [`Imported::note`] returns.
    pub note: String,
    /// The key that seals it.
    pub key: ExportKey,
}

/// A snapshot to import from a file of the node.
#[derive(Debug, Clone)]
pub struct ImportRequest {
    /// The file.
    pub source: PathBuf,
    /// The id of the new snapshot.
    pub snapshot: SnapshotId,
    /// The key that must have sealed it.
    pub key: ExportKey,
    /// Accept a file that another key sealed. The runtime loads its memory and runs its programs as
    /// the author of the file wrote them.
    pub trust: bool,
    /// The largest size of its memory and files together, in bytes.
    pub max_bytes: u64,
}

/// An imported snapshot.
#[derive(Debug, Clone)]
pub struct Imported {
    /// Its contents, measured on this node.
    pub saved: Saved,
    /// The note of the export.
    pub note: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_secret_makes_one_key_and_a_short_one_makes_none() {
        let secret = "0123456789abcdef0123456789abcdef";
        let key = ExportKey::from_secret(secret.as_bytes()).unwrap();
        let with_blanks = format!("{secret}\n");
        let again = ExportKey::from_secret(with_blanks.as_bytes()).unwrap();
        assert_eq!((&key, key.id()), (&again, again.id()));
        let other = ExportKey::from_secret(secret.to_uppercase().as_bytes()).unwrap();
        assert_ne!(key.id(), other.id());
        assert!(!key.id().contains(&hex::encode(key.bytes())[..16]));
        assert_eq!(format!("{key:?}"), "ExportKey(…)");
        assert_eq!(ExportKey::from_secret(b"short  \n"), Err(ShortSecret));
    }
}
