//! `Content-Disposition` headers.

use std::borrow::Cow;
use std::fmt::Write as _;

use http::HeaderValue;

/// An inline disposition with this file name.
pub(super) fn inline(name: &str) -> HeaderValue {
    let value = if name.bytes().all(is_token) && !name.is_empty() {
        format!("inline; filename={name}")
    } else if name.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        let escaped = name.replace('\\', "\\\\").replace('"', "\\\"");
        format!("inline; filename=\"{escaped}\"")
    } else {
        let mut value = "inline; filename*=utf-8''".to_owned();
        for byte in name.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                value.push(char::from(byte));
            } else {
                // Writing to a string cannot fail.
                let _ = write!(value, "%{byte:02X}");
            }
        }
        value
    };
    HeaderValue::from_str(&value).unwrap_or_else(|_| HeaderValue::from_static("inline"))
}

/// Names in a part's disposition.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PartNames {
    /// Field name.
    pub(super) name: Option<String>,
    /// File name including directories: it may be an absolute path.
    pub(super) filename: Option<String>,
}

/// Parses a part's disposition. Invalid parameters are skipped. The first of two values wins; an
/// extended name wins over a plain one.
pub(super) fn parse(header: &str) -> PartNames {
    let mut named = PartNames::default();
    let mut extended = None;
    let mut rest = match header.split_once(';') {
        Some((_, rest)) => rest,
        None => return named,
    };
    while let Some((key, after)) = rest.split_once('=') {
        let key = key.trim_matches(|char: char| char == ';' || char.is_whitespace());
        let (value, after) = value(after.trim_start());
        rest = after;
        match key.to_ascii_lowercase().as_str() {
            "name" if named.name.is_none() => named.name = Some(value.into_owned()),
            "filename" if named.filename.is_none() => named.filename = Some(value.into_owned()),
            "filename*" if extended.is_none() => extended = decode_extended(&value),
            _ => {}
        }
    }
    named.filename = extended.or(named.filename);
    named
}

/// Takes a value, quoted or not, off the front. In quotes a backslash escapes only a quote or
/// itself, because Windows file names contain unescaped ones.
fn value(text: &str) -> (Cow<'_, str>, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return (Cow::Borrowed(value.trim_end()), rest);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices().peekable();
    while let Some((index, char)) = chars.next() {
        match (char, chars.peek().map(|(_, next)| *next)) {
            ('"', _) => {
                let rest = quoted.get(index + 1..).unwrap_or_default();
                return (Cow::Owned(value), rest);
            }
            ('\\', Some(next @ ('"' | '\\'))) => {
                value.push(next);
                chars.next();
            }
            (char, _) => value.push(char),
        }
    }
    (Cow::Owned(value), "")
}

/// Decodes `charset'language'percent-encoded` (RFC 8187), UTF-8 only.
fn decode_extended(value: &str) -> Option<String> {
    let mut parts = value.splitn(3, '\'');
    let charset = parts.next()?;
    let encoded = parts.nth(1)?;
    if !charset.eq_ignore_ascii_case("utf-8") {
        return None;
    }
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => hex(rest.next()?)? << 4 | hex(rest.next()?)?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filename(header: &str) -> Option<String> {
        parse(header).filename
    }

    #[test]
    fn a_name_may_be_a_whole_path() {
        let named = parse(r#"form-data; name="file"; filename="/home/user/a b/c.txt""#);
        assert_eq!(named.name.as_deref(), Some("file"));
        assert_eq!(named.filename.as_deref(), Some("/home/user/a b/c.txt"));
    }

    #[test]
    fn quotes_and_backslashes_are_read_as_clients_write_them() {
        assert_eq!(
            filename(r#"f; filename="a\"b;=c""#).as_deref(),
            Some("a\"b;=c")
        );
        assert_eq!(
            filename(r#"f; filename="C:\dir\x""#).as_deref(),
            Some(r"C:\dir\x")
        );
        assert_eq!(filename(r#"f; filename="a\\b""#).as_deref(), Some(r"a\b"));
        assert_eq!(
            filename("f; filename=plain ; x=y").as_deref(),
            Some("plain")
        );
        assert_eq!(filename(r#"f; filename="a%22b""#).as_deref(), Some("a%22b"));
        assert_eq!(filename(r#"f; filename="ü.txt""#).as_deref(), Some("ü.txt"));
    }

    #[test]
    fn an_extended_name_wins_if_it_can_be_read() {
        let both = r#"f; filename="x"; filename*=UTF-8''%C3%BC%20y"#;
        assert_eq!(filename(both).as_deref(), Some("ü y"));
        for bad in ["utf-8''%zz", "latin1''x", "utf-8", "utf-8''%", "utf-8''%ff"] {
            let header = format!("f; filename=x; filename*={bad}");
            assert_eq!(filename(&header).as_deref(), Some("x"), "{bad}");
        }
    }

    #[test]
    fn a_header_without_a_name_has_none() {
        for header in ["", "form-data", "form-data; filename", ";;;", "; =x"] {
            assert_eq!(filename(header), None, "{header}");
        }
    }

    #[test]
    fn a_disposition_uses_the_simplest_sufficient_form() {
        assert_eq!(inline("a.txt"), "inline; filename=a.txt");
        assert_eq!(inline("a b\".txt"), r#"inline; filename="a b\".txt""#);
        assert_eq!(inline("ü\n"), "inline; filename*=utf-8''%C3%BC%0A");
        assert_eq!(inline(""), r#"inline; filename="""#);
    }

    proptest! {
        #[test]
        fn dispositions_round_trip(name in "\\PC{0,30}|[ -~\n]{0,30}") {
            let header = inline(&name);
            prop_assert_eq!(parse(header.to_str().unwrap()).filename, Some(name));
        }

        #[test]
        fn no_header_panics_the_parser(header in "[ -~ü]{0,80}") {
            let _ = parse(&header);
        }
    }
}
