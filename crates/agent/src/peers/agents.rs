//! The agents of all nodes, by the pods of their DaemonSet.

use std::collections::HashMap;
use std::net::IpAddr;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use parking_lot::RwLock;
use rustls::pki_types::CertificateDer;
use shoal_crds::kruise::names::annotation;

use super::identity;

/// The agent of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Other {
    pub(crate) node: String,
    pub(crate) address: IpAddr,
    pub(crate) certificate: CertificateDer<'static>,
}

/// The agents that are known, by the UIDs of their pods.
#[derive(Debug, Default)]
pub(crate) struct Agents(RwLock<HashMap<String, Other>>);

impl Agents {
    /// The agent of a node.
    pub(crate) fn of_node(&self, node: &str) -> Option<Other> {
        let known = self.0.read();
        known.values().find(|other| other.node == node).cloned()
    }

    /// The agent that has a certificate.
    pub(crate) fn with(&self, certificate: &CertificateDer<'_>) -> Option<Other> {
        let known = self.0.read();
        let found = known
            .values()
            .find(|other| other.certificate == *certificate);
        found.cloned()
    }

    #[cfg(test)]
    pub(super) fn add(&self, other: Other) {
        self.0.write().insert(other.node.clone(), other);
    }

    /// Watches the pods of the agents' namespace as long as the program runs. `account` is the service account of agents.
    pub(crate) async fn watch(&self, pods: Api<Pod>, account: &str) {
        let seen = watcher(pods, watcher::Config::default()).default_backoff();
        let mut seen = Box::pin(seen);
        let mut listed = HashMap::new();
        while let Some(event) = seen.next().await {
            match event {
                Ok(event) => self.see(event, account, &mut listed),
                Err(error) => tracing::warn!(%error, "the agents of other nodes are not watched"),
            }
        }
    }

    /// `listed` holds the existing pods that were listed so far.
    fn see(&self, event: Event<Pod>, account: &str, listed: &mut HashMap<String, Other>) {
        let insert = |into: &mut HashMap<String, Other>, pod: &Pod| {
            let uid = pod.uid().unwrap_or_default();
            match agent_of(pod, account) {
                Some(other) => into.insert(uid, other),
                None => into.remove(&uid),
            };
        };
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(pod) => insert(listed, &pod),
            Event::InitDone => *self.0.write() = std::mem::take(listed),
            Event::Apply(pod) => insert(&mut self.0.write(), &pod),
            Event::Delete(pod) => {
                self.0.write().remove(&pod.uid().unwrap_or_default());
            }
        }
    }
}

/// The agent in a pod, if it is one, and shows its certificate.
fn agent_of(pod: &Pod, account: &str) -> Option<Other> {
    let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
    if spec.service_account_name.as_deref() != Some(account) {
        return None;
    }
    let shown = pod.annotations().get(annotation::AGENT_CERTIFICATE)?;
    Some(Other {
        node: spec.node_name.clone()?,
        address: status.pod_ip.as_ref()?.parse().ok()?,
        certificate: identity::read(shown)?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, node: &str, account: &str, certificate: &str) -> Pod {
        let pod = json!({
            "metadata": {"name": uid, "uid": uid, "annotations": {annotation::AGENT_CERTIFICATE: certificate}},
            "spec": {"nodeName": node, "serviceAccountName": account, "containers": []},
            "status": {"podIP": "10.0.0.1"},
        });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn agents_are_the_pods_of_their_service_account_that_show_a_certificate() {
        let (agents, mut listed) = (Agents::default(), HashMap::new());
        let mut see = |event| agents.see(event, "node", &mut listed);
        see(Event::Init);
        see(Event::InitApply(pod("1", "a", "node", "AAEC")));
        see(Event::InitApply(pod("2", "b", "another", "AAED")));
        see(Event::InitApply(pod("3", "c", "node", "no base64")));
        see(Event::InitDone);
        assert_eq!(agents.of_node("a").unwrap().certificate.as_ref(), [0, 1, 2]);
        assert_eq!(agents.of_node("b"), None);
        assert_eq!(agents.of_node("c"), None);
        // It started again, and has another certificate.
        let old = CertificateDer::from(vec![0, 1, 2]);
        assert_eq!(agents.with(&old).unwrap().node, "a");
        let mut listed = HashMap::new();
        agents.see(
            Event::Apply(pod("1", "a", "node", "AAEE")),
            "node",
            &mut listed,
        );
        assert_eq!(agents.with(&old), None);
        agents.see(
            Event::Delete(pod("1", "a", "node", "AAEE")),
            "node",
            &mut listed,
        );
        assert_eq!(agents.of_node("a"), None);
    }
}
