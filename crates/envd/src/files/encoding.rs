//! Content encodings: identity and gzip.

use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};

/// A supported encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// No encoding.
    Identity,
    /// RFC 1952.
    Gzip,
}

/// An unsupported encoding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnknownEncoding {
    /// The request body has an unsupported encoding.
    #[error("unsupported Content-Encoding: {0}, supported: gzip")]
    Content(String),
    /// No supported encoding is acceptable.
    #[error("no acceptable encoding found, supported: gzip")]
    Accept,
}

/// Acceptable response encodings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accepted {
    /// Preferred supported encoding; `None` if none is acceptable.
    pub(super) best: Option<Encoding>,
    /// Whether identity is acceptable.
    pub(super) identity: bool,
}

/// One element of the header.
struct Preference<'a> {
    name: &'a str,
    quality: f32,
}

impl Accepted {
    /// Parses `Accept-Encoding` (RFC 9110, section 12.5.3). The first of equals wins. gzip must be
    /// named: `*` means identity, unless that is refused.
    pub(super) fn parse(headers: &HeaderMap) -> Self {
        let header = headers.get(ACCEPT_ENCODING);
        let header = header.and_then(|value| value.to_str().ok());
        let mut preferences: Vec<Preference<'_>> = header
            .unwrap_or_default()
            .split(',')
            .filter_map(preference)
            .collect();
        let quality = |name: &str| {
            let mut preferences = preferences.iter();
            let found = preferences.find(|preference| preference.name.eq_ignore_ascii_case(name));
            found.map(|preference| preference.quality)
        };
        let identity = match (quality("identity"), quality("*")) {
            (Some(quality), _) | (None, Some(quality)) => quality > 0.0,
            (None, None) => true,
        };
        // A stable sort keeps the order of equals.
        preferences.sort_by(|one, other| other.quality.total_cmp(&one.quality));
        let mut wanted = preferences
            .iter()
            .filter(|preference| preference.quality > 0.0);
        let best =
            wanted.find_map(
                |preference| match preference.name.to_ascii_lowercase().as_str() {
                    "gzip" => Some(Encoding::Gzip),
                    "identity" => Some(Encoding::Identity),
                    "*" if identity => Some(Encoding::Identity),
                    "*" => Some(Encoding::Gzip),
                    _ => None,
                },
            );
        Self {
            best: best.or_else(|| identity.then_some(Encoding::Identity)),
            identity,
        }
    }
}

fn preference(text: &str) -> Option<Preference<'_>> {
    let mut parts = text.split(';');
    let name = parts.next()?.trim();
    if name.is_empty() {
        return None;
    }
    let mut quality = 1.0;
    for parameter in parts {
        let Some((key, value)) = parameter.split_once('=') else {
            continue;
        };
        if key.trim().eq_ignore_ascii_case("q") {
            let value: Option<f32> = value.trim().parse().ok();
            // An invalid quality is ignored.
            quality = value
                .filter(|value| (0.0..=1.0).contains(value))
                .unwrap_or(1.0);
        }
    }
    Some(Preference { name, quality })
}

/// The encoding of a request body.
pub(super) fn of_content(headers: &HeaderMap) -> Result<Encoding, UnknownEncoding> {
    let Some(header) = headers.get(CONTENT_ENCODING) else {
        return Ok(Encoding::Identity);
    };
    let text = String::from_utf8_lossy(header.as_bytes());
    match text.trim().to_ascii_lowercase().as_str() {
        "" | "identity" => Ok(Encoding::Identity),
        "gzip" => Ok(Encoding::Gzip),
        _ => Err(UnknownEncoding::Content(text.into_owned())),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn accepted(header: &str) -> Accepted {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_str(header).unwrap());
        Accepted::parse(&headers)
    }

    #[test]
    fn the_preferred_supported_encoding_is_chosen() {
        use Encoding::{Gzip, Identity};
        for (header, best, identity) in [
            ("", Some(Identity), true),
            ("gzip", Some(Gzip), true),
            ("GZIP", Some(Gzip), true),
            ("gzip, deflate, br, zstd", Some(Gzip), true),
            ("deflate, br", Some(Identity), true),
            ("gzip;q=0", Some(Identity), true),
            ("identity, gzip", Some(Identity), true),
            ("gzip;q=0.5, identity", Some(Identity), true),
            ("gzip;q=0.5, identity;q=0.2", Some(Gzip), true),
            ("br;q=1, gzip;q=0.1", Some(Gzip), true),
            ("*", Some(Identity), true),
            ("*;q=0", None, false),
            ("gzip, *;q=0", Some(Gzip), false),
            ("identity;q=0, *", Some(Gzip), false),
            ("identity;q=0", None, false),
            ("identity;q=1, *;q=0", Some(Identity), true),
            ("gzip ; q = 0.3 , identity ; q=0.2", Some(Gzip), true),
        ] {
            assert_eq!(accepted(header), Accepted { best, identity }, "{header}");
        }
        let none = Accepted::parse(&HeaderMap::new());
        assert_eq!(none.best, Some(Identity));
    }

    #[test]
    fn a_body_in_another_encoding_is_refused() {
        let of = |text| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(text));
            of_content(&headers)
        };
        assert_eq!(of_content(&HeaderMap::new()), Ok(Encoding::Identity));
        assert_eq!(of("identity"), Ok(Encoding::Identity));
        assert_eq!(of("GZip"), Ok(Encoding::Gzip));
        assert_eq!(of("br"), Err(UnknownEncoding::Content("br".into())));
        assert_eq!(
            of("gzip, gzip"),
            Err(UnknownEncoding::Content("gzip, gzip".into()))
        );
    }

    proptest! {
        #[test]
        fn any_header_has_a_meaning(header in "[a-z*,;=q0-9. ]{0,60}") {
            let accepted = accepted(&header);
            prop_assert!(accepted.best != Some(Encoding::Identity) || accepted.identity);
            prop_assert!(!accepted.identity || accepted.best.is_some());
        }
    }
}
