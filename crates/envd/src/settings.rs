//! What the control plane told the daemon.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use shoal_protocol::init::IDENTITY_VARIABLES;
use shoal_protocol::token::AccessToken;
use time::OffsetDateTime;

use crate::config::{Access, Config};
use crate::server::Side;

/// Environment variables, by name.
pub(crate) type Variables = BTreeMap<String, String>;

/// What holds for every request.
#[derive(Debug, Clone)]
struct Values {
    guard: Guard,
    /// Whether programs in the sandbox are let in without the token.
    open_inside: bool,
    /// What the last request set.
    variables: Variables,
    /// Who this sandbox is; outlives a change of the variables.
    identity: Variables,
    /// Both together, made when one of them changes.
    environment: Arc<Variables>,
    default_user: Arc<str>,
    default_workdir: Option<Arc<str>>,
    last_init: Option<OffsetDateTime>,
}

/// What is asked of a caller.
#[derive(Debug, Clone)]
pub(crate) enum Guard {
    /// Nothing.
    Open,
    /// To know this token.
    Token(AccessToken),
    /// There is no token yet, so that no caller can know it.
    Shut,
}

impl Guard {
    /// Whether `offered` opens the daemon.
    pub(crate) fn opens(&self, offered: Option<&[u8]>) -> bool {
        match (self, offered) {
            (Self::Open, _) => true,
            (Self::Token(token), Some(offered)) => token.matches(offered),
            (Self::Token(_), None) | (Self::Shut, _) => false,
        }
    }
}

/// Who acts and where, when a request does not say.
#[derive(Debug, Clone)]
pub(crate) struct Defaults {
    /// The user's name. Empty when there is none.
    pub(crate) user: Arc<str>,
    /// The working directory.
    pub(crate) workdir: Option<Arc<str>>,
}

/// What the control plane told the daemon, shared by all requests.
pub(crate) struct Settings(RwLock<Values>);

impl Settings {
    /// What holds before the control plane said anything.
    pub(crate) fn new(config: &Config) -> Self {
        let identity = Variables::from([("E2B_SANDBOX".to_owned(), "true".to_owned())]);
        Self(RwLock::new(Values {
            guard: match &config.access {
                Access::Token(token) => Guard::Token(token.clone()),
                Access::Everybody => Guard::Open,
                Access::StandardInput => Guard::Shut,
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

    /// What is asked of a caller on this side.
    pub(crate) fn guard(&self, side: Side) -> Guard {
        let values = self.0.read();
        match side {
            Side::Inside if values.open_inside => Guard::Open,
            Side::Inside | Side::Outside => values.guard.clone(),
        }
    }

    /// The environment that every process gets.
    pub(crate) fn environment(&self) -> Arc<Variables> {
        Arc::clone(&self.0.read().environment)
    }

    /// Who acts and where, when a request does not say.
    pub(crate) fn defaults(&self) -> Defaults {
        let values = self.0.read();
        Defaults {
            user: Arc::clone(&values.default_user),
            workdir: values.default_workdir.clone(),
        }
    }

    /// What says which sandbox this is.
    pub(crate) fn identity(&self) -> Variables {
        self.0.read().identity.clone()
    }

    /// Notes the time of a request to change settings. False when a later one came before.
    pub(crate) fn advance(&self, timestamp: OffsetDateTime) -> bool {
        let mut values = self.0.write();
        let newer = values.last_init.is_none_or(|last| timestamp > last);
        if newer {
            values.last_init = Some(timestamp);
        }
        newer
    }

    /// Sets the token, which callers must know from now on.
    pub(crate) fn set_token(&self, token: AccessToken) {
        let mut values = self.0.write();
        values.guard = Guard::Token(token);
        values.open_inside = false;
    }

    /// Lets programs in the sandbox in without the token.
    pub(crate) fn open_inside(&self) {
        self.0.write().open_inside = true;
    }

    /// Replaces the variables. Those that say who this sandbox is are kept apart.
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

    /// Sets a variable that outlives a change of the others.
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

    const BOTH: [Side; 2] = [Side::Inside, Side::Outside];

    #[test]
    fn without_a_token_nothing_opens_and_with_one_only_it_does() {
        let shut = settings(Access::StandardInput);
        for side in BOTH {
            for offered in [None, Some(&b""[..]), Some(b"t")] {
                assert!(!shut.guard(side).opens(offered), "{offered:?}");
            }
        }
        let settings = settings(Access::Token(token("t")));
        for side in BOTH {
            let guard = settings.guard(side);
            assert!(guard.opens(Some(b"t")));
            assert!(!guard.opens(Some(b"x")));
            assert!(!guard.opens(Some(b"")));
            assert!(!guard.opens(None));
        }
    }

    #[test]
    fn what_is_open_to_everybody_closes_with_the_first_token() {
        let settings = settings(Access::Everybody);
        assert!(settings.guard(Side::Outside).opens(None));
        settings.set_token(token("t"));
        for side in BOTH {
            assert!(!settings.guard(side).opens(None));
        }
    }

    #[test]
    fn only_programs_inside_are_spared_the_token_and_not_beyond_the_next_one() {
        let settings = settings(Access::Token(token("t")));
        settings.open_inside();
        assert!(settings.guard(Side::Inside).opens(None));
        assert!(!settings.guard(Side::Outside).opens(None));
        assert!(settings.guard(Side::Outside).opens(Some(b"t")));
        settings.set_token(token("u"));
        assert!(!settings.guard(Side::Inside).opens(None));
    }

    #[test]
    fn identity_outlives_a_change_of_variables() {
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
    fn an_old_request_is_told_from_a_new_one() {
        let settings = Settings::new(&Config::default());
        let time = OffsetDateTime::UNIX_EPOCH;
        assert!(settings.advance(time));
        assert!(!settings.advance(time));
        assert!(settings.advance(time + time::Duration::SECOND));
    }
}
