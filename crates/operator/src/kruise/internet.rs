//! Keeps the network policy that closes the internet in each namespace with pools.

use std::sync::Arc;

use serde_json::json;
use shoal_crds::kruise::names::label;
use shoal_crds::kruise::{NO_INTERNET_POLICY, no_internet_policy};

use crate::cache::{Cache, key};
use crate::cluster::Cluster;
use crate::failure::{Failure, is_conflict};
use crate::patch;
use crate::slim::NetworkPolicy;

/// The value of the label `created-by` of what the operator keeps for a whole namespace.
pub(crate) const CREATOR: &str = "shoal-operator";

/// Keeps the policy.
pub(crate) struct NoInternet {
    pub(crate) cluster: Cluster,
    /// The policies with the operator's label.
    pub(crate) policies: Arc<Cache<NetworkPolicy>>,
}

impl NoInternet {
    /// Creates or corrects the policy of a namespace. Returns a message if another owner's policy has its name.
    pub(super) async fn keep(&self, namespace: &str) -> Result<Option<String>, Failure> {
        let place = (namespace.to_owned(), NO_INTERNET_POLICY.to_owned());
        if let Some(present) = self.policies.get(&place) {
            self.correct(&present).await?;
            return Ok(None);
        }
        let labels = json!({label::CREATED_BY: CREATOR});
        let manifest = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": place.1, "namespace": place.0, "labels": labels},
            "spec": no_internet_policy(),
        });
        match self.cluster.create(namespace, &manifest).await {
            Ok(created) => drop(self.policies.learn(created)),
            Err(error) if is_conflict(&error) => return self.adopt(namespace).await,
            Err(error) => return Err(error.into()),
        }
        Ok(None)
    }

    async fn correct(&self, present: &NetworkPolicy) -> Result<(), Failure> {
        if let Some(change) = patch::between(&present.spec, &no_internet_policy()) {
            let (namespace, name) = key(present);
            let patch = json!({"metadata": {"uid": present.metadata.uid}, "spec": change});
            let patched = self.cluster.patch(&namespace, &name, &patch).await?;
            self.policies.learn(patched);
        }
        Ok(())
    }

    /// The policy exists, and the cache does not have it: it is new, or without the operator's label. One that says the
    /// same becomes the operator's.
    async fn adopt(&self, namespace: &str) -> Result<Option<String>, Failure> {
        let name = NO_INTERNET_POLICY;
        let present: Option<NetworkPolicy> = self.cluster.get(namespace, name).await?;
        let Some(present) = present else {
            return Ok(None);
        };
        let labels = present.metadata.labels.as_ref();
        let is_own = labels.is_some_and(|labels| {
            labels
                .get(label::CREATED_BY)
                .is_some_and(|by| by == CREATOR)
        });
        if !is_own && present.spec != no_internet_policy() {
            return Ok(Some(format!(
                "the NetworkPolicy {name} is not the operator's and says something else: delete it, or sandboxes \
                 without internet access cannot be created here"
            )));
        }
        let labels = json!({label::CREATED_BY: CREATOR});
        let patch = json!({"metadata": {"uid": present.metadata.uid, "labels": labels}});
        let patched: NetworkPolicy = self.cluster.patch(namespace, name, &patch).await?;
        let patched = self.policies.learn(patched);
        self.correct(&patched).await?;
        Ok(None)
    }
}
