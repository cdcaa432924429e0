//! The headers that name a sandbox and a port.

use std::net::IpAddr;
use std::time::Duration;

use http::header::{HeaderName, ORIGIN, UPGRADE};
use http::{HeaderMap, HeaderValue};

const ID: HeaderName = HeaderName::from_static("x-sandbox-id");
const NAMESPACE: HeaderName = HeaderName::from_static("x-sandbox-namespace");
const PORT: HeaderName = HeaderName::from_static("x-sandbox-port");
const ADDRESS: HeaderName = HeaderName::from_static("x-sandbox-pod-ip");
const UID: HeaderName = HeaderName::from_static("x-sandbox-uid");
const TIMEOUT: HeaderName = HeaderName::from_static("x-sandbox-timeout");

const DEFAULT_NAMESPACE: &str = "default";
const DEFAULT_PORT: u16 = 8888;

/// The longest DNS label.
const LABEL_MAX: usize = 63;

/// The target of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The name of the sandbox.
    pub(crate) id: String,
    /// Its namespace.
    pub(crate) namespace: String,
    /// The port of its pod.
    pub(crate) port: u16,
    /// How long the client waits.
    pub(crate) timeout: Option<Duration>,
}

/// Why the headers are refused. Clients see the texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidHeader {
    #[error("X-Sandbox-ID header is required.")]
    Missing,
    #[error("Invalid sandbox ID format.")]
    Id,
    #[error("Invalid namespace format.")]
    Namespace,
    #[error("Invalid port format.")]
    Port,
    #[error("Invalid target IP address.")]
    Address,
}

/// Whether a request names a sandbox.
pub(crate) fn names_sandbox(headers: &HeaderMap) -> bool {
    headers.contains_key(&ID)
}

/// Reads the headers. Empty ones count as absent. The pod's address is checked and then ignored, because
/// the router knows it; so is the UID.
///
/// # Errors
/// See [`InvalidHeader`].
pub(crate) fn read(headers: &HeaderMap) -> Result<Asked, InvalidHeader> {
    let id = text(headers, &ID, InvalidHeader::Id)?.ok_or(InvalidHeader::Missing)?;
    if !is_label(id) {
        return Err(InvalidHeader::Id);
    }
    let namespace = text(headers, &NAMESPACE, InvalidHeader::Namespace)?;
    let namespace = namespace.unwrap_or(DEFAULT_NAMESPACE);
    if !is_label(namespace) {
        return Err(InvalidHeader::Namespace);
    }
    let port = match text(headers, &PORT, InvalidHeader::Port)? {
        None => DEFAULT_PORT,
        Some(text) => port(text).ok_or(InvalidHeader::Port)?,
    };
    let address = text(headers, &ADDRESS, InvalidHeader::Address)?;
    let address = address.map(|text| text.parse().ok().filter(|at| is_of_pods(*at)));
    if address == Some(None) {
        return Err(InvalidHeader::Address);
    }
    Ok(Asked {
        id: id.to_owned(),
        namespace: namespace.to_owned(),
        port,
        timeout: timeout(headers),
    })
}

/// Removes the headers, which are for the router only. Servers that compare the origin of a WebSocket with
/// their own address would refuse it, so that goes too.
pub(crate) fn strip(headers: &mut HeaderMap) {
    for name in [ID, NAMESPACE, PORT, ADDRESS, UID, TIMEOUT] {
        headers.remove(name);
    }
    if headers.contains_key(UPGRADE) {
        headers.remove(ORIGIN);
    }
}

/// Whether a pod may have this address: not loopback, link-local, multicast or unspecified.
pub(crate) fn is_of_pods(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(link_local || address.is_loopback() || address.is_multicast() || address.is_unspecified())
}

/// The first value of a header, if it is not empty.
fn text<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    invalid: InvalidHeader,
) -> Result<Option<&'a str>, InvalidHeader> {
    let value = headers.get(name).map(HeaderValue::to_str).transpose();
    let value = value.map_err(|_| invalid)?;
    Ok(value.filter(|text| !text.is_empty()))
}

/// Whether a text is a DNS label (RFC 1123).
fn is_label(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=LABEL_MAX).contains(&text.len())
        && text.bytes().all(good)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn port(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port > 0)
}

