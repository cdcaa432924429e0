//! Sessions: files, terminal windows and notes that outlive the sandbox in which they are used.
//!
//! A session has no machine until its first command, and loses it some time after its last. What is kept is
//! outside of the machine. These are the rules alone; nothing here does I/O.

pub mod files;
pub mod life;
pub mod machine;
pub mod memory;
pub mod merge;
pub mod networks;
pub mod preview;
pub mod secret;
pub mod system;

pub use shoal_session_files::{interrupted, path, returning};

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use self::life::Life;
use self::machine::{ExternalRecord, MachineType};
use self::preview::{PreviewHash, Wakes};
use crate::auth::{Principal, TeamSlug};
use crate::clock::Timestamp;
use crate::driver::Isolation;
use crate::id::{InvalidId, KeyId, SandboxId, TeamId, base36};

/// The longest name of a window, in bytes.
const WINDOW_MAX: usize = 64;

/// The id of a session: `s` and twenty of `[a-z0-9]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(String);

impl SessionId {
    /// Makes a new id from 128 random bits.
    #[must_use]
    pub fn from_entropy(entropy: [u8; 16]) -> Self {
        Self(format!("s{}", base36(u128::from_le_bytes(entropy))))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SessionId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        if text.len() == 21 && text.starts_with('s') && text.bytes().all(good) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidId::new(
            "session id",
            text,
            "`s` and 20 of a-z and 0-9",
        ))
    }
}

impl TryFrom<String> for SessionId {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<SessionId> for String {
    fn from(id: SessionId) -> Self {
        id.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a terminal window: 1 to 64 of letters, digits, `.`, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WindowName(String);

impl WindowName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for WindowName {
    /// The window of commands that name none.
    fn default() -> Self {
        Self("main".to_owned())
    }
}

impl FromStr for WindowName {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let good = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        if text.is_empty() || text.len() > WINDOW_MAX || !text.bytes().all(good) {
            let rule = "1 to 64 of letters, digits, `.`, `_` and `-`";
            return Err(InvalidId::new("window name", text, rule));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for WindowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The stored record of a session, without its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Its id.
    pub id: SessionId,
    /// The team that it belongs to.
    pub team: TeamId,
    /// The team's short name.
    pub slug: TeamSlug,
    /// The key that made it, on whose behalf its machines are made.
    pub key: KeyId,
    /// The user's labels.
    pub metadata: BTreeMap<String, String>,
    /// Its machine.
    pub machine: MachineType,
    /// How long its machine lives.
    pub life: Life,
    /// Its present machine.
    pub sandbox: Option<SandboxId>,
    /// The machine that has had the session's files. Its other files came with its template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filled: Option<SandboxId>,
    /// The system of that machine, and why it is not the requested one.
    #[serde(default)]
    pub system: Option<String>,
    /// The isolation of that machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// When it was made.
    pub created_at: Timestamp,
    /// The hash of its preview, for its whole life. A session of a former version gets one when it is opened.
    #[serde(default)]
    pub preview: Option<PreviewHash>,
    /// Whether, and how often, requests to its preview start its machine.
    #[serde(default)]
    pub wakes: Wakes,
    /// The stored facts about its external machine; `None` for sandboxes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalRecord>,
}

impl SessionRecord {
    /// The principal that creates and uses its machine. The session is the team's, regardless of the key's rights.
    #[must_use]
    pub fn principal(&self) -> Principal {
        Principal {
            team: self.team,
            slug: self.slug.clone(),
            key: self.key,
            admin: false,
        }
    }

    /// The machine whose files are compared with the session's; none when it has no machine. An external machine keeps its
    /// files from one connection to the next, so it stays the same for them.
    #[must_use]
    pub fn place_of_files(&self) -> Option<&SandboxId> {
        let machine = self.sandbox.as_ref()?;
        Some(self.external.as_ref().map_or(machine, |kept| &kept.files))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        let id = SessionId::from_entropy([7; 16]);
        assert_eq!(id.as_str().parse(), Ok(id.clone()));
        for other in [
            "",
            "s",
            "i0123456789012345678a",
            "s0123456789012345678A",
            "s0123456789012345678ab",
        ] {
            assert!(other.parse::<SessionId>().is_err(), "{other}");
        }
    }

    #[test]
    fn names_of_windows_are_plain() {
        assert_eq!("main".parse::<WindowName>(), Ok(WindowName::default()));
        let long = "x".repeat(65);
        for bad in ["", "a b", "a/b", "a\nb", "ä", long.as_str()] {
            assert!(bad.parse::<WindowName>().is_err(), "{bad:?}");
        }
    }
}
