//! Bodies and limits of `/files`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The namespace of the extended attributes that hold a file's metadata.
pub const METADATA_ATTRIBUTE_PREFIX: &str = "user.e2b.";

/// The longest key of metadata in bytes: the kernel allows 255 for an attribute's whole name.
pub const MAX_METADATA_KEY: usize = 255 - METADATA_ATTRIBUTE_PREFIX.len();

/// The most bytes of metadata on one file, names with their prefix and values together: ext4 keeps
/// all attributes of a file in one block of 4 KiB.
pub const MAX_METADATA: usize = 4096;

/// Why metadata cannot be attached to a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMetadata {
    /// A key has no characters.
    #[error("metadata key must not be empty")]
    EmptyKey,
    /// A key is too long for an attribute's name.
    #[error("metadata key '{0}' exceeds {MAX_METADATA_KEY} bytes")]
    LongKey(String),
    /// A key or its value holds something other than printable ASCII.
    #[error("metadata '{0}' holds bytes that are not printable ASCII")]
    NotAscii(String),
    /// All of it together is too much.
    #[error("metadata of {0} bytes exceeds {MAX_METADATA} bytes")]
    TooMuch(usize),
}

/// Checks metadata before it is attached to a file.
///
/// # Errors
/// When it breaks one of the limits above, which are E2B's.
pub fn check_metadata(metadata: &BTreeMap<String, String>) -> Result<(), InvalidMetadata> {
    let printable = |text: &str| text.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
    let mut total = 0;
    for (key, value) in metadata {
        if key.is_empty() {
            return Err(InvalidMetadata::EmptyKey);
        }
        if key.len() > MAX_METADATA_KEY {
            return Err(InvalidMetadata::LongKey(key.clone()));
        }
        if !printable(key) || !printable(value) {
            return Err(InvalidMetadata::NotAscii(key.clone()));
        }
        total += METADATA_ATTRIBUTE_PREFIX.len() + key.len() + value.len();
    }
    if total > MAX_METADATA {
        return Err(InvalidMetadata::TooMuch(total));
    }
    Ok(())
}

/// A file that an upload wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// The last part of its path.
    pub name: String,
    /// Where it is.
    pub path: String,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: FileKind,
    /// What is attached to it; absent when nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
}

/// What an uploaded entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// A regular file. Nothing else can be uploaded.
    File,
}

/// The body of `POST /files/compose`: joins files into one and removes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComposeRequest {
    /// The files, in order. Not empty.
    pub source_paths: Vec<String>,
    /// Where the whole goes. None of the files.
    pub destination: String,
    /// Whose file it becomes; the default user's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(key: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(key.to_owned(), value.to_owned())])
    }

    #[test]
    fn the_longest_key_fits_and_one_byte_more_does_not() {
        let key = "k".repeat(MAX_METADATA_KEY);
        assert_eq!(check_metadata(&metadata(&key, "")), Ok(()));
        let key = "k".repeat(MAX_METADATA_KEY + 1);
        assert_eq!(
            check_metadata(&metadata(&key, "")),
            Err(InvalidMetadata::LongKey(key.clone()))
        );
    }

    #[test]
    fn prefix_and_value_count_towards_the_total() {
        let room = MAX_METADATA - METADATA_ATTRIBUTE_PREFIX.len() - 1;
        assert_eq!(check_metadata(&metadata("k", &"v".repeat(room))), Ok(()));
        assert_eq!(
            check_metadata(&metadata("k", &"v".repeat(room + 1))),
            Err(InvalidMetadata::TooMuch(MAX_METADATA + 1))
        );
    }

    #[test]
    fn only_printable_ascii_is_metadata() {
        assert!(check_metadata(&metadata("k", "tab\t")).is_err());
        assert!(check_metadata(&metadata("ü", "v")).is_err());
        assert!(check_metadata(&metadata("", "v")).is_err());
    }

    #[test]
    fn an_entry_without_metadata_does_not_mention_it() {
        let entry = FileEntry {
            name: "a".into(),
            path: "/a".into(),
            kind: FileKind::File,
            metadata: None,
        };
        assert_eq!(
            serde_json::to_string(&entry).unwrap(),
            r#"{"name":"a","path":"/a","type":"file"}"#
        );
    }
}
