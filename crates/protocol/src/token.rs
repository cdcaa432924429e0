//! Access token of a sandbox's daemon.

use std::fmt;

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

/// Longest token accepted, in bytes. Generated tokens are far shorter.
pub const MAX_TOKEN: usize = 1024;

/// Access token of one sandbox, which grants full control of it. Never printed.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AccessToken(String);

/// Invalid access token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an access token is 1 to {MAX_TOKEN} printable ASCII characters without spaces")]
pub struct InvalidAccessToken;

impl AccessToken {
    /// Parses a token. It must be printable ASCII to fit into a header.
    ///
    /// # Errors
    /// If it is empty, too long, or contains other characters.
    pub fn parse(text: impl Into<String>) -> Result<Self, InvalidAccessToken> {
        let text = text.into();
        let fits = (1..=MAX_TOKEN).contains(&text.len());
        if fits && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(text))
        } else {
            Err(InvalidAccessToken)
        }
    }

    /// Compares a token in constant time.
    #[must_use]
    pub fn matches(&self, candidate: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(candidate).into()
    }

    /// The token as text, to send or sign with.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken(…)")
    }
}

impl PartialEq for AccessToken {
    fn eq(&self, other: &Self) -> bool {
        self.matches(other.0.as_bytes())
    }
}

impl Eq for AccessToken {}

impl TryFrom<String> for AccessToken {
    type Error = InvalidAccessToken;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(text)
    }
}

impl From<AccessToken> for String {
    fn from(token: AccessToken) -> Self {
        token.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_does_not_print_itself() {
        let token = AccessToken::parse("tok123").unwrap();
        assert!(!format!("{token:?}").contains("tok123"));
    }

    #[test]
    fn a_token_matches_only_itself() {
        let token = AccessToken::parse("tok123").unwrap();
        assert!(token.matches(b"tok123"));
        assert!(!token.matches(b"tok12"));
        assert!(!token.matches(b""));
    }

    #[test]
    fn what_no_header_can_carry_is_no_token() {
        for text in ["", "a b", "a\n", "ä", &"t".repeat(MAX_TOKEN + 1)] {
            assert_eq!(AccessToken::parse(text), Err(InvalidAccessToken));
        }
    }
}
