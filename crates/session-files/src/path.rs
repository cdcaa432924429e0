//! Paths of a session's files, relative to its home directory.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest path, in bytes.
const PATH_MAX: usize = 1024;
/// The longest name in a path, in bytes, as file systems have it.
const NAME_MAX: usize = 255;
/// The deepest path, in names.
const DEPTH_MAX: usize = 64;

/// A path below the home directory: names without `.` and `..`, separated by `/`.
///
/// It cannot lead out of the directory it is joined to, unless a link on the way does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionPath(String);

/// A text that is no path of a session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid path {text:?}: {rule}")]
pub struct InvalidPath {
    /// The text, truncated for display.
    pub text: String,
    /// The rule that it breaks.
    pub rule: &'static str,
}

impl SessionPath {
    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its names, from the top.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }

    /// The path of an entry in a directory, which is empty for the uppermost one.
    ///
    /// # Errors
    /// When it is no path: a name that breaks a rule, or too deep.
    pub fn join(directory: &str, name: &str) -> Result<Self, InvalidPath> {
        if name.contains('/') {
            return Err(InvalidPath {
                text: name.chars().take(64).collect(),
                rule: "a name has no slash",
            });
        }
        match directory {
            "" => name.parse(),
            directory => format!("{directory}/{name}").parse(),
        }
    }

    /// Its last name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The extension: the part after the last dot of its name.
    #[must_use]
    pub fn extension(&self) -> Option<&str> {
        let (stem, extension) = self.name().rsplit_once('.')?;
        (!stem.is_empty()).then_some(extension)
    }

    /// The directories that it is in, the lowest first.
    pub fn parents(&self) -> impl Iterator<Item = Self> {
        let slashes = self.0.rmatch_indices('/');
        slashes.map(|(at, _)| Self(self.0[..at].to_owned()))
    }

    /// Whether it is `directory` or below it.
    #[must_use]
    pub fn is_within(&self, directory: &Self) -> bool {
        let rest = self.0.strip_prefix(&directory.0);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The same path, with the name of a copy that could not be merged: `a/b.sandbox-2.txt` for `a/b.txt`.
    #[must_use]
    pub fn copy(&self, number: usize) -> Self {
        let directory = &self.0[..self.0.len() - self.name().len()];
        let (stem, extension) = match self.extension() {
            Some(extension) => {
                let stem = &self.name()[..self.name().len() - extension.len() - 1];
                (stem, format!(".{extension}"))
            }
            None => (self.name(), String::new()),
        };
        Self(format!("{directory}{stem}.sandbox-{number}{extension}"))
    }
}

impl FromStr for SessionPath {
    type Err = InvalidPath;

    fn from_str(text: &str) -> Result<Self, InvalidPath> {
        let broken = if text.is_empty() {
            "it is empty"
        } else if text.len() > PATH_MAX {
            "at most 1024 bytes"
        } else if text.starts_with('/') {
            "it is relative to the session's home, so it begins without a slash"
        } else if text.chars().any(char::is_control) {
            "it has no control characters"
        } else if text.split('/').count() > DEPTH_MAX {
            "at most 64 names deep"
        } else if text.split('/').any(|name| matches!(name, "" | "." | "..")) {
            "no name in it is empty, `.` or `..`"
        } else if text.split('/').any(|name| name.len() > NAME_MAX) {
            "no name in it is longer than 255 bytes"
        } else {
            return Ok(Self(text.to_owned()));
        };
        Err(InvalidPath {
            text: text.chars().take(64).collect(),
            rule: broken,
        })
    }
}

impl TryFrom<String> for SessionPath {
    type Error = InvalidPath;

    fn try_from(text: String) -> Result<Self, InvalidPath> {
        text.parse()
    }
}

impl From<SessionPath> for String {
    fn from(path: SessionPath) -> Self {
        path.0
    }
}

impl fmt::Display for SessionPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> SessionPath {
        text.parse().unwrap()
    }

    #[test]
    fn paths_stay_below_the_home() {
        for good in ["a", "a/b.txt", "...", "a/.b", "ä/ö", "a b"] {
            assert_eq!(path(good).as_str(), good);
        }
        let long = "x".repeat(256);
        let deep = vec!["d"; 65].join("/");
        for bad in [
            "", "/a", "a/", "a//b", ".", "a/..", "../a", "a/./b", "a\0b", "a\nb", &long, &deep,
        ] {
            assert!(bad.parse::<SessionPath>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_name_joins_a_directory() {
        assert_eq!(SessionPath::join("", "a").unwrap().as_str(), "a");
        assert_eq!(SessionPath::join("a/b", "c").unwrap().as_str(), "a/b/c");
        for bad in ["", "..", "a/b", "a\nb"] {
            assert!(SessionPath::join("d", bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn parts_of_a_path() {
        let made = path("a/b/c.tar.gz");
        assert_eq!(made.name(), "c.tar.gz");
        assert_eq!(made.extension(), Some("gz"));
        assert_eq!(path(".gitignore").extension(), None);
        let parents: Vec<_> = made.parents().map(String::from).collect();
        assert_eq!(parents, ["a/b", "a"]);
        assert!(made.is_within(&path("a")) && made.is_within(&made));
        assert!(!path("ab").is_within(&path("a")));
    }

    #[test]
    fn a_copy_has_a_name_of_its_own() {
        assert_eq!(path("a/b.txt").copy(1).as_str(), "a/b.sandbox-1.txt");
        assert_eq!(path("Makefile").copy(2).as_str(), "Makefile.sandbox-2");
        assert_eq!(path(".env").copy(1).as_str(), ".env.sandbox-1");
    }
}
