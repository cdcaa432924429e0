//! The controller of `SandboxClaim`: a sandbox from a pool in two writes and a status, or a new one.

mod adopt;
mod build;
mod candidates;
mod end;
mod expiry;
mod inject;
mod metadata;
mod refusal;
mod startup;
mod status;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::runtime::controller::Action;
use serde_json::json;
use shoal_crds::convert::{Requested, requested, written_in_v1alpha1};
use shoal_crds::names::{annotation, label};
use shoal_crds::parts::SandboxClaimStatus;
use shoal_crds::v1beta1::{Sandbox, SandboxClaim, SandboxTemplate, SandboxWarmPool};

pub(crate) use self::candidates::Candidates;
pub(crate) use self::startup::Startups;

use self::refusal::{Refusal, Retry};
use crate::adoptions::Adoptions;
use crate::blueprint::manifest;
use crate::cache::Cache;
use crate::cluster::Cluster;
use crate::failure::{Failure, is_conflict, is_missing};
use crate::owner::{self, Owner};
use crate::{measures, patch};

/// How long a claim waits for members whose pods have no address yet.
const GRACE: Duration = Duration::from_secs(2);
/// The next look meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// The next pass after a claim has been marked as expired.
const AT_ONCE: Duration = Duration::from_millis(1);

/// Reconciles claims.
pub(crate) struct ClaimController {
    pub(crate) cluster: Cluster,
    pub(crate) claims: Arc<Cache<SandboxClaim>>,
    pub(crate) sandboxes: Arc<Cache<Sandbox>>,
    pub(crate) pools: Arc<Cache<SandboxWarmPool>>,
    pub(crate) templates: Arc<Cache<SandboxTemplate>>,
    pub(crate) candidates: Arc<Candidates>,
    pub(crate) startups: Arc<Startups>,
    /// Adoptions, for which refills of pools wait.
    pub(crate) adoptions: Adoptions,
    /// Whether to publish events about claims that have got a sandbox.
    pub(crate) events: bool,
}

/// A claim and the values derived from it.
struct Wanted<'a> {
    claim: &'a SandboxClaim,
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    v1alpha1: bool,
}

/// The template of a claim, and the pools that may serve it.
struct Source {
    template: Arc<SandboxTemplate>,
    pools: Vec<Arc<SandboxWarmPool>>,
}

impl ClaimController {
    /// Brings a claim closer to a sandbox, or ends it.
    pub(crate) async fn reconcile(
        self: Arc<Self>,
        claim: Arc<SandboxClaim>,
    ) -> Result<Action, Failure> {
        let key = crate::cache::key(&*claim);
        let claim = self.claims.get(&key).unwrap_or(claim);
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        if claim.metadata.deletion_timestamp.is_some() {
            return Ok(Action::await_change());
        }
        let wanted = Wanted {
            claim: &claim,
            namespace: &key.0,
            name: &key.1,
            uid: &uid,
            v1alpha1: written_in_v1alpha1(&claim.metadata),
        };
        let before = claim.status.clone().unwrap_or_default();
        let ends = |status: &SandboxClaimStatus| {
            expiry::at(claim.spec.lifecycle.as_ref(), &status.conditions)
        };
        if ends(&before).is_some_and(|at| expiry::left(at, Timestamp::now()).is_none()) {
            return self.expire(&wanted).await;
        }
        if !status::is_ready(&before) {
            self.startups.see(&uid, &before);
        }
        let served = self.serve(&wanted).await;
        let now = Timestamp::now();
        let status = match &served {
            Ok(sandbox) => status::served(&claim, sandbox, now),
            Err(Refusal {
                retry: Retry::Quietly(wait),
                ..
            }) => return Ok(Action::requeue(*wait)),
            Err(refusal) => status::refused(&claim, refusal, now),
        };
        self.write_status(&wanted, &before, &status).await?;
        if let Ok(sandbox) = &served
            && let Some(after) = self.startups.ready(&uid, &before, &status)
        {
            measures::claim_ready(&claim, sandbox, after);
        }
        let left = ends(&status).map(|at| expiry::left(at, now).unwrap_or(AT_ONCE));
        let retry = match served {
            Err(Refusal {
                retry: Retry::Backoff(failure),
                ..
            }) => return Err(*failure),
            Err(Refusal {
                retry: Retry::After(wait),
                ..
            }) => Some(wait),
            _ => None,
        };
        Ok(left
            .into_iter()
            .chain(retry)
            .min()
            .map_or_else(Action::await_change, Action::requeue))
    }

