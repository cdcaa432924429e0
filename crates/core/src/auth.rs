//! Keys, tokens and permits.
//!
//! A check leaves evidence in a type: [`Principal`] is a caller with a valid key, and
//! [`SandboxPermit`] is a caller's right to one sandbox. Use cases take the permit, so that code
//! without the check does not compile.

use std::fmt;
use std::str::FromStr;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::build::FilesHash;
use crate::driver::{ExportKey, ShortSecret};
use crate::id::{KeyId, SandboxId, TeamId};
use crate::quota::Quota;
use crate::sandbox::SandboxRecord;

/// The prefix of every API key.
pub const API_KEY_PREFIX: &str = "e2b_";

/// A team's short name: `^[a-z0-9][a-z0-9-]{0,62}$`. It is the namespace of its templates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TeamSlug(String);

/// A text that is not a team's short name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid team {0:?}: 1 to 63 of a-z, 0-9 and -, not beginning with -")]
pub struct InvalidTeamSlug(String);

impl TeamSlug {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TeamSlug {
    type Err = InvalidTeamSlug;

    fn from_str(text: &str) -> Result<Self, InvalidTeamSlug> {
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if (1..=63).contains(&text.len()) && text.bytes().all(good) && !text.starts_with('-') {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidTeamSlug(text.chars().take(64).collect()))
        }
    }
}

impl TryFrom<String> for TeamSlug {
    type Error = InvalidTeamSlug;

    fn try_from(text: String) -> Result<Self, InvalidTeamSlug> {
        text.parse()
    }
}

impl From<TeamSlug> for String {
    fn from(slug: TeamSlug) -> Self {
        slug.0
    }
}

impl fmt::Display for TeamSlug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A caller with a valid key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The team of the key.
    pub team: TeamId,
    /// The team's short name.
    pub slug: TeamSlug,
    /// The key that was used.
    pub key: KeyId,
    /// Whether the key may act for all teams: manage keys and teams, and see the machine.
    pub admin: bool,
}

impl Principal {
    /// The owner of the installation's own resources: a team without keys or other templates, so
    /// that no tenant's resource is mistaken for the installation's.
    #[must_use]
    pub fn installation() -> Self {
        Self {
            team: TeamId::from_entropy([0; 16]),
            slug: TeamSlug("installation".to_owned()),
            key: KeyId::from_entropy([0; 16]),
            admin: false,
        }
    }
}

/// The right to one sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxPermit {
    id: SandboxId,
    team: TeamId,
}

impl SandboxPermit {
    /// Returns the permit if the sandbox belongs to the caller's team.
    #[must_use]
    pub fn grant(principal: &Principal, sandbox: &SandboxRecord) -> Option<Self> {
        (principal.team == sandbox.team).then(|| Self {
            id: sandbox.id.clone(),
            team: principal.team,
        })
    }

    /// The sandbox.
    #[must_use]
    pub fn sandbox(&self) -> &SandboxId {
        &self.id
    }

    /// The team.
    #[must_use]
    pub fn team(&self) -> TeamId {
        self.team
    }
}

/// An API key as its holder sends it. Never printed.
#[derive(Clone)]
pub struct ApiKey(String);

/// The stored form of an API key: SHA-256 of its decoded bytes, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ApiKeyHash(String);

/// A text that is not an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an API key is {API_KEY_PREFIX} and an even number of hexadecimal digits")]
pub struct InvalidApiKey;

impl ApiKey {
    /// Generates a key from 160 random bits.
    #[must_use]
    pub fn from_entropy(entropy: [u8; 20]) -> Self {
        Self(format!("{API_KEY_PREFIX}{}", hex::encode(entropy)))
    }

