//! A sandbox's network rules, inbound and outbound.
//!
//! The rules are data, and [`Egress::allows`] defines their meaning. A driver turns the same data
//! into packet filters, and a test compares the two.

mod requested;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

pub use self::requested::{RequestedEgress, RequestedNetwork};

/// The maximum number of entries in a list of rules.
pub const MAX_RULES: usize = 1024;

/// The maximum number of name servers of a sandbox.
pub const MAX_DNS_SERVERS: usize = 3;

const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)
}

const fn v6(first: u16, second: u16, bits: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0), bits)
}

/// IPv4 destinations that no rule can allow: this network, private, carrier-grade NAT, loopback,
/// link-local (with cloud metadata), protocol assignments, benchmarking, multicast, reserved.
pub const BLOCKED_V4: [Ipv4Net; 11] = [
    v4(0, 0, 0, 0, 8),
    v4(10, 0, 0, 0, 8),
    v4(100, 64, 0, 0, 10),
    v4(127, 0, 0, 0, 8),
    v4(169, 254, 0, 0, 16),
    v4(172, 16, 0, 0, 12),
    v4(192, 0, 0, 0, 24),
    v4(192, 168, 0, 0, 16),
    v4(198, 18, 0, 0, 15),
    v4(224, 0, 0, 0, 4),
    v4(240, 0, 0, 0, 4),
];

/// The IPv6 equivalents, and the ranges that embed an IPv4 address (mapped, NAT64, 6to4).
pub const BLOCKED_V6: [Ipv6Net; 7] = [
    v6(0, 0, 96),
    Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96),
    v6(0x64, 0xff9b, 96),
    v6(0x2002, 0, 16),
    v6(0xfc00, 0, 7),
    v6(0xfe80, 0, 10),
    v6(0xff00, 0, 8),
];

/// An address or range in a rule, displayed as it was written: `8.8.8.8` or `1.1.1.0/24`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AddressRange(IpNet);

impl AddressRange {
    /// The range with its host bits cleared.
    #[must_use]
    pub fn net(&self) -> IpNet {
        self.0
    }
}

/// A text that is neither an address nor a range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRule {
    /// The text looks like a host name.
    #[error("{0:?} is a name: rules by name are not supported, give an address or a range")]
    Name(String),
    /// The text is neither an address nor a range.
    #[error("{0:?} is neither an IP address nor a CIDR range")]
    Malformed(String),
    /// The list has more than [`MAX_RULES`] entries.
    #[error("{0} rules are too many: at most {MAX_RULES} are allowed")]
    TooMany(usize),
    /// More than [`MAX_DNS_SERVERS`] name servers, or one in a blocked range.
    #[error("invalid name servers: at most {MAX_DNS_SERVERS}, none in a blocked range")]
    DnsServers,
}

impl FromStr for AddressRange {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let net = text
            .parse::<IpNet>()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        match net {
            Ok(net) => Ok(Self(net.trunc())),
            Err(_) => {
                let shown: String = text.chars().take(256).collect();
                let numeric = |c: char| c.is_ascii_hexdigit() || matches!(c, '.' | ':' | '/');
                let is_name = text.contains('.') && !text.chars().all(numeric);
                Err(if is_name {
                    InvalidRule::Name(shown)
                } else {
                    InvalidRule::Malformed(shown)
                })
            }
        }
    }
}

impl TryFrom<String> for AddressRange {
    type Error = InvalidRule;

    fn try_from(text: String) -> Result<Self, InvalidRule> {
        text.parse()
    }
}

impl From<AddressRange> for String {
    fn from(range: AddressRange) -> Self {
        range.to_string()
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.prefix_len() == self.0.max_prefix_len() {
            self.0.addr().fmt(f)
        } else {
            self.0.fmt(f)
        }
    }
}

impl fmt::Debug for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The outbound rules of a sandbox. The default allows the public internet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Egress {
    /// Whether internet access was enabled explicitly. `Some(false)` denies everything except
    /// [`Egress::allow`].
    pub internet: Option<bool>,
    /// Destinations that are reachable even if denied, except blocked ranges.
    pub allow: Vec<AddressRange>,
    /// Destinations that are not reachable.
    pub deny: Vec<AddressRange>,
    /// The name servers; the host's when empty.
    pub dns_servers: Vec<Ipv4Addr>,
}

