//! Creates with an idempotency key: repeated, they lead to one sandbox.
//!
//! The name of the sandbox is a digest of the key, so the API server decides which of several creates makes it,
//! at whichever replicas they arrive. The sandbox is made for the request: one of a pool has its name already.

use std::sync::Arc;

use jiff::Timestamp as Time;
use shoal_core::auth::Principal;
use shoal_core::id::{SandboxId, entropy_of};
use shoal_core::ports::create::{CreateError, Created, Idempotency};
use shoal_crds::kruise::names::annotation;
use shoal_crds::kruise::{InitRequest, Sandbox, SandboxPhase};

use super::READY;
use super::plan::hex;
use crate::identity::{Key, key};
use crate::lifecycle::STARTUP;
use crate::sandboxes::Sandboxes;
use crate::{failure, ready, record};

/// The only sandbox of an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Once {
    /// Where it is.
    pub(super) key: Key,
    /// The digest of the request.
    request: String,
}

impl Once {
    pub(super) fn of(principal: &Principal, idempotency: &Idempotency) -> Self {
        let namespace = principal.slug.to_string();
        let entropy = entropy_of(&["idempotency", &namespace, &idempotency.key]);
        // Its letters and digits are those of names.
        let digest = SandboxId::from_entropy(entropy);
        Self {
            key: (namespace, format!("once-{digest}")),
            request: hex(&idempotency.request),
        }
    }

    /// Gives a new sandbox its name.
    pub(super) fn name(&self, sandbox: &mut Sandbox) {
        sandbox.metadata.generate_name = None;
        sandbox.metadata.name = Some(self.key.1.clone());
        let annotations = sandbox.metadata.annotations.get_or_insert_default();
        let request = self.request.clone();
        annotations.insert(annotation::IDEMPOTENT_REQUEST.to_owned(), request);
    }

    /// Refuses a sandbox that is not the answer to this request.
    fn check(&self, sandbox: &Sandbox) -> Result<(), CreateError> {
        if sandbox.annotation(annotation::IDEMPOTENT_REQUEST) != Some(self.request.as_str()) {
            return Err(CreateError::IdempotencyMismatch);
        }
        let phase = sandbox.status.as_ref().and_then(|status| status.phase);
        let ended = matches!(phase, Some(SandboxPhase::Failed | SandboxPhase::Succeeded));
        let visible =
            record::is_claimed(sandbox) && record::of(sandbox, Time::now()).is_user_visible();
        if ended || !visible {
            return Err(CreateError::IdempotencyGone);
        }
        Ok(())
    }
}

impl Sandboxes {
    /// The sandbox that the same request has made, once it is ready; none if it has made none.
    pub(super) async fn made_before(&self, once: &Once) -> Result<Option<Created>, CreateError> {
        let known = self.api(&once.key).get_opt(&once.key.1).await;
        let Some(known) = known.map_err(|error| failure::store(&error))? else {
            return Ok(None);
        };
        let known = self.watched.put(known);
        once.check(&known)?;
        if known.spec.paused {
            return Ok(Some(answer(&known)));
        }
        // Its creator may be at work on it, or may have died.
        let generation = known.metadata.generation.unwrap_or_default();
        let ready = ready::wait(&self.watched, &key(&known.metadata), generation, READY).await;
        let ready = ready.map_err(|error| CreateError::NotReady(error.to_string()))?;
        self.initialize_again(&ready).await?;
        if ready.startup_command().is_none() || InitRequest::of(&ready).is_none() {
            return Ok(Some(answer(&ready)));
        }
        let started = ready::started(&self.watched, &key(&ready.metadata), STARTUP).await;
        let started = started.map_err(|error| CreateError::NotReady(error.to_string()))?;
        Ok(Some(answer(&started)))
    }
}

fn answer(sandbox: &Sandbox) -> Created {
    Created {
        record: Arc::new(record::of(sandbox, Time::now())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shoal_crds::kruise::names::label;

    use super::*;

    fn once(team: &str, key: &str, request: u8) -> Once {
        let principal = Principal {
            slug: team.parse().unwrap(),
            ..Principal::installation()
        };
        let idempotency = Idempotency {
            key: key.to_owned(),
            request: [request; 32],
        };
        Once::of(&principal, &idempotency)
    }

    #[test]
    fn a_name_depends_on_the_team_and_the_key_alone() {
        let first = once("team", "key", 1);
        assert_eq!(first.key, once("team", "key", 2).key);
        assert_ne!(first.key.1, once("other", "key", 1).key.1);
        assert_ne!(first.key.1, once("team", "another", 1).key.1);
        let name = first.key.1;
        let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(name.len() < 58 && name.chars().all(good), "{name}");
    }

    #[test]
    fn another_request_with_the_key_is_refused() {
        let mut sandbox: Sandbox = serde_json::from_value(json!({
            "metadata": {"namespace": "team", "generateName": "code-", "uid": "u", "labels": {
                "agents.kruise.io/sandbox-claimed": "true",
            }},
            "spec": {}, "status": {"phase": "Running"},
        }))
        .unwrap();
        once("team", "key", 1).name(&mut sandbox);
        assert_eq!(sandbox.metadata.generate_name, None);
        assert!(once("team", "key", 1).check(&sandbox).is_ok());
        let other = once("team", "key", 2).check(&sandbox);
        assert!(matches!(other, Err(CreateError::IdempotencyMismatch)));
        let mut kept = sandbox.clone();
        let labels = kept.metadata.labels.get_or_insert_default();
        labels.insert(label::RESERVED_FAILED_SANDBOX.to_owned(), "true".to_owned());
        let gone = once("team", "key", 1).check(&kept);
        assert!(matches!(gone, Err(CreateError::IdempotencyGone)));
        sandbox.status.get_or_insert_default().phase = Some(SandboxPhase::Failed);
        let gone = once("team", "key", 1).check(&sandbox);
        assert!(matches!(gone, Err(CreateError::IdempotencyGone)));
    }
}
