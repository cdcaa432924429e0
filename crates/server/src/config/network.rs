//! The network of sandboxes, and the gateway.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};

use super::read::{Reader, items, positive};

/// The settings `network.*` and `gateway.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetworkSettings {
    /// The addresses of network slots.
    pub(crate) range: Ipv4Net,
    pub(crate) dns: Vec<Ipv4Addr>,
    pub(crate) warm_slots: usize,
    /// The maximum number of concurrent requests into a sandbox.
    pub(crate) connections: usize,
    pub(crate) trusted_proxies: Vec<IpNet>,
}

pub(super) fn read(reader: &mut Reader<'_>) -> Option<NetworkSettings> {
    let range = reader.with(
        "network.range",
        "a private range like 10.79.0.0/16",
        parse_range,
    );
    let dns = reader.with(
        "network.dns",
        "IPv4 addresses separated by commas",
        |text| items(text).map(|item| item.parse().ok()).collect(),
    );
    let warm_slots = reader.parse("network.warm_slots", "a number");
    let connections = reader.with("gateway.connections", "a number above zero", positive);
    let trusted_proxies = reader.with(
        "gateway.trusted_proxies",
        "addresses or ranges separated by commas, like 10.0.0.0/8",
        |text| items(text).map(parse_proxies).collect(),
    );
    Some(NetworkSettings {
        range: range?,
        dns: dns?,
        warm_slots: warm_slots?,
        connections: connections?,
        trusted_proxies: trusted_proxies?,
    })
}

/// A range of addresses, or one address.
fn parse_proxies(text: &str) -> Option<IpNet> {
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse().ok().or_else(address)
}

/// A private range that holds at least one slot.
fn parse_range(text: &str) -> Option<Ipv4Net> {
    let range: Ipv4Net = text.parse().ok()?;
    let fits = (8..=30).contains(&range.prefix_len());
    (fits && range.network().is_private()).then(|| range.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_are_refused_for_slots() {
        assert_eq!(parse_range("8.8.0.0/16"), None);
        assert_eq!(
            parse_range("10.1.2.3/16").unwrap().to_string(),
            "10.1.0.0/16"
        );
    }
}
