//! `shoal sandbox url`.

use clap::Args;
use serde_json::json;

use crate::connection::{Connection, Origin};
use crate::failure::Failure;
use crate::inside::Access;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct UrlArgs {
    /// The sandbox, by id or name.
    #[arg(value_name = "ID")]
    id: String,
    /// The port in the sandbox.
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
}

impl UrlArgs {
    pub(crate) async fn run(self, server: &Connection, json: bool) -> Result<(), Failure> {
        let access: Access = server.sandbox(&self.id).await?;
        let url = url(
            &server.origin,
            access.domain.as_deref(),
            &access.id,
            self.port,
        );
        if json {
            return output::json(&json!({
                "url": url,
                "headers": {"E2b-Sandbox-Id": access.id, "E2b-Sandbox-Port": self.port.to_string()},
            }));
        }
        match url {
            Some(url) => output::line(&url),
            None => Err(Failure::other(
                "the server has no domain, so its ports have no host names",
            )
            .with_hint(format!(
                "Ask {} with the headers E2b-Sandbox-Id: {} and E2b-Sandbox-Port: {}, or start \
                 the server with --domain and --tls.",
                server.origin, access.id, self.port
            ))),
        }
    }
}

/// The host name of a port: under the server's domain or, on this machine, under `localhost`, whose
/// names all resolve to loopback. None if no name resolves to the server.
fn url(origin: &Origin, domain: Option<&str>, id: &str, port: u16) -> Option<String> {
    if let Some(domain) = domain {
        return Some(format!("https://{port}-{id}.{domain}"));
    }
    if !origin.is_loopback() {
        return None;
    }
    let host = format!("{port}-{id}.localhost");
    let named = Origin {
        host,
        ..origin.clone()
    };
    Some(named.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_named_below_the_domain_or_below_localhost() {
        let here = Origin {
            tls: false,
            host: "127.0.0.1".to_owned(),
            port: 3000,
        };
        assert_eq!(
            url(&here, None, "iabc", 80).as_deref(),
            Some("http://80-iabc.localhost:3000")
        );
        assert_eq!(
            url(&here, Some("e2b.localhost:8443"), "iabc", 80).as_deref(),
            Some("https://80-iabc.e2b.localhost:8443")
        );
        let far = Origin {
            host: "10.0.0.1".to_owned(),
            ..here
        };
        assert_eq!(url(&far, None, "iabc", 80), None);
    }
}
