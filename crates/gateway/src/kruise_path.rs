//! OpenKruise's paths, for clients that reach one host name only: `/kruise/api/…` is the API, and
//! `/kruise/{sandbox}/{port}/…` a port of a sandbox.
//!
//! Such a request is what it would be under its own host name: the path is rewritten, and headers name the
//! sandbox. Its pages get an opaque origin, because the host is the API's.

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request, Uri};
use shoal_protocol::headers::{SANDBOX_ID, SANDBOX_PORT};

use crate::path_route::{API_KEY, sandbox_csp};

/// The prefix of every path of a sandbox.
const PREFIX: &str = "/kruise/";

/// The word for the API in place of a sandbox.
const API: &str = "api";

/// The target of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KruisePath {
    /// The path belongs to another API.
    Other,
    /// The API.
    Api,
    /// A port of a sandbox.
    Sandbox,
}

/// Whether the path of a request looks like one of these.
pub(crate) fn is_one(uri: &Uri) -> bool {
    uri.path().starts_with(PREFIX)
}

/// Rewrites a request with one of these paths into the usual form. For requests that name no sandbox
/// otherwise: a server in a sandbox may have such paths, too.
pub(crate) fn rewrite<B>(request: &mut Request<B>) -> KruisePath {
    let Some(rest) = request.uri().path().strip_prefix(PREFIX) else {
        return KruisePath::Other;
    };
    let (first, rest) = rest.split_once('/').unwrap_or((rest, ""));
    if first == API {
        let Some(uri) = with_path(request.uri(), rest) else {
            return KruisePath::Other;
        };
        *request.uri_mut() = uri;
        return KruisePath::Api;
    }
    let (port, rest) = rest.split_once('/').unwrap_or((rest, ""));
    let (id, port) = (HeaderValue::from_str(first), HeaderValue::from_str(port));
    let (Ok(id), Ok(port), Some(uri)) = (id, port, with_path(request.uri(), rest)) else {
        return KruisePath::Other;
    };
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    headers.insert(SANDBOX_ID, id);
    headers.insert(SANDBOX_PORT, port);
    // A client that sends it with every request means the API.
    headers.remove(API_KEY);
    KruisePath::Sandbox
}

impl KruisePath {
    /// Gives the pages of a sandbox an opaque origin.
    pub fn isolate(self, headers: &mut HeaderMap) {
        if self == Self::Sandbox {
            sandbox_csp(headers);
        }
    }
}

/// The URI with another path and the same query.
fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    let path = match uri.query() {
        Some(query) => format!("/{path}?{query}"),
        None => format!("/{path}"),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path.parse::<PathAndQuery>().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(uri: &str) -> (KruisePath, String, Option<String>) {
        let mut request = Request::builder().uri(uri).body(()).unwrap();
        let place = rewrite(&mut request);
        let headers = request.headers();
        let of = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
        let target = of(SANDBOX_ID).zip(of(SANDBOX_PORT));
        let target = target.map(|(id, port)| format!("{id}:{port}"));
        (place, request.uri().to_string(), target)
    }

    #[test]
    fn the_api_and_ports_of_sandboxes_are_told_apart() {
        let api = rewritten("/kruise/api/v2/sandboxes?limit=1");
        assert_eq!(
            api,
            (KruisePath::Api, "/v2/sandboxes?limit=1".to_owned(), None)
        );
        assert_eq!(rewritten("http://host/kruise/api").1, "http://host/");
        let sandbox = rewritten("/kruise/iabc/49983/files?path=/a%20b");
        let target = Some("iabc:49983".to_owned());
        assert_eq!(
            sandbox,
            (KruisePath::Sandbox, "/files?path=/a%20b".to_owned(), target)
        );
        assert_eq!(rewritten("/kruise/iabc/80").1, "/");
        for other in ["/", "/kruise", "/sandboxes", "/kruised/api/x"] {
            assert_eq!(rewritten(other).0, KruisePath::Other, "{other}");
        }
    }

    #[test]
    fn an_encoded_slash_stays_part_of_its_segment() {
        let place = rewritten("/kruise/api%2f..%2fx/80/y");
        assert_eq!(
            place.2.as_deref(),
            Some("api%2f..%2fx:80"),
            "the gateway refuses this id"
        );
    }
}
