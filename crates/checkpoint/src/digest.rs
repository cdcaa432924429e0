//! Digests of files.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

/// How much of a file is read at once.
const PIECE: usize = 1 << 20;

/// A file that was read to its end: its identity, and its digest. While the former stays the same, so does the latter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digested {
    /// The device.
    pub device: u64,
    /// The number of the file on it.
    pub inode: u64,
    /// The size in bytes.
    pub size: u64,
    /// When the file last changed, in nanoseconds. No program can set this time.
    pub changed: i128,
    /// The BLAKE3 digest of the contents, in hexadecimal digits.
    pub digest: String,
}

impl Digested {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or changes meanwhile.
    pub fn read(file: &File) -> io::Result<Self> {
        let before = Self::stamp(file)?;
        let digest = file_digest(file)?;
        if Self::stamp(file)? != before {
            return Err(io::Error::other("it changed while it was read"));
        }
        Ok(Self { digest, ..before })
    }

    /// Whether the open file is still the one that was read.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn is_unchanged(&self, file: &File) -> io::Result<bool> {
        let now = Self::stamp(file)?;
        let known = Self {
            digest: String::new(),
            ..self.clone()
        };
        Ok(now == known)
    }

    fn stamp(file: &File) -> io::Result<Self> {
        let seen = file.metadata()?;
        Ok(Self {
            device: seen.dev(),
            inode: seen.ino(),
            size: seen.len(),
            changed: i128::from(seen.ctime()) * 1_000_000_000 + i128::from(seen.ctime_nsec()),
            digest: String::new(),
        })
    }
}

/// The BLAKE3 digest of a file's contents, in hexadecimal digits.
///
/// # Errors
/// When it cannot be read.
pub fn file_digest(mut file: &File) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; PIECE];
    loop {
        let read = file.read(&mut piece)?;
        let Some(read) = piece.get(..read).filter(|read| !read.is_empty()) else {
            return Ok(hasher.finalize().to_hex().to_string());
        };
        hasher.update(read);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_changed_file_is_not_the_one_that_was_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, b"content").unwrap();
        let read = Digested::read(&File::open(&path).unwrap()).unwrap();
        assert_eq!(read.digest, blake3::hash(b"content").to_hex().to_string());
        assert!(read.is_unchanged(&File::open(&path).unwrap()).unwrap());
        // Another file with the same bytes is read again.
        let other = directory.path().join("other");
        fs::write(&other, b"content").unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(!read.is_unchanged(&File::open(&path).unwrap()).unwrap());
    }
}