    /// The claim's sandbox: the one that it has, one of a pool, or a new one.
    async fn serve(&self, wanted: &Wanted<'_>) -> Result<Arc<Sandbox>, Refusal> {
        metadata::check(&wanted.claim.spec.additional_pod_metadata, wanted.v1alpha1)?;
        if let Some(sandbox) = self.owned(wanted) {
            return self.sync(wanted, sandbox).await;
        }
        if let Some(sandbox) = self.assigned(wanted).await? {
            return Ok(sandbox);
        }
        let same_name = self
            .sandboxes
            .get(&(wanted.namespace.to_owned(), wanted.name.to_owned()));
        if same_name.is_some_and(|sandbox| sandbox.metadata.deletion_timestamp.is_none()) {
            return Err(collision(wanted));
        }
        let source = self.source(wanted)?;
        let spec = &wanted.claim.spec;
        if wanted.v1alpha1
            && !spec.env.is_empty()
            && requested(wanted.claim) != no_pool(&source.template)
        {
            return Err(Refusal::error(
                "custom environment variables are not supported when using a warm pool",
            ));
        }
        if spec.env.is_empty()
            && spec.volume_claim_templates.is_empty()
            && let Some(sandbox) = self.adopt(wanted, &source).await?
        {
            return Ok(sandbox);
        }
        self.create(wanted, &source.template).await
    }

    /// The sandbox that the claim controls: the one of its status first.
    fn owned(&self, wanted: &Wanted<'_>) -> Option<Arc<Sandbox>> {
        let owned = self.sandboxes.owned_by(wanted.uid);
        let known = wanted
            .claim
            .status
            .as_ref()
            .map(|status| status.sandbox.name.as_str());
        let first = owned
            .iter()
            .find(|sandbox| sandbox.metadata.name.as_deref() == known);
        first.or_else(|| owned.first()).cloned()
    }

    /// Template and pools. A v1beta1 claim has the template of its pool; a v1alpha1 claim names both.
    fn source(&self, wanted: &Wanted<'_>) -> Result<Source, Refusal> {
        let key = |name: &str| (wanted.namespace.to_owned(), name.to_owned());
        let template = |name: &str| {
            let missing = || Refusal::missing("TemplateNotFound", "SandboxTemplate", name);
            self.templates.get(&key(name)).ok_or_else(missing)
        };
        match requested(wanted.claim) {
            Requested::Pool(name) => {
                let missing = || Refusal::missing("WarmPoolNotFound", "SandboxWarmPool", &name);
                let pool = self.pools.get(&key(&name)).ok_or_else(missing)?;
                let template = template(&pool.spec.sandbox_template_ref.name)?;
                Ok(Source {
                    template,
                    pools: vec![pool],
                })
            }
            Requested::TemplateAndPool {
                template: name,
                pool,
            } => {
                let pool = self.pools.get(&key(&pool));
                let pool = pool.filter(|pool| pool.spec.sandbox_template_ref.name == name);
                Ok(Source {
                    template: template(&name)?,
                    pools: pool.into_iter().collect(),
                })
            }
            Requested::AnyPool { template: name } => {
                let mut pools: Vec<_> = self
                    .pools
                    .all()
                    .into_iter()
                    .filter(|pool| pool.metadata.namespace.as_deref() == Some(wanted.namespace))
                    .filter(|pool| pool.spec.sandbox_template_ref.name == name)
                    .collect();
                pools.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
                Ok(Source {
                    template: template(&name)?,
                    pools,
                })
            }
            Requested::NoPool { template: name } => Ok(Source {
                template: template(&name)?,
                pools: Vec::new(),
            }),
        }
    }

