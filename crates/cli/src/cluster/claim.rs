//! `shoal cluster claim`.

use std::time::Duration;

use clap::Args;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::wait::await_condition;
use serde::Serialize;
use serde_json::json;
use shoal_crds::kruise::names::{annotation, condition, label, reason};
use shoal_crds::{kruise, v1beta1};

use super::Family;
use super::api::{Cluster, failure, one, readable};
use crate::failure::{Failure, Kind};
use crate::sandbox::interruptions::Interruptions;
use crate::{output, parse};

#[derive(Debug, Args)]
#[command(after_help = "\
The pool is a SandboxWarmPool or a SandboxSet of the namespace. A claim that is not ready in time is deleted.

Examples:
  shoal cluster claim python
  shoal cluster exec \"$(shoal cluster claim python)\" -- python3 -c 'print(6 * 7)'")]
pub(super) struct ClaimArgs {
    /// The pool.
    #[arg(value_name = "POOL")]
    pool: String,
    /// The name of the claim [default: the pool's, and five characters].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How long to wait.
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "1m")]
    timeout: Duration,
}

impl ClaimArgs {
    pub(super) async fn run(self, cluster: &Cluster, json: bool) -> Result<(), Failure> {
        match self.family(cluster).await? {
            Family::Community => self.community(cluster, json).await,
            Family::Kruise => self.kruise(cluster, json).await,
        }
    }

    /// The API that has the pool.
    async fn family(&self, cluster: &Cluster) -> Result<Family, Failure> {
        let mut answers = Vec::new();
        if cluster.has(Family::Community) {
            let pools: Api<v1beta1::SandboxWarmPool> = cluster.kind();
            let pool = one(pools.get_opt(&self.pool).await);
            answers.push(pool.map(|pool| pool.map(|_| Family::Community)));
        }
        if cluster.has(Family::Kruise) {
            let sets: Api<kruise::SandboxSet> = cluster.kind();
            let set = one(sets.get_opt(&self.pool).await);
            answers.push(set.map(|set| set.map(|_| Family::Kruise)));
        }
        let found: Vec<Family> = readable(answers)?.into_iter().flatten().collect();
        let (pool, namespace) = (&self.pool, cluster.namespace());
        match found.as_slice() {
            [only] => Ok(*only),
            [] => Err(Failure::not_found(format!(
                "there is no SandboxWarmPool and no SandboxSet {pool} in the namespace {namespace}"
            ))),
            _ => Err(
                Failure::usage(format!("{pool} is a SandboxWarmPool and a SandboxSet"))
                    .with_hint("say which: --api agents.x-k8s.io or --api agents.kruise.io"),
            ),
        }
    }

    /// The metadata of the claim.
    fn metadata(&self) -> serde_json::Value {
        match &self.name {
            Some(name) => json!({"name": name}),
            None => json!({"generateName": format!("{}-", self.pool)}),
        }
    }

    async fn community(&self, cluster: &Cluster, json: bool) -> Result<(), Failure> {
        let api: Api<v1beta1::SandboxClaim> = cluster.kind();
        let wanted =
            json!({"metadata": self.metadata(), "spec": {"warmPoolRef": {"name": self.pool}}});
        let ready = |claim: Option<&v1beta1::SandboxClaim>| {
            let Some(claim) = claim else {
                return true;
            };
            let mut conditions = claim.status.iter().flat_map(|status| &status.conditions);
            conditions.any(|known| known.type_ == condition::READY && known.status == "True")
        };
        let claim = match self.claim(&api, wanted, ready).await {
            Ok(claim) => claim,
            Err((failure, claim)) => {
                if let Some(claim) = claim {
                    delete(&api, claim.metadata.name.as_deref().unwrap_or_default()).await;
                }
                return Err(failure);
            }
        };
        let status = claim.status.as_ref();
        let names = status.map(|status| status.sandbox.name.clone());
        print(&claim, names.into_iter().collect(), json)
    }

    async fn kruise(&self, cluster: &Cluster, json: bool) -> Result<(), Failure> {
        let api: Api<kruise::SandboxClaim> = cluster.kind();
        let timeout = format!("{}s", self.timeout.as_secs().max(1));
        let wanted = json!({
            "metadata": self.metadata(),
            "spec": {"templateName": self.pool, "claimTimeout": timeout, "waitReadyTimeout": timeout},
        });
        let completed = |claim: Option<&kruise::SandboxClaim>| {
            let Some(claim) = claim else {
                return true;
            };
            let status = claim.status.as_ref();
            status.is_some_and(|status| status.phase == Some(kruise::ClaimPhase::Completed))
        };
        let claim = match self.claim(&api, wanted, completed).await {
            Ok(claim) => claim,
            Err((failure, claim)) => {
                if let Some(claim) = claim {
                    self.give_back(cluster, &claim).await;
                }
                return Err(failure);
            }
        };
        let status = claim.status.clone().unwrap_or_default();
        let mut ended = status.conditions.iter();
        let ended = ended.find(|known| known.type_ == condition::COMPLETED);
        if ended.is_none_or(|ended| ended.reason != reason::ALL_REPLICAS_CLAIMED) {
            self.give_back(cluster, &claim).await;
            let told = format!("{} gave no sandbox: {}", self.pool, status.message);
            return Err(Failure::new(Kind::NotNow, told));
        }
        let found = sandboxes_of(cluster, &claim).await.map_err(failure)?;
        let names = found.into_iter().filter_map(|one| one.metadata.name);
        print(&claim, names.collect(), json)
    }

