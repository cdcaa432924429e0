//! The state that build steps pass on in addition to files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::plan::Action;

/// The user of build steps until a step changes it.
pub const BUILD_USER: &str = "user";

/// The working directory of build steps until a step changes it.
pub const BUILD_WORKDIR: &str = "/home/user";

/// The state that a step passes on to the next, in addition to files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildState {
    /// The user that commands run as.
    pub user: String,
    /// Their working directory.
    pub workdir: String,
    /// The variables that steps set.
    pub env: BTreeMap<String, String>,
}

impl Default for BuildState {
    fn default() -> Self {
        Self {
            user: BUILD_USER.to_owned(),
            workdir: BUILD_WORKDIR.to_owned(),
            env: BTreeMap::new(),
        }
    }
}

impl BuildState {
    /// The state after a step. `image` contains the variables of the base image.
    #[must_use]
    pub fn after(&self, action: &Action, image: &BTreeMap<String, String>) -> Self {
        let mut next = self.clone();
        match action {
            Action::Env(pairs) => {
                for (name, value) in pairs {
                    // The values before the step: assignments in one step do not see each other.
                    let known = |name: &str| self.env.get(name).or_else(|| image.get(name));
                    let value = expand(value, &|name| known(name).cloned());
                    next.env.insert(name.clone(), value);
                }
            }
            Action::Workdir(path) => next.workdir = self.path(path),
            Action::User { name, .. } => next.user.clone_from(name),
            Action::Copy { .. } | Action::Run { .. } => {}
        }
        next
    }

    /// Resolves `path` against the working directory. Keeps a trailing `/`, which means "into".
    #[must_use]
    pub fn path(&self, path: &str) -> String {
        let mut parts: Vec<&str> = Vec::new();
        let from = if path.starts_with('/') {
            ""
        } else {
            self.workdir.as_str()
        };
        for part in from.split('/').chain(path.split('/')) {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop();
                }
                part => parts.push(part),
            }
        }
        let into = matches!(path.rsplit('/').next(), Some("" | "." | ".."));
        let end = if into && !parts.is_empty() { "/" } else { "" };
        format!("/{}{end}", parts.join("/"))
    }
}

/// Expands `$NAME`, `${NAME}`, `${NAME:-word}`, `${NAME-word}`, `${NAME:+word}` and `${NAME+word}`.
/// An unset variable becomes an empty string. `\$`, `\\` and `\}` stand for the character itself.
fn expand(text: &str, value_of: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['$', '\\']) {
        out.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        if rest[at..].starts_with('\\') {
            let escaped = behind
                .chars()
                .next()
                .filter(|c| matches!(c, '$' | '\\' | '}'));
            out.push(escaped.unwrap_or('\\'));
            rest = &behind[escaped.map_or(0, char::len_utf8)..];
            continue;
        }
        rest = match braced(behind) {
            Some((inner, behind)) => {
                out.push_str(&substitute(inner, value_of));
                behind
            }
            None => {
                let length = name_length(behind);
                match length {
                    0 => out.push('$'),
                    _ => out.push_str(&value_of(&behind[..length]).unwrap_or_default()),
                }
                &behind[length..]
            }
        };
    }
    out.push_str(rest);
    out
}

/// Splits a text after `{` into the contents of the braces, if those start with a variable, and the
/// rest.
fn braced(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('{')?;
    let (mut depth, mut escaped) = (0, false);
    for (at, c) in inner.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' => depth += 1,
            '}' if depth == 0 => {
                let inside = &inner[..at];
                return (name_length(inside) > 0).then_some((inside, &inner[at + 1..]));
            }
            '}' => depth -= 1,
            _ => {}
        }
        // Nested braces are words within words, which are rarely deep.
        if depth > DEPTH_MAX {
            return None;
        }
    }
    None
}

/// How deeply words may be nested.
const DEPTH_MAX: usize = 8;

/// Expands the contents of braces.
fn substitute(inner: &str, value_of: &dyn Fn(&str) -> Option<String>) -> String {
    let (name, how) = inner.split_at(name_length(inner));
    let value = value_of(name);
    let (value, how) = match how.strip_prefix(':') {
        Some(how) => (value.filter(|value| !value.is_empty()), how),
        None => (value, how),
    };
    match (how.strip_prefix('-'), how.strip_prefix('+')) {
        (Some(word), _) => value.unwrap_or_else(|| expand(word, value_of)),
        (_, Some(word)) => value.map(|_| expand(word, value_of)).unwrap_or_default(),
        _ => value.unwrap_or_default(),
    }
}

/// The length of the variable name at the start of a text.
fn name_length(text: &str) -> usize {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.find(|c| !good(c)).unwrap_or(text.len())
}

/// Whether a text is a valid variable name.
#[must_use]
pub fn is_name(text: &str) -> bool {
    !text.is_empty() && name_length(text) == text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Action {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Action::Env(pairs.iter().map(own).collect())
    }

    #[test]
    fn variables_expand_to_earlier_values() {
        let image = BTreeMap::from([("PATH".to_owned(), "/bin".to_owned())]);
        let state = BuildState::default()
            .after(&env(&[("A", "1"), ("B", "-$A")]), &image)
            .after(&env(&[("A", "1"), ("B", "${A}2$A$B")]), &image)
            .after(
                &env(&[("PATH", "/opt:$PATH"), ("C", "$NONE-\\$A-$-${x")]),
                &image,
            );
        assert_eq!(state.env["B"], "121-");
        assert_eq!(state.env["PATH"], "/opt:/bin");
        assert_eq!(state.env["C"], "-$A-$-${x");
        let words = env(&[("D", "${A:-x}${NO:-y$A}${NO-z}${A:+b}${NO+c}${EMPTY:-${B}}")]);
        assert_eq!(state.after(&words, &image).env["D"], "1y1zb121-");
    }

    #[test]
    fn paths_are_relative_to_the_working_directory() {
        let state = BuildState::default().after(&Action::Workdir("app".into()), &BTreeMap::new());
        assert_eq!(state.workdir, "/home/user/app");
        for (path, seen) in [
            ("x", "/home/user/app/x"),
            ("/x/", "/x/"),
            (".", "/home/user/app/"),
            ("../..", "/home/"),
            ("/../../x", "/x"),
            ("/", "/"),
        ] {
            assert_eq!(state.path(path), seen, "{path}");
        }
    }

    proptest! {
        #[test]
        fn expanding_and_resolving_any_text_never_panics(text in "\\PC{0,60}") {
            let _ = expand(&text, &|_| Some("v".to_owned()));
            let seen = BuildState::default().path(&text);
            prop_assert!(seen.starts_with('/') && !seen.split('/').any(|part| part == ".."));
        }
    }
}
