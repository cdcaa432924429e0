//! Ways to sandboxes for clients that cannot use names below a domain: `/sandbox/{name}/…?port=`
//! and `/sandboxes/router/{id}/{port}/…`, as Agent-Sandbox has them.
//!
//! There they are open to everybody. Here each asks for a key of the sandbox's team, or for the
//! sandbox's traffic token: such an address is easily guessed, where a name below a domain has an
//! id in it. Neither is passed on.

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;
use shoal_core::auth::ApiKey;
use shoal_core::catalog::Proof;

use crate::forward::TRAFFIC_TOKEN;
use crate::target::{InvalidTarget, port_of};

const NAMED: &str = "/sandbox/";
const ROUTER: &str = "/sandboxes/router/";

/// Where clients put their key.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Says to the server in the sandbox what was taken off the path.
const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

/// Takes from a page that a sandbox serves here the rights of this address, which is the API's: to
/// a browser it is a page of nobody.
const POLICY: HeaderValue =
    HeaderValue::from_static("sandbox allow-downloads allow-forms allow-popups allow-scripts");

/// A request that names a sandbox by its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Door {
    /// The sandbox's name or id.
    pub(crate) name: String,
    /// The port, if it names one.
    pub(crate) port: Option<u16>,
    /// What is taken off the path.
    prefix: String,
    /// What is left of it.
    rest: PathAndQuery,
}

/// Finds the sandbox that a path names; none when it is for the API.
///
/// # Errors
/// When it names a port that is none.
pub(crate) fn find(uri: &Uri) -> Result<Option<Door>, InvalidTarget> {
    let (path, query) = (uri.path(), uri.query());
    if let Some(after) = path.strip_prefix(ROUTER) {
        let mut parts = after.splitn(3, '/');
        let (Some(name), Some(port)) = (parts.next(), parts.next()) else {
            return Ok(None);
        };
        let rest = parts.next().unwrap_or_default();
        let prefix = format!("{ROUTER}{name}/{port}");
        return door(name, Some(port_of(port)?), prefix, rest, query).map(Some);
    }
    let Some(after) = path.strip_prefix(NAMED) else {
        return Ok(None);
    };
    let (name, rest) = after.split_once('/').unwrap_or((after, ""));
    let (port, query) = take_port(query.unwrap_or_default());
    let port = port.map(|port| port_of(&port)).transpose()?;
    let query = Some(query.as_str()).filter(|query| !query.is_empty());
    door(name, port, format!("{NAMED}{name}"), rest, query).map(Some)
}

fn door(
    name: &str,
    port: Option<u16>,
    prefix: String,
    rest: &str,
    query: Option<&str>,
) -> Result<Door, InvalidTarget> {
    let rest = match query {
        Some(query) => format!("/{rest}?{query}"),
        None => format!("/{rest}"),
    };
    Ok(Door {
        name: name.to_owned(),
        port,
        prefix,
        rest: rest.parse().map_err(|_| InvalidTarget::Host)?,
    })
}

/// Takes the first `port` out of a query: it is for the gateway. What else there is stays as it is.
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

impl Door {
    /// The name or id of the sandbox that the path names.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What a request shows to be let in; none when it shows nothing, or nothing that could be it.
    /// A key counts more than a traffic token. `Authorization` is the sandbox's own server's.
    pub(crate) fn proof(headers: &HeaderMap) -> Option<Proof> {
        let key = headers.get(API_KEY).and_then(|key| key.to_str().ok());
        if let Some(key) = key.and_then(|key| ApiKey::parse(key).ok()) {
            return Some(Proof::Key(key));
        }
        let token = headers.get(TRAFFIC_TOKEN)?.to_str().ok()?;
        Some(Proof::Traffic(token.to_owned()))
    }

    /// Makes the request what it would be with the sandbox's own address: without the key, which is
    /// nothing for a server in a sandbox.
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

/// Marks an answer as nobody's page. Appended: what the server itself forbids stays forbidden.
pub(crate) fn disown(headers: &mut HeaderMap) {
    headers.append(http::header::CONTENT_SECURITY_POLICY, POLICY);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(uri: &str) -> Option<(String, Option<u16>, String)> {
        let door = find(&uri.parse().unwrap()).unwrap()?;
        Some((door.name, door.port, door.rest.to_string()))
    }

    fn is(name: &str, port: Option<u16>, rest: &str) -> Option<(String, Option<u16>, String)> {
        Some((name.to_owned(), port, rest.to_owned()))
    }

    #[test]
    fn a_path_names_a_sandbox_a_port_and_what_is_left() {
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
    fn what_is_the_apis_stays_the_apis() {
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
    fn the_key_goes_no_further() {
        let mut request = http::Request::get("/sandbox/box/a?port=80")
            .header("x-api-key", "e2b_00")
            .body(())
            .unwrap();
        let door = find(request.uri()).unwrap().unwrap();
        door.pass(&mut request).unwrap();
        assert_eq!(request.uri(), "/a");
        assert!(!request.headers().contains_key("x-api-key"));
        assert_eq!(request.headers()["x-forwarded-prefix"], "/sandbox/box");
    }

    proptest! {
        #[test]
        fn no_path_makes_it_fail(path in "/(sandbox|sandboxes/router)/[!-~]{0,60}") {
            if let Ok(uri) = path.parse::<Uri>() {
                let _ = find(&uri);
            }
        }
    }
}
