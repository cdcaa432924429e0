//! The flags of `shoal operator`. Names and values are those of the reference controller, so that its
//! manifests work unchanged.

mod kruise;
mod unused;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use clap::{ArgAction, Args};
use shoal_crds::Conversion;
use shoal_crds::kruise::duration;

pub use self::kruise::{FeatureGates, InjectRuntime, KruiseArgs};
pub use self::unused::UnusedArgs;

/// An address to listen on, if any: `HOST:PORT`, `:PORT` for all addresses of the machine, `0` for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen(pub Option<SocketAddr>);

/// The address for all addresses of the machine: those of both families where the kernel has IPv6.
pub(crate) fn any_address() -> IpAddr {
    let both = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
    if both {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    }
}

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "0" {
            return Ok(Self(None));
        }
        let invalid = || format!("{text:?} is not HOST:PORT, :PORT or 0");
        if let Some(port) = text.strip_prefix(':') {
            let port = port.parse().map_err(|_| invalid())?;
            return Ok(Self(Some((any_address(), port).into())));
        }
        text.parse()
            .map(|address| Self(Some(address)))
            .map_err(|_| invalid())
    }
}

/// A time as Go writes it: `5m`, `1h30m`, `500ms`.
fn time(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text).and_then(|time| Duration::try_from(time).ok());
    time.ok_or_else(|| format!("{text:?} is no time: write 90s, 5m or 1h30m"))
}

/// A number a second.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok();
    let rate = rate.filter(|rate: &f64| rate.is_finite() && *rate >= 0.0);
    rate.ok_or_else(|| format!("{text:?} is no rate: write a number that is not negative"))
}

/// The flags.
#[derive(Clone, Debug, Args)]
pub struct OperatorArgs {
    /// Address of `/metrics`: HOST:PORT, :PORT, or 0 for none.
    #[arg(long, value_name = "ADDRESS", default_value = ":8080")]
    pub metrics_bind_address: Listen,
    /// Address of `/healthz` and `/readyz`: HOST:PORT, :PORT, or 0 for none.
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    pub health_probe_bind_address: Listen,
    /// Run the controllers in one of several replicas, chosen by a Lease.
    #[arg(long, default_value = "true", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub leader_elect: bool,
    /// Namespace of the Lease [default: the operator's own].
    #[arg(long, value_name = "NAME", default_value = "")]
    pub leader_election_namespace: String,
    /// Domain of the cluster's DNS.
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    pub cluster_domain: String,
    /// How many sandboxes are reconciled at once.
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    pub sandbox_concurrent_workers: u16,
    /// Run the controllers of templates, pools and claims, too.
    #[arg(long, default_value = "true", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub extensions: bool,
    /// How many claims are reconciled at once.
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    pub sandbox_claim_concurrent_workers: u16,
    /// How many pools are reconciled at once.
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    pub sandbox_warm_pool_concurrent_workers: u16,
    /// How many templates are reconciled at once.
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    pub sandbox_template_concurrent_workers: u16,
    /// How many members one pass of a pool creates.
    #[arg(long, value_name = "COUNT", default_value_t = 300, value_parser = clap::value_parser!(u16).range(1..))]
    pub sandbox_warm_pool_max_batch_size: u16,
    /// When a member that is not ready is replaced.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time)]
    pub sandbox_warm_pool_readiness_grace_period: Duration,
    /// How long a pool waits after its last loss of members before it is refilled.
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = time)]
    pub sandbox_warm_pool_replenish_delay: Duration,
    /// How many members a second each pool creates; 0 for no limit.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, default_value_t = 0.0, value_parser = rate)]
    pub sandbox_warm_pool_max_refill_rate: f64,
    /// Let the cluster autoscaler evict waiting members.
    #[arg(long, default_value = "true", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub enable_warm_pool_eviction: bool,
    /// Publish no events about claims that got a sandbox.
    #[arg(long)]
    pub disable_claim_events: bool,
    /// Flags of the reference that change nothing here.
    #[command(flatten)]
    pub unused: UnusedArgs,
    /// Serve the conversion webhook.
    #[arg(long, default_value = "true", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub enable_webhook: bool,
    /// Port of the conversion webhook.
    #[arg(long, value_name = "PORT", default_value_t = 9443)]
    pub webhook_port: u16,
    /// Name of the webhook's service.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "agent-sandbox-webhook-service"
    )]
    pub webhook_service_name: String,
    /// Namespace of the webhook's service and of the Secret with its certificates [default: the operator's own].
    #[arg(long, value_name = "NAME", default_value = "")]
    pub webhook_namespace: String,
    /// URL of the webhook, for an operator outside the cluster: `https://HOST:PORT/convert`.
    #[arg(long, value_name = "URL")]
    pub webhook_url: Option<String>,
    /// Lifetime of the webhook's certificate. It is replaced after two thirds of it.
    #[arg(long, value_name = "SECONDS", default_value_t = 365 * 24 * 3600, value_parser = clap::value_parser!(u64).range(30..))]
    pub webhook_certificate_lifetime: u64,
    /// The controllers of agents.kruise.io.
    #[command(flatten)]
    pub kruise: KruiseArgs,
    /// Log level: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
}

impl OperatorArgs {
    /// The namespace of the Lease.
    pub(crate) fn lease_namespace<'a>(&'a self, own: &'a str) -> &'a str {
        if self.leader_election_namespace.is_empty() {
            own
        } else {
            &self.leader_election_namespace
        }
    }

    /// The namespace of the webhook.
    pub(crate) fn webhook_namespace<'a>(&'a self, own: &'a str) -> &'a str {
        if self.webhook_namespace.is_empty() {
            own
        } else {
            &self.webhook_namespace
        }
    }

    /// Where the API server finds the webhook.
    pub(crate) fn conversion(&self, own: &str) -> Conversion {
        match &self.webhook_url {
            Some(url) => Conversion::Url(url.clone()),
            None => Conversion::Service {
                namespace: self.webhook_namespace(own).to_owned(),
                name: self.webhook_service_name.clone(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_reference_reads_them() {
        let read = |text: &str| {
            text.parse::<Listen>()
                .map(|listen| listen.0.map(|at| at.to_string()))
        };
        assert_eq!(read(":8080"), Ok(Some("[::]:8080".to_owned())));
        assert_eq!(read("127.0.0.1:1"), Ok(Some("127.0.0.1:1".to_owned())));
        assert_eq!(read("0"), Ok(None));
        assert!(read("localhost").is_err());
        assert!(read(":http").is_err());
    }

    #[test]
    fn rates_and_times_are_finite() {
        assert_eq!(rate("0"), Ok(0.0));
        assert_eq!(rate("2.5"), Ok(2.5));
        for text in ["", "-1", "NaN", "inf", "many"] {
            assert!(rate(text).is_err(), "{text}");
        }
        assert_eq!(time("5m"), Ok(Duration::from_secs(300)));
        for text in ["", "-1s", "5"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
