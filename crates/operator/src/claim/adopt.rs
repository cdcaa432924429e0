//! Takes a member of a pool: first the claim names the member, then the member changes its owner. Both
//! writes fail if the object has changed, so no member serves two claims.

use std::sync::Arc;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use shoal_crds::hash;
use shoal_crds::names::{annotation, label};
use shoal_crds::parts::UpdateStrategyKind;
use shoal_crds::v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool};

use super::candidates::{Found, PoolKey, pool_of};
use super::refusal::{Refusal, Retry};
use super::{ClaimController, GRACE, LOOK_AGAIN, Source, Wanted, assignment, build};
use crate::blueprint::Blueprint;
use crate::failure::{is_conflict, is_missing};
use crate::measures;
use crate::owner::{self, Owner};

/// How many members a claim tries in one pass.
const TRIES: usize = 3;

fn conflict(what: &str) -> Refusal {
    Refusal {
        reason: "AdoptionConflict",
        message: format!("{what}; the next pass retries from a converged view"),
        retry: Retry::After(Duration::from_millis(20)),
    }
}

impl ClaimController {
    /// A member of one of the pools, if one can be had.
    pub(super) async fn adopt(
        &self,
        wanted: &Wanted<'_>,
        source: &Source,
    ) -> Result<Option<Arc<Sandbox>>, Refusal> {
        let mut pending = false;
        for pool in &source.pools {
            let pool_name = pool.metadata.name.as_deref().unwrap_or_default();
            let key = key_of(pool);
            for _ in 0..TRIES {
                let member = match self.candidates.take(&key) {
                    Found::Empty => break,
                    Found::Pending => {
                        pending = true;
                        break;
                    }
                    Found::Taken(member) => member,
                };
                // The queue may be behind: the cache has what this replica wrote itself.
                let member = self
                    .sandboxes
                    .get(&member)
                    .filter(|member| pool_of(member).as_ref() == Some(&key));
                let Some(member) = member.filter(|member| is_fit(pool, &source.template, member))
                else {
                    continue;
                };
                let _adoption = self.adoptions.begin(&crate::cache::key(&**pool));
                return match self.take(wanted, &source.template, member.clone()).await {
                    Ok(sandbox) => {
                        measures::claimed(
                            wanted.claim,
                            &source.template,
                            Some(pool_name),
                            crate::pool::is_ready(&member),
                        );
                        Ok(Some(sandbox))
                    }
                    Err(refusal) => {
                        // Back to the queue, if it is still the pool's.
                        if let Some(member) = self.sandboxes.get(&crate::cache::key(&*member)) {
                            self.candidates.applied(&member);
                        }
                        Err(refusal)
                    }
                };
            }
        }
        if pending && let Some(wait) = grace_left(wanted.claim) {
            return Err(Refusal::quietly(wait));
        }
        Ok(None)
    }

    async fn take(
        &self,
        wanted: &Wanted<'_>,
        template: &SandboxTemplate,
        member: Arc<Sandbox>,
    ) -> Result<Arc<Sandbox>, Refusal> {
        // Invalid metadata must not cost a member.
        build::adoption(wanted.claim, template, &member)?;
        let name = member.metadata.name.clone().unwrap_or_default();
        self.assign(wanted, &name).await?;
        let sandbox = self.complete(wanted, template, member).await?;
        if self.events {
            let note = format!("Adopted warm pool Sandbox {name:?}");
            self.cluster
                .event(wanted.claim, false, "SandboxAdopted", note);
        }
        Ok(sandbox)
    }

