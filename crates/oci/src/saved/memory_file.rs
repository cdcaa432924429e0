//! The files that a runtime writes, and their digests.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// How many bytes are read for a digest at a time: enough for all processors.
const PIECE: u64 = 4 << 20;

/// One file that the runtime wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemoryFile {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// BLAKE3, in hexadecimal digits.
    pub(super) digest: String,
}

impl MemoryFile {
    /// What a file is now.
    ///
    /// # Errors
    /// When it cannot be read, to its last byte.
    pub(super) fn of(directory: &Path, name: &str) -> io::Result<Self> {
        let mut file = File::open(directory.join(name))?;
        let mut hasher = blake3::Hasher::new();
        let mut piece = Vec::new();
        // Not mapped: a disk that cannot give a page would end the server, and not this alone.
        while file.by_ref().take(PIECE).read_to_end(&mut piece)? > 0 {
            hasher.update_rayon(&piece);
            piece.clear();
        }
        Ok(Self {
            name: name.to_owned(),
            bytes: hasher.count(),
            digest: hasher.finalize().to_hex().to_string(),
        })
    }
}
