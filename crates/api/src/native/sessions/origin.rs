//! Where a caller reaches this server, for the URLs of previews.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::uri::{Authority, Scheme};

use crate::host::host_of;

/// The scheme and the port by which a caller reaches this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    scheme: Scheme,
    port: Option<u16>,
}

impl Origin {
    /// The URL of another host name of this server.
    pub(super) fn url(&self, host: &str) -> String {
        let scheme = &self.scheme;
        match self.port {
            Some(port) => format!("{scheme}://{host}:{port}"),
            None => format!("{scheme}://{host}"),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Origin {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let host = host_of(&parts.headers, &parts.uri);
        let host = host.and_then(|host| host.parse::<Authority>().ok());
        Ok(Self {
            scheme: parts.extensions.get().cloned().unwrap_or(Scheme::HTTP),
            port: host.and_then(|host| host.port_u16()),
        })
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http::header::HOST;

    use super::*;

    async fn url(host: &str, scheme: Option<Scheme>) -> String {
        let mut request = Request::get("/x").header(HOST, host);
        if let Some(scheme) = scheme {
            request = request.extension(scheme);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        let Ok(origin) = Origin::from_request_parts(&mut parts, &()).await;
        origin.url("h.preview.test")
    }

    #[tokio::test]
    async fn a_preview_has_the_scheme_and_the_port_of_the_request() {
        for (host, scheme, expected) in [
            ("127.0.0.1:3000", None, "http://h.preview.test:3000"),
            ("[::1]:3000", None, "http://h.preview.test:3000"),
            ("api.test", Some(Scheme::HTTPS), "https://h.preview.test"),
            (
                "api.test:8443",
                Some(Scheme::HTTPS),
                "https://h.preview.test:8443",
            ),
            ("a b", None, "http://h.preview.test"),
        ] {
            assert_eq!(url(host, scheme).await, expected, "{host}");
        }
    }
}
