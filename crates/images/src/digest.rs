//! SHA-256 digests, and readers that compute them.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The number of digits shown to people, as in other tools.
const SHORT: usize = 12;

/// The SHA-256 of a blob, written `sha256:` and 64 hexadecimal digits.
///
/// Other algorithms are refused. No registry in use serves images by them, and with one algorithm a
/// blob has only one name on disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// A text that is not a supported digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a sha256 digest")]
pub struct InvalidDigest(String);

impl Digest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The 64 hexadecimal digits, for a file name.
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

    /// Parses the 64 lower-case hexadecimal digits.
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

/// A reader that computes the digest and the length of the bytes read.
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

    /// The digest and the length of the bytes read so far.
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
    fn a_digest_round_trips_as_text() {
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let digest: Digest = text.parse().unwrap();
        assert_eq!(digest, Digest::of(b""));
        assert_eq!(digest.to_string(), text);
        assert_eq!(digest.short(), "e3b0c44298fc");
    }

    #[test]
    fn a_path_is_not_a_digest() {
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
    fn a_reader_computes_the_digest_of_the_bytes_read() {
        let mut reader = Hashing::new(&b"hello"[..]);
        io::copy(&mut reader, &mut io::sink()).unwrap();
        assert_eq!(reader.finish(), (Digest::of(b"hello"), 5));
    }
}
