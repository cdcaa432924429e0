//! Authorization at registries.

use http_auth::ChallengeRef;
use http_auth::parser::ChallengeParser;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{RequestBuilder, Url};
use serde::Deserialize;
use shoal_core::image::RegistryAuth;

use crate::digest::Digest;

/// The longest response of a token server. Tokens have a few KiB.
pub(super) const TOKEN_MAX: u64 = 256 << 10;

/// Distinguishes one caller's credentials from another's without storing them.
pub(crate) fn fingerprint(auth: &RegistryAuth) -> Digest {
    let RegistryAuth {
        username,
        password,
        aws_region,
    } = auth;
    let region = aws_region.as_deref().unwrap_or_default();
    let lengths = format!("{}:{}", username.len(), region.len());
    Digest::of(format!("{lengths}:{username}:{region}:{password}").as_bytes())
}

/// The challenge in a registry's refusal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    Bearer {
        realm: String,
        service: Option<String>,
    },
}

impl Challenge {
    /// The first supported challenge.
    pub(super) fn find(headers: &HeaderMap) -> Option<Self> {
        headers
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(ChallengeParser::new)
            .filter_map(Result::ok)
            .find_map(|challenge| Self::read(&challenge))
    }

    fn read(challenge: &ChallengeRef<'_>) -> Option<Self> {
        if challenge.scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        let parameter = |name: &str| {
            let found = challenge
                .params
                .iter()
                .find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.to_unescaped())
        };
        let bearer = challenge.scheme.eq_ignore_ascii_case("bearer");
        bearer
            .then(|| parameter("realm"))
            .flatten()
            .map(|realm| Self::Bearer {
                realm,
                service: parameter("service"),
            })
    }
}

/// The authorization of a request.
#[derive(Clone)]
pub(super) enum Authorization {
    Basic(RegistryAuth),
    Bearer(HeaderValue),
}

impl Authorization {
    /// A token; `None` when it is invalid in an HTTP header.
    pub(super) fn bearer(token: &str) -> Option<Self> {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
        value.set_sensitive(true);
        Some(Self::Bearer(value))
    }

    /// Adds it to a request.
    pub(super) fn on(&self, request: RequestBuilder) -> RequestBuilder {
        match self {
            Self::Basic(auth) => request.basic_auth(&auth.username, Some(&auth.password)),
            Self::Bearer(value) => request.header(AUTHORIZATION, value),
        }
    }
}

/// The URL for a token to read `repository`.
pub(super) fn token_url(realm: &str, service: Option<String>, repository: &str) -> Option<Url> {
    let mut url = Url::parse(realm).ok()?;
    {
        let mut query = url.query_pairs_mut();
        if let Some(service) = service {
            query.append_pair("service", &service);
        }
        query.append_pair("scope", &format!("repository:{repository}:pull"));
    }
    Some(url)
}

/// The token in a token server's response.
pub(super) fn token(answer: &[u8]) -> Option<Authorization> {
    #[derive(Deserialize)]
    struct Answer {
        token: Option<String>,
        access_token: Option<String>,
    }
    let answer: Answer = serde_json::from_slice(answer).ok()?;
    Authorization::bearer(&answer.token.or(answer.access_token)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(values: &[&str]) -> Option<Challenge> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_str(value).unwrap());
        }
        Challenge::find(&headers)
    }

    #[test]
    fn the_first_supported_challenge_is_used() {
        let bearer = r#"Bearer realm="https://auth.example/token",service="r",scope="x""#;
        let expected = Challenge::Bearer {
            realm: "https://auth.example/token".into(),
            service: Some("r".into()),
        };
        assert_eq!(found(&["Negotiate", bearer]), Some(expected));
        assert_eq!(found(&[r#"Basic realm="x""#]), Some(Challenge::Basic));
        assert_eq!(found(&["Bearer"]), None);
        assert_eq!(found(&["\u{1}"].map(|_| "@@@")), None);
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn a_token_is_requested_for_one_repository() {
        let url = token_url(
            "https://auth.example/token?a=b",
            Some("r&x".into()),
            "org/app",
        );
        assert_eq!(
            url.unwrap().as_str(),
            "https://auth.example/token?a=b&service=r%26x&scope=repository%3Aorg%2Fapp%3Apull"
        );
        assert_eq!(token_url("no url", None, "x"), None);
    }

    #[test]
    fn an_unsendable_token_is_ignored() {
        assert!(token(br#"{"token":"abc"}"#).is_some());
        assert!(token(br#"{"access_token":"abc"}"#).is_some());
        for bad in [
            &br#"{"token":"a\nb"}"#[..],
            b"{}",
            b"no json",
            br#"{"token":null}"#,
        ] {
            assert!(token(bad).is_none());
        }
    }

    #[test]
    fn a_token_is_not_shown() {
        match Authorization::bearer("hunter2") {
            Some(Authorization::Bearer(value)) => assert_eq!(format!("{value:?}"), "Sensitive"),
            _ => panic!("a plain token"),
        }
    }
}
