//! The networks in which external machines may be.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use crate::network::{AddressRange, InvalidRule, is_public};

/// The word for all public addresses.
const PUBLIC: &str = "public";

/// An item of the list: the word `public`, an address or a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reachable {
    /// All public addresses.
    Public,
    /// This range.
    Range(IpNet),
}

impl FromStr for Reachable {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        if text == PUBLIC {
            return Ok(Self::Public);
        }
        Ok(Self::Range(text.parse::<AddressRange>()?.net()))
    }
}

/// The networks in which external machines may be. The server connects to them on behalf of a tenant, so its own networks
/// are closed unless the operator names them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Networks(Vec<Reachable>);

impl FromIterator<Reachable> for Networks {
    fn from_iter<T: IntoIterator<Item = Reachable>>(items: T) -> Self {
        Self(items.into_iter().collect())
    }
}

impl Networks {
    /// Whether no machine may be anywhere.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a machine may be at this address.
    #[must_use]
    pub fn allows(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let public = self.0.contains(&Reachable::Public) && is_public(address);
        public || self.names(address)
    }

    /// Whether a range of the list has this address. A wide range does not open what belongs to a machine alone: loopback
    /// and link-local addresses need a range of theirs.
    #[must_use]
    pub fn names(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if address.is_unspecified() || address.is_multicast() {
            return false;
        }
        self.0.iter().any(|item| match item {
            Reachable::Public => false,
            Reachable::Range(range) => {
                range.contains(&address) && (!is_own(address) || is_own(range.network()))
            }
        })
    }
}

/// Whether an address means something else on each machine: loopback, or link-local with the metadata of clouds.
fn is_own(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(items: &[&str]) -> Networks {
        items.iter().map(|item| item.parse().unwrap()).collect()
    }

    fn allowed(networks: &Networks, addresses: &[&str]) -> Vec<bool> {
        let parsed = addresses.iter().map(|text| text.parse().unwrap());
        parsed.map(|address| networks.allows(address)).collect()
    }

    const OWN: &[&str] = &[
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "169.254.169.254",
        "fe80::1",
        "0.0.0.0",
        "::",
        "224.0.0.1",
    ];

    #[test]
    fn public_addresses_alone_are_open_by_default() {
        let public = networks(&["public"]);
        assert_eq!(allowed(&public, &["8.8.8.8", "2606:4700::1"]), [true, true]);
        assert_eq!(allowed(&public, OWN), [false; 8]);
        let private = [
            "10.1.2.3",
            "192.168.1.1",
            "172.16.0.1",
            "100.64.0.1",
            "fd00::1",
        ];
        assert_eq!(allowed(&public, &private), [false; 5]);
        assert_eq!(
            allowed(&public, &["64:ff9b::a00:1", "2002:a00:1::"]),
            [false; 2]
        );
    }

    #[test]
    fn a_wide_range_does_not_open_loopback() {
        let all = networks(&["0.0.0.0/0", "::/0"]);
        assert_eq!(allowed(&all, OWN), [false; 8]);
        assert_eq!(allowed(&all, &["10.1.2.3", "fd00::1"]), [true, true]);
        let named = networks(&["127.0.0.1"]);
        assert_eq!(
            allowed(
                &named,
                &["127.0.0.1", "::ffff:127.0.0.1", "127.0.0.2", "8.8.8.8"]
            ),
            [true, true, false, false]
        );
        assert!(!Networks::default().allows("8.8.8.8".parse().unwrap()));
        assert!("example.com".parse::<Reachable>().is_err());
    }
}
