//! Code that changes a kernel's environment.
//!
//! Values are arbitrary: each language receives them as an escaped literal.

use std::fmt::Write;

use super::reseed::{TEMP_NAME, python};
use crate::settings::Variables;

/// A language, for literals and access to its environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Python.
    Python,
    /// JavaScript and TypeScript, in Deno or node.
    Script,
    /// R.
    R,
    /// Java, whose system properties stand for variables.
    Java,
    /// Bash.
    Bash,
}

/// Deno's `process`, without the global name, which a user may shadow.
const PROCESS: &str = "(await import(\"node:process\")).default";

/// The same for kernels without top-level `await`, such as scripts of node's `vm`.
const FALLBACK_PROCESS: &str = "globalThis.process";

/// A single change of a kernel's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    /// The variable, or another changed value.
    pub(super) name: String,
    /// Code in the kernel's language.
    pub(super) code: String,
    /// Fallback for kernels that reject `code` because it uses `await`.
    pub(super) fallback: Option<String>,
}

impl Change {
    pub(super) fn new(name: &str, code: String) -> Self {
        Self {
            name: name.to_owned(),
            code,
            fallback: None,
        }
    }

    /// Adds a fallback.
    pub(super) fn with_fallback(self, fallback: Option<String>) -> Self {
        Self { fallback, ..self }
    }
}

impl Dialect {
    /// The dialect of a language.
    pub(super) fn of(language: &str) -> Option<Self> {
        Some(match language {
            "python" => Self::Python,
            "javascript" | "typescript" => Self::Script,
            "r" => Self::R,
            "java" => Self::Java,
            "bash" => Self::Bash,
            _ => return None,
        })
    }

    /// Whether the process environment is what this code changes.
    pub(super) fn inherits(self) -> bool {
        self != Self::Java
    }

    /// Whether kernels may send a result after their `idle` status. Deno does in about one of three
    /// cases.
    pub(super) fn has_late_results(self) -> bool {
        self == Self::Script
    }

    /// Whether clients receive a final newline as a separate line (spec: Java's `println` prints
    /// two).
    pub(super) fn splits_newlines(self) -> bool {
        self == Self::Java
    }

    /// The changes between two environments, one per variable.
    pub(super) fn changes(self, from: &Variables, to: &Variables) -> Vec<Change> {
        let mut changes = Vec::new();
        for (name, value) in to {
            if from.get(name) != Some(value) && self.supports_name(name) {
                let change = Change::new(name, self.set(name, value, PROCESS));
                let fallback = || self.set(name, value, FALLBACK_PROCESS);
                changes.push(change.with_fallback(self.has_fallbacks().then(fallback)));
            }
        }
        for name in from.keys() {
            if !to.contains_key(name) && self.supports_name(name) {
                let change = Change::new(name, self.unset(name, PROCESS));
                let fallback = || self.unset(name, FALLBACK_PROCESS);
                changes.push(change.with_fallback(self.has_fallbacks().then(fallback)));
            }
        }
        changes
    }

    /// All changes as one piece of code.
    pub(super) fn join_all<'a>(self, changes: impl Iterator<Item = &'a Change>) -> String {
        let codes: Vec<&str> = changes.map(|change| change.code.as_str()).collect();
        // Bash reports the status of the last command.
        codes.join(if self == Self::Bash { " && " } else { "\n" })
    }

    /// All changes with fallbacks where they exist, if the language has any.
    pub(super) fn join_fallbacks<'a>(
        self,
        changes: impl Iterator<Item = &'a Change>,
    ) -> Option<String> {
        let fallback = |change: &'a Change| change.fallback.as_deref().unwrap_or(&change.code);
        let codes: Vec<&str> = changes.map(fallback).collect();
        self.has_fallbacks().then(|| codes.join("\n"))
    }

    /// Whether kernels of the language differ in their support of `await`.
    fn has_fallbacks(self) -> bool {
        self == Self::Script
    }

    /// Whether the language supports a variable of this name.
    fn supports_name(self, name: &str) -> bool {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        match self {
            Self::Bash => name.chars().all(is_word) && !name.starts_with(|c: char| c.is_numeric()),
            _ => true,
        }
    }

    // This code relies only on names that users cannot shadow: keywords and fully qualified names.
    // In Bash it bypasses functions and aliases.

    fn set(self, name: &str, value: &str, process: &str) -> String {
        let (name, value) = (self.literal(name), self.literal(value));
        match self {
            Self::Python => python(
                &format!("import os as {TEMP_NAME}"),
                &format!("{TEMP_NAME}.environ[{name}] = {value}"),
            ),
            Self::Script => format!("{process}.env[{name}] = {value}; void 0;"),
            Self::R => format!(
                "base::do.call(base::Sys.setenv, stats::setNames(base::list({value}), {name}))"
            ),
            Self::Java => format!("java.lang.System.setProperty({name}, {value});"),
            Self::Bash => format!("\\builtin export {}={value}", unquoted(&name)),
        }
    }

    fn unset(self, name: &str, process: &str) -> String {
        let name = self.literal(name);
        match self {
            Self::Python => python(
                &format!("import os as {TEMP_NAME}"),
                &format!("{TEMP_NAME}.environ.pop({name}, None)"),
            ),
            Self::Script => format!("delete {process}.env[{name}]; void 0;"),
            Self::R => format!("base::Sys.unsetenv({name})"),
            Self::Java => format!("java.lang.System.clearProperty({name});"),
            Self::Bash => format!("\\builtin unset {}", unquoted(&name)),
        }
    }

    /// A string literal of the language.
    fn literal(self, text: &str) -> String {
        match self {
            // Python and JavaScript parse JSON strings, as long as there are no surrogate halves.
            Self::Python | Self::Script => serde_json::to_string(text).unwrap_or_default(),
            Self::R => escaped("\"", text, "\"", |out, c| {
                let _ = write!(out, "\\U{{{:x}}}", u32::from(c));
            }),
            // Java decodes `\u` before it tokenises, so use it for non-ASCII characters only.
            Self::Java => escaped("\"", text, "\"", |out, c| match u8::try_from(c) {
                Ok(c) if c.is_ascii() => drop(write!(out, "\\{c:03o}")),
                _ => {
                    let mut halves = [0; 2];
                    for half in c.encode_utf16(&mut halves) {
                        let _ = write!(out, "\\u{half:04x}");
                    }
                }
            }),
            // Byte by byte: Bash would encode a character for its locale.
            Self::Bash => escaped("$'", text, "'", |out, c| {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    let _ = write!(out, "\\{byte:03o}");
                }
            }),
        }
    }
}

/// A literal in which only letters, digits and harmless characters are not escaped.
fn escaped(begin: &str, text: &str, end: &str, escape: impl Fn(&mut String, char)) -> String {
    let mut literal = begin.to_owned();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || " _-+.,:;/=@%".contains(c) {
            literal.push(c);
        } else {
            escape(&mut literal, c);
        }
    }
    literal + end
}

/// The text between the quotes of a Bash literal. For plain words only.
fn unquoted(literal: &str) -> &str {
    literal
        .strip_prefix("$'")
        .and_then(|literal| literal.strip_suffix('\''))
        .unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests;
