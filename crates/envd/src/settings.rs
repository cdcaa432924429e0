//! Settings from the control plane.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use shoal_protocol::init::IDENTITY_VARIABLES;
use shoal_protocol::token::AccessToken;
use time::OffsetDateTime;

use crate::auth::AuthPolicy;
use crate::config::{Access, Config};
use crate::server::Peer;

/// Environment variables, by name.
pub(crate) type Variables = BTreeMap<String, String>;

/// Whether a process can be started with this variable. An invalid one would fail every start.
pub(crate) fn is_variable(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

/// Current values.
#[derive(Debug, Clone)]
struct Values {
    auth_policy: AuthPolicy,
    /// Whether programs in the sandbox need no token.
    open_inside: bool,
    /// Variables of the last request.
    variables: Variables,
    /// Variables that identify the sandbox; kept when the others are replaced.
    identity: Variables,
    /// Both combined; rebuilt when either changes.
    environment: Arc<Variables>,
    default_user: Arc<str>,
    default_workdir: Option<Arc<str>>,
    last_init: Option<OffsetDateTime>,
}

/// User and working directory of requests that name none.
#[derive(Debug, Clone)]
pub(crate) struct Defaults {
    /// The user's name; empty if unset.
    pub(crate) user: Arc<str>,
    /// The working directory.
    pub(crate) workdir: Option<Arc<str>>,
}

/// Settings from the control plane, shared by all requests.
pub(crate) struct Settings(RwLock<Values>);

impl Settings {
    /// Settings before the first `/init`.
    pub(crate) fn new(config: &Config) -> Self {
        let identity = Variables::from([("E2B_SANDBOX".to_owned(), "true".to_owned())]);
        Self(RwLock::new(Values {
            auth_policy: match &config.access {
                Access::Token(token) => AuthPolicy::Token(token.clone()),
                Access::Open => AuthPolicy::Open,
                Access::StandardInput | Access::Locked => AuthPolicy::Locked,
                Access::FirstInit(digest) => AuthPolicy::FirstInit(digest.clone()),
            },
            open_inside: false,
            variables: Variables::new(),
            environment: Arc::new(identity.clone()),
            identity,
            default_user: config.default_user.as_str().into(),
            default_workdir: config.default_workdir.as_deref().map(Into::into),
            last_init: None,
        }))
    }

    /// The authentication required of this kind of peer.
    pub(crate) fn auth_policy(&self, peer: Peer) -> AuthPolicy {
        let values = self.0.read();
        match peer {
            Peer::Inside if values.open_inside => AuthPolicy::Open,
            Peer::Inside | Peer::Outside => values.auth_policy.clone(),
        }
    }

    /// The environment of every process.
    pub(crate) fn environment(&self) -> Arc<Variables> {
        Arc::clone(&self.0.read().environment)
    }

    /// User and working directory of requests that name none.
    pub(crate) fn defaults(&self) -> Defaults {
        let values = self.0.read();
        Defaults {
            user: Arc::clone(&values.default_user),
            workdir: values.default_workdir.clone(),
        }
    }

    /// The variables that identify the sandbox.
    pub(crate) fn identity(&self) -> Variables {
        self.0.read().identity.clone()
    }

    /// Records the timestamp of a settings request. False if a newer one was applied already.
    pub(crate) fn advance(&self, timestamp: OffsetDateTime) -> bool {
        let mut values = self.0.write();
        let newer = values.last_init.is_none_or(|last| timestamp > last);
        if newer {
            values.last_init = Some(timestamp);
        }
        newer
    }

    /// Sets the token required from now on.
    pub(crate) fn set_token(&self, token: AccessToken) {
        let mut values = self.0.write();
        values.auth_policy = AuthPolicy::Token(token);
        values.open_inside = false;
    }

    /// Exempts programs in the sandbox from the token.
    pub(crate) fn open_inside(&self) {
        self.0.write().open_inside = true;
    }

    /// Replaces the variables. Identity variables are stored separately.
    pub(crate) fn set_variables(&self, mut variables: Variables) {
        let mut values = self.0.write();
        for name in IDENTITY_VARIABLES {
            if let Some((name, value)) = variables.remove_entry(name) {
                values.identity.insert(name, value);
            }
        }
        values.variables = variables;
        values.combine();
    }

    /// Sets a variable that survives the replacement of the others.
    pub(crate) fn set_identity(&self, name: &str, value: &str) {
        let mut values = self.0.write();
        values.identity.insert(name.to_owned(), value.to_owned());
        values.combine();
    }

    /// Sets the default user.
    pub(crate) fn set_default_user(&self, user: &str) {
        self.0.write().default_user = user.into();
    }

    /// Sets the default working directory.
    pub(crate) fn set_default_workdir(&self, workdir: &str) {
        self.0.write().default_workdir = Some(workdir.into());
    }
}

impl Values {
    fn combine(&mut self) {
        let mut environment = self.identity.clone();
        environment.extend(self.variables.clone());
        self.environment = Arc::new(environment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(access: Access) -> Settings {
        Settings::new(&Config {
            access,
            ..Config::default()
        })
    }

    fn token(text: &str) -> AccessToken {
        AccessToken::parse(text).unwrap()
    }

    const BOTH: [Peer; 2] = [Peer::Inside, Peer::Outside];

    #[test]
    fn only_the_right_token_is_admitted() {
        let shut = settings(Access::StandardInput);
        for peer in BOTH {
            for offered in [None, Some(&b""[..]), Some(b"t")] {
                assert!(!shut.auth_policy(peer).admits(offered), "{offered:?}");
            }
        }
        let settings = settings(Access::Token(token("t")));
        for peer in BOTH {
            let auth_policy = settings.auth_policy(peer);
            assert!(auth_policy.admits(Some(b"t")));
            assert!(!auth_policy.admits(Some(b"x")));
            assert!(!auth_policy.admits(Some(b"")));
            assert!(!auth_policy.admits(None));
        }
    }

    #[test]
    fn an_open_daemon_requires_the_first_token() {
        let settings = settings(Access::Open);
        assert!(settings.auth_policy(Peer::Outside).admits(None));
        settings.set_token(token("t"));
        for peer in BOTH {
            assert!(!settings.auth_policy(peer).admits(None));
        }
    }

    #[test]
    fn only_inside_programs_are_exempt_until_the_next_token() {
        let settings = settings(Access::Token(token("t")));
        settings.open_inside();
        assert!(settings.auth_policy(Peer::Inside).admits(None));
        assert!(!settings.auth_policy(Peer::Outside).admits(None));
        assert!(settings.auth_policy(Peer::Outside).admits(Some(b"t")));
        settings.set_token(token("u"));
        assert!(!settings.auth_policy(Peer::Inside).admits(None));
    }

    #[test]
    fn identity_survives_a_change_of_variables() {
        let settings = Settings::new(&Config::default());
        let variables = [("E2B_SANDBOX_ID", "i1"), ("A", "1")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        settings.set_variables(variables.into());
        settings.set_variables(Variables::from([("B".to_owned(), "2".to_owned())]));
        let environment = settings.environment();
        assert_eq!(environment["E2B_SANDBOX"], "true");
        assert_eq!(environment["E2B_SANDBOX_ID"], "i1");
        assert_eq!(environment["B"], "2");
        assert!(!environment.contains_key("A"));
    }

    #[test]
    fn an_outdated_request_is_detected() {
        let settings = Settings::new(&Config::default());
        let time = OffsetDateTime::UNIX_EPOCH;
        assert!(settings.advance(time));
        assert!(!settings.advance(time));
        assert!(settings.advance(time + time::Duration::SECOND));
    }
}