    /// Parses a key.
    ///
    /// # Errors When the format is wrong. A well-formed key may still be unknown.
    pub fn parse(text: &str) -> Result<Self, InvalidApiKey> {
        let digits = text.strip_prefix(API_KEY_PREFIX).ok_or(InvalidApiKey)?;
        let bytes = hex::decode(digits).map_err(|_| InvalidApiKey)?;
        if (16..=64).contains(&bytes.len()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidApiKey)
        }
    }

    /// The key itself, to be shown once.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The hash to be stored.
    #[must_use]
    pub fn hash(&self) -> ApiKeyHash {
        let digits = self.0.strip_prefix(API_KEY_PREFIX).unwrap_or(&self.0);
        ApiKeyHash(hex::encode(Sha256::digest(
            hex::decode(digits).unwrap_or_default(),
        )))
    }

    /// The mask that may always be shown.
    #[must_use]
    pub fn mask(&self) -> KeyMask {
        let digits = self.0.strip_prefix(API_KEY_PREFIX).unwrap_or(&self.0);
        KeyMask {
            prefix: API_KEY_PREFIX.to_owned(),
            value_length: digits.len(),
            masked_value_prefix: digits.chars().take(2).collect(),
            masked_value_suffix: digits
                .chars()
                .skip(digits.len().saturating_sub(4))
                .collect(),
        }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

impl ApiKeyHash {
    /// The hash as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The parts of a key that may be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyMask {
    /// Always [`API_KEY_PREFIX`].
    pub prefix: String,
    /// The number of digits after the prefix.
    pub value_length: usize,
    /// The first digits.
    pub masked_value_prefix: String,
    /// The last digits.
    pub masked_value_suffix: String,
}

/// The record of an API key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// Its id.
    pub id: KeyId,
    /// The team.
    pub team: TeamId,
    /// The team's short name.
    pub slug: TeamSlug,
    /// Whether it may act for all teams.
    pub admin: bool,
    /// Its name.
    pub name: String,
    /// The parts that may be shown.
    pub mask: KeyMask,
    /// The hash that identifies it.
    pub hash: ApiKeyHash,
    /// When it was created.
    pub created_at: crate::clock::Timestamp,
    /// The limits of its sandboxes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,
}

/// Changes the tokens of a sandbox: random, and new with each rotation. Useless without the seed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenSalt(String);

impl TokenSalt {
    /// From 128 random bits.
    #[must_use]
    pub fn from_entropy(entropy: [u8; 16]) -> Self {
        Self(hex::encode(entropy))
    }
}

/// The secret from which the tokens of all sandboxes are derived. Never printed.
#[derive(Clone)]
pub struct TokenSeed([u8; 32]);

impl TokenSeed {
    /// From 256 random bits.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    fn derive(&self, parts: &[&[u8]]) -> Token {
        // HMAC accepts keys of any length, so this cannot fail.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else {
            unreachable!("HMAC takes keys of any length")
        };
        for part in parts {
            mac.update(part);
        }
        Token(hex::encode(mac.finalize().into_bytes()))
    }

    /// The token that envd in `sandbox` requires; constant.
    #[must_use]
    pub fn envd_access_token(&self, sandbox: &SandboxId) -> Token {
        self.derive(&[sandbox.as_str().as_bytes()])
    }

    /// The token of [`TokenSeed::envd_access_token`] after a rotation.
    #[must_use]
    pub fn rotated_envd_access_token(&self, sandbox: &SandboxId, salt: &TokenSalt) -> Token {
        self.derive(&[
            b"rotated-envd/",
            sandbox.as_str().as_bytes(),
            b"/",
            salt.0.as_bytes(),
        ])
    }

    /// The token of [`TokenSeed::traffic_access_token`] after a rotation.
    #[must_use]
    pub fn rotated_traffic_access_token(&self, sandbox: &SandboxId, salt: &TokenSalt) -> Token {
        self.derive(&[
            b"rotated-traffic/",
            sandbox.as_str().as_bytes(),
            b"/",
            salt.0.as_bytes(),
        ])
    }

    /// The token that the gateway requires for `sandbox`, unless that is public.
    #[must_use]
    pub fn traffic_access_token(&self, sandbox: &SandboxId) -> Token {
        self.derive(&[b"sandbox-traffic-", sandbox.as_str().as_bytes()])
    }

    /// The secret that seals exports of snapshots when the operator configured none.
    #[must_use]
    pub fn export_key(&self) -> ExportKey {
        let secret = self.derive(&[b"snapshot-export"]);
        match ExportKey::from_secret(secret.reveal().as_bytes()) {
            Ok(key) => key,
            Err(ShortSecret) => unreachable!("a derived secret has 64 digits"),
        }
    }

    /// Signs the right to upload these files for builds of `team` until a Unix second.
    #[must_use]
    pub fn upload_signature(&self, team: TeamId, files: &FilesHash, expires: i64) -> Token {
        let until = format!("{team}/{files}/{expires}");
        self.derive(&[b"upload-", until.as_bytes()])
    }
}

impl fmt::Debug for TokenSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSeed(…)")
    }
}

/// A secret that grants access to one sandbox. Never printed; compared in constant time.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// The token itself, to be sent to its holder.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `offered` is this token. Takes the same time wherever they differ.
    #[must_use]
    pub fn matches(&self, offered: &str) -> bool {
        self.0.as_bytes().ct_eq(offered.as_bytes()).into()
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.matches(&other.0)
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests;
