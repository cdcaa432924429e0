//! The user, defaults and deadline of a Connect call.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use connectrpc::{ConnectError, RequestContext};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use shoal_protocol::headers::KEEPALIVE_INTERVAL;
use tokio::time::Instant;

use crate::settings::{Defaults, Settings, Variables};
use crate::user::{User, Users};

/// Default keepalive interval of a stream (spec).
const KEEPALIVE: Duration = Duration::from_secs(90);

/// Requested lifetime of a streaming call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// Ends at this time.
    Until(Instant),
    /// The header is not a valid timeout.
    Invalid,
}

/// Parses a Connect timeout: milliseconds, at most ten digits. 0 means none.
pub(crate) fn lifetime(text: &str) -> Option<Lifetime> {
    let digits = (1..=10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(0) if digits => None,
        Ok(millis) if digits => Some(Lifetime::Until(
            Instant::now() + Duration::from_millis(millis),
        )),
        _ => Some(Lifetime::Invalid),
    }
}

/// Resolves the user and defaults of a call.
pub(crate) struct Caller {
    users: Arc<Users>,
    settings: Arc<Settings>,
}

impl Caller {
    /// A resolver with these users and settings.
    pub(crate) fn new(users: Arc<Users>, settings: Arc<Settings>) -> Self {
        Self { users, settings }
    }

    /// The user and its groups: the name in `Authorization: Basic`, or the default user.
    ///
    /// # Errors
    /// `unauthenticated` if no such user exists.
    pub(crate) fn user(&self, ctx: &RequestContext) -> Result<(User, Vec<u32>), ConnectError> {
        let directory = self.users.directory();
        let (name, kind) = match basic_user(ctx.headers()) {
            Some(name) => (name, "username"),
            None => (self.settings.defaults().user.to_string(), "default user"),
        };
        if name.is_empty() && kind == "default user" {
            return Err(ConnectError::unauthenticated("no user specified"));
        }
        let user = directory
            .user(&name)
            .ok_or_else(|| ConnectError::unauthenticated(format!("invalid {kind}: '{name}'")))?;
        Ok((user.clone(), directory.groups(user)))
    }

    /// Rejects a call with an unknown user name, for calls that do not depend on the user.
    ///
    /// # Errors
    /// `unauthenticated` if the given user does not exist.
    pub(crate) fn check(&self, ctx: &RequestContext) -> Result<(), ConnectError> {
        match basic_user(ctx.headers()) {
            Some(_) => self.user(ctx).map(drop),
            None => Ok(()),
        }
    }

    /// User and working directory of requests that name none.
    pub(crate) fn defaults(&self) -> Defaults {
        self.settings.defaults()
    }

    /// The environment of every process.
    pub(crate) fn environment(&self) -> Arc<Variables> {
        self.settings.environment()
    }

    /// The users of the sandbox.
    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    /// The users of the sandbox, for a task that outlives the call.
    pub(crate) fn users_shared(&self) -> Arc<Users> {
        Arc::clone(&self.users)
    }

    /// The deadline of a streaming call.
    ///
    /// # Errors
    /// `invalid_argument` if the timeout header is invalid.
    pub(crate) fn deadline(&self, ctx: &RequestContext) -> Result<Option<Instant>, ConnectError> {
        match ctx.extensions().get::<Lifetime>() {
            None => Ok(None),
            Some(Lifetime::Until(deadline)) => Ok(Some(*deadline)),
            Some(Lifetime::Invalid) => {
                Err(ConnectError::invalid_argument("invalid Connect-Timeout-Ms"))
            }
        }
    }

    /// Keepalive interval of this call's stream.
    pub(crate) fn keepalive(ctx: &RequestContext) -> Duration {
        let header = ctx.headers().get(KEEPALIVE_INTERVAL);
        let seconds = header.and_then(|value| value.to_str().ok()?.parse().ok());
        match seconds {
            Some(seconds @ 1..) => Duration::from_secs(u64::from(u32::min(seconds, 86_400))),
            _ => KEEPALIVE,
        }
    }
}

/// The user name in `Authorization: Basic`. The password is ignored, as is a malformed header; E2B
/// does the same.
pub(crate) fn basic_user(headers: &HeaderMap) -> Option<String> {
    let header = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim()).ok()?;
    let (name, _password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn user(header: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_str(header).unwrap());
        basic_user(&headers)
    }

    #[test]
    fn the_user_name_ends_at_the_first_colon() {
        assert_eq!(user("Basic dXNlcjo=").as_deref(), Some("user"));
        assert_eq!(user("basic dXNlcjpwYTpzcw==").as_deref(), Some("user"));
        assert_eq!(user("Basic Og==").as_deref(), Some(""));
    }

    #[test]
    fn invalid_authorization_is_ignored() {
        for header in [
            "Basic",
            "Basic !",
            "Basic dXNlcg==",
            "Bearer dXNlcjo=",
            "Basic /w==",
        ] {
            assert_eq!(user(header), None, "{header}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lifetime_has_at_most_ten_digits_and_zero_means_none() {
        let in_a_second = Instant::now() + Duration::from_secs(1);
        assert_eq!(lifetime("1000"), Some(Lifetime::Until(in_a_second)));
        assert_eq!(lifetime("0"), None);
        for text in ["", "-1", "+1", "1.5", "1s", "12345678901"] {
            assert_eq!(lifetime(text), Some(Lifetime::Invalid), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_header_panics_the_parser(header in "(Basic |)[ -~]{0,60}") {
            let _ = user(&header);
        }

        #[test]
        fn names_without_a_colon_round_trip(name in "[^:\\x00]{0,30}") {
            let header = format!("Basic {}", STANDARD.encode(format!("{name}:")));
            prop_assert_eq!(user(&header), Some(name));
        }
    }
}
