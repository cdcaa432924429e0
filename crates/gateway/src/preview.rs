//! The host names of previews.

use http::{HeaderMap, Uri};
use shoal_core::session::preview::{PreviewDomain, PreviewName};

use crate::target::host_of;

/// The target of a request's host under the domain of previews; `None` for other hosts.
#[must_use]
pub fn find(headers: &HeaderMap, uri: &Uri, domain: &PreviewDomain) -> Option<PreviewName> {
    domain.find(host_of(headers, uri))
}

#[cfg(test)]
mod tests {
    use http::header::HOST;

    use super::*;

    const HASH: &str = "0123456789abcdefghij";

    fn found(host: Option<&str>, uri: &str) -> Option<PreviewName> {
        let mut headers = HeaderMap::new();
        if let Some(host) = host {
            headers.insert(HOST, host.parse().unwrap());
        }
        let domain = PreviewDomain::of(Some("e2b.localhost"));
        find(&headers, &uri.parse().unwrap(), &domain)
    }

    #[test]
    fn a_preview_is_named_by_the_host_as_a_sandbox_is() {
        let expected = Some(PreviewName::Hash(HASH.parse().unwrap()));
        for tail in ["", ":3000", ".", ".:3000"] {
            let host = format!("{HASH}.preview.e2b.localhost{tail}");
            assert_eq!(found(Some(&host), "/"), expected, "{host}");
            let host = host.to_ascii_uppercase();
            assert_eq!(found(Some(&host), "/"), expected, "{host}");
        }
        // HTTP/2 has no header.
        let uri = format!("https://{HASH}.preview.e2b.localhost:8443/x");
        assert_eq!(found(None, &uri), expected);
        // As for sandboxes, the header counts.
        assert_eq!(found(Some("api.e2b.localhost"), &uri), None);
    }

    #[test]
    fn a_port_in_the_name_names_nothing() {
        for label in [
            format!("3000-{HASH}"),
            format!("{HASH}-3000"),
            "x".to_owned(),
        ] {
            let host = format!("{label}.preview.e2b.localhost");
            assert_eq!(
                found(Some(&host), "/"),
                Some(PreviewName::Nothing),
                "{host}"
            );
        }
        assert_eq!(found(Some("8080-iabc.e2b.localhost"), "/"), None);
        assert_eq!(found(None, "/"), None);
    }
}
