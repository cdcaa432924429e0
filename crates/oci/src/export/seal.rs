//! The seal at the end of an export.

use std::io::{self, Read, Write};

use blake3::{Hash, Hasher};
use shoal_core::driver::ExportKey;

use super::Stop;

/// The magic value of a seal.
const MAGIC: &[u8] = b"shoal-seal ";
/// Hexadecimal digits of a digest.
const DIGITS: usize = 64;
/// Two digests, separated by a blank and followed by a line feed.
pub(super) const SEAL_BYTES: usize = MAGIC.len() + DIGITS + 1 + DIGITS + 1;

/// The key derivation context of the MAC.
const MAC_CONTEXT: &str = "shoal snapshot export 2 mac";

/// The digest of an archive, and its MAC.
pub(super) struct Seal {
    digest: Hash,
    mac: Hash,
}

impl Seal {
    /// The seal of an archive with this digest.
    pub(super) fn new(digest: &Hash, key: &ExportKey) -> Self {
        Self {
            digest: *digest,
            mac: mac(digest, key),
        }
    }

    /// The seal as it is stored in the file.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let (digest, mac) = (self.digest.to_hex(), self.mac.to_hex());
        [MAGIC, digest.as_bytes(), b" ", mac.as_bytes(), b"\n"].concat()
    }

    /// Parses a seal; `None` if it is invalid.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = bytes.strip_prefix(MAGIC)?.strip_suffix(b"\n")?;
        let (digest, mac) = (text.get(..DIGITS)?, text.get(DIGITS..)?.strip_prefix(b" ")?);
        Some(Self {
            digest: Hash::from_hex(digest).ok()?,
            mac: Hash::from_hex(mac).ok()?,
        })
    }

    /// Whether it belongs to an archive with this digest.
    pub(super) fn is_of(&self, digest: &Hash) -> bool {
        self.digest == *digest
    }

    /// Whether it was made with this key. Digests are compared in constant time.
    pub(super) fn is_by(&self, key: &ExportKey) -> bool {
        self.mac == mac(&self.digest, key)
    }
}

fn mac(digest: &Hash, key: &ExportKey) -> Hash {
    let key = blake3::derive_key(MAC_CONTEXT, key.bytes());
    blake3::keyed_hash(&key, digest.as_bytes())
}

/// Forwards bytes and computes their digest.
pub(super) struct Digesting<T> {
    inner: T,
    hasher: Hasher,
    stop: Stop,
}

impl<T> Digesting<T> {
    pub(super) fn new(inner: T, stop: Stop) -> Self {
        Self {
            inner,
            hasher: Hasher::new(),
            stop,
        }
    }

    /// The digest, and the inner reader or writer.
    pub(super) fn finish(self) -> (Hash, T) {
        (self.hasher.finalize(), self.inner)
    }
}

impl<R: Read> Read for Digesting<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stop.check()?;
        let n = self.inner.read(into)?;
        self.hasher.update(&into[..n]);
        Ok(n)
    }
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stop.check()?;
        let n = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_of_one_content_and_by_one_key() {
        let key = |byte| ExportKey::from_secret(&[byte; 32]).unwrap();
        let digest = blake3::hash(b"content");
        let bytes = Seal::new(&digest, &key(b'a')).to_bytes();
        assert_eq!(bytes.len(), SEAL_BYTES);
        let seal = Seal::parse(&bytes).unwrap();
        assert!(seal.is_of(&digest) && seal.is_by(&key(b'a')));
        assert!(!seal.is_of(&blake3::hash(b"other")) && !seal.is_by(&key(b'b')));
        for bad in [
            &bytes[1..],
            &bytes[..SEAL_BYTES - 1],
            &[b'x'; SEAL_BYTES],
            b"",
        ] {
            assert!(Seal::parse(bad).is_none());
        }
    }
}