    /// Deletes a claim that got no sandbox in time, and the sandboxes that it has got nevertheless.
    async fn give_back(&self, cluster: &Cluster, claim: &kruise::SandboxClaim) {
        let claims: Api<kruise::SandboxClaim> = cluster.kind();
        delete(&claims, claim.metadata.name.as_deref().unwrap_or_default()).await;
        let sandboxes: Api<kruise::Sandbox> = cluster.kind();
        for one in sandboxes_of(cluster, claim).await.unwrap_or_default() {
            delete(&sandboxes, one.metadata.name.as_deref().unwrap_or_default()).await;
        }
    }

    /// Creates a claim, and waits until it has ended. With a failure, the claim that is left.
    async fn claim<K>(
        &self,
        api: &Api<K>,
        wanted: serde_json::Value,
        ended: impl Fn(Option<&K>) -> bool,
    ) -> Result<K, (Failure, Option<K>)>
    where
        K: kube::Resource<DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + Send
            + Serialize
            + serde::de::DeserializeOwned
            + 'static,
    {
        let wanted = serde_json::from_value(wanted);
        let wanted = wanted.map_err(|error| (Failure::other(error.to_string()), None))?;
        let mut heard = Interruptions::hear();
        let made = api.create(&PostParams::default(), &wanted).await;
        let made = made.map_err(|error| (failure(error), None))?;
        let name = made.meta().name.clone().unwrap_or_default();
        // The operator reports its own timeout a moment later.
        let time = self.timeout + Duration::from_secs(5);
        let waited = tokio::select! {
            waited = tokio::time::timeout(time, await_condition(api.clone(), &name, ended)) => waited,
            _ = heard.next() => return Err((Failure::new(Kind::Interrupted, "interrupted"), Some(made))),
        };
        match waited {
            Ok(Ok(Some(claim))) => Ok(claim),
            Ok(Ok(None)) => {
                let told = format!("somebody deleted the claim {name}");
                Err((Failure::not_found(told), None))
            }
            Ok(Err(error)) => {
                let told = format!("cannot watch the claim {name}: {error}");
                Err((Failure::new(Kind::Unreachable, told), Some(made)))
            }
            Err(_) => {
                let last = api.get_opt(&name).await.ok().flatten().unwrap_or(made);
                Err((self.late(&last), Some(last)))
            }
        }
    }

    /// The pool gave no sandbox in time.
    fn late<K: Serialize>(&self, claim: &K) -> Failure {
        let time = output::span(self.timeout);
        let failure = Failure::new(
            Kind::NotNow,
            format!("{} gave no sandbox within {time}", self.pool),
        );
        let conditions = json!(claim)["status"]["conditions"].clone();
        let told = conditions.as_array().into_iter().flatten().map(|known| {
            let text = |key: &str| known[key].as_str().unwrap_or_default().to_owned();
            format!("{}: {}: {}", text("type"), text("reason"), text("message"))
        });
        failure
            .with_details(told.collect())
            .with_hint("is `shoal operator` running? --timeout waits longer")
    }
}

/// The sandboxes of a claim. Another claim of the same name has others.
async fn sandboxes_of(
    cluster: &Cluster,
    claim: &kruise::SandboxClaim,
) -> kube::Result<Vec<kruise::Sandbox>> {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let params = ListParams::default().labels(&format!("{}={name}", label::CLAIM_NAME));
    let api: Api<kruise::Sandbox> = cluster.kind();
    let mut found = api.list(&params).await?.items;
    found.retain(|one| {
        one.annotation(annotation::OWNER) == claim.metadata.uid.as_deref()
            && one.label(label::RESERVED_FAILED_SANDBOX).is_none()
    });
    Ok(found)
}

/// Deletes a claim that got no sandbox. Its expiry deletes it otherwise.
async fn delete<K>(api: &Api<K>, name: &str)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let _ = api.delete(name, &DeleteParams::default()).await;
}

fn print<K: Serialize>(claim: &K, sandboxes: Vec<String>, json: bool) -> Result<(), Failure> {
    if json {
        return output::json(claim);
    }
    sandboxes.iter().try_for_each(|name| output::line(name))
}
