//! The writes of a claim: each takes a sandbox that waits, or creates one.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;
use shoal_crds::kruise::{Claiming, Sandbox, SandboxClaim, SandboxSet, revision};

use super::{SandboxClaimController, change};
use crate::cache::key;
use crate::failure::{self, Failure, is_conflict, is_missing};
use crate::kruise::batches::{self, Written};
use crate::patch;
use crate::pool::generated_name;

/// How many sandboxes one pass claims, and how many its first batch.
const MOST: usize = 50;
const FIRST_BATCH: usize = 5;

impl SandboxClaimController {
    /// Claims as many sandboxes as are missing, but not too many in one pass.
    pub(super) async fn claim(
        &self,
        claim: &SandboxClaim,
        set: &SandboxSet,
        missing: usize,
    ) -> Written {
        let template = set.spec.template_ref.as_ref();
        let template = template.and_then(|reference| {
            let namespace = set.metadata.namespace.clone().unwrap_or_default();
            self.templates.get(&(namespace, reference.name.clone()))
        });
        let initialized = change::has_runtime(set, template.as_deref(), self.injected);
        let revision = revision::of_set(&set.spec);
        batches::grow(missing.min(MOST), FIRST_BATCH, || async {
            let claiming = change::claiming(claim, initialized, Timestamp::now())?;
            let taken = match self.take(claim, set, &revision, &claiming).await {
                Ok(false) if claim.spec.create_on_no_stock.unwrap_or(true) => {
                    self.create(claim, set, &revision, &claiming).await
                }
                taken => taken,
            };
            taken.inspect_err(|failure| self.doubt(claim, failure))
        })
        .await
    }

    /// Remembers that a write may have been carried out although it failed.
    fn doubt(&self, claim: &SandboxClaim, failure: &Failure) {
        let answered = matches!(failure, Failure::Api(error) if failure::code(error).is_some_and(|code| code < 500));
        if let (false, Some(uid)) = (answered, &claim.metadata.uid) {
            self.uncertain.lock().insert(uid.clone());
        }
    }

    /// Claims a sandbox that waits. Whether there was one.
    async fn take(
        &self,
        claim: &SandboxClaim,
        set: &SandboxSet,
        revision: &str,
        claiming: &Claiming,
    ) -> Result<bool, Failure> {
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let (mut tried, mut retried) = (HashSet::new(), HashSet::new());
        loop {
            let members = self.sandboxes.owned_by(uid);
            let now = Timestamp::now();
            let Some((candidate, pick)) = self.picks.pick(members, revision, &tried, now) else {
                return Ok(false);
            };
            let mut claimed = (*candidate).clone();
            change::apply(claim, claiming, &mut claimed);
            let (before, after) = (json!(*candidate), json!(claimed));
            let mut patch = patch::between(&before, &after).unwrap_or_default();
            // One of several writes to this version wins.
            patch["metadata"]["resourceVersion"] = json!(candidate.metadata.resource_version);
            let (namespace, name) = key(&*candidate);
            match self.cluster.patch(&namespace, &name, &patch).await {
                Ok(taken) => {
                    self.sandboxes.learn(taken);
                    return Ok(true);
                }
                // Another claim, or only a change of its status: the newest state says which.
                Err(error) if is_conflict(&error) => {
                    if let Some(newest) = self.cluster.get(&namespace, &name).await? {
                        let newest: Arc<Sandbox> = self.sandboxes.learn(newest);
                        if retried.insert(pick.uid().to_owned()) && newest.is_free(now) {
                            continue;
                        }
                    }
                }
                Err(error) if is_missing(&error) => self.sandboxes.forget(&(namespace, name)),
                Err(error) => return Err(error.into()),
            }
            tried.insert(pick.uid().to_owned());
        }
    }

    async fn create(
        &self,
        claim: &SandboxClaim,
        set: &SandboxSet,
        revision: &str,
        claiming: &Claiming,
    ) -> Result<bool, Failure> {
        let names = generated_name(set.metadata.name.as_deref().unwrap_or_default())?;
        let sandbox = change::cold(claim, set, claiming, revision, names);
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let made: Sandbox = self.cluster.create(namespace, &json!(sandbox)).await?;
        self.sandboxes.learn(made);
        Ok(true)
    }
}
