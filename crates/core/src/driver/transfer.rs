//! Snapshots that are carried from one installation to another.

use std::fmt;
use std::path::PathBuf;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::id::SnapshotId;
use crate::snapshot::Saved;

/// The fewest bytes of a secret that an export key is made of.
const SECRET_MIN: usize = 32;

/// The key with which an installation seals its exports and knows them again. Not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ExportKey([u8; 32]);

/// A secret that is too short to make a key of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an export key needs at least {SECRET_MIN} bytes: make one with `openssl rand -hex 32`")]
pub struct ShortSecret;

impl ExportKey {
    /// The key that belongs to `secret`, whose blanks at either end do not count. Installations
    /// with the same secret accept each other's exports.
    ///
    /// # Errors
    /// When it is so short that it may be guessed.
    pub fn from_secret(secret: &[u8]) -> Result<Self, ShortSecret> {
        let secret = secret.trim_ascii();
        if secret.len() < SECRET_MIN {
            return Err(ShortSecret);
        }
        Ok(Self(derived(secret, b"snapshot-export-key")))
    }

    /// The key itself.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// What tells this key from others, and says nothing else about it.
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

/// A snapshot to be written to a file of the node.
#[derive(Debug, Clone)]
pub struct ExportOrder {
    /// Which.
    pub snapshot: SnapshotId,
    /// The file, which is not there yet.
    pub target: PathBuf,
    /// What [`Imported::note`] is to say again.
    pub note: String,
    /// What it is sealed with.
    pub key: ExportKey,
}

/// A snapshot to be taken in from a file of the node.
#[derive(Debug, Clone)]
pub struct ImportOrder {
    /// The file.
    pub source: PathBuf,
    /// What it is to be found by.
    pub snapshot: SnapshotId,
    /// What it is to be sealed with.
    pub key: ExportKey,
    /// Take it in although it is sealed with another key. Its memory goes into the runtime, and its
    /// programs run, as whoever made the file wrote them.
    pub trust: bool,
    /// The most bytes that it may take, of memory and files together.
    pub max_bytes: u64,
}

/// A snapshot that was taken in.
#[derive(Debug, Clone)]
pub struct Imported {
    /// What it holds, as counted here.
    pub saved: Saved,
    /// What it was exported with.
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