impl Egress {
    /// Checks list lengths and name servers.
    ///
    /// # Errors
    /// Names the list that is too long, or reports a name server in a blocked range.
    pub fn validate(&self) -> Result<(), InvalidRule> {
        let rules = self.allow.len().max(self.deny.len());
        if rules > MAX_RULES {
            return Err(InvalidRule::TooMany(rules));
        }
        let blocked = self
            .dns_servers
            .iter()
            .any(|server| is_blocked(IpAddr::V4(*server)));
        if blocked || self.dns_servers.len() > MAX_DNS_SERVERS {
            return Err(InvalidRule::DnsServers);
        }
        Ok(())
    }

    /// Whether `destination` is reachable. Blocked ranges never are; then `allow`, `deny` and
    /// `internet` apply, in this order.
    #[must_use]
    pub fn allows(&self, destination: IpAddr) -> bool {
        let listed = |list: &[AddressRange]| list.iter().any(|r| r.0.contains(&destination));
        if is_blocked(destination) {
            false
        } else if listed(&self.allow) {
            true
        } else {
            !listed(&self.deny) && self.internet != Some(false)
        }
    }

    /// Whether `other` allows the same destinations. Clients may enable internet access explicitly,
    /// which equals the default.
    #[must_use]
    pub fn same_rules(&self, other: &Self) -> bool {
        let open = |egress: &Self| egress.internet != Some(false);
        open(self) == open(other)
            && self.allow == other.allow
            && self.deny == other.deny
            && self.dns_servers == other.dns_servers
    }

    /// Whether no destination outside is reachable.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.allow.is_empty() && !self.allows(IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1)))
    }
}

/// Whether `address` is in a range that no rule can allow.
#[must_use]
pub fn is_blocked(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => BLOCKED_V4.iter().any(|net| net.contains(&v4)),
        IpAddr::V6(v6) => BLOCKED_V6.iter().any(|net| net.contains(&v6)),
    }
}

/// The range of IPv6 protocol assignments, including Teredo: no servers are there, and addresses
/// may embed IPv4 ones.
const ASSIGNMENTS_V6: Ipv6Net = v6(0x2001, 0, 23);

/// The 6to4 relays.
const RELAYS_V4: Ipv4Net = v4(192, 88, 99, 0, 24);

/// Whether `address` can be a server on the internet. Stricter than the rules of sandboxes: it
/// applies where the machine itself connects on behalf of a tenant.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    let routed = match address {
        IpAddr::V4(v4) => !RELAYS_V4.contains(&v4),
        IpAddr::V6(v6) => v6.segments()[0] & 0xe000 == 0x2000 && !ASSIGNMENTS_V6.contains(&v6),
    };
    routed && !is_blocked(address)
}

/// A sandbox's network policy, both directions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkPolicy {
    /// Outbound.
    pub egress: Egress,
    /// Inbound: whether ports are reachable without the traffic access token.
    pub allow_public_traffic: bool,
    /// The `Host` header that servers in the sandbox see; `${PORT}` is replaced by the port.
    pub mask_request_host: Option<HostMask>,
}

impl Default for NetworkPolicy {
    fn default() -> Self {
        Self {
            egress: Egress::default(),
            allow_public_traffic: true,
            mask_request_host: None,
        }
    }
}

/// A host (and port) that replaces the one in a client's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostMask(String);

/// A mask that is invalid in a `Host` header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a host: give a name, optionally `:port`, where ${{PORT}} stands for the port"
)]
pub struct InvalidHostMask(String);

impl HostMask {
    /// The host for requests to `port`.
    #[must_use]
    pub fn for_port(&self, port: u16) -> String {
        self.0.replace("${PORT}", &port.to_string())
    }
}

impl FromStr for HostMask {
    type Err = InvalidHostMask;

    fn from_str(text: &str) -> Result<Self, InvalidHostMask> {
        let filled = text.replace("${PORT}", "65535");
        let (host, port) = filled.split_once(':').unwrap_or((&filled, "1"));
        let label = |l: &str| {
            let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
            (1..=63).contains(&l.len()) && !l.starts_with('-') && l.bytes().all(good)
        };
        let good = text.len() <= 255 && host.split('.').all(label);
        if good && port.parse::<u16>().is_ok_and(|p| p > 0) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidHostMask(text.chars().take(256).collect()))
        }
    }
}

impl TryFrom<String> for HostMask {
    type Error = InvalidHostMask;

    fn try_from(text: String) -> Result<Self, InvalidHostMask> {
        text.parse()
    }
}

impl From<HostMask> for String {
    fn from(mask: HostMask) -> Self {
        mask.0
    }
}

impl fmt::Display for HostMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests;
