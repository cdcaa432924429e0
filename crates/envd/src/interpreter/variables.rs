//! Code that kernels are given to change their environment, and their source of chance.
//!
//! Values may be anything that a variable can hold: each language gets them as a literal of its own
//! in which nothing is left that means something there.

use std::fmt::Write;

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

    /// Code after which the environment is `to` where it was `from`. None when it is already.
    pub(super) fn change(self, from: &Variables, to: &Variables) -> Option<String> {
        let mut code = String::new();
        for (name, value) in to {
            if from.get(name) != Some(value) && self.takes(name) {
                self.set(&mut code, name, value);
            }
        }
        for name in from.keys() {
            if !to.contains_key(name) && self.takes(name) {
                self.unset(&mut code, name);
            }
        }
        (!code.is_empty()).then_some(code)
    }

    /// Whether a variable can have this name at all.
    fn takes(self, name: &str) -> bool {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        match self {
            Self::Bash => name.chars().all(is_word) && !name.starts_with(|c: char| c.is_numeric()),
            _ => true,
        }
    }

    fn set(self, code: &mut String, name: &str, value: &str) {
        let (name, value) = (self.literal(name), self.literal(value));
        // Writing to a text cannot fail.
        let _ = match self {
            Self::Python => writeln!(code, "__import__('os').environ[{name}] = {value}"),
            Self::Script => writeln!(code, "globalThis.process.env[{name}] = {value};"),
            Self::R => writeln!(
                code,
                "do.call(base::Sys.setenv, stats::setNames(base::list({value}), {name}))"
            ),
            Self::Java => writeln!(code, "System.setProperty({name}, {value});"),
            Self::Bash => write!(code, "export {}={value};", plain(&name)),
        };
    }

    fn unset(self, code: &mut String, name: &str) {
        let name = self.literal(name);
        let _ = match self {
            Self::Python => writeln!(code, "__import__('os').environ.pop({name}, None)"),
            Self::Script => writeln!(code, "delete globalThis.process.env[{name}];"),
            Self::R => writeln!(code, "base::Sys.unsetenv({name})"),
            Self::Java => writeln!(code, "System.clearProperty({name});"),
            Self::Bash => write!(code, "unset {};", plain(&name)),
        };
    }

    /// Code after which chance is another, for a kernel that was cloned with its memory: where the
    /// language keeps the state of its generator. Seeds come from here, as a library in the kernel
    /// may have state of its own that was cloned too.
    pub(super) fn reseed(self, seed: [u32; 4]) -> Option<String> {
        let [a, b, c, d] = seed;
        Some(match self {
            Self::Python => [
                "__import__('random').seed()\n",
                "getattr(getattr(__import__('sys').modules.get('numpy'), 'random', None), ",
                "'seed', lambda: None)()\n",
                "getattr(__import__('sys').modules.get('torch'), 'seed', lambda: None)()\n",
            ]
            .concat(),
            // Nothing in the language seeds `Math.random`. This one is sfc32.
            Self::Script => format!(
                "{{ let a = {a}, b = {b}, c = {c}, d = {d};\n\
                 const step = () => {{ const t = (a + b + (d = d + 1 | 0)) | 0;\n\
                 a = b ^ b >>> 9; b = c + (c << 3) | 0; c = (c << 21 | c >>> 11) + t | 0;\n\
                 return t >>> 0; }};\n\
                 for (let i = 0; i < 16; i++) step();\n\
                 Math.random = () => ((step() >>> 5) * 67108864 + (step() >>> 6)) / 2 ** 53; }}\n"
            ),
            Self::R => format!("base::set.seed({}L)\n", a >> 1),
            Self::Bash => format!("RANDOM={};", a >> 17),
            // What `Math.random` uses cannot be reached.
            Self::Java => return None,
        })
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
mod tests;
