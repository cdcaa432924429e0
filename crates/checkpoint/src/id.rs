//! The names of checkpoints.

use std::fmt;
use std::str::FromStr;

/// The digits of a key.
const KEY_DIGITS: usize = 32;
/// The digits of a manifest's digest in an id. With the key, it fits into a label.
const DIGEST_DIGITS: usize = 24;

/// A text that names no checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the id of a checkpoint")]
pub struct InvalidId(String);

impl InvalidId {
    fn of(text: &str) -> Self {
        Self(text.chars().take(80).collect())
    }
}

/// The name of a checkpoint's directory: the UID of its `Checkpoint`, without hyphens. So the same `Checkpoint` always
/// leads to the same directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

impl Key {
    /// The key of a `Checkpoint` with this UID.
    ///
    /// # Errors
    /// When it is no UID.
    pub fn of_uid(uid: &str) -> Result<Self, InvalidId> {
        uid.replace('-', "").parse()
    }

    /// The key as a text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Key {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        if is_hex(text, KEY_DIGITS) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidId::of(text))
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of a checkpoint: its key, and the beginning of its manifest's digest. It identifies the
/// manifest, and with it the digests of all files, so a changed file is detected.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CheckpointId {
    key: Key,
    digest: String,
}

impl CheckpointId {
    /// The id of a checkpoint with this manifest.
    #[must_use]
    pub fn new(key: Key, manifest: &[u8]) -> Self {
        Self {
            key,
            digest: digest_of(manifest),
        }
    }

    /// The directory's name.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Whether this is the manifest that the id was made of.
    #[must_use]
    pub fn is_of(&self, manifest: &[u8]) -> bool {
        digest_of(manifest) == self.digest
    }
}

fn digest_of(manifest: &[u8]) -> String {
    let mut digest = blake3::hash(manifest).to_hex().to_string();
    digest.truncate(DIGEST_DIGITS);
    digest
}

fn is_hex(text: &str, digits: usize) -> bool {
    let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == digits && text.bytes().all(digit)
}

impl FromStr for CheckpointId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let (key, digest) = text.split_once('-').ok_or_else(|| InvalidId::of(text))?;
        if !is_hex(digest, DIGEST_DIGITS) {
            return Err(InvalidId::of(text));
        }
        let key = key.parse().map_err(|_| InvalidId::of(text))?;
        Ok(Self {
            key,
            digest: digest.to_owned(),
        })
    }
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.key, self.digest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_id_is_of_one_manifest_and_fits_into_a_label() {
        let key = Key::of_uid("01234567-89ab-cdef-0123-456789abcdef").unwrap();
        let id = CheckpointId::new(key.clone(), b"manifest");
        assert_eq!(id.to_string().parse::<CheckpointId>().unwrap(), id);
        assert!(id.to_string().len() <= 63);
        assert!(id.is_of(b"manifest") && !id.is_of(b"Manifest"));
        assert_eq!(id.key(), &key);
    }

    #[test]
    fn texts_that_lead_elsewhere_are_no_ids() {
        let good = CheckpointId::new("0".repeat(32).parse().unwrap(), b"");
        let hostile = ["", "..", "../x", "a/b", "/etc", "-", ".new", "0", "\0"];
        let long = format!("{good}0");
        let upper = good.to_string().to_uppercase();
        let slash = format!("../{good}");
        let end = format!("{good}/..");
        for text in hostile
            .into_iter()
            .chain([&*long, &*upper, &*slash, &*end, &*good.key().0])
        {
            assert!(text.parse::<CheckpointId>().is_err(), "{text:?}");
        }
        assert!(Key::of_uid("../../../../etc").is_err());
    }

    proptest! {
        #[test]
        fn an_id_is_one_plain_name(text in "\\PC*") {
            if let Ok(id) = text.parse::<CheckpointId>() {
                prop_assert!(!id.key().as_str().contains(['/', '.', '\0']));
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
