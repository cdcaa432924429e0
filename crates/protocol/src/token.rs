//! The secret that opens a sandbox's daemon.

use std::fmt;

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

/// The longest token that is accepted, in bytes. The control plane makes tokens of far less.
pub const MAX_TOKEN: usize = 1024;

/// The secret of one sandbox: who knows it may do everything in the sandbox. Never printed.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AccessToken(String);

/// A text that cannot be a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an access token is 1 to {MAX_TOKEN} printable ASCII characters without spaces")]
pub struct InvalidAccessToken;

impl AccessToken {
    /// Reads a token. It must be able to stand in a header, so it is printable ASCII.
    ///
    /// # Errors
    /// When it is empty, too long, or holds other characters.
    pub fn parse(text: impl Into<String>) -> Result<Self, InvalidAccessToken> {
        let text = text.into();
        let fits = (1..=MAX_TOKEN).contains(&text.len());
        if fits && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(text))
        } else {
            Err(InvalidAccessToken)
        }
    }

    /// Whether `candidate` is this token, in a time that does not depend on where they differ.
    #[must_use]
    pub fn matches(&self, candidate: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(candidate).into()
    }

    /// The token itself, to be sent or signed with.
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
