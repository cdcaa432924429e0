//! The flags of `shoal node`.

use std::path::PathBuf;

use clap::Args;
use shoal_crds::kruise::quantity;
use url::Url;

/// A number of bytes, as Kubernetes writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl std::str::FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let nano = quantity::nano(text).filter(|nano| *nano >= 0);
        let bytes = nano.and_then(|nano| u64::try_from(nano / 1_000_000_000).ok());
        bytes
            .map(Self)
            .ok_or_else(|| format!("{text:?} is no size: write 20Gi or 500M"))
    }
}

/// The flags.
#[derive(Clone, Debug, Args)]
pub struct NodeArgs {
    /// The name of the node.
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub node_name: String,
    /// The directory of the checkpoints.
    #[arg(long, value_name = "DIR", default_value = shoal_checkpoint::STORE)]
    pub store: PathBuf,
    /// The directory of the runtime's state: `root` of the handler's configuration.
    #[arg(long, value_name = "DIR", default_value = "/run/shoal-runsc")]
    pub state: PathBuf,
    /// The runsc that runs the pods.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/usr/local/lib/shoal/runsc"
    )]
    pub runsc: PathBuf,
    /// How much all checkpoints may take.
    #[arg(long, value_name = "SIZE", default_value = "20Gi")]
    pub store_size: Bytes,
    /// How much of that the checkpoints of one namespace may take, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub namespace_share: u8,
    /// How many pods are saved at once.
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..))]
    pub parallel: u8,
    /// Where checkpoints are copied to, so that pods on all nodes can start from them: s3://bucket/prefix, gs://bucket/prefix,
    /// az://container/prefix, or file:///directory. Credentials are variables of the environment: AWS_…, GOOGLE_…, AZURE_…
    #[arg(long, value_name = "URL")]
    pub objects: Option<Url>,
    /// The port at which agents of other nodes fetch checkpoints, and at which this one fetches theirs, so that pods on all
    /// nodes can start from them as long as the first node is there. Without it, no agent is asked or answered.
    #[arg(long, value_name = "PORT", requires_all = ["pod_name", "pod_namespace"])]
    pub peer_port: Option<u16>,
    /// The name of this agent's pod.
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub pod_name: Option<String>,
    /// Its namespace.
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE")]
    pub pod_namespace: Option<String>,
    /// Log level: error, warn, info, debug or trace, or a filter by module.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_quantities() {
        assert_eq!("20Gi".parse(), Ok(Bytes(20 << 30)));
        assert_eq!("500M".parse(), Ok(Bytes(500_000_000)));
        for bad in ["", "-1", "much"] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad}");
        }
    }
}
