//! Content by its SHA-256, and readers that know what they have read.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// How much of a digest is enough for a person, as other tools show it.
const SHORT: usize = 12;

/// The SHA-256 of a content, written `sha256:` and 64 hexadecimal digits.
///
/// Other algorithms are refused: no registry in use serves images by them, and one algorithm
/// means that one name on disk is enough.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// A text that is not a digest that is understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a sha256 digest")]
pub struct InvalidDigest(String);

impl Digest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The 64 hexadecimal digits: a name for a file.
    #[must_use]
    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }

    /// The first digits, for people.
    #[must_use]
    pub fn short(&self) -> String {
        let mut text = self.hex();
        text.truncate(SHORT);
        text
    }

    /// From the 64 hexadecimal digits alone; lower case, as every digest is written.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let lower = text.bytes().all(|b| !b.is_ascii_uppercase());
        let mut bytes = [0; 32];
        (lower && hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(Self(bytes))
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        text.strip_prefix("sha256:")
            .and_then(Self::from_hex)
            .ok_or_else(|| InvalidDigest(text.chars().take(80).collect()))
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads through, and knows the digest and the length of what it has read.
pub(crate) struct Hashing<R> {
    inner: R,
    hasher: Sha256,
    count: u64,
}

impl<R: Read> Hashing<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            hasher: Sha256::new(),
            count: 0,
        }
    }

    /// What was read so far: its digest and its length.
    pub(crate) fn finish(self) -> (Digest, u64) {
        (Digest(self.hasher.finalize().into()), self.count)
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(into)?;
        self.hasher.update(&into[..n]);
        self.count += n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_as_it_is_read() {
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let digest: Digest = text.parse().unwrap();
        assert_eq!(digest, Digest::of(b""));
        assert_eq!(digest.to_string(), text);
        assert_eq!(digest.short(), "e3b0c44298fc");
    }

    #[test]
    fn what_could_be_a_path_is_not_a_digest() {
        let upper = format!("sha256:{}", "A".repeat(64));
        let short = format!("sha256:{}", "a".repeat(63));
        for bad in [
            "",
            "sha256:",
            "sha256:../../etc",
            "sha512:00",
            &upper,
            &short,
        ] {
            assert!(bad.parse::<Digest>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_reader_knows_what_went_through_it() {
        let mut reader = Hashing::new(&b"hello"[..]);
        io::copy(&mut reader, &mut io::sink()).unwrap();
        assert_eq!(reader.finish(), (Digest::of(b"hello"), 5));
    }
}
