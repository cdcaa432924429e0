//! `expose_port`.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;

use http::uri::{Authority, Scheme};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::files::FILE_TIME;
use super::{About, Call, Effect, Reply, Spec, spec};
use crate::error::ToolError;

/// The header with the token of a private sandbox.
const TRAFFIC_TOKEN: &str = "e2b-traffic-access-token";

/// Arguments of `expose_port`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The TCP port that a server in the sandbox listens on.
    port: NonZeroU16,
    /// The id or name of another sandbox of your team; that of this session when absent.
    sandbox: Option<String>,
}

/// How a port is reached.
#[derive(Debug, Serialize, JsonSchema)]
struct Exposed {
    /// The sandbox.
    sandbox: String,
    /// The URL; absent if the server has no domain and is not on the caller's machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// The server's own URL, which leads to the port with these headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    /// Headers for requests to `server`; a private sandbox needs its token with `url` too.
    headers: BTreeMap<&'static str, String>,
}

pub(super) fn expose_port() -> Spec {
    let about = About(
        "expose_port",
        "Expose a port",
        "Answers with the URL by which a server in the sandbox is reached from outside. The server may listen on any \
         address, and may be started later.",
    );
    spec::<_, Exposed, _>(&about, Effect::Reads, Some("sandbox.connect"), run)
}

async fn run(call: Arc<Call>, arguments: Arguments) -> Result<Reply, ToolError> {
    let named = arguments.sandbox.as_deref();
    let (_, record) = call.sandbox(named, FILE_TIME).await?;
    if call.ports.previews.is_machine(&record.id) {
        return Err(ToolError::refused(
            "refused",
            "this sandbox is the machine of a session, whose ports are closed: use the session's preview",
        ));
    }
    let id = record.id.to_string();
    let (port, caller) = (arguments.port, &call.caller);
    let mut headers = BTreeMap::from([
        ("E2b-Sandbox-Id", id.clone()),
        ("E2b-Sandbox-Port", port.to_string()),
    ]);
    if let Some(token) = call.ports.access.traffic_access_token(&record) {
        headers.insert(TRAFFIC_TOKEN, token.reveal().to_owned());
    }
    let host = caller.host.as_ref();
    let exposed = Exposed {
        url: url(call.domain.as_deref(), &caller.scheme, host, &id, port),
        server: host.map(|host| format!("{}://{host}", caller.scheme)),
        sandbox: id,
        headers,
    };
    let text = match (&exposed.url, &exposed.server) {
        (Some(url), _) => url.clone(),
        (None, Some(server)) => format!("{server} with the headers {:?}", exposed.headers),
        (None, None) => format!("the server with the headers {:?}", exposed.headers),
    };
    Ok(Reply::new(text, &exposed))
}

/// The host name of a port: below the server's domain or, on the caller's machine, below `localhost`.
fn url(
    domain: Option<&str>,
    scheme: &Scheme,
    host: Option<&Authority>,
    id: &str,
    port: NonZeroU16,
) -> Option<String> {
    if let Some(domain) = domain {
        return Some(format!("https://{port}-{id}.{domain}"));
    }
    let host = host?;
    let name = host.host().trim_matches(['[', ']']);
    let address = name.parse::<std::net::IpAddr>();
    let here = name == "localhost" || address.is_ok_and(|address| address.is_loopback());
    let at = host
        .port_u16()
        .map_or_else(String::new, |at| format!(":{at}"));
    here.then(|| format!("{scheme}://{port}-{id}.localhost{at}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_named_below_the_domain_or_below_localhost() {
        let port = NonZeroU16::new(80).unwrap();
        let url = |domain, host: &str| {
            url(
                domain,
                &Scheme::HTTP,
                Some(&host.parse().unwrap()),
                "i1",
                port,
            )
        };
        assert_eq!(
            url(None, "127.0.0.1:3000").unwrap(),
            "http://80-i1.localhost:3000"
        );
        assert_eq!(
            url(None, "[::1]:3000").unwrap(),
            "http://80-i1.localhost:3000"
        );
        assert_eq!(url(None, "localhost").unwrap(), "http://80-i1.localhost");
        assert_eq!(url(None, "10.0.0.1:3000"), None);
        assert_eq!(
            url(Some("a.test:1"), "10.0.0.1").unwrap(),
            "https://80-i1.a.test:1"
        );
    }
}
