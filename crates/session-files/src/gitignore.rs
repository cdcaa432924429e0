//! The rules of nested `.gitignore` files.
//!
//! The files come from a sandbox, so what they may cost is limited. A file beyond a limit hides its whole directory: it is
//! better that nothing returns from there than that what its author wanted to keep out does.

use std::collections::BTreeMap;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::path::SessionPath;

/// The name of the files.
pub const NAME: &str = ".gitignore";

/// The largest file that is read, in bytes.
pub const FILE_MAX: usize = 256 << 10;

/// The most patterns of all files together.
pub const PATTERNS_MAX: usize = 10_000;

/// The most bytes of all files together.
pub const TOTAL_MAX: usize = 1 << 20;

/// The longest pattern, in bytes. A longer one is not a name of a file, and is passed over.
const PATTERN_MAX: usize = 4096;

/// The directory with all others, as the key of its rules.
pub const HOME: &str = "";

/// Why a `.gitignore` file hides its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooMuch {
    /// The file is too large.
    #[error("its .gitignore is larger than 256 KiB")]
    File,
    /// All files together are too large or have too many patterns.
    #[error("the .gitignore files have more than 10,000 patterns or 1 MiB")]
    Total,
    /// The patterns cannot be compiled within limits.
    #[error("the patterns of its .gitignore are too complex")]
    Complex,
}

/// The rules of one file.
#[derive(Debug)]
enum Rules {
    /// These.
    Patterns(Box<Gitignore>),
    /// All below the directory is ignored.
    Hidden,
}

/// The cost of a file towards the limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cost {
    bytes: usize,
    patterns: usize,
}

/// The rules of all `.gitignore` files below one directory.
///
/// Directories are named by their paths, the uppermost by [`HOME`].
#[derive(Debug, Default)]
pub struct Ignoring {
    rules: BTreeMap<String, (Rules, Cost)>,
    cost: Cost,
}

impl Ignoring {
    /// Sets the contents of a directory's `.gitignore`; none when it has none.
    ///
    /// # Errors
    /// When the file exceeds a limit. Everything in the directory is ignored from then on.
    pub fn set(&mut self, directory: &str, text: Option<&[u8]>) -> Result<(), TooMuch> {
        if let Some((_, cost)) = self.rules.remove(directory) {
            self.cost.bytes -= cost.bytes;
            self.cost.patterns -= cost.patterns;
        }
        let Some(text) = text else {
            return Ok(());
        };
        let (rules, cost, told) = match self.compile(text) {
            Ok((rules, cost)) => (Rules::Patterns(Box::new(rules)), cost, Ok(())),
            Err(error) => (Rules::Hidden, Cost::default(), Err(error)),
        };
        self.cost.bytes += cost.bytes;
        self.cost.patterns += cost.patterns;
        self.rules.insert(directory.to_owned(), (rules, cost));
        told
    }

    /// Forgets the rules of a directory and of all below it.
    pub fn forget(&mut self, directory: &str) {
        let gone: Vec<String> = self
            .rules
            .keys()
            .filter(|known| is_within(known, directory))
            .cloned()
            .collect();
        for directory in gone {
            // Without a text nothing can be too much.
            let _ = self.set(&directory, None);
        }
    }

    fn compile(&self, text: &[u8]) -> Result<(Gitignore, Cost), TooMuch> {
        if text.len() > FILE_MAX {
            return Err(TooMuch::File);
        }
        // Empty files are not free either.
        let mut cost = Cost {
            bytes: text.len(),
            patterns: 1,
        };
        if self.cost.bytes + cost.bytes > TOTAL_MAX || self.cost.patterns >= PATTERNS_MAX {
            return Err(TooMuch::Total);
        }
        let mut builder = GitignoreBuilder::new("");
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        for line in text.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            // A file whose name is not UTF-8 never returns, so a pattern for it has no effect.
            let Ok(line) = std::str::from_utf8(line) else {
                continue;
            };
            if line.is_empty() || line.starts_with('#') || line.len() > PATTERN_MAX {
                continue;
            }
            cost.patterns += 1;
            if self.cost.patterns + cost.patterns > PATTERNS_MAX {
                return Err(TooMuch::Total);
            }
            // Git passes over an invalid pattern, too.
            let _ = builder.add_line(None, line);
        }
        let rules = builder.build().map_err(|_| TooMuch::Complex)?;
        Ok((rules, cost))
    }

    /// Whether an entry is ignored, whose directories are not.
    #[must_use]
    pub fn ignores_entry(&self, path: &SessionPath, is_directory: bool) -> bool {
        let text = path.as_str();
        let parents = text.rmatch_indices('/').map(|(at, _)| at);
        for end in parents.map(Some).chain([None]) {
            let (directory, below) = match end {
                Some(end) => (&text[..end], &text[end + 1..]),
                None => (HOME, text),
            };
            match self.rules.get(directory) {
                None => {}
                Some((Rules::Hidden, _)) => return true,
                Some((Rules::Patterns(rules), _)) => match rules.matched(below, is_directory) {
                    Match::None => {}
                    Match::Ignore(_) => return true,
                    Match::Whitelist(_) => return false,
                },
            }
        }
        false
    }

    /// Whether a file is ignored, by itself or with one of its directories.
    #[must_use]
    pub fn ignores(&self, file: &SessionPath) -> bool {
        self.ignores_entry(file, false)
            || file
                .parents()
                .any(|parent| self.ignores_entry(&parent, true))
    }
}

