//! Secrets: variables of windows, stored encrypted.

use std::collections::BTreeMap;
use std::sync::Arc;

use shoal_core::BoxFuture;
use shoal_core::auth::Principal;
use shoal_core::id::SandboxId;
use shoal_core::ports::sessions::SessionError;
use shoal_core::ports::sessions::events::SessionFact;
use shoal_core::ports::sessions::secrets::{SecretError, SecretView, SessionSecrets};
use shoal_core::session::SessionRecord;
use shoal_core::session::secret::{Activation, SecretName, SecretValue};
use shoal_core::store::SealedSecret;

use super::live::Live;
use super::{Service, SessionService, external};
use crate::seal::OVERHEAD;

/// The most secrets of a session.
const SECRETS_MAX: usize = 64;

/// The most bytes of a session's values together. A program starts with all of them.
const VALUES_MAX: usize = 512 << 10;

fn view(secret: &SealedSecret, record: &SessionRecord) -> SecretView {
    SecretView {
        name: secret.name.clone(),
        active: is_active(secret, record.sandbox.as_ref()),
        set_at: secret.set_at,
    }
}

fn is_active(secret: &SealedSecret, machine: Option<&SandboxId>) -> bool {
    let activation = secret.activation.as_ref();
    activation.is_some_and(|activation| activation.holds(machine))
}

fn parsed(name: &str) -> Result<SecretName, SessionError> {
    Ok(name.parse().map_err(SecretError::Invalid)?)
}

impl Service {
    /// The secret with this name.
    async fn secret(&self, live: &Live, name: &str) -> Result<SealedSecret, SessionError> {
        let (id, name) = (live.record().id, parsed(name)?);
        let all = self.parts.secrets.session_secrets(&id).await?;
        let found = all.into_iter().find(|secret| secret.name == name);
        found.ok_or_else(|| SecretError::NotFound(name).into())
    }

    async fn set_secret(
        &self,
        live: &Live,
        name: &str,
        value: &SecretValue,
    ) -> Result<SecretView, SessionError> {
        let name = parsed(name)?;
        let _alone = self.unless_deleting(live).await?;
        let record = live.record();
        let mut others = self.parts.secrets.session_secrets(&record.id).await?;
        let at = others.iter().position(|secret| secret.name == name);
        let activation = at.and_then(|at| others.swap_remove(at).activation);
        if others.len() >= SECRETS_MAX {
            return Err(SecretError::TooMany(SECRETS_MAX).into());
        }
        let bytes = others
            .iter()
            .map(|secret| secret.sealed.len().saturating_sub(OVERHEAD));
        if bytes.sum::<usize>() + value.reveal().len() > VALUES_MAX {
            return Err(SecretError::TooLong(VALUES_MAX).into());
        }
        let secret = SealedSecret {
            sealed: self.parts.sealing_key.seal(&record.id, &name, value)?,
            name,
            activation,
            set_at: self.now(),
        };
        self.put_secret(live, secret).await
    }

    async fn activate(&self, live: &Live, name: &str) -> Result<SecretView, SessionError> {
        let _alone = self.unless_deleting(live).await?;
        let mut secret = self.secret(live, name).await?;
        let id = live.record().id;
        if self
            .parts
            .sealing_key
            .open(&id, &secret.name, &secret.sealed)
            .is_none()
        {
            return Err(SecretError::Sealed(secret.name).into());
        }
        // The machine of the record may have ended by itself.
        let is_there =
            external::address(&live.record()).is_some() || self.permit(live).await?.is_some();
        let machine = live.record().sandbox.filter(|_| is_there);
        secret.activation = Some(machine.map_or(Activation::Next, Activation::Machine));
        let name = secret.name.clone();
        let view = self.put_secret(live, secret).await?;
        live.events.tell(SessionFact::SecretActivated(name));
        Ok(view)
    }

    async fn deactivate(&self, live: &Live, name: &str) -> Result<SecretView, SessionError> {
        let _alone = self.unless_deleting(live).await?;
        let mut secret = self.secret(live, name).await?;
        secret.activation = None;
        let name = secret.name.clone();
        let view = self.put_secret(live, secret).await?;
        live.events.tell(SessionFact::SecretDeactivated(name));
        Ok(view)
    }

    async fn delete_secret(&self, live: &Live, name: &str) -> Result<(), SessionError> {
        let _alone = self.unless_deleting(live).await?;
        let secret = self.secret(live, name).await?;
        let id = live.record().id;
        let secrets = &self.parts.secrets;
        secrets.delete_session_secret(&id, &secret.name).await?;
        self.give_secrets(live).await
    }

    /// Stores a secret, and notifies the windows.
    async fn put_secret(
        &self,
        live: &Live,
        secret: SealedSecret,
    ) -> Result<SecretView, SessionError> {
        let record = live.record();
        let view = view(&secret, &record);
        self.parts
            .secrets
            .put_session_secret(&record.id, secret)
            .await?;
        self.give_secrets(live).await?;
        Ok(view)
    }

    /// Gives the windows the secrets that are active in their machine.
    pub(super) async fn give_secrets(&self, live: &Live) -> Result<(), SessionError> {
        let record = live.record();
        let mut set = BTreeMap::new();
        for secret in self.parts.secrets.session_secrets(&record.id).await? {
            if !is_active(&secret, record.sandbox.as_ref()) {
                continue;
            }
            let SealedSecret { name, sealed, .. } = secret;
            match self.parts.sealing_key.open(&record.id, &name, &sealed) {
                Some(value) => drop(set.insert(name, Arc::new(value))),
                None => {
                    let (session, error) = (&record.id, SecretError::Sealed(name));
                    tracing::error!(%session, %error, "windows go without a secret");
                }
            }
        }
        live.secrets.send_if_modified(|now| now.replace(set));
        Ok(())
    }

    /// The session, with its machine neither starting nor ending.
    pub(super) async fn unless_deleting<'a>(
        &self,
        live: &'a Live,
    ) -> Result<tokio::sync::MutexGuard<'a, ()>, SessionError> {
        let alone = live.machine.lock().await;
        if live.is_deleting() {
            return Err(SessionError::Ending(live.record().id));
        }
        Ok(alone)
    }
}

impl SessionSecrets for SessionService {
    fn list<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Vec<SecretView>, SessionError>> {
        Box::pin(async move {
            let record = self.0.find(principal, id)?.record();
            let all = self.0.parts.secrets.session_secrets(&record.id).await?;
            Ok(all.iter().map(|secret| view(secret, &record)).collect())
        })
    }

    fn set<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        name: &'a str,
        value: SecretValue,
    ) -> BoxFuture<'a, Result<SecretView, SessionError>> {
        Box::pin(async move {
            let live = self.0.find(principal, id)?;
            self.0.set_secret(&live, name, &value).await
        })
    }

    fn activate<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<SecretView, SessionError>> {
        Box::pin(async move {
            let live = self.0.find(principal, id)?;
            self.0.activate(&live, name).await
        })
    }

    fn deactivate<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<SecretView, SessionError>> {
        Box::pin(async move {
            let live = self.0.find(principal, id)?;
            self.0.deactivate(&live, name).await
        })
    }

    fn delete<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), SessionError>> {
        Box::pin(async move {
            let live = self.0.find(principal, id)?;
            self.0.delete_secret(&live, name).await
        })
    }
}
