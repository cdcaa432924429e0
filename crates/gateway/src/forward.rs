//! What a request and an answer keep on their way through, and what they lose.

use std::net::IpAddr;

use http::header::{CONNECTION, HOST, HeaderName, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue, Uri, Version};
use shoal_core::network::HostMask;
use shoal_protocol::ENVD_PORT;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Opens a sandbox that is not public. It is for the gateway alone.
pub(crate) const TRAFFIC_TOKEN: HeaderName = HeaderName::from_static("e2b-traffic-access-token");

/// Takes out what is between two neighbours only (RFC 9110, 7.6.1).
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [
        CONNECTION,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        TRANSFER_ENCODING,
        UPGRADE,
        TRAILER,
    ] {
        headers.remove(name);
    }
    // "trailers" is what gRPC asks for; anything else is between neighbours.
    if headers.get(TE).is_some_and(|te| te != "trailers") {
        headers.remove(TE);
    }
}

/// What a WebSocket (or another protocol) is asked for with, to be put back behind
/// [`strip_hop_by_hop`].
pub(crate) fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let asks = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|word| word.trim().eq_ignore_ascii_case("upgrade"));
    headers.get(UPGRADE).filter(|_| asks).cloned()
}

/// Puts a request's protocol upgrade back.
pub(crate) fn ask_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Says to the server in the sandbox whom the client asked for, and who the client is.
pub(crate) fn introduce(
    headers: &mut HeaderMap,
    uri: &Uri,
    port: u16,
    mask: Option<&HostMask>,
    client: Option<IpAddr>,
    proto: &'static str,
) {
    if !headers.contains_key(HOST)
        && let Some(host) = uri
            .authority()
            .and_then(|a| HeaderValue::from_str(a.as_str()).ok())
    {
        headers.insert(HOST, host);
    }
    // The daemon is nobody's web server: it sees what was asked for.
    let masked = mask
        .filter(|_| port != ENVD_PORT)
        .map(|mask| mask.for_port(port));
    if let Some(host) = masked.and_then(|host| HeaderValue::from_str(&host).ok()) {
        headers.insert(HOST, host.clone());
        headers.insert(FORWARDED_HOST, host);
    } else if let Some(host) = headers.get(HOST).cloned() {
        headers.entry(FORWARDED_HOST).or_insert(host);
    }
    headers
        .entry(FORWARDED_PROTO)
        .or_insert(HeaderValue::from_static(proto));
    if let Some(client) = client.and_then(|ip| HeaderValue::from_str(&ip.to_string()).ok()) {
        headers.entry(FORWARDED_FOR).or_insert(client);
    }
    headers.remove(TRAFFIC_TOKEN);
}

/// Whether a request needs HTTP/2 to the server in the sandbox: only gRPC says so.
pub(crate) fn needs_http2(version: Version, headers: &HeaderMap) -> bool {
    version == Version::HTTP_2 && headers.get(TE).is_some_and(|te| te == "trailers")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        pairs.collect()
    }

    #[test]
    fn what_is_between_neighbours_stays_between_them() {
        let mut headers = map(&[
            ("connection", "keep-alive, X-Secret"),
            ("x-secret", "1"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("accept", "*/*"),
        ]);
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers, map(&[("te", "trailers"), ("accept", "*/*")]));
    }

    #[test]
    fn an_upgrade_is_only_one_that_both_headers_ask_for() {
        let both = map(&[("connection", "Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(
            upgrade_of(&both),
            Some(HeaderValue::from_static("websocket"))
        );
        assert_eq!(upgrade_of(&map(&[("upgrade", "h2c")])), None);
    }

    #[test]
    fn a_masked_host_is_what_the_server_sees_but_not_the_daemon() {
        let mask: HostMask = "localhost:${PORT}".parse().unwrap();
        let uri = Uri::from_static("/");
        let mut headers = map(&[
            ("host", "8080-ia.e2b.app"),
            ("e2b-traffic-access-token", "t"),
        ]);
        introduce(&mut headers, &uri, 8080, Some(&mask), None, "http");
        assert_eq!(headers[HOST], "localhost:8080");
        assert_eq!(headers[FORWARDED_HOST], "localhost:8080");
        assert!(!headers.contains_key(TRAFFIC_TOKEN));
        let mut headers = map(&[("host", "49983-ia.e2b.app")]);
        introduce(&mut headers, &uri, ENVD_PORT, Some(&mask), None, "http");
        assert_eq!(headers[HOST], "49983-ia.e2b.app");
    }
}
