//! The body of `POST /sync/apply`: changes, one after the other.
//!
//! A change is the length of its head (four bytes, most significant first), the head as JSON, and the contents that the head
//! announces. The body ends after a change.

use std::io::{self, Read};

use serde::{Deserialize, Serialize};
use shoal_session_files::path::SessionPath;
use shoal_session_files::state::Digest;

use super::{BATCH_MAX, CONTENTS_MAX};

/// The longest head, in bytes: a path, a digest and some words.
pub const HEAD_MAX: usize = 8 << 10;

/// The head of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The file.
    pub path: SessionPath,
    /// The file that its writer has seen there; none for no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Digest>,
    /// The file to write; none to remove it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Write>,
}

/// A file to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// The length of its contents.
    pub size: u64,
    /// Whether its owner may execute it.
    #[serde(default)]
    pub executable: bool,
}

/// A change with the contents of its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its head.
    pub head: Head,
    /// The contents; empty when the file is removed.
    pub contents: Vec<u8>,
}

/// A body that is no list of changes.
#[derive(Debug, thiserror::Error)]
pub enum InvalidFrame {
    /// It does not arrive as a whole.
    #[error("the changes end too early: {0}")]
    Read(#[from] io::Error),
    /// A head is too long.
    #[error("a change has a head of {0} bytes, more than {HEAD_MAX}")]
    LongHead(usize),
    /// A head is not what it should be.
    #[error("invalid head of a change: {0}")]
    Head(#[from] serde_json::Error),
    /// A file is too large.
    #[error("{path} has {size} bytes, more than {CONTENTS_MAX}")]
    Large {
        /// The file.
        path: SessionPath,
        /// Its announced length.
        size: u64,
    },
    /// There are too many.
    #[error("more than {BATCH_MAX} changes at once")]
    TooMany,
}

/// Encodes a head. The contents follow it.
///
/// # Errors
/// When the head cannot be encoded, or the contents are too large.
pub fn encode(head: &Head) -> Result<Vec<u8>, InvalidFrame> {
    if let Some(write) = head.write
        && write.size > CONTENTS_MAX
    {
        return Err(InvalidFrame::Large {
            path: head.path.clone(),
            size: write.size,
        });
    }
    let json = serde_json::to_vec(head)?;
    let length = u32::try_from(json.len()).map_err(|_| InvalidFrame::LongHead(json.len()))?;
    if json.len() > HEAD_MAX {
        return Err(InvalidFrame::LongHead(json.len()));
    }
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend_from_slice(&json);
    Ok(frame)
}

/// Reads changes from a body, each as a whole.
pub struct Changes<R> {
    body: R,
    count: usize,
}

impl<R: Read> Changes<R> {
    /// The changes of a body.
    pub fn new(body: R) -> Self {
        Self { body, count: 0 }
    }

    /// The next change; none at the end of the body.
    ///
    /// # Errors
    /// When the body has another format, or ends in the middle of a change.
    pub fn next_change(&mut self) -> Result<Option<Change>, InvalidFrame> {
        let mut length = [0; 4];
        if !self.fill_or_end(&mut length)? {
            return Ok(None);
        }
        self.count += 1;
        if self.count > BATCH_MAX {
            return Err(InvalidFrame::TooMany);
        }
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > HEAD_MAX {
            return Err(InvalidFrame::LongHead(length));
        }
        let mut json = vec![0; length];
        self.body.read_exact(&mut json)?;
        let head: Head = serde_json::from_slice(&json)?;
        let size = head.write.map_or(0, |write| write.size);
        if size > CONTENTS_MAX {
            let path = head.path;
            return Err(InvalidFrame::Large { path, size });
        }
        // Memory grows with the received bytes, not with the announced length.
        let mut contents = Vec::new();
        (&mut self.body).take(size).read_to_end(&mut contents)?;
        if contents.len() as u64 != size {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(Some(Change { head, contents }))
    }

    /// Fills a buffer. False if the body ends before it.
    fn fill_or_end(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let (first, rest) = buffer.split_at_mut(1);
        loop {
            match self.body.read(first) {
                Ok(0) => return Ok(false),
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.body.read_exact(rest)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn change(path: &str, contents: Option<&[u8]>) -> Change {
        Change {
            head: Head {
                path: path.parse().unwrap(),
                expected: contents.is_none().then_some(Digest([3; 32])),
                write: contents.map(|contents| Write {
                    size: contents.len() as u64,
                    executable: false,
                }),
            },
            contents: contents.unwrap_or_default().to_vec(),
        }
    }

    fn encoded(changes: &[Change]) -> Vec<u8> {
        let mut body = Vec::new();
        for change in changes {
            body.extend(encode(&change.head).unwrap());
            body.extend_from_slice(&change.contents);
        }
        body
    }

    fn decoded(body: &[u8]) -> Result<Vec<Change>, InvalidFrame> {
        let mut changes = Changes::new(body);
        let mut all = Vec::new();
        while let Some(change) = changes.next_change()? {
            all.push(change);
        }
        Ok(all)
    }

    #[test]
    fn a_body_is_bounded() {
        let head = |json: &str| {
            let length = u32::try_from(json.len()).unwrap();
            [&length.to_be_bytes(), json.as_bytes()].concat()
        };
        let large = head(r#"{"path":"a","write":{"size":67108865}}"#);
        assert!(matches!(decoded(&large), Err(InvalidFrame::Large { .. })));
        let endless = head(r#"{"path":"a","write":{"size":67108864}}"#);
        assert!(matches!(decoded(&endless), Err(InvalidFrame::Read(_))));
        let long = u32::MAX.to_be_bytes();
        assert!(matches!(decoded(&long), Err(InvalidFrame::LongHead(_))));
        for bad in [r#"{"path":"../a"}"#, r#"{"path":"/a"}"#, "{}", "", "x"] {
            assert!(
                matches!(decoded(&head(bad)), Err(InvalidFrame::Head(_))),
                "{bad}"
            );
        }
        let many = encoded(&vec![change("a", None); BATCH_MAX + 1]);
        assert!(matches!(decoded(&many), Err(InvalidFrame::TooMany)));
        let mut large = change("a", Some(b"")).head;
        large.write.as_mut().unwrap().size = CONTENTS_MAX + 1;
        assert!(encode(&large).is_err());
    }

    #[test]
    fn the_longest_path_has_a_head() {
        let name = "\"".repeat(255);
        let path = [name.as_str(); 4].join("/");
        let all = [change(&path, Some(b"x")), change(&path, None)];
        assert_eq!(decoded(&encoded(&all)).unwrap(), all);
    }

    proptest! {
        #[test]
        fn changes_are_read_as_they_are_written(
            files in prop::collection::vec(("[a-z]{1,4}(/[a-z]{1,4}){0,3}", prop::option::of(any::<Vec<u8>>())), 0..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let all: Vec<_> = files.iter().map(|(path, contents)| change(path, contents.as_deref())).collect();
            let body = encoded(&all);
            prop_assert_eq!(&decoded(&body).unwrap(), &all);
            // A part of the body is a part of the changes, or an error; never another change.
            let cut = cut.index(body.len() + 1);
            let mut changes = Changes::new(&body[..cut]);
            let mut seen = Vec::new();
            while let Ok(Some(change)) = changes.next_change() {
                seen.push(change);
            }
            prop_assert_eq!(&all[..seen.len()], &seen[..]);
        }
    }
}
