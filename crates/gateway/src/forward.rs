//! The headers of forwarded requests and answers.

use std::net::IpAddr;

use http::header::{CONNECTION, HOST, HeaderName, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue, Uri, Version};
use shoal_core::auth::Token;
use shoal_core::network::HostMask;
use shoal_protocol::headers::ACCESS_TOKEN;
use shoal_protocol::{ENVD_PORT, INTERPRETER_PORT};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Headers by which proxies describe a client, in addition to those with [`ANY_FORWARDED`].
const PROXY_HEADERS: [HeaderName; 2] = [
    HeaderName::from_static("forwarded"),
    HeaderName::from_static("x-real-ip"),
];
const ANY_FORWARDED: &str = "x-forwarded-";

/// Authorizes requests to a private sandbox. For the gateway only.
pub(crate) const TRAFFIC_TOKEN: HeaderName = HeaderName::from_static("e2b-traffic-access-token");

/// Removes hop-by-hop headers (RFC 9110, 7.6.1).
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
    // gRPC needs "trailers"; other values are hop-by-hop.
    if headers.get(TE).is_some_and(|te| te != "trailers") {
        headers.remove(TE);
    }
}

/// Removes headers that only a trusted proxy may set, because servers in sandboxes trust them.
pub(crate) fn strip_proxy_headers(headers: &mut HeaderMap) {
    let said: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with(ANY_FORWARDED) || PROXY_HEADERS.contains(name))
        .cloned()
        .collect();
    for name in said {
        headers.remove(name);
    }
}

/// The requested protocol upgrade, to be restored after [`strip_hop_by_hop`].
pub(crate) fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let asks = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|word| word.trim().eq_ignore_ascii_case("upgrade"));
    headers.get(UPGRADE).filter(|_| asks).cloned()
}

/// Restores the protocol upgrade of a request.
pub(crate) fn ask_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Adds the requested host and the client's address for the server in the sandbox.
pub(crate) fn set_forwarded(
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
    // The daemon always sees the requested host.
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
    if let Some(client) = client {
        // Append to the hops of a trusted proxy.
        let before = headers.get_all(FORWARDED_FOR).iter();
        let mut hops: Vec<String> = before
            .filter_map(|hop| hop.to_str().ok().map(str::to_owned))
            .collect();
        hops.push(client.to_string());
        if let Ok(hops) = HeaderValue::from_str(&hops.join(", ")) {
            headers.insert(FORWARDED_FOR, hops);
        }
    }
    headers.remove(TRAFFIC_TOKEN);
}

/// Adds the daemon's token for callers that need not know it. Other ports never see it.
pub(crate) fn add_daemon_token(headers: &mut HeaderMap, port: u16, token: &Token) {
    if !matches!(port, ENVD_PORT | INTERPRETER_PORT) {
        return;
    }
    // The caller's own value would be refused.
    headers.remove(ACCESS_TOKEN);
    if let Ok(mut value) = HeaderValue::from_str(token.reveal()) {
        value.set_sensitive(true);
        headers.insert(ACCESS_TOKEN, value);
    }
}

/// Whether a request needs HTTP/2 upstream: only gRPC does.
pub(crate) fn needs_http2(version: Version, headers: &HeaderMap) -> bool {
    version == Version::HTTP_2 && headers.get(TE).is_some_and(|te| te == "trailers")
}

#[cfg(test)]
mod tests {
    use shoal_core::auth::TokenSeed;

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
    fn hop_by_hop_headers_are_removed() {
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
    fn proxy_headers_of_untrusted_clients_are_replaced() {
        let client = Some([192, 0, 2, 7].into());
        let said = [
            ("host", "8080-ia.e2b.app"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "bank.example"),
            ("x-forwarded-port", "443"),
            ("x-forwarded-prefix", "/admin"),
            ("x-real-ip", "10.0.0.1"),
            ("forwarded", "for=10.0.0.1"),
            ("x-own", "kept"),
        ];
        let mut headers = map(&said);
        strip_proxy_headers(&mut headers);
        set_forwarded(
            &mut headers,
            &Uri::from_static("/"),
            8080,
            None,
            client,
            "http",
        );
        let expected = [
            ("host", "8080-ia.e2b.app"),
            ("x-forwarded-for", "192.0.2.7"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "8080-ia.e2b.app"),
            ("x-own", "kept"),
        ];
        assert_eq!(headers, map(&expected));
        // The headers of a trusted proxy stay, and its address is appended.
        let mut headers = map(&said);
        set_forwarded(
            &mut headers,
            &Uri::from_static("/"),
            8080,
            None,
            client,
            "http",
        );
        assert_eq!(headers[FORWARDED_FOR], "10.0.0.1, 192.0.2.7");
        assert_eq!(headers[FORWARDED_HOST], "bank.example");
        assert_eq!(headers[FORWARDED_PROTO], "https");
    }

    #[test]
    fn an_upgrade_needs_both_headers() {
        let both = map(&[("connection", "Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(
            upgrade_of(&both),
            Some(HeaderValue::from_static("websocket"))
        );
        assert_eq!(upgrade_of(&map(&[("upgrade", "h2c")])), None);
    }

    #[test]
    fn only_the_daemon_gets_its_token_and_only_once() {
        let token = TokenSeed::new([1; 32]).envd_access_token(&"iabc".parse().unwrap());
        for (port, shown) in [(ENVD_PORT, true), (INTERPRETER_PORT, true), (8080, false)] {
            let mut headers = map(&[("x-access-token", "theirs")]);
            headers.append(ACCESS_TOKEN, HeaderValue::from_static("and another"));
            add_daemon_token(&mut headers, port, &token);
            let seen: Vec<_> = headers.get_all(ACCESS_TOKEN).iter().collect();
            if shown {
                assert_eq!(seen, [token.reveal()], "{port}");
            } else {
                assert_eq!(seen, ["theirs", "and another"], "{port}");
            }
        }
    }

    #[test]
    fn servers_see_the_masked_host_and_the_daemon_does_not() {
        let mask: HostMask = "localhost:${PORT}".parse().unwrap();
        let uri = Uri::from_static("/");
        let mut headers = map(&[
            ("host", "8080-ia.e2b.app"),
            ("e2b-traffic-access-token", "t"),
        ]);
        set_forwarded(&mut headers, &uri, 8080, Some(&mask), None, "http");
        assert_eq!(headers[HOST], "localhost:8080");
        assert_eq!(headers[FORWARDED_HOST], "localhost:8080");
        assert!(!headers.contains_key(TRAFFIC_TOKEN));
        let mut headers = map(&[("host", "49983-ia.e2b.app")]);
        set_forwarded(&mut headers, &uri, ENVD_PORT, Some(&mask), None, "http");
        assert_eq!(headers[HOST], "49983-ia.e2b.app");
    }
}
