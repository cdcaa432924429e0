//! What the control plane told the daemon.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use shoal_protocol::init::IDENTITY_VARIABLES;
use shoal_protocol::token::AccessToken;
use time::OffsetDateTime;

use crate::config::Config;

/// Environment variables, by name.
pub(crate) type Variables = BTreeMap<String, String>;

/// What holds for every request.
#[derive(Debug, Clone)]
struct Values {
    token: Option<AccessToken>,
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
            token: None,
            variables: Variables::new(),
            environment: Arc::new(identity.clone()),
            identity,
            default_user: config.default_user.as_str().into(),
            default_workdir: config.default_workdir.as_deref().map(Into::into),
            last_init: None,
        }))
    }

    /// Whether `offered` opens the daemon. Everything does before it has a token.
    pub(crate) fn opens(&self, offered: Option<&[u8]>) -> bool {
        match (&self.0.read().token, offered) {
            (None, _) => true,
            (Some(token), Some(offered)) => token.matches(offered),
            (Some(_), None) => false,
        }
    }

    /// The token, if there is one.
    pub(crate) fn token(&self) -> Option<AccessToken> {
        self.0.read().token.clone()
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

    /// Sets the token, or asks for none any more.
    pub(crate) fn set_token(&self, token: Option<AccessToken>) {
        self.0.write().token = token;
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

    #[test]
    fn without_a_token_everything_opens_and_with_one_only_it_does() {
        let settings = Settings::new(&Config::default());
        assert!(settings.opens(None));
        settings.set_token(Some(AccessToken::parse("t").unwrap()));
        assert!(settings.opens(Some(b"t")));
        assert!(!settings.opens(Some(b"x")));
        assert!(!settings.opens(None));
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
