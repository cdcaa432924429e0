//! The target of a request: a sandbox and a port.

use http::HeaderMap;
use http::header::HOST;
use http::uri::Uri;
use shoal_core::id::SandboxId;
use shoal_protocol::headers::{SANDBOX_ID, SANDBOX_PORT};

/// A port of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// The port inside.
    pub port: u16,
}

/// Why the target of a request is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTarget {
    /// One of the two headers is missing.
    #[error("missing header")]
    MissingHeader,
    /// The host is under the sandboxes' domain but names no sandbox.
    #[error("Invalid host")]
    Host,
    /// The id is invalid.
    #[error("Invalid sandbox ID")]
    Sandbox,
    /// The port is invalid.
    #[error("Invalid sandbox port")]
    Port,
}

/// Finds the target of a request; none for the API.
///
/// The host precedes the headers: `{port}-{sandbox}.{domain}`, where the first label may continue after
/// another `-`. `domain` is the server's: a host under it that is neither a sandbox nor the API is
/// refused.
///
/// # Errors
/// See [`InvalidTarget`].
pub fn find(
    headers: &HeaderMap,
    uri: &Uri,
    domain: Option<&str>,
) -> Result<Option<Target>, InvalidTarget> {
    let host = host_of(headers, uri).to_ascii_lowercase();
    if let Some(target) = from_host(&host)? {
        return Ok(Some(target));
    }
    let (id, port) = (headers.get(&SANDBOX_ID), headers.get(&SANDBOX_PORT));
    match (id, port) {
        (Some(id), Some(port)) => {
            let id = id.to_str().map_err(|_| InvalidTarget::Sandbox)?;
            let port = port.to_str().map_err(|_| InvalidTarget::Port)?;
            Ok(Some(Target {
                sandbox: sandbox(id)?,
                port: port_of(port)?,
            }))
        }
        (None, None) => match domain.and_then(|domain| host.strip_suffix(domain)) {
            Some("" | "api.") | None => Ok(None),
            Some(rest) if !rest.ends_with('.') => Ok(None),
            Some(_) => Err(InvalidTarget::Host),
        },
        _ => Err(InvalidTarget::MissingHeader),
    }
}

/// The requested host without its port. HTTP/2 has it in the URI.
pub(crate) fn host_of<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> &'a str {
    let named = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = named.or_else(|| uri.host()).unwrap_or_default();
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Parses `{port}-{sandbox}[-…].…`; none for other hosts.
fn from_host(host: &str) -> Result<Option<Target>, InvalidTarget> {
    let Some((label, _)) = host.split_once('.') else {
        return Ok(None);
    };
    let Some((port, rest)) = label.split_once('-') else {
        return Ok(None);
    };
    if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(None);
    }
    Ok(Some(Target {
        port: port_of(port)?,
        sandbox: sandbox(rest)?,
    }))
}

fn sandbox(text: &str) -> Result<SandboxId, InvalidTarget> {
    SandboxId::from_wire(text).map_err(|_| InvalidTarget::Sandbox)
}

pub(crate) fn port_of(text: &str) -> Result<u16, InvalidTarget> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|port| digits && *port > 0)
        .ok_or(InvalidTarget::Port)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.insert(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn found(pairs: &[(&str, &str)]) -> Result<Option<(String, u16)>, InvalidTarget> {
        let target = find(
            &headers(pairs),
            &Uri::from_static("/"),
            Some("e2b.localhost"),
        )?;
        Ok(target.map(|t| (t.sandbox.to_string(), t.port)))
    }

    #[test]
    fn a_host_has_a_port_and_a_sandbox() {
        for host in [
            "8080-iabc.e2b.localhost",
            "8080-iabc.e2b.localhost:3000",
            "8080-iabc-6532622b.example.com",
            "8080-IABC-00000000.e2b.app",
        ] {
            assert_eq!(
                found(&[("host", host)]),
                Ok(Some(("iabc".into(), 8080))),
                "{host}"
            );
        }
    }

    #[test]
    fn headers_work_too_and_the_host_precedes_them() {
        let pair = [("e2b-sandbox-id", "iabc"), ("e2b-sandbox-port", "49983")];
        let with = |host| [pair[0], pair[1], ("host", host)];
        for host in [
            "127.0.0.1:3000",
            "localhost:3000",
            "sandbox.e2b.localhost",
            "[::1]:3000",
        ] {
            assert_eq!(
                found(&with(host)),
                Ok(Some(("iabc".into(), 49983))),
                "{host}"
            );
        }
        assert_eq!(
            found(&with("80-ixyz.e2b.app")),
            Ok(Some(("ixyz".into(), 80)))
        );
        assert_eq!(found(&pair[..1]), Err(InvalidTarget::MissingHeader));
        assert_eq!(found(&pair[1..]), Err(InvalidTarget::MissingHeader));
    }

    #[test]
    fn other_hosts_are_the_apis_or_refused() {
        for host in [
            "127.0.0.1:3000",
            "localhost",
            "e2b.localhost",
            "api.e2b.localhost:3000",
            "shoal.internal",
            "my-host.example",
            "note2b.localhost",
        ] {
            assert_eq!(found(&[("host", host)]), Ok(None), "{host}");
        }
        assert_eq!(
            found(&[("host", "web.e2b.localhost")]),
            Err(InvalidTarget::Host)
        );
        assert_eq!(found(&[("host", "99999-iabc.x")]), Err(InvalidTarget::Port));
        assert_eq!(found(&[("host", "0-iabc.x")]), Err(InvalidTarget::Port));
        assert_eq!(found(&[("host", "80-i_c.x")]), Err(InvalidTarget::Sandbox));
        let bad = [("e2b-sandbox-id", "../x"), ("e2b-sandbox-port", "80")];
        assert_eq!(found(&bad), Err(InvalidTarget::Sandbox));
    }

    proptest! {
        #[test]
        fn no_host_panics(host in "[ -~]{0,80}") {
            let _ = found(&[("host", &host)]);
        }
    }
}
