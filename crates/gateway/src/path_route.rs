//! Path-based URLs, for clients that cannot use host names: `/sandbox/{name}/…?port=` and
//! `/sandboxes/router/{id}/{port}/…`, as in Agent-Sandbox.
//!
//! In Agent-Sandbox they are open. Here each request needs a key of the sandbox's team, or the
//! sandbox's traffic token, because these URLs are easy to guess, while a host name contains an id.
//! Neither credential is forwarded.

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;
use shoal_core::auth::ApiKey;
use shoal_core::routes::Credential;

use crate::forward::TRAFFIC_TOKEN;
use crate::target::{InvalidTarget, port_of};

const NAMED: &str = "/sandbox/";
const ROUTER: &str = "/sandboxes/router/";

/// The header of the API key.
pub(crate) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Tells the server in the sandbox the removed part of the path.
const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

/// Gives pages of a sandbox an opaque origin, because the URL's origin is the API's.
const POLICY: HeaderValue =
    HeaderValue::from_static("sandbox allow-downloads allow-forms allow-popups allow-scripts");

/// The target of a path-based URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRoute {
    /// The sandbox's name or id.
    pub(crate) name: String,
    /// The port, if it names one.
    pub(crate) port: Option<u16>,
    /// The removed part of the path.
    prefix: String,
    /// The rest of the path.
    rest: PathAndQuery,
}

/// Parses the path; none for the API's paths.
///
/// # Errors
/// When the port is invalid.
pub(crate) fn find(uri: &Uri) -> Result<Option<PathRoute>, InvalidTarget> {
    let (path, query) = (uri.path(), uri.query());
    if let Some(after) = path.strip_prefix(ROUTER) {
        let mut parts = after.splitn(3, '/');
        let (Some(name), Some(port)) = (parts.next(), parts.next()) else {
            return Ok(None);
        };
        let rest = parts.next().unwrap_or_default();
        let prefix = format!("{ROUTER}{name}/{port}");
        return parse(name, Some(port_of(port)?), prefix, rest, query).map(Some);
    }
    let Some(after) = path.strip_prefix(NAMED) else {
        return Ok(None);
    };
    let (name, rest) = after.split_once('/').unwrap_or((after, ""));
    let (port, query) = take_port(query.unwrap_or_default());
    let port = port.map(|port| port_of(&port)).transpose()?;
    let query = Some(query.as_str()).filter(|query| !query.is_empty());
    parse(name, port, format!("{NAMED}{name}"), rest, query).map(Some)
}

fn parse(
    name: &str,
    port: Option<u16>,
    prefix: String,
    rest: &str,
    query: Option<&str>,
) -> Result<PathRoute, InvalidTarget> {
    let rest = match query {
        Some(query) => format!("/{rest}?{query}"),
        None => format!("/{rest}"),
    };
    Ok(PathRoute {
        name: name.to_owned(),
        port,
        prefix,
        rest: rest.parse().map_err(|_| InvalidTarget::Host)?,
    })
}

/// Removes the first `port` from a query: it is for the gateway. The rest stays unchanged.
fn take_port(query: &str) -> (Option<String>, String) {
    let mut port = None;
    let rest: Vec<&str> = query
        .split('&')
        .filter(|pair| match pair.split_once('=') {
            Some(("port", value)) if port.is_none() => {
                port = Some(percent_decode_str(value).decode_utf8_lossy().into_owned());
                false
            }
            _ => true,
        })
        .collect();
    (port, rest.join("&"))
}

impl PathRoute {
    /// The name or id of the sandbox.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The credential of a request; none if it has no plausible one. A key precedes a traffic token.
    /// `Authorization` belongs to the server in the sandbox.
    pub(crate) fn credential(headers: &HeaderMap) -> Option<Credential> {
        let key = headers.get(API_KEY).and_then(|key| key.to_str().ok());
        if let Some(key) = key.and_then(|key| ApiKey::parse(key).ok()) {
            return Some(Credential::Key(key));
        }
        let token = headers.get(TRAFFIC_TOKEN)?.to_str().ok()?;
        Some(Credential::Traffic(token.to_owned()))
    }

