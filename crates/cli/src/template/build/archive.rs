//! The archive of a step, reproducible: the same bytes for the same files, always.

use std::fs::File;
use std::io::{self, Read, Seek, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::context::{Entries, Entry};

/// The hash that identifies a step's files: a digest of the step's arguments and of the archive,
/// and thus of names, permissions and contents.
pub(super) fn hash(args: &[String], entries: &Entries) -> io::Result<String> {
    let mut hasher = Hashed(Sha256::new());
    // The length prefix distinguishes `a b` from `ab `.
    hasher.0.update((args.len() as u64).to_be_bytes());
    for arg in args {
        hasher.0.update((arg.len() as u64).to_be_bytes());
        hasher.0.update(arg.as_bytes());
    }
    write(entries, &mut hasher)?;
    Ok(hex::encode(hasher.0.finalize()))
}

/// Writes the compressed archive to an unnamed file, and returns its length.
pub(super) fn pack(entries: &Entries) -> io::Result<(File, u64)> {
    let mut encoder = GzEncoder::new(tempfile::tempfile()?, Compression::fast());
    write(entries, &mut encoder)?;
    let mut file = encoder.finish()?;
    let length = file.stream_position()?;
    file.rewind()?;
    Ok((file, length))
}

fn write(entries: &Entries, out: impl Write) -> io::Result<()> {
    let mut tar = Builder::new(out);
    for (name, entry) in entries {
        let mut header = Header::new_gnu();
        header.set_mode(entry.mode());
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(0);
        match entry {
            Entry::Directory(_) => {
                header.set_entry_type(EntryType::Directory);
                tar.append_data(&mut header, name, io::empty())?;
            }
            Entry::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                tar.append_link(&mut header, name, target)?;
            }
            Entry::Text(text) => {
                header.set_size(text.len() as u64);
                tar.append_data(&mut header, name, text.as_bytes())?;
            }
            Entry::File(_, path) => {
                let with_path = |error: io::Error| {
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                };
                let file = File::open(path).map_err(with_path)?;
                let size = file.metadata().map_err(with_path)?.len();
                header.set_size(size);
                let whole = Whole { file, rest: size };
                tar.append_data(&mut header, name, whole)
                    .map_err(with_path)?;
            }
        }
    }
    tar.into_inner()?.flush()
}

/// A file of a fixed length: later data is ignored, and a shorter file is an error.
struct Whole {
    file: File,
    rest: u64,
}

impl Read for Whole {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.rest == 0 || buffer.is_empty() {
            return Ok(0);
        }
        let most = usize::try_from(self.rest)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let read = self.file.read(buffer.get_mut(..most).unwrap_or_default())?;
        if read == 0 {
            return Err(io::Error::other("it became shorter while it was read"));
        }
        self.rest -= read as u64;
        Ok(read)
    }
}

struct Hashed(Sha256);

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
