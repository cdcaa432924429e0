//! Authentication of requests.

use shoal_protocol::pass::PassDigest;
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
    /// The same, but that the first `/init` may set one if it presents this pass. Without a digest, any
    /// may.
    FirstInit(Option<PassDigest>),
}

impl AuthPolicy {
    /// Whether a request with this token is accepted.
    pub(crate) fn admits(&self, offered: Option<&[u8]>) -> bool {
        match (self, offered) {
            (Self::Open, _) => true,
            (Self::Token(token), Some(offered)) => token.matches(offered),
            (Self::Token(_), None) | (Self::Locked | Self::FirstInit(_), _) => false,
        }
    }

    /// Whether a request with this pass may set the first token.
    pub(crate) fn admits_first(&self, pass: Option<&[u8]>) -> bool {
        match self {
            Self::FirstInit(None) => true,
            Self::FirstInit(Some(digest)) => pass.is_some_and(|pass| digest.recognises(pass)),
            Self::Open | Self::Token(_) | Self::Locked => false,
        }
    }
}
