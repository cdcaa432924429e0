//! The capabilities of the cluster, as its nodes report them.

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use shoal_core::driver::{Capabilities, RuntimeInfo};
use shoal_core::ports::installation::{Installation, InstallationLimits};
use shoal_core::quantity;
use shoal_core::resources::{Mib, MilliCpu};

use crate::pod;

/// The cluster as an installation.
pub(crate) struct Cluster {
    capabilities: Capabilities,
    limits: InstallationLimits,
}

impl Cluster {
    /// Asks for the nodes once. Without the right to list them the sums are zero, which says nothing.
    pub(crate) async fn of(client: Client, limits: InstallationLimits) -> Self {
        let nodes: Api<Node> = Api::all(client);
        let nodes = match nodes.list(&ListParams::default()).await {
            Ok(nodes) => nodes.items,
            Err(error) => {
                tracing::debug!(%error, "cannot list nodes");
                Vec::new()
            }
        };
        let (mut cpu, mut memory) = (MilliCpu(0), Mib(0));
        for node in &nodes {
            let status = node.status.as_ref();
            let allocatable = status.and_then(|status| status.allocatable.as_ref());
            let of = |name: &str| {
                allocatable
                    .and_then(|all| all.get(name))
                    .map(|q| q.0.as_str())
            };
            let of_node = of("cpu").and_then(quantity::cpu).unwrap_or_default();
            cpu.0 = cpu.0.saturating_add(of_node.0);
            let of_node = of("memory").and_then(quantity::memory).unwrap_or_default();
            memory.0 = memory.0.saturating_add(of_node.0);
        }
        let name = pod::default_runtime();
        Self {
            capabilities: Capabilities {
                driver: "kubernetes".to_owned(),
                runtimes: vec![RuntimeInfo {
                    isolation: pod::isolation(&name),
                    name,
                    version: String::new(),
                    build: String::new(),
                    memory_snapshot: false,
                    nested_containers: false,
                    keeps_connections: false,
                    idle_cpu: MilliCpu(0),
                }],
                daemon: env!("CARGO_PKG_VERSION").to_owned(),
                disk_limit: "by the pods' requests and limits".to_owned(),
                cpu,
                memory,
                disk: None,
            },
            limits,
        }
    }
}

impl Installation for Cluster {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn limits(&self) -> InstallationLimits {
        self.limits
    }
}
