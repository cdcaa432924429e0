//! Identifiers as types: an existing value is valid, so no other code validates it again.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

const BASE36: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// Digits after the leading `i` of a generated sandbox id, and of a template id.
pub(crate) const ID_DIGITS: usize = 20;

/// The longest accepted sandbox id. A host label has at most 63 octets and carries `{port}-` before
/// the id, so 56 leaves room for the longest port.
const SANDBOX_ID_MAX: usize = 56;

/// Writes `value` in base 36 with exactly [`ID_DIGITS`] digits, most significant first.
pub(crate) fn base36(mut value: u128) -> String {
    let mut digits = [b'0'; ID_DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit = BASE36[(value % 36) as usize];
        value /= 36;
    }
    digits.iter().map(|d| char::from(*d)).collect()
}

/// Entropy for an id that depends on these parts alone, so that all processes of a cluster agree on it.
#[must_use]
pub fn entropy_of(parts: &[&str]) -> [u8; 16] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
        hash.update([0]);
    }
    let hash = hash.finalize();
    std::array::from_fn(|index| hash[index])
}

/// A text that is not an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {kind} {text:?}: {rule}")]
pub struct InvalidId {
    /// The expected kind, for people.
    pub kind: &'static str,
    /// The text, truncated for display.
    pub text: String,
    /// The rule it breaks.
    pub rule: &'static str,
}

impl InvalidId {
    pub(crate) fn new(kind: &'static str, text: &str, rule: &'static str) -> Self {
        Self {
            kind,
            text: text.chars().take(64).collect(),
            rule,
        }
    }
}

/// The id of one sandbox for its whole life, pauses included: `^[a-z0-9]{1,56}$`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SandboxId(std::sync::Arc<str>);

impl SandboxId {
    /// Makes a new id (`i` and twenty base-36 digits) from 128 random bits.
    #[must_use]
    pub fn from_entropy(entropy: [u8; 16]) -> Self {
        Self(format!("i{}", base36(u128::from_le_bytes(entropy))).into())
    }

    /// Parses an id as clients send it: `<id>` or `<id>-<client id>`, whose suffix is dropped.
    ///
    /// # Errors When the part before the first `-` is not a sandbox id.
    pub fn from_wire(text: &str) -> Result<Self, InvalidId> {
        text.split('-').next().unwrap_or_default().parse()
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SandboxId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        if text.is_empty() || text.len() > SANDBOX_ID_MAX || !text.bytes().all(good) {
            return Err(InvalidId::new("sandbox id", text, "1 to 56 of a-z and 0-9"));
        }
        Ok(Self(text.into()))
    }
}

impl TryFrom<String> for SandboxId {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<SandboxId> for String {
    fn from(id: SandboxId) -> Self {
        id.0.as_ref().to_owned()
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of one template, independent of its names: twenty of `[a-z0-9]`, or a builtin template's
/// name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TemplateId(String);

impl TemplateId {
    /// Makes a new id from 128 random bits.
    #[must_use]
    pub fn from_entropy(entropy: [u8; 16]) -> Self {
        Self(base36(u128::from_le_bytes(entropy)))
    }

    /// The id of the catalogue entry `name`, derived from the name.
    #[must_use]
    pub fn of_catalogue(name: &str) -> Self {
        let digest = Sha256::new()
            .chain_update("catalogue:")
            .chain_update(name)
            .finalize();
        Self::from_entropy(std::array::from_fn(|n| digest[n]))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TemplateId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        if text.len() != ID_DIGITS || !text.bytes().all(good) {
            return Err(InvalidId::new("template id", text, "20 of a-z and 0-9"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for TemplateId {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<TemplateId> for String {
    fn from(id: TemplateId) -> Self {
        id.0
    }
}

impl fmt::Display for TemplateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Makes a new id from 128 random bits.
            #[must_use]
            pub fn from_entropy(entropy: [u8; 16]) -> Self {
                Self(uuid::Builder::from_random_bytes(entropy).into_uuid())
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Uuid::try_parse(text)
                    .map(Self)
                    .map_err(|_| InvalidId::new($kind, text, "a UUID"))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }
    };
}

uuid_id!(
    /// One execution of a sandbox. Each create and each resume starts a new one, so that a delayed
    /// command for an earlier execution can never affect a later one.
    ExecutionId,
    "execution id"
);
uuid_id!(
    /// One build of a template.
    BuildId,
    "build id"
);
uuid_id!(
    /// One tenant.
    TeamId,
    "team id"
);
uuid_id!(
    /// One saved state of a sandbox on a node.
    SnapshotId,
    "snapshot id"
);
uuid_id!(
    /// One API key (its record, not its secret).
    KeyId,
    "key id"
);

/// Clones have a snapshot's version as build id, as sandboxes of a template have the template's build.
impl From<SnapshotId> for BuildId {
    fn from(id: SnapshotId) -> Self {
        Self(id.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_sandbox_id_is_i_and_twenty_digits_and_parses() {
        for seed in [[0u8; 16], [0xff; 16], *b"0123456789abcdef"] {
            let id = SandboxId::from_entropy(seed);
            assert_eq!(id.as_str().len(), 21);
            assert!(id.as_str().starts_with('i'));
            assert_eq!(id.as_str().parse::<SandboxId>(), Ok(id));
        }
    }

    #[test]
    fn the_client_suffix_of_a_wire_id_is_dropped() {
        let id = SandboxId::from_wire("iabc123-6532622b").unwrap();
        assert_eq!(id.as_str(), "iabc123");
        assert_eq!(SandboxId::from_wire("iabc123").unwrap(), id);
    }

    #[test]
    fn ids_that_could_climb_out_of_a_path_or_a_label_are_refused() {
        let long = "a".repeat(57);
        for bad in ["", "..", "a/b", "A", "a_b", "é", "a\0", " a", long.as_str()] {
            assert!(bad.parse::<SandboxId>().is_err(), "{bad:?}");
        }
        assert!(SandboxId::from_wire("-abc").is_err());
    }

    #[test]
    fn a_template_id_has_exactly_twenty_digits() {
        assert!(
            TemplateId::from_entropy([7; 16])
                .as_str()
                .parse::<TemplateId>()
                .is_ok()
        );
        assert!("base".parse::<TemplateId>().is_err());
    }
}
