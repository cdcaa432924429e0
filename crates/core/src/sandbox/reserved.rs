//! Labels that Shoal itself reads, and their defaults.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use super::SandboxRecord;

/// The prefix of Shoal's own labels.
pub const RESERVED_PREFIX: &str = "shoal/";

/// The label with a sandbox's name, unique in its team.
pub const NAME_KEY: &str = "shoal/name";

/// The label that says whether a sandbox is parked, and when: a [`ParkingLabel`](crate::parking::ParkingLabel).
pub const PARKING_KEY: &str = "shoal/parking";

/// The default port.
pub const DEFAULT_PORT: u16 = crate::catalogue::PORT;

/// The longest name.
const NAME_MAX: usize = 63;

/// The number of characters of a template's name in a default sandbox name. The whole name then has
/// 60 characters, the length to which Agent-Sandbox cuts it.
const TEMPLATE_MAX: usize = 34;

/// Path segments after `/sandbox/` in the native API, which cannot be names.
const TAKEN: [&str; 4] = ["files", "metrics", "pause", "resume"];

/// The name of a sandbox: 1 to 63 of a-z, 0-9, `.`, `_` and `-`, starting with a letter or a digit.
/// Path segments of the API are excluded.
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
    /// The sandbox's name: the user's, or `sbx-<template>-<id>`.
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

    /// The port of requests that name none.
    #[must_use]
    pub fn default_port(&self) -> u16 {
        self.spec.port.map_or(DEFAULT_PORT, NonZeroU16::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_valid_path_segment_and_not_a_reserved_one() {
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