/// The client's timeout in seconds. One that is no positive number counts as absent.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(&TIMEOUT)?.to_str().ok()?.trim().parse().ok()?;
    let timeout = Duration::try_from_secs_f64(seconds).ok()?;
    (!timeout.is_zero()).then_some(timeout)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            (HeaderName::from_static(name), value)
        });
        pairs.collect()
    }

    fn with(name: &'static str, value: &str) -> Result<Asked, InvalidHeader> {
        read(&headers(&[("x-sandbox-id", "box"), (name, value)]))
    }

    #[test]
    fn absent_and_empty_headers_have_defaults() {
        for given in [
            &[("x-sandbox-id", "my-box-1")][..],
            &[
                ("x-sandbox-id", "my-box-1"),
                ("x-sandbox-namespace", ""),
                ("x-sandbox-port", ""),
                ("x-sandbox-pod-ip", ""),
            ],
        ] {
            let asked = Asked {
                id: "my-box-1".to_owned(),
                namespace: "default".to_owned(),
                port: 8888,
                timeout: None,
            };
            assert_eq!(read(&headers(given)), Ok(asked));
        }
        let asked = with("x-sandbox-namespace", "team-a").unwrap();
        assert_eq!(asked.namespace, "team-a");
        assert_eq!(with("x-sandbox-port", "80").unwrap().port, 80);
    }

    #[test]
    fn names_are_labels_so_that_no_other_host_can_be_named() {
        assert_eq!(read(&HeaderMap::new()), Err(InvalidHeader::Missing));
        let long = "a".repeat(64);
        for bad in [
            "-a",
            "a-",
            "A",
            "a.b",
            "a/b",
            "a:80",
            "a_b",
            "a b",
            "127.0.0.1",
            "[::1]",
            "é",
            "kubernetes.default.svc",
            "a@b",
            "a%2e",
            "*",
            &long,
        ] {
            let id = read(&headers(&[("x-sandbox-id", bad)]));
            assert_eq!(id, Err(InvalidHeader::Id), "{bad}");
            let namespace = with("x-sandbox-namespace", bad);
            assert_eq!(namespace, Err(InvalidHeader::Namespace), "{bad}");
        }
        for good in ["a", "0", "a-b", &long[..63]] {
            assert_eq!(with("x-sandbox-namespace", good).unwrap().namespace, good);
        }
    }

    #[test]
    fn ports_are_numbers_from_1_to_65535() {
        for bad in [
            "0",
            "65536",
            "-1",
            "+80",
            "80a",
            " ",
            "8 0",
            "0x50",
            "99999999999",
        ] {
            let read = with("x-sandbox-port", bad);
            assert_eq!(read, Err(InvalidHeader::Port), "{bad}");
        }
        assert_eq!(with("x-sandbox-port", "65535").unwrap().port, 65535);
    }

    #[test]
    fn addresses_of_the_machine_are_refused() {
        for bad in [
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "169.254.169.254",
            "fe80::1",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "localhost",
            "10.0.0.1:80",
        ] {
            let read = with("x-sandbox-pod-ip", bad);
            assert_eq!(read, Err(InvalidHeader::Address), "{bad}");
        }
        assert!(with("x-sandbox-pod-ip", "10.244.0.7").is_ok());
        assert!(with("x-sandbox-pod-ip", "fd00::7").is_ok());
    }

    #[test]
    fn a_timeout_is_a_positive_number() {
        let asked = with("x-sandbox-timeout", "2.5").unwrap();
        assert_eq!(asked.timeout, Some(Duration::from_millis(2500)));
        for bad in ["0", "-1", "nan", "inf", "soon", ""] {
            assert_eq!(
                with("x-sandbox-timeout", bad).unwrap().timeout,
                None,
                "{bad}"
            );
        }
    }

    #[test]
    fn servers_in_sandboxes_do_not_see_the_headers() {
        let mut seen = headers(&[
            ("x-sandbox-id", "box"),
            ("x-sandbox-uid", "u"),
            ("x-sandbox-timeout", "5"),
            ("origin", "https://page.example"),
            ("accept", "*/*"),
        ]);
        strip(&mut seen);
        let kept = [("origin", "https://page.example"), ("accept", "*/*")];
        assert_eq!(seen, headers(&kept));
        let mut seen = headers(&[("upgrade", "websocket"), ("origin", "https://page.example")]);
        strip(&mut seen);
        assert_eq!(seen, headers(&[("upgrade", "websocket")]));
    }

    proptest! {
        #[test]
        fn no_header_panics_and_names_stay_labels(id in "[ -~]{0,70}", port in "[ -~]{0,8}") {
            let given = [("x-sandbox-id", id.as_str()), ("x-sandbox-port", port.as_str())];
            if let Ok(asked) = read(&headers(&given)) {
                prop_assert!(is_label(&asked.id));
            }
        }
    }
}
