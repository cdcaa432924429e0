//! `multipart/form-data`, as the daemon reads it.

// The daemon is a program and no library: these two files of it stand alone.
#[cfg_attr(not(test), expect(dead_code, reason = "the daemon uses the rest"))]
#[path = "../../crates/envd/src/files/disposition.rs"]
mod disposition;
#[path = "../../crates/envd/src/files/multipart.rs"]
mod multipart_reader;

use std::io::{self, Read};

use multipart_reader::Multipart;

/// A body of parts between `--x`: what is read does not depend on how it arrives, and is never
/// more than what arrived.
pub fn multipart(data: &[u8]) {
    let text = String::from_utf8_lossy(data.get(..64).unwrap_or(data));
    // Only that it does not panic.
    let _ = multipart_reader::boundary(&text);
    let whole = parts(data);
    assert_eq!(whole, parts(OneByOne(data)));
    let total: usize = whole.parts.iter().map(Vec::len).sum();
    assert!(total <= data.len());
}

/// The files that were read, and whether the body was whole.
#[derive(Debug, PartialEq, Eq)]
struct Parts {
    parts: Vec<Vec<u8>>,
    whole: bool,
}

fn parts(body: impl Read) -> Parts {
    let mut reader = Multipart::new(body, "x");
    let mut parts = Vec::new();
    loop {
        match reader.next_part() {
            Ok(Some(_)) => (),
            Ok(None) => return Parts { parts, whole: true },
            Err(_) => break,
        }
        let mut part = Vec::new();
        if reader.read_to_end(&mut part).is_err() {
            break;
        }
        parts.push(part);
    }
    Parts {
        parts,
        whole: false,
    }
}

/// Bytes that arrive as slowly as can be.
struct OneByOne<'a>(&'a [u8]);

impl Read for OneByOne<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = buffer.len().min(1);
        self.0.read(buffer.get_mut(..count).unwrap_or_default())
    }
}
