//! Bodies and limits of `/files`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Namespace of the extended attributes with a file's metadata.
pub const METADATA_ATTRIBUTE_PREFIX: &str = "user.e2b.";

/// Longest metadata key in bytes: the kernel limits attribute names to 255.
pub const MAX_METADATA_KEY: usize = 255 - METADATA_ATTRIBUTE_PREFIX.len();

/// Limit of metadata per file in bytes, including names with prefix and values: ext4 stores all
/// attributes of a file in one block of 4 KiB.
pub const MAX_METADATA: usize = 4096;

/// Invalid metadata.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMetadata {
    /// Empty key.
    #[error("metadata key must not be empty")]
    EmptyKey,
    /// Key too long for an attribute name.
    #[error("metadata key '{0}' exceeds {MAX_METADATA_KEY} bytes")]
    LongKey(String),
    /// Characters other than printable ASCII.
    #[error("metadata '{0}' holds bytes that are not printable ASCII")]
    NotAscii(String),
    /// Total size too large.
    #[error("metadata of {0} bytes exceeds {MAX_METADATA} bytes")]
    TooMuch(usize),
}

/// Checks metadata.
///
/// # Errors
/// If it violates one of the limits above, which are E2B's.
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

/// A file written by an upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenFile {
    /// File name.
    pub name: String,
    /// Path.
    pub path: String,
    /// Type.
    #[serde(rename = "type")]
    pub kind: FileKind,
    /// Metadata; absent if empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
}

/// Type of an uploaded entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// A regular file, the only type that can be uploaded.
    File,
}

/// Body of `POST /files/compose`: concatenates files and removes the sources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComposeRequest {
    /// The source files in order; not empty.
    pub source_paths: Vec<String>,
    /// The resulting file; not one of the sources.
    pub destination: String,
    /// Owner of the result; the default user if absent.
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
        let entry = WrittenFile {
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
