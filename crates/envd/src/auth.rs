//! Authentication of requests.

use shoal_protocol::token::AccessToken;

/// Message for a missing or wrong token. The text is E2B's.
pub(crate) const UNAUTHORIZED_MESSAGE: &str =
    "unauthorized access, please provide a valid access token or method signing if supported";

/// Authentication required of a caller.
#[derive(Debug, Clone)]
pub(crate) enum AuthPolicy {
    /// None.
    Open,
    /// This token.
    Token(AccessToken),
    /// No token is set yet: every caller is rejected.
    Locked,
}

impl AuthPolicy {
    /// Whether a request with this token is accepted.
    pub(crate) fn admits(&self, offered: Option<&[u8]>) -> bool {
        match (self, offered) {
            (Self::Open, _) => true,
            (Self::Token(token), Some(offered)) => token.matches(offered),
            (Self::Token(_), None) | (Self::Locked, _) => false,
        }
    }
}
