//! The names of files that a manifest lists.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest file name on Linux.
const NAME_MAX: usize = 255;

/// The name of one file in one directory: letters, digits, `.`, `_` and `-`, not starting with `.`.
/// A manifest may come from another machine, so a name that leaves the directory does not parse.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FileName(String);

/// A text that is not a [`FileName`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of a file in the snapshot")]
pub struct InvalidFileName(String);

impl FileName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FileName {
    type Err = InvalidFileName;

    fn from_str(text: &str) -> Result<Self, InvalidFileName> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let good = !text.is_empty()
            && text.len() <= NAME_MAX
            && !text.starts_with('.')
            && text.bytes().all(plain);
        if good {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidFileName(text.chars().take(80).collect()))
        }
    }
}

impl TryFrom<String> for FileName {
    type Error = InvalidFileName;

    fn try_from(text: String) -> Result<Self, InvalidFileName> {
        text.parse()
    }
}

impl From<FileName> for String {
    fn from(name: FileName) -> Self {
        name.0
    }
}

impl AsRef<Path> for FileName {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leaves_the_directory_does_not_parse() {
        for name in ["pages.img", "pages_meta.img", "0123456789abcdef", "a-b"] {
            assert_eq!(name.parse::<FileName>().unwrap().as_str(), name);
        }
        let long = "a".repeat(NAME_MAX + 1);
        for bad in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "/etc/passwd",
            ".hidden",
            "a\0b",
            "a b",
            "a\n",
            "\u{e9}",
            &long,
        ] {
            assert!(bad.parse::<FileName>().is_err(), "{bad:?}");
            let text = serde_json::to_string(bad).unwrap();
            assert!(serde_json::from_str::<FileName>(&text).is_err(), "{bad:?}");
        }
    }
}
