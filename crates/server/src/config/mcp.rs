//! The settings `mcp.*`.

use std::time::Duration;

use http::Uri;
use shoal_core::template::TemplateKey;

use super::read::{Reader, items, positive};
use super::units::duration;

/// The settings `mcp.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct McpSettings {
    pub(crate) enabled: bool,
    pub(crate) template: Option<TemplateKey>,
    pub(crate) idle: Duration,
    pub(crate) sessions_per_team: usize,
    pub(crate) origins: Vec<String>,
}

pub(super) fn read(reader: &mut Reader<'_>) -> Option<McpSettings> {
    let enabled = reader.parse("mcp.enabled", "true or false");
    let template = reader.optional("mcp.template", "a template name", |text| text.parse().ok());
    let idle = reader.with("mcp.idle_timeout", "a time like 90s or 30m", |text| {
        duration(text).filter(|time| !time.is_zero())
    });
    let sessions_per_team = reader.with("mcp.sessions_per_team", "a number", positive);
    let origins = reader.with("mcp.origins", "origins like https://HOST", |text| {
        items(text).map(parse_origin).collect()
    });
    Some(McpSettings {
        enabled: enabled?,
        template: template?,
        idle: idle?,
        sessions_per_team: sessions_per_team?,
        origins: origins?,
    })
}

/// An origin with its port, since without one the transport would accept all ports.
fn parse_origin(text: &str) -> Option<String> {
    let uri: Uri = text.parse().ok()?;
    let usual = match uri.scheme_str()? {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let host = uri.host().filter(|host| !host.is_empty())?;
    let bare = matches!(uri.path(), "" | "/") && uri.query().is_none() && !text.contains('@');
    let port = uri.port_u16().unwrap_or(usual);
    bare.then(|| format!("{}://{host}:{port}", uri.scheme_str().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_a_scheme_a_host_and_a_port() {
        for (text, origin) in [
            ("https://a.test", Some("https://a.test:443")),
            ("http://a.test:8080", Some("http://a.test:8080")),
            ("https://[::1]/", Some("https://[::1]:443")),
            ("a.test", None),
            ("ftp://a.test", None),
            ("https://a.test/path", None),
            ("https://user@a.test", None),
            ("*", None),
        ] {
            assert_eq!(parse_origin(text).as_deref(), origin, "{text}");
        }
    }
}