    /// Writes the member's name into the claim.
    async fn assign(&self, wanted: &Wanted<'_>, sandbox: &str) -> Result<(), Refusal> {
        let mut version = wanted.claim.metadata.resource_version.clone();
        for _ in 0..TRIES {
            let patch = assignment_patch(wanted, version.as_deref(), Some(sandbox));
            match self
                .cluster
                .patch::<SandboxClaim>(wanted.namespace, wanted.name, &patch)
                .await
            {
                Ok(patched) => {
                    self.claims.learn(patched);
                    return Ok(());
                }
                Err(error) if is_conflict(&error) => {
                    let now: Option<SandboxClaim> =
                        self.cluster.get(wanted.namespace, wanted.name).await?;
                    let now = now.filter(|now| now.metadata.uid.as_deref() == Some(wanted.uid));
                    let Some(now) = now else {
                        return Err(conflict("the claim was replaced"));
                    };
                    if assignment(&now).is_some_and(|other| other != sandbox) {
                        self.claims.learn(now);
                        return Err(conflict("another sandbox is assigned to the claim"));
                    }
                    version.clone_from(&now.metadata.resource_version);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(conflict("the claim keeps changing"))
    }

    /// Makes the claim the owner of its assigned member. It never changes to another member here: the claim
    /// names this one.
    async fn complete(
        &self,
        wanted: &Wanted<'_>,
        template: &SandboxTemplate,
        mut member: Arc<Sandbox>,
    ) -> Result<Arc<Sandbox>, Refusal> {
        let name = member.metadata.name.clone().unwrap_or_default();
        for _ in 0..TRIES {
            let patch = build::adoption(wanted.claim, template, &member)?;
            match self
                .cluster
                .patch::<Sandbox>(wanted.namespace, &name, &patch)
                .await
            {
                Ok(patched) => return Ok(self.sandboxes.learn(patched)),
                Err(error) if is_conflict(&error) || is_missing(&error) => {}
                Err(error) => return Err(error.into()),
            }
            let now: Option<Sandbox> = self.cluster.get(wanted.namespace, &name).await?;
            match now {
                Some(now) if owner::owner(&now.metadata, wanted.uid) == Owner::Own => {
                    return Ok(self.sandboxes.learn(now));
                }
                Some(now) if pool_of(&now).is_some() => member = self.sandboxes.learn(now),
                now => {
                    if let Some(now) = now {
                        self.sandboxes.learn(now);
                    }
                    self.unassign(wanted).await?;
                    return Err(conflict(&format!("sandbox {name:?} was taken or deleted")));
                }
            }
        }
        Err(conflict(&format!("sandbox {name:?} keeps changing")))
    }

    async fn unassign(&self, wanted: &Wanted<'_>) -> Result<(), Refusal> {
        let patch = assignment_patch(wanted, None, None);
        match self
            .cluster
            .patch::<SandboxClaim>(wanted.namespace, wanted.name, &patch)
            .await
        {
            Ok(patched) => drop(self.claims.learn(patched)),
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Finishes an adoption that was interrupted after its first write, or drops its assignment.
    pub(super) async fn assigned(
        &self,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Arc<Sandbox>>, Refusal> {
        let Some(name) = assignment(wanted.claim) else {
            return Ok(None);
        };
        let key = (wanted.namespace.to_owned(), name.to_owned());
        let sandbox = match self.sandboxes.get(&key) {
            Some(sandbox) => Some(sandbox),
            // A new leader's cache may lack the last writes of the previous leader.
            None => self
                .cluster
                .get(&key.0, &key.1)
                .await?
                .map(|sandbox| self.sandboxes.learn(sandbox)),
        };
        if let Some(sandbox) = sandbox {
            if owner::owner(&sandbox.metadata, wanted.uid) == Owner::Own {
                return Ok(Some(sandbox));
            }
            if let Some(pool) = pool_of(&sandbox) {
                let source = self.source(wanted)?;
                // The annotation must not give the claim a member of another pool.
                if source.pools.iter().any(|of_claim| key_of(of_claim) == pool) {
                    self.candidates.deleted(&sandbox);
                    return self
                        .complete(wanted, &source.template, sandbox)
                        .await
                        .map(Some);
                }
            }
        }
        self.unassign(wanted).await?;
        Ok(None)
    }
}

/// The key of a pool's members.
fn key_of(pool: &SandboxWarmPool) -> PoolKey {
    let metadata = &pool.metadata;
    (
        metadata.namespace.clone().unwrap_or_default(),
        hash::of_name(metadata.name.as_deref().unwrap_or_default()),
    )
}

/// How long the claim may still wait for a member to get an address.
fn grace_left(claim: &SandboxClaim) -> Option<Duration> {
    let created = claim.metadata.creation_timestamp.as_ref()?.0;
    let age = Duration::try_from(Timestamp::now().duration_since(created)).unwrap_or_default();
    GRACE
        .checked_sub(age)
        .filter(|left| !left.is_zero())
        .map(|left| left.min(LOOK_AGAIN))
}

/// A pool that replaces outdated members hands none of them out.
fn is_fit(pool: &SandboxWarmPool, template: &SandboxTemplate, member: &Sandbox) -> bool {
    let strategy = pool
        .spec
        .update_strategy
        .as_ref()
        .and_then(|strategy| strategy.kind);
    strategy != Some(UpdateStrategyKind::Recreate) || {
        let blueprint = Blueprint::of(template);
        let label = member
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(label::TEMPLATE_HASH));
        label == Some(&blueprint.hash()) || blueprint.matches(&member.spec)
    }
}

/// The patch that assigns a sandbox, or removes the assignment. With a version it fails if the claim has
/// changed.
fn assignment_patch(wanted: &Wanted<'_>, version: Option<&str>, sandbox: Option<&str>) -> Value {
    let mut metadata = json!({"uid": wanted.uid});
    if let Some(version) = version {
        metadata["resourceVersion"] = version.into();
    }
    let mut annotations = json!({});
    if wanted.v1alpha1 {
        metadata["labels"] = json!({label::SANDBOX_NAME: sandbox});
    } else {
        annotations[annotation::SANDBOX_NAME] = sandbox.into();
        let labels = wanted.claim.metadata.labels.as_ref();
        if labels.is_some_and(|labels| labels.contains_key(label::SANDBOX_NAME)) {
            metadata["labels"] = json!({label::SANDBOX_NAME: null});
        }
    }
    let known = wanted.claim.metadata.annotations.as_ref();
    if sandbox.is_some()
        && known.is_none_or(|known| !known.contains_key(annotation::FIRST_OBSERVED))
    {
        annotations[annotation::FIRST_OBSERVED] = Timestamp::now().to_string().into();
    }
    metadata["annotations"] = annotations;
    json!({"metadata": metadata})
}
