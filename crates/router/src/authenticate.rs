//! Authentication of callers, and their right to a sandbox.

mod review;
mod token_file;

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName};
use kube::Client;

use self::review::Reviewer;
use self::token_file::TokenFile;

pub use self::token_file::InvalidTokens;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// How callers are authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authentication {
    /// By the cluster: a bearer token that it knows, of a user who may create `sandboxes/proxy`.
    Cluster,
    /// By a file of tokens, each of which admits to all sandboxes.
    TokenFile(PathBuf),
    /// Not at all.
    Open,
}

/// Why a request is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotAllowed {
    #[error("Send a token in 'Authorization: Bearer' or 'X-API-Key'.")]
    Missing,
    #[error("The token is not valid.")]
    Invalid,
    #[error("The token's user may not create 'sandboxes/proxy' of this sandbox.")]
    Forbidden,
    /// The cause is for the log.
    #[error("An internal error occurred in the proxy.")]
    Unknown(String),
}

/// Checks callers.
pub(crate) enum Authenticator {
    Cluster(Reviewer),
    Tokens(TokenFile),
    Open,
}

impl Authenticator {
    /// An authenticator; reads the file of tokens.
    ///
    /// # Errors
    /// When the file of tokens is unusable.
    pub(crate) async fn new(how: Authentication, client: Client) -> Result<Self, InvalidTokens> {
        Ok(match how {
            Authentication::Cluster => Self::Cluster(Reviewer::new(client)),
            Authentication::TokenFile(path) => Self::Tokens(TokenFile::open(path).await?),
            Authentication::Open => Self::Open,
        })
    }

    /// Checks a request for a sandbox and removes its token, which servers in sandboxes must not see.
    ///
    /// # Errors
    /// See [`NotAllowed`].
    pub(crate) async fn check(
        &self,
        headers: &mut HeaderMap,
        namespace: &str,
        id: &str,
    ) -> Result<(), NotAllowed> {
        if matches!(self, Self::Open) {
            return Ok(());
        }
        let token = take_token(headers).ok_or(NotAllowed::Missing)?;
        match self {
            Self::Cluster(reviewer) => reviewer.check(&token, namespace, id).await,
            Self::Tokens(file) if file.has(&token) => Ok(()),
            Self::Tokens(_) => Err(NotAllowed::Invalid),
            Self::Open => Ok(()),
        }
    }
}

/// Removes and returns the token: a bearer token; the password of basic authentication, which old clients
/// take from a URL; or an API key. The key is left to the sandbox if the request has `Authorization` too.
fn take_token(headers: &mut HeaderMap) -> Option<String> {
    if let Some(value) = headers.remove(AUTHORIZATION) {
        let (scheme, credential) = value.to_str().ok()?.split_once(' ')?;
        let credential = credential.trim();
        let token = if scheme.eq_ignore_ascii_case("bearer") {
            credential.to_owned()
        } else if scheme.eq_ignore_ascii_case("basic") {
            let decoded = String::from_utf8(STANDARD.decode(credential).ok()?).ok()?;
            decoded.split_once(':')?.1.to_owned()
        } else {
            return None;
        };
        return Some(token).filter(|token| !token.is_empty());
    }
    let key = headers.remove(API_KEY)?;
    let key = key.to_str().ok()?.to_owned();
    Some(key).filter(|key| !key.is_empty())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn taken(pairs: &[(&'static str, &str)]) -> (Option<String>, usize) {
        let pairs = pairs.iter().map(|(name, value)| {
            let value = HeaderValue::from_str(value).unwrap();
            (HeaderName::from_static(name), value)
        });
        let mut headers: HeaderMap = pairs.collect();
        let token = take_token(&mut headers);
        (token, headers.len())
    }

    #[test]
    fn a_token_is_found_and_removed() {
        let token = |text: &str| Some(text.to_owned());
        assert_eq!(taken(&[("authorization", "Bearer t")]), (token("t"), 0));
        assert_eq!(taken(&[("authorization", "bearer  t ")]), (token("t"), 0));
        assert_eq!(
            taken(&[("authorization", "Basic dXNlcjp0OjE=")]),
            (token("t:1"), 0)
        );
        assert_eq!(taken(&[("x-api-key", "t")]), (token("t"), 0));
        let both = [
            ("authorization", "Bearer t"),
            ("x-api-key", "the sandbox's"),
        ];
        assert_eq!(taken(&both), (token("t"), 1));
    }

    #[test]
    fn anything_else_is_no_token() {
        for bad in [
            "t",
            "Bearer ",
            "Basic t",
            "Basic dXNlcg==",
            "Basic dXNlcjo=",
            "Digest t",
        ] {
            assert_eq!(taken(&[("authorization", bad)]), (None, 0), "{bad}");
        }
        assert_eq!(taken(&[("x-api-key", "")]), (None, 0));
        assert_eq!(taken(&[]), (None, 0));
    }
}
