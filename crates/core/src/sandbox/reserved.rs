//! What Shoal itself reads of a sandbox's labels, and what it says where nothing is said.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use super::SandboxRecord;

/// What every label of Shoal's own begins with.
pub const RESERVED_PREFIX: &str = "shoal/";

/// The label that names a sandbox, unique among those of its team.
pub const NAME_KEY: &str = "shoal/name";

/// The port that is meant when nothing else is said.
pub const DEFAULT_PORT: u16 = crate::catalogue::PORT;

/// The longest name.
const NAME_MAX: usize = 63;

/// How much of a template's name is in the name of a sandbox that was given none: with the rest it
/// has 60 characters, as Agent-Sandbox cuts it.
const TEMPLATE_MAX: usize = 34;

/// What follows `/sandbox/` in the native API and is no name.
const TAKEN: [&str; 4] = ["files", "metrics", "pause", "resume"];

/// What a user calls a sandbox: 1 to 63 of a-z, 0-9, `.`, `_` and `-`, beginning with one of the
/// first two, and no word that the API's own paths have in its place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SandboxName(String);

/// A text that is not a sandbox's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid sandbox name {0:?}: 1 to {NAME_MAX} of a-z, 0-9, '.', '_' and '-', beginning with a \
     letter or a digit, and not files, metrics, pause or resume"
)]
pub struct InvalidSandboxName(String);

impl SandboxName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SandboxName {
    type Err = InvalidSandboxName;

    fn from_str(text: &str) -> Result<Self, InvalidSandboxName> {
        let first = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let good = |b: u8| first(b) || matches!(b, b'.' | b'_' | b'-');
        let begins = text.bytes().next().is_some_and(first);
        if begins && text.len() <= NAME_MAX && text.bytes().all(good) && !TAKEN.contains(&text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidSandboxName(
                text.chars().take(NAME_MAX + 1).collect(),
            ))
        }
    }
}

impl fmt::Display for SandboxName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl SandboxRecord {
    /// What it is called: what its user calls it, else `sbx-<template>-<id>`.
    #[must_use]
    pub fn name(&self) -> String {
        if let Some(name) = self.spec.metadata.get(NAME_KEY) {
            return name.clone();
        }
        let template = self.spec.template_name.as_deref();
        let template = template.unwrap_or(self.spec.template.as_str());
        let plain = |c: char| match c {
            'a'..='z' | '0'..='9' | '.' | '_' | '-' => c,
            _ => '-',
        };
        let template: String = template.chars().take(TEMPLATE_MAX).map(plain).collect();
        format!("sbx-{template}-{}", self.id)
    }

    /// The port that is meant when a request names none.
    #[must_use]
    pub fn default_port(&self) -> u16 {
        self.spec.port.map_or(DEFAULT_PORT, NonZeroU16::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_stand_in_a_path_and_is_no_word_of_it() {
        for good in ["a", "7", "my-box", "a.b_c", &"x".repeat(63)] {
            assert_eq!(good.parse::<SandboxName>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            ".",
            "..",
            "-a",
            "A",
            "a/b",
            "a b",
            "a\0",
            "é",
            "pause",
            "files",
            &"x".repeat(64),
        ] {
            assert!(bad.parse::<SandboxName>().is_err(), "{bad}");
        }
    }
}