/// Whether a directory is another one or below it.
fn is_within(inner: &str, outer: &str) -> bool {
    let rest = inner.strip_prefix(outer);
    outer == HOME || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn path(text: &str) -> SessionPath {
        text.parse().unwrap()
    }

    fn ignoring(files: &[(&str, &str)]) -> Ignoring {
        let mut ignoring = Ignoring::default();
        for (directory, text) in files {
            ignoring.set(directory, Some(text.as_bytes())).unwrap();
        }
        ignoring
    }

    #[test]
    fn r2_055_nested_files_negation_directories_anchors_and_stars() {
        let rules = ignoring(&[
            (
                HOME,
                "*.secret\r\n!ok.secret\ncached/\n/top.txt\n**/deep/x\nmid/*.md\n# c\n[bad\n",
            ),
            ("sub", "!*.secret\n/own\n"),
        ]);
        for ignored in [
            "a.secret",
            "other/a.secret",
            "cached/a.py",
            "sub/cached/a.py",
            "top.txt",
            "a/deep/x",
            "mid/a.md",
            "sub/own",
        ] {
            assert!(rules.ignores(&path(ignored)), "{ignored}");
        }
        for kept in [
            "ok.secret",
            "sub/a.secret",
            "cached",
            "sub/top.txt",
            "deeper/x",
            "other/own",
            "x/mid/a.md",
        ] {
            assert!(!rules.ignores(&path(kept)), "{kept}");
        }
    }

    #[test]
    fn r2_055_a_file_below_an_ignored_directory_cannot_come_back() {
        let rules = ignoring(&[(HOME, "closed/\n"), ("closed", "!a.txt\n")]);
        assert!(rules.ignores(&path("closed/a.txt")));
    }

    #[test]
    fn r2_055_a_changed_file_has_new_rules() {
        let mut rules = ignoring(&[(HOME, "a\n"), ("d", "b\n"), ("d/e", "c\n"), ("dd", "b\n")]);
        rules.set(HOME, None).unwrap();
        assert!(!rules.ignores(&path("a")));
        rules.forget("d");
        assert!(!rules.ignores(&path("d/b")) && !rules.ignores(&path("d/e/c")));
        assert!(rules.ignores(&path("dd/b")));
        rules.forget(HOME);
        assert_eq!(rules.cost, Cost::default());
    }

    #[test]
    fn a_bomb_hides_its_directory_and_costs_little() {
        let mut rules = Ignoring::default();
        let large = vec![b'a'; 10 << 20];
        assert_eq!(rules.set("large", Some(&large)), Err(TooMuch::File));
        assert!(rules.ignores(&path("large/x")) && !rules.ignores(&path("x")));
        let mut many = String::new();
        for number in 0..=PATTERNS_MAX {
            writeln!(many, "p{number}").unwrap();
        }
        assert_eq!(
            rules.set("many", Some(many.as_bytes())),
            Err(TooMuch::Total)
        );
        assert!(rules.ignores(&path("many/x")));
        // Patterns that no table of names holds.
        let mut complex = String::new();
        for number in 0..9_000 {
            writeln!(complex, "a*{number}*[b-y]?*z").unwrap();
        }
        // Within the limits of the library or beyond them: nothing of it comes back by mistake.
        let told = rules.set("complex", Some(complex.as_bytes()));
        assert!(matches!(told, Ok(()) | Err(TooMuch::Complex)), "{told:?}");
        assert!(rules.ignores(&path("complex/a17cc1z")));
        rules.set("large", Some(b"y")).unwrap();
        assert!(!rules.ignores(&path("large/x")));
    }
}
