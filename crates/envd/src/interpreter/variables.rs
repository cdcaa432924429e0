//! Code that kernels are given to change their environment.
//!
//! Values may be anything that a variable can hold: each language gets them as a literal of its own
//! in which nothing is left that means something there.

use std::fmt::Write;

use super::chance::{OURS, python};
use crate::settings::Variables;

/// A language that kernels speak, as far as its literals and its environment go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Python.
    Python,
    /// JavaScript and TypeScript, in Deno or Node.
    Script,
    /// R.
    R,
    /// Java, where variables are system properties.
    Java,
    /// Bash.
    Bash,
}

/// What Deno has instead of the name `process`, which is the user's.
const PROCESS: &str = "(await import(\"node:process\")).default";

/// The same for kernels whose code cannot wait for anything, as is so in a script of node's `vm`.
const PLAIN_PROCESS: &str = "globalThis.process";

/// Something that a kernel is told in code, by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    /// The variable, or whatever else it is that changes.
    pub(super) name: String,
    /// Code of the kernel's language.
    pub(super) code: String,
    /// Code that does the same in kernels which do not take the first, because it waits for something.
    pub(super) plain: Option<String>,
}

impl Change {
    pub(super) fn new(name: &str, code: String) -> Self {
        Self {
            name: name.to_owned(),
            code,
            plain: None,
        }
    }

    /// With what is told to kernels that do not take its code.
    pub(super) fn or(self, plain: Option<String>) -> Self {
        Self { plain, ..self }
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

    /// Whether a kernel has the environment that it was started with where this code changes it.
    pub(super) fn inherits(self) -> bool {
        self != Self::Java
    }

    /// Whether kernels may tell of a result after they said that they are idle. Deno's does, about
    /// one time in three.
    pub(super) fn is_late(self) -> bool {
        self == Self::Script
    }

    /// Whether clients hear of the end of a line by itself (spec: Java's `println` comes in two).
    pub(super) fn tells_ends_apart(self) -> bool {
        self == Self::Java
    }

    /// What makes the environment `to` where it was `from`, one variable after the other.
    pub(super) fn changes(self, from: &Variables, to: &Variables) -> Vec<Change> {
        let mut changes = Vec::new();
        for (name, value) in to {
            if from.get(name) != Some(value) && self.takes(name) {
                let change = Change::new(name, self.set(name, value, PROCESS));
                let plain = || self.set(name, value, PLAIN_PROCESS);
                changes.push(change.or(self.has_plain().then(plain)));
            }
        }
        for name in from.keys() {
            if !to.contains_key(name) && self.takes(name) {
                let change = Change::new(name, self.unset(name, PROCESS));
                let plain = || self.unset(name, PLAIN_PROCESS);
                changes.push(change.or(self.has_plain().then(plain)));
            }
        }
        changes
    }

    /// Code that does all of it, as long as nothing fails.
    pub(super) fn together<'a>(self, changes: impl Iterator<Item = &'a Change>) -> String {
        let codes: Vec<&str> = changes.map(|change| change.code.as_str()).collect();
        // Bash says how the last command went.
        codes.join(if self == Self::Bash { " && " } else { "\n" })
    }

    /// The same in words that need not wait, if any of it has such.
    pub(super) fn plainly_together<'a>(
        self,
        changes: impl Iterator<Item = &'a Change>,
    ) -> Option<String> {
        let plain = |change: &'a Change| change.plain.as_deref().unwrap_or(&change.code);
        let codes: Vec<&str> = changes.map(plain).collect();
        self.has_plain().then(|| codes.join("\n"))
    }

    /// Whether kernels of the language differ in whether their code can wait.
    fn has_plain(self) -> bool {
        self == Self::Script
    }

    /// Whether a variable can have this name at all.
    fn takes(self, name: &str) -> bool {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        match self {
            Self::Bash => name.chars().all(is_word) && !name.starts_with(|c: char| c.is_numeric()),
            _ => true,
        }
    }

    // What these stand on cannot be hidden by a variable of the user's: words of the language, and
    // names with all that they belong to. In Bash, functions and aliases are passed over.

    fn set(self, name: &str, value: &str, process: &str) -> String {
        let (name, value) = (self.literal(name), self.literal(value));
        match self {
            Self::Python => python(
                &format!("import os as {OURS}"),
                &format!("{OURS}.environ[{name}] = {value}"),
            ),
            Self::Script => format!("{process}.env[{name}] = {value}; void 0;"),
            Self::R => format!(
                "base::do.call(base::Sys.setenv, stats::setNames(base::list({value}), {name}))"
            ),
            Self::Java => format!("java.lang.System.setProperty({name}, {value});"),
            Self::Bash => format!("\\builtin export {}={value}", plain(&name)),
        }
    }

    fn unset(self, name: &str, process: &str) -> String {
        let name = self.literal(name);
        match self {
            Self::Python => python(
                &format!("import os as {OURS}"),
                &format!("{OURS}.environ.pop({name}, None)"),
            ),
            Self::Script => format!("delete {process}.env[{name}]; void 0;"),
            Self::R => format!("base::Sys.unsetenv({name})"),
            Self::Java => format!("java.lang.System.clearProperty({name});"),
            Self::Bash => format!("\\builtin unset {}", plain(&name)),
        }
    }

    /// A text as the language writes it.
    fn literal(self, text: &str) -> String {
        match self {
            // Both read JSON's texts as JSON does, as long as no character is written in halves.
            Self::Python | Self::Script => serde_json::to_string(text).unwrap_or_default(),
            Self::R => escaped("\"", text, "\"", |out, c| {
                let _ = write!(out, "\\U{{{:x}}}", u32::from(c));
            }),
            // Java reads `\u` before anything else, so it stands for what is no ASCII only.
            Self::Java => escaped("\"", text, "\"", |out, c| match u8::try_from(c) {
                Ok(c) if c.is_ascii() => drop(write!(out, "\\{c:03o}")),
                _ => {
                    let mut halves = [0; 2];
                    for half in c.encode_utf16(&mut halves) {
                        let _ = write!(out, "\\u{half:04x}");
                    }
                }
            }),
            // Byte by byte: Bash would write a character as its locale has it.
            Self::Bash => escaped("$'", text, "'", |out, c| {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    let _ = write!(out, "\\{byte:03o}");
                }
            }),
        }
    }
}

/// A literal in which only letters, digits and harmless signs stand for themselves.
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

/// What is between the quotes of a literal of Bash. Only for words.
fn plain(literal: &str) -> &str {
    literal
        .strip_prefix("$'")
        .and_then(|literal| literal.strip_suffix('\''))
        .unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests;