    /// Rewrites the request to one for the sandbox's own host: without prefix and key.
    pub(crate) fn pass<B>(self, request: &mut http::Request<B>) -> Result<(), InvalidTarget> {
        let mut parts = request.uri().clone().into_parts();
        parts.path_and_query = Some(self.rest);
        *request.uri_mut() = Uri::from_parts(parts).map_err(|_| InvalidTarget::Host)?;
        let headers = request.headers_mut();
        headers.remove(API_KEY);
        if let Ok(prefix) = HeaderValue::from_str(&self.prefix) {
            headers.insert(FORWARDED_PREFIX, prefix);
        }
        Ok(())
    }
}

/// Sandboxes the page. Appended, so that the server's own policy stays in force.
pub(crate) fn sandbox_csp(headers: &mut HeaderMap) {
    headers.append(http::header::CONTENT_SECURITY_POLICY, POLICY);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(uri: &str) -> Option<(String, Option<u16>, String)> {
        let parsed = find(&uri.parse().unwrap()).unwrap()?;
        Some((parsed.name, parsed.port, parsed.rest.to_string()))
    }

    fn is(name: &str, port: Option<u16>, rest: &str) -> Option<(String, Option<u16>, String)> {
        Some((name.to_owned(), port, rest.to_owned()))
    }

    #[test]
    fn a_path_has_a_sandbox_a_port_and_a_rest() {
        assert_eq!(found("/sandbox/box"), is("box", None, "/"));
        assert_eq!(found("/sandbox/box/a/b?c=d"), is("box", None, "/a/b?c=d"));
        assert_eq!(found("/sandbox/box/?port=3000"), is("box", Some(3000), "/"));
        assert_eq!(
            found("/sandbox/box/x?a=%20&port=80&port=7"),
            is("box", Some(80), "/x?a=%20&port=7")
        );
        assert_eq!(
            found("/sandboxes/router/iabc/8080/x//y?port=1"),
            is("iabc", Some(8080), "/x//y?port=1")
        );
        assert_eq!(
            found("/sandboxes/router/iabc/80"),
            is("iabc", Some(80), "/")
        );
    }

    #[test]
    fn paths_of_the_api_are_not_taken() {
        for path in [
            "/sandboxes",
            "/sandboxes/router",
            "/sandboxes/router/connect",
            "/sandboxes/iabc/connect",
            "/api/v1/sandbox/box",
            "/sandboxe/x",
            "/",
        ] {
            assert_eq!(found(path), None, "{path}");
        }
        for bad in [
            "/sandbox/box/?port=0",
            "/sandbox/box/?port=",
            "/sandbox/box/?port=65536",
            "/sandboxes/router/iabc/x/",
            "/sandboxes/router/iabc/+80/",
        ] {
            assert_eq!(
                find(&bad.parse().unwrap()),
                Err(InvalidTarget::Port),
                "{bad}"
            );
        }
    }

    #[test]
    fn the_key_is_not_forwarded() {
        let mut request = http::Request::get("/sandbox/box/a?port=80")
            .header("x-api-key", "e2b_00")
            .body(())
            .unwrap();
        let parsed = find(request.uri()).unwrap().unwrap();
        parsed.pass(&mut request).unwrap();
        assert_eq!(request.uri(), "/a");
        assert!(!request.headers().contains_key("x-api-key"));
        assert_eq!(request.headers()["x-forwarded-prefix"], "/sandbox/box");
    }

    proptest! {
        #[test]
        fn no_path_panics(path in "/(sandbox|sandboxes/router)/[!-~]{0,60}") {
            if let Ok(uri) = path.parse::<Uri>() {
                let _ = find(&uri);
            }
        }
    }
}
