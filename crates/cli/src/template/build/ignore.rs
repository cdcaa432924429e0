//! `.dockerignore`: the ignored files of a context.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

/// The patterns of a `.dockerignore`; the last match decides.
#[derive(Debug, Default)]
pub(super) struct Ignore {
    patterns: Vec<(GlobMatcher, bool)>,
}

impl Ignore {
    /// Parses the file.
    ///
    /// # Errors An invalid pattern, with its line.
    pub(super) fn parse(text: &str) -> Result<Self, (usize, String)> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut patterns = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.starts_with('#') || line.is_empty() {
                continue;
            }
            let (pattern, back) = match line.strip_prefix('!') {
                Some(pattern) => (pattern.trim(), true),
                None => (line, false),
            };
            let refused = |why: &str| (index + 1, format!("{line:?} is no pattern: {why}"));
            let Some(pattern) = cleaned(pattern) else {
                return Err(refused("it leads out of the context"));
            };
            // The context itself is never ignored.
            if pattern.is_empty() {
                continue;
            }
            let glob = glob(&pattern).map_err(|why| refused(&why))?;
            patterns.push((glob, back));
        }
        Ok(Self { patterns })
    }

    /// Whether a path in the context is ignored. A pattern that matches a directory matches all its
    /// contents.
    pub(super) fn leaves_out(&self, path: &Path) -> bool {
        let matching = self.patterns.iter().rev().find(|(glob, _)| {
            let mut paths = path.ancestors().filter(|path| !path.as_os_str().is_empty());
            paths.any(|path| glob.is_match(path))
        });
        matching.is_some_and(|(_, back)| !back)
    }

    /// Whether files in an ignored directory may be included again.
    pub(super) fn may_take_back(&self) -> bool {
        self.patterns.iter().any(|(_, back)| *back)
    }
}

/// A path or pattern without `.`, `..` and surrounding slashes; `None` if it leaves the context.
pub(super) fn cleaned(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Parses a pattern with Docker's rules: `*` and `?` match within a name, `**` across directories.
pub(super) fn glob(pattern: &str) -> Result<GlobMatcher, String> {
    let mut text = String::new();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                text.push('\\');
                text.extend(chars.next());
            }
            '{' | '}' => text.extend(['\\', c]),
            '[' => {
                text.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    text.push('!');
                }
            }
            '*' if chars.next_if_eq(&'*').is_some() => {
                // `**x` means any directories, then `*x`.
                text.push_str("**");
                if chars.peek().is_some_and(|next| *next != '/') {
                    text.push_str("/*");
                }
            }
            c => text.push(c),
        }
    }
    GlobBuilder::new(&text)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|error| error.kind().to_string())
}

/// Whether a path is a pattern.
pub(super) fn is_pattern(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn left_out(text: &str, path: &str) -> bool {
        Ignore::parse(text).unwrap().leaves_out(Path::new(path))
    }

    #[test]
    fn patterns_match_as_docker_has_it() {
        for (text, path, out) in [
            ("target", "target", true),
            ("target", "target/a/b", true),
            ("/target/", "target/a", true),
            ("target", "sub/target", false),
            ("**/target", "sub/a/target", true),
            ("**/target", "target", true),
            ("*.md", "a.md", true),
            ("*.md", "sub/a.md", false),
            ("*/*.md", "sub/a.md", true),
            ("**.md", "sub/deep/a.md", true),
            ("a/**", "a/b/c", true),
            ("a/**", "a", false),
            ("a/**/z", "a/b/c/z", true),
            ("a?c", "abc", true),
            ("[^a]c", "bc", true),
            ("[^a]c", "ac", false),
            ("{a,b}", "a", false),
            ("{a,b}", "{a,b}", true),
            ("# a\n\n  b  \n", "b", true),
            ("# a", "a", false),
            ("a/../b", "b", true),
            (".", "a", false),
            ("*\n!keep", "keep", false),
            ("*\n!keep", "keep/a", false),
            ("*\n!keep\nkeep/no", "keep/no", true),
            ("a\n!a/b", "a/b/c", false),
            ("!a\na", "a", true),
        ] {
            assert_eq!(left_out(text, path), out, "{text:?} {path}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused_by_line() {
        assert_eq!(Ignore::parse("a\n[").unwrap_err().0, 2);
        assert_eq!(Ignore::parse("../a").unwrap_err().0, 1);
    }

    proptest! {
        #[test]
        fn no_text_makes_reading_fail(text in "([a\\*\\?\\[\\]\\^!/\\\\.\n{},-]){0,16}", path in "[a/.]{1,6}") {
            if let Ok(ignore) = Ignore::parse(&text) {
                let _ = ignore.leaves_out(Path::new(&path));
            }
        }
    }
}
