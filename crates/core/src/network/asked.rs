//! What somebody says of a sandbox's network; the rest comes from elsewhere.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::{AddressRange, Egress, HostMask, InvalidRule};

/// A policy of which parts may not be said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AskedNetwork {
    /// Outbound.
    pub egress: AskedEgress,
    /// The internet was said to be open, as some clients do unasked: shown, and nothing more, as no
    /// template could close it otherwise.
    pub said_open: bool,
    /// Whether ports answer without the traffic access token.
    pub allow_public_traffic: Option<bool>,
    /// What servers in the sandbox see as `Host`.
    pub mask_request_host: Option<HostMask>,
}

/// Outbound rules of which some may not be said: see [`Egress`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AskedEgress {
    /// Whether the internet is open at all.
    pub internet: Option<bool>,
    /// What is reached whatever is denied.
    pub allow: Option<Vec<AddressRange>>,
    /// What is not reached.
    pub deny: Option<Vec<AddressRange>>,
    /// The name servers to ask.
    pub dns_servers: Option<Vec<Ipv4Addr>>,
}

impl AskedNetwork {
    /// Checks what was said.
    ///
    /// # Errors
    /// See [`Egress::validate`].
    pub fn validate(&self) -> Result<(), InvalidRule> {
        let AskedEgress {
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

/// What a client says. An open internet and an empty list say nothing: clients send them unasked.
impl From<Egress> for AskedEgress {
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
