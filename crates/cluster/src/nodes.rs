//! The addresses of nodes, which no sandbox has.
//!
//! A client that may write the status of a sandbox could put a node's address there, and reach the node's ports through
//! the gateway. A pod in the network of its node is therefore no sandbox.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use parking_lot::RwLock;

/// How often nodes are listed.
const LOOK: Duration = Duration::from_secs(60);

/// The addresses of all nodes, as they were last listed.
#[derive(Default)]
pub(crate) struct NodeAddresses(RwLock<HashSet<IpAddr>>);

impl NodeAddresses {
    /// Lists the nodes. Without the right to list them, the last known ones stay.
    pub(crate) async fn load(&self, client: &Client) {
        let nodes: Api<Node> = Api::all(client.clone());
        match nodes.list(&ListParams::default()).await {
            Ok(nodes) => *self.0.write() = addresses(&nodes.items),
            Err(error) => {
                tracing::warn!(%error, "cannot list nodes, whose addresses no sandbox has")
            }
        }
    }

    /// Lists the nodes again and again.
    pub(crate) async fn follow(&self, client: Client) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.load(&client).await;
        }
    }

    /// Whether a node has this address.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.0.read().contains(&address)
    }
}

fn addresses(nodes: &[Node]) -> HashSet<IpAddr> {
    let statuses = nodes.iter().filter_map(|node| node.status.as_ref());
    let of_nodes = statuses.flat_map(|status| status.addresses.iter().flatten());
    // Others are host names.
    let parsed = of_nodes.filter_map(|address| address.address.parse::<IpAddr>().ok());
    parsed.map(|address| address.to_canonical()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_has_all_its_addresses() {
        let node: Node = serde_json::from_value(json!({"status": {"addresses": [
            {"type": "InternalIP", "address": "192.0.2.1"},
            {"type": "ExternalIP", "address": "2001:db8::1"},
            {"type": "InternalIP", "address": "::ffff:192.0.2.2"},
            {"type": "Hostname", "address": "node-1"},
        ]}}))
        .unwrap();
        let known = NodeAddresses(RwLock::new(addresses(&[node, Node::default()])));
        for (address, expected) in [
            ("192.0.2.1", true),
            ("192.0.2.2", true),
            ("2001:db8::1", true),
            ("192.0.2.3", false),
        ] {
            assert_eq!(known.has(address.parse().unwrap()), expected, "{address}");
        }
    }
}
