//! Content types by file name or leading bytes.

use std::path::Path;

/// Bytes examined if the name is inconclusive.
pub(super) const SNIFF_LENGTH: usize = 512;

/// Content types by extension, for files that browsers display or tools send.
const BY_NAME: [(&str, &str); 40] = [
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonl", "application/jsonl"),
    ("md", "text/markdown; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("ogg", "audio/ogg"),
    ("otf", "font/otf"),
    ("parquet", "application/vnd.apache.parquet"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("py", "text/x-python; charset=utf-8"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("ts", "text/plain; charset=utf-8"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xml", "text/xml; charset=utf-8"),
    ("zip", "application/zip"),
];

/// Content types by leading bytes.
const BY_BYTES: [(&[u8], &str); 9] = [
    (b"%PDF-", "application/pdf"),
    (b"GIF8", "image/gif"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b\x08", "application/gzip"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\0asm", "application/wasm"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
];

/// Fallback content type.
const OCTET_STREAM: &str = "application/octet-stream";

/// The content type by name alone.
pub(super) fn by_name(path: &Path) -> Option<&'static str> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    let index = BY_NAME.binary_search_by_key(&extension.as_str(), |(end, _)| end);
    index
        .ok()
        .and_then(|index| BY_NAME.get(index))
        .map(|(_, kind)| *kind)
}

/// The content type by name, else by leading bytes: a known signature, or text without control
/// characters.
pub(super) fn guess(path: &Path, start: &[u8]) -> &'static str {
    by_name(path).unwrap_or_else(|| {
        let known = BY_BYTES.iter().find(|(magic, _)| start.starts_with(magic));
        match known {
            Some((_, kind)) => kind,
            None if is_text(start) => "text/plain; charset=utf-8",
            None => OCTET_STREAM,
        }
    })
}

fn is_text(start: &[u8]) -> bool {
    let whole = match std::str::from_utf8(start) {
        Ok(_) => true,
        // A truncated character at the end is still text.
        Err(error) => error.error_len().is_none() && start.len() - error.valid_up_to() < 4,
    };
    let control = |byte: &u8| *byte < 0x20 && !matches!(byte, b'\t' | b'\n' | 0x0c | b'\r' | 0x1b);
    whole && !start.iter().any(control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_names_is_sorted() {
        assert!(BY_NAME.is_sorted_by_key(|(end, _)| end));
    }

    #[test]
    fn the_name_takes_precedence_over_the_contents() {
        assert_eq!(
            guess(Path::new("a/x.HTML"), b"%PDF-"),
            "text/html; charset=utf-8"
        );
        assert_eq!(guess(Path::new("x"), b"%PDF-1.7"), "application/pdf");
        assert_eq!(
            guess(Path::new("x.unknown"), b"hello"),
            "text/plain; charset=utf-8"
        );
        assert_eq!(guess(Path::new("x"), b""), "text/plain; charset=utf-8");
        assert_eq!(
            guess(Path::new("x"), "hell\u{f6}".as_bytes()),
            "text/plain; charset=utf-8"
        );
        assert_eq!(
            guess(Path::new("x"), b"hell\xc3"),
            "text/plain; charset=utf-8"
        );
        assert_eq!(guess(Path::new("x"), b"\x00\x01"), OCTET_STREAM);
        assert_eq!(guess(Path::new("x"), b"a\xffb"), OCTET_STREAM);
    }
}
