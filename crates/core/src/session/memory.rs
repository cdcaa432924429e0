//! Memories of a session: its own notes.

use std::fmt;
use std::str::FromStr;

use crate::clock::Timestamp;
use crate::id::InvalidId;

/// The longest name of a memory, in bytes.
const NAME_MAX: usize = 128;

/// The longest text of a memory, in bytes.
pub const TEXT_MAX: usize = 64 << 10;

/// The most memories of a session.
pub const MEMORIES_MAX: usize = 256;

/// The name of a memory: 1 to 128 of letters, digits, `.`, `_` and `-`, no `.` first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemoryName(String);

impl MemoryName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for MemoryName {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let good = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let plain = !text.is_empty() && !text.starts_with('.') && text.bytes().all(good);
        if !plain || text.len() > NAME_MAX {
            let rule = "1 to 128 of letters, digits, `.`, `_` and `-`, no `.` first";
            return Err(InvalidId::new("memory name", text, rule));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for MemoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// Its name.
    pub name: MemoryName,
    /// Its text.
    pub text: String,
    /// When it was written.
    pub updated_at: Timestamp,
}

/// A memory in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryEntry {
    /// Its name.
    pub name: MemoryName,
    /// The length of its text, in bytes.
    pub bytes: u64,
    /// When it was written.
    pub updated_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_memories_are_plain() {
        for good in ["plan", "a.b_c-1", "2"] {
            assert_eq!(good.parse::<MemoryName>().unwrap().as_str(), good);
        }
        let long = "x".repeat(129);
        for bad in ["", ".", "..", ".a", "a/b", "a b", "ä", long.as_str()] {
            assert!(bad.parse::<MemoryName>().is_err(), "{bad:?}");
        }
    }
}
