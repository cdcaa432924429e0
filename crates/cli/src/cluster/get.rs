//! `shoal cluster get`.

use clap::Args;

use super::api::Cluster;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(super) struct GetArgs {
    /// The sandbox.
    #[arg(value_name = "NAME")]
    name: String,
}

impl GetArgs {
    pub(super) async fn run(self, cluster: &Cluster, json: bool) -> Result<(), Failure> {
        let found = cluster.sandbox(&self.name).await?;
        if json {
            return output::json(&found.object);
        }
        let text = |pointer: &str| {
            let value = found.object.pointer(pointer);
            value
                .and_then(|value| value.as_str())
                .unwrap_or_default()
                .to_owned()
        };
        output::fields(&[
            ("name", found.name.clone()),
            ("namespace", found.namespace.clone()),
            ("api", found.family.group().to_owned()),
            ("state", found.state.clone()),
            ("why", found.why.clone()),
            ("pod", found.pod.clone()),
            ("node", found.node.clone()),
            ("address", found.address.clone()),
            ("service", text("/status/serviceFQDN")),
            (
                "claim",
                text("/metadata/labels/agents.kruise.io~1claim-name"),
            ),
            (
                "pool",
                text("/metadata/labels/agents.kruise.io~1sandbox-pool"),
            ),
            ("ends", text("/spec/shutdownTime")),
            ("age", found.age()),
        ])
    }
}
