//! The watch of all sandboxes.

use std::collections::HashSet;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde::Deserialize;
use tokio::sync::watch;

use crate::headers::is_of_pods;
use crate::table::{Key, Table};

/// A `Sandbox` with only the fields that the router reads.
#[derive(Clone, Debug, Deserialize)]
struct SeenSandbox {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    status: SeenStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct SeenStatus {
    #[serde(default, rename = "podIPs")]
    pod_ips: Vec<String>,
}

impl k8s_openapi::Resource for SeenSandbox {
    const API_VERSION: &'static str = "agents.x-k8s.io/v1beta1";
    const GROUP: &'static str = "agents.x-k8s.io";
    const KIND: &'static str = "Sandbox";
    const VERSION: &'static str = "v1beta1";
    const URL_PATH_SEGMENT: &'static str = "sandboxes";
    type Scope = NamespaceResourceScope;
}

impl k8s_openapi::Metadata for SeenSandbox {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl SeenSandbox {
    fn key(&self) -> Key {
        let of = |field: &Option<String>| field.clone().unwrap_or_default();
        (of(&self.metadata.namespace), of(&self.metadata.name))
    }

    /// The first address that a pod may have.
    fn address(&self) -> Option<IpAddr> {
        let addresses = self.status.pod_ips.iter();
        addresses
            .filter_map(|text| text.parse().ok())
            .find(|address| is_of_pods(*address))
    }

    fn put(&self, table: &Table) -> Key {
        let key = self.key();
        let uid = self.metadata.uid.as_deref().unwrap_or_default();
        table.put(&key, uid, self.address());
        key
    }
}

/// Keeps the table up to date. `synced` becomes true when it has all sandboxes.
pub(crate) async fn follow(client: Client, table: Arc<Table>, synced: watch::Sender<bool>) {
    let sandboxes: Api<SeenSandbox> = Api::all(client);
    let mut events = pin!(watcher(sandboxes, watcher::Config::default()).default_backoff());
    let mut listed = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(sandbox)) => drop(listed.insert(sandbox.put(&table))),
            Ok(Event::InitDone) => {
                table.retain(&std::mem::take(&mut listed));
                synced.send_replace(true);
            }
            Ok(Event::Apply(sandbox)) => drop(sandbox.put(&table)),
            Ok(Event::Delete(sandbox)) => table.remove(&sandbox.key()),
            Err(error) => tracing::warn!(%error, "cannot watch sandboxes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn address(status: serde_json::Value) -> Option<String> {
        let sandbox = json!({"metadata": {"name": "a"}, "spec": {"x": 1}, "status": status});
        let sandbox: SeenSandbox = serde_json::from_value(sandbox).unwrap();
        sandbox.address().map(|address| address.to_string())
    }

    #[test]
    fn the_first_usable_address_counts() {
        let pods =
            json!({"podIPs": ["127.0.0.1", "nonsense", "10.0.0.7", "10.0.0.8"], "nodeName": "n"});
        assert_eq!(address(pods).as_deref(), Some("10.0.0.7"));
        assert_eq!(
            address(json!({"podIPs": ["fd00::7"]})).as_deref(),
            Some("fd00::7")
        );
        assert_eq!(address(json!({"podIPs": ["169.254.169.254"]})), None);
        assert_eq!(address(json!({})), None);
    }
}
