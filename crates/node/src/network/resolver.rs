//! The host's name servers.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};

/// Where a host configures its name servers. The second file is for hosts whose first one names
/// only a local stub, which a sandbox cannot reach.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];

/// The host's IPv4 name servers that are reachable from a slot.
pub(super) fn of_host() -> Vec<Ipv4Addr> {
    FILES
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok())
        .map(|text| parse(&text))
        .find(|servers| !servers.is_empty())
        .unwrap_or_default()
}

fn parse(text: &str) -> Vec<Ipv4Addr> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver")?.trim().parse().ok())
        .filter_map(|address| match address {
            IpAddr::V4(v4) if !v4.is_loopback() && !v4.is_unspecified() => Some(v4),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_stubs_and_ipv6_servers_are_skipped() {
        let text =
            "# x\nsearch example\nnameserver 127.0.0.53\n nameserver\t10.0.0.2\nnameserver ::1\n";
        assert_eq!(parse(text), [Ipv4Addr::new(10, 0, 0, 2)]);
    }
}
