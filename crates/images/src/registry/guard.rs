//! The addresses from which a tenant's image may be fetched.
//!
//! An image name is a URL that this machine requests on behalf of a tenant. [`Guard`] resolves each
//! name once, and the connection uses the addresses that it permitted. A name that resolves
//! differently a moment later (DNS rebinding) has no effect. Addresses in URLs are checked before
//! the first request and at each redirect.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use ipnet::IpNet;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use shoal_core::network::is_public;

/// Checks the addresses of registries, token servers and storage that a tenant chose.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    denied: Arc<[IpNet]>,
}

/// No permitted address for the name. The text is that of a name that does not resolve.
#[derive(Debug, thiserror::Error)]
#[error("no address that may be asked")]
struct NoAddress;

impl Guard {
    /// Permits public addresses that are neither in `denied` nor this machine's own.
    pub(super) fn new(denied: &[IpNet]) -> Self {
        Self {
            denied: denied.into(),
        }
    }

    /// Whether a connection to `address` is permitted.
    fn permits(&self, address: IpAddr) -> bool {
        is_public(address)
            && !self.denied.iter().any(|net| net.contains(&address))
            && !is_own(address)
    }

    /// Whether the host of a URL is permitted, as far as the URL shows. Names are checked when they
    /// are resolved.
    pub(super) fn permits_url(&self, url: &Url) -> bool {
        // A parsed URL has its address in canonical form, however it was written.
        let Some(host) = url.host_str() else {
            return false;
        };
        let address = host.trim_start_matches('[').trim_end_matches(']');
        address
            .parse()
            .map_or(true, |address| self.permits(address))
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let permitted: Vec<SocketAddr> = found
                .filter(|address| guard.permits(address.ip()))
                .collect();
            if permitted.is_empty() {
                return Err(NoAddress.into());
            }
            let addresses: Addrs = Box::new(permitted.into_iter());
            Ok(addresses)
        })
    }
}

/// Whether the address belongs to this machine. Its own servers listen there, including those that
/// a firewall hides from others.
fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(guard: &Guard, host: &str) -> bool {
        let url = format!("http://{host}/v2/").parse();
        url.is_ok_and(|url| guard.permits_url(&url))
    }

    #[test]
    fn addresses_are_checked_however_they_are_written() {
        let guard = Guard::new(&["203.0.114.0/24".parse().unwrap()]);
        for public in ["8.8.8.8", "8.8.8.8:5000", "[2606:4700::1]:443", "ghcr.io"] {
            assert!(permits(&guard, public), "{public}");
        }
        for denied in [
            "127.0.0.1:5000",
            "127.1",
            "2130706433",
            "0x7f.1",
            "0177.0.0.1",
            "0",
            "10.79.0.2:49983",
            "169.254.169.254",
            "100.64.0.1",
            "203.0.114.9",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]:80",
            "[64:ff9b::a9fe:a9fe]",
            "[2002:7f00:1::]",
            "[2001:0:1::1]",
            "[fd00::1]",
            "[fe80::1]",
        ] {
            assert!(!permits(&guard, denied), "{denied}");
        }
    }

    #[tokio::test]
    async fn a_name_of_a_private_address_does_not_resolve() {
        let guard = Guard::new(&[]);
        let found = guard.resolve("localhost".parse().unwrap()).await;
        assert!(found.is_err());
    }

    #[test]
    fn an_address_of_this_machine_is_its_own() {
        assert!(is_own("127.0.0.1".parse().unwrap()));
        assert!(!is_own("198.51.100.1".parse().unwrap()));
    }
}