    /// Creates a sandbox with the claim's name.
    async fn create(
        &self,
        wanted: &Wanted<'_>,
        template: &SandboxTemplate,
    ) -> Result<Arc<Sandbox>, Refusal> {
        let sandbox = build::cold(wanted.claim, template)?;
        let manifest = manifest(sandbox, wanted.v1alpha1)?;
        match self
            .cluster
            .create::<Sandbox>(wanted.namespace, &manifest)
            .await
        {
            Ok(created) => {
                let created = self.sandboxes.learn(created);
                measures::claimed(wanted.claim, template, None, false);
                if self.events {
                    let note = format!("Created Sandbox {:?}", wanted.name);
                    self.cluster
                        .event(wanted.claim, false, "SandboxProvisioned", note);
                }
                Ok(created)
            }
            Err(error) if is_conflict(&error) => {
                // An earlier create whose answer was lost, or another's sandbox.
                let present: Option<Sandbox> =
                    self.cluster.get(wanted.namespace, wanted.name).await?;
                match present {
                    Some(present) if owner::owner(&present.metadata, wanted.uid) == Owner::Own => {
                        Ok(self.sandboxes.learn(present))
                    }
                    Some(_) => Err(collision(wanted)),
                    None => Err(error.into()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Brings the pod metadata of the claim's sandbox up to date.
    async fn sync(
        &self,
        wanted: &Wanted<'_>,
        sandbox: Arc<Sandbox>,
    ) -> Result<Arc<Sandbox>, Refusal> {
        let template = match self.source(wanted) {
            Ok(source) => source.template,
            // The sandbox serves, even if its template or pool is gone.
            Err(refusal) => {
                let needs_template =
                    wanted.claim.spec.additional_pod_metadata != Default::default();
                return if needs_template {
                    Err(refusal)
                } else {
                    Ok(sandbox)
                };
            }
        };
        let Some(patch) = build::sync(wanted.claim, &template, &sandbox)? else {
            return Ok(sandbox);
        };
        let name = sandbox.metadata.name.as_deref().unwrap_or_default();
        Ok(self
            .sandboxes
            .learn(self.cluster.patch(wanted.namespace, name, &patch).await?))
    }

    async fn write_status(
        &self,
        wanted: &Wanted<'_>,
        before: &SandboxClaimStatus,
        status: &SandboxClaimStatus,
    ) -> Result<(), Failure> {
        let Some(change) = patch::between(
            &serde_json::to_value(before)?,
            &serde_json::to_value(status)?,
        ) else {
            return Ok(());
        };
        match self
            .cluster
            .patch_status(wanted.namespace, wanted.name, &json!({"status": change}))
            .await
        {
            Ok(patched) => drop(self.claims.learn(patched)),
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

fn no_pool(template: &SandboxTemplate) -> Requested {
    Requested::NoPool {
        template: template.metadata.name.clone().unwrap_or_default(),
    }
}

fn collision(wanted: &Wanted<'_>) -> Refusal {
    Refusal::error(format!(
        "sandbox {0:?} is not controlled by claim {0:?}. Please use a different claim name or delete the sandbox manually",
        wanted.name
    ))
}

/// The sandbox that is assigned to the claim: a label in v1alpha1, an annotation in v1beta1.
fn assignment(claim: &SandboxClaim) -> Option<&str> {
    let annotations = claim.metadata.annotations.as_ref();
    let labels = claim.metadata.labels.as_ref();
    annotations
        .and_then(|annotations| annotations.get(annotation::SANDBOX_NAME))
        .or_else(|| labels.and_then(|labels| labels.get(label::SANDBOX_NAME)))
        .map(String::as_str)
        .filter(|name| !name.is_empty())
}
