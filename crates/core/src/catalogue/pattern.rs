//! Patterns of dynamic entries: which names they match, and which image a name selects.
//!
//! A pattern must match a whole name: it is implicitly anchored at both ends. Repetitions are lazy,
//! and `+?` is greedy. Agent-Sandbox's table of resolutions requires that: for
//! `faas-code-python.3.11`, the pattern `(?P<name>.+)\.(?P<version>.+)$` captures `python` and
//! `3.11`. With a greedy `.+` it would capture `python.3` and `11`.
//!
//! Matching takes time proportional to pattern and name, both of which are bounded.

use regex::{Regex, RegexBuilder};

/// The longest pattern, in bytes.
pub const PATTERN_MAX: usize = 512;

/// The longest name that is compared with patterns, in bytes.
pub const NAME_MAX: usize = 512;

/// The maximum memory of a compiled pattern, in bytes.
const COMPILED_MAX: usize = 256 << 10;

/// How deeply groups may be nested.
const NEST_MAX: u32 = 32;

/// The group that captures the image's name.
const NAME: &str = "name";

/// The group that captures the image's version.
const VERSION: &str = "version";

/// A compiled pattern.
#[derive(Debug, Clone)]
pub struct Pattern(Regex);

/// The captures of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// The value of `<name>`.
    pub name: String,
    /// The value of `<version>`.
    pub version: String,
}

/// Why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPattern {
    /// It is too long.
    #[error("is longer than {PATTERN_MAX} bytes")]
    TooLong,
    /// It is not a regular expression, or too large a one.
    #[error("cannot be read: {0}")]
    Syntax(String),
    /// A group is missing.
    #[error("has no group (?P<{0}>...): it needs both (?P<name>...) and (?P<version>...)")]
    NoGroup(&'static str),
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// See [`InvalidPattern`].
    pub fn parse(text: &str) -> Result<Self, InvalidPattern> {
        if text.len() > PATTERN_MAX {
            return Err(InvalidPattern::TooLong);
        }
        // Compile it alone first, so that an unbalanced parenthesis cannot close the group around
        // it.
        let alone = compile(text)?;
        for group in [NAME, VERSION] {
            if !alone.capture_names().any(|name| name == Some(group)) {
                return Err(InvalidPattern::NoGroup(group));
            }
        }
        Ok(Self(compile(&format!("^(?:{text})$"))?))
    }

    /// The captures of the pattern in `text`; `None` if it does not match, or if a capture is
    /// empty.
    #[must_use]
    pub fn capture(&self, text: &str) -> Option<Captured> {
        if text.len() > NAME_MAX {
            return None;
        }
        let captures = self.0.captures(text)?;
        let group = |name| {
            let found = captures.name(name)?.as_str();
            (!found.is_empty()).then(|| found.to_owned())
        };
        Some(Captured {
            name: group(NAME)?,
            version: group(VERSION)?,
        })
    }
}

fn compile(text: &str) -> Result<Regex, InvalidPattern> {
    RegexBuilder::new(text)
        .swap_greed(true)
        .size_limit(COMPILED_MAX)
        .dfa_size_limit(COMPILED_MAX)
        .nest_limit(NEST_MAX)
        .build()
        .map_err(|error| InvalidPattern::Syntax(last_line(&error.to_string())))
}

/// The engine draws the pattern on several lines; the last line has the error.
fn last_line(text: &str) -> String {
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    let line = line.unwrap_or(text).trim();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PATTERN: &str = r"faas-code-(?P<name>.+)\.(?P<version>.+)$";

    fn capture(pattern: &str, text: &str) -> Option<(String, String)> {
        let found = Pattern::parse(pattern).unwrap().capture(text)?;
        Some((found.name, found.version))
    }

    fn pair(name: &str, version: &str) -> Option<(String, String)> {
        Some((name.to_owned(), version.to_owned()))
    }

    #[test]
    fn the_tables_of_agent_sandbox_resolve_as_documented() {
        assert_eq!(
            capture(PATTERN, "faas-code-python.3.11"),
            pair("python", "3.11")
        );
        assert_eq!(
            capture(PATTERN, "faas-code-nodejs.18"),
            pair("nodejs", "18")
        );
        assert_eq!(
            capture(PATTERN, "faas-code-golang.1.21"),
            pair("golang", "1.21")
        );
        let second = "^(?P<name>[a-z]+)-(?P<version>[0-9.]+)$";
        assert_eq!(capture(second, "python-3.11"), pair("python", "3.11"));
        assert_eq!(capture(second, "Python-3.11"), None);
    }

    #[test]
    fn a_pattern_matches_whole_names() {
        assert_eq!(capture(PATTERN, "zzfaas-code-go.1"), None);
        let open = r"faas-(?P<name>.+)\.(?P<version>.+)";
        assert_eq!(capture(open, "faas-go.1.21"), pair("go", "1.21"));
        let either = "a-(?P<name>x)(?P<version>y)|b-(?:x)";
        assert_eq!(capture(either, "zza-xy"), None);
        assert_eq!(capture(either, "b-x"), None);
    }

    #[test]
    fn an_invalid_pattern_is_refused_with_a_reason() {
        for (text, part) in [
            ("(?P<name>x)", "(?P<version>...)"),
            ("(?P<version>x)", "(?P<name>...)"),
            ("(?P<name>x)(?P<version>y", "unclosed group"),
            ("(?P<name>x)(?P<version>y)a)(b", "unopened group"),
            (r"(?P<name>\w{1000})(?P<version>\w{1000})", "size limit"),
            (&"x".repeat(PATTERN_MAX + 1), "longer than"),
            (&format!("{}{}", "(".repeat(40), ")".repeat(40)), "nest"),
        ] {
            let error = Pattern::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_pattern_that_backtracks_elsewhere_matches_in_linear_time() {
        let evil = Pattern::parse("(?P<name>(a+)+)(?P<version>(a|aa)+)b").unwrap();
        assert_eq!(evil.capture(&"a".repeat(NAME_MAX)), None);
        assert_eq!(evil.capture(&"a".repeat(NAME_MAX + 1)), None);
    }

    proptest! {
        #[test]
        fn the_first_dot_separates_name_and_version(
            name in "[a-z][a-z0-9-]{0,20}",
            version in "[0-9]{1,3}(\\.[0-9]{1,3}){0,3}",
        ) {
            let found = capture(PATTERN, &format!("faas-code-{name}.{version}"));
            prop_assert_eq!(found, pair(&name, &version));
        }

        #[test]
        fn parsing_and_matching_any_text_never_panics(
            pattern in ".{0,64}",
            text in ".{0,64}",
        ) {
            if let Ok(pattern) = Pattern::parse(&pattern) {
                let _ = pattern.capture(&text);
            }
        }
    }
}
