//! Partial network policies, to be merged with others.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::{AddressRange, Egress, HostMask, InvalidRule};

/// A partial network policy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RequestedNetwork {
    /// Outbound.
    pub egress: RequestedEgress,
    /// Internet access was enabled explicitly, as some clients always do. Only displayed: otherwise
    /// no template could disable it.
    pub said_open: bool,
    /// Whether ports are reachable without the traffic access token.
    pub allow_public_traffic: Option<bool>,
    /// The `Host` header that servers in the sandbox see.
    pub mask_request_host: Option<HostMask>,
}

/// Partial outbound rules: see [`Egress`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RequestedEgress {
    /// Whether internet access is enabled.
    pub internet: Option<bool>,
    /// Destinations that are reachable even if denied.
    pub allow: Option<Vec<AddressRange>>,
    /// Destinations that are not reachable.
    pub deny: Option<Vec<AddressRange>>,
    /// The name servers.
    pub dns_servers: Option<Vec<Ipv4Addr>>,
}

impl RequestedNetwork {
    /// Checks the rules that are set.
    ///
    /// # Errors
    /// See [`Egress::validate`].
    pub fn validate(&self) -> Result<(), InvalidRule> {
        let RequestedEgress {
            internet,
            allow,
            deny,
            dns_servers,
        } = self.egress.clone();
        let said = Egress {
            internet,
            allow: allow.unwrap_or_default(),
            deny: deny.unwrap_or_default(),
            dns_servers: dns_servers.unwrap_or_default(),
        };
        said.validate()
    }
}

/// A client's rules. Enabled internet access and empty lists count as not set: clients always send
/// them.
impl From<Egress> for RequestedEgress {
    fn from(said: Egress) -> Self {
        fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
            (!list.is_empty()).then_some(list)
        }
        Self {
            internet: said.internet.filter(|open| !open),
            allow: some(said.allow),
            deny: some(said.deny),
            dns_servers: some(said.dns_servers),
        }
    }
}
