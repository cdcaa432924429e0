//! The web UI under `/ui/` and the documentation under `/docs/`: files that `make ui` builds from `web/` and the
//! repository's pages.
//!
//! A release contains them. A debug build reads them from the checkout, so that the UI and the
//! server can be built side by side.

#![forbid(unsafe_code)]

mod files;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, LOCATION, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

/// The policy of a page of the UI: load its own files and call its own server. Images may be made of
/// what the page has read (`blob:`).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The policy of pages of the documentation. Their text is the repository's alone. Highlighted code has colours in
/// `style` attributes, and icons are in the style sheet.
const DOCS_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    style-src-attr 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// The directory of the documentation among the built files.
const DOCS: &str = "docs/";

/// Names of these files contain a digest of their contents.
const HASHED: [&str; 2] = ["assets/", "docs/assets/"];

const FOREVER: &str = "public, max-age=31536000, immutable";

/// The page of a server that was built without the UI.
const NOT_BUILT: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Shoal</title>\
    <h1>The web UI was not built</h1>\
    <p>This server was compiled without the files of its web UI and its documentation. Run <code>make ui</code> and build the server again.</p>\
    </html>\n";

/// The answer to a request for the UI or the documentation; none if the path is of neither.
#[must_use]
pub fn answer(method: &Method, path: &str, headers: &HeaderMap) -> Option<Response<Bytes>> {
    let name = match path {
        "/ui" => return Some(to_directory("/ui/")),
        "/docs" => return Some(to_directory("/docs/")),
        "/ui/" => "index.html",
        "/docs/" => "docs/index.html",
        _ => match path.strip_prefix("/ui/") {
            Some(name) => name,
            None => path
                .strip_prefix('/')
                .filter(|name| name.starts_with(DOCS))?,
        },
    };
    if method != Method::GET && method != Method::HEAD {
        let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "This is read with GET.\n");
        let allowed = HeaderValue::from_static("GET, HEAD");
        refusal.headers_mut().insert(ALLOW, allowed);
        return Some(refusal);
    }
    let mut answer = file(name, headers);
    if method == Method::HEAD {
        let length = HeaderValue::from(answer.body().len());
        answer.headers_mut().insert(CONTENT_LENGTH, length);
        *answer.body_mut() = Bytes::new();
    }
    Some(answer)
}

/// Relative links of the page need the slash.
fn to_directory(target: &'static str) -> Response<Bytes> {
    let mut answer = text(StatusCode::PERMANENT_REDIRECT, "");
    let target = HeaderValue::from_static(target);
    answer.headers_mut().insert(LOCATION, target);
    answer
}

fn file(name: &str, headers: &HeaderMap) -> Response<Bytes> {
    let Some(kind) = kind(name) else {
        return missing(name);
    };
    for (coding, suffix) in [("br", ".br"), ("gzip", ".gz")] {
        if !accepts(headers, coding) {
            continue;
        }
        if let Some(contents) = files::read(&format!("{name}{suffix}")) {
            let mut answer = found(name, kind, contents);
            let coding = HeaderValue::from_static(coding);
            answer.headers_mut().insert(CONTENT_ENCODING, coding);
            return answer;
        }
    }
    match files::read(name) {
        Some(contents) => found(name, kind, contents),
        None => missing(name),
    }
}

fn missing(name: &str) -> Response<Bytes> {
    if matches!(name, "index.html" | "docs/index.html") && files::read("index.html").is_none() {
        let page = Bytes::from_static(NOT_BUILT.as_bytes());
        return guarded(StatusCode::OK, "text/html; charset=utf-8", "no-store", page);
    }
    text(StatusCode::NOT_FOUND, "There is no such file.\n")
}

fn found(name: &str, kind: &'static str, contents: Bytes) -> Response<Bytes> {
    let cache = if HASHED.iter().any(|hashed| name.starts_with(hashed)) {
        FOREVER
    } else {
        "no-cache"
    };
    let mut answer = guarded(StatusCode::OK, kind, cache, contents);
    let vary = HeaderValue::from_static("accept-encoding");
    answer.headers_mut().insert(VARY, vary);
    if name.starts_with(DOCS) {
        let policy = HeaderValue::from_static(DOCS_POLICY);
        let headers = answer.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    answer
}

fn text(status: StatusCode, text: &'static str) -> Response<Bytes> {
    let body = Bytes::from_static(text.as_bytes());
    guarded(status, "text/plain; charset=utf-8", "no-store", body)
}

fn guarded(
    status: StatusCode,
    kind: &'static str,
    cache: &'static str,
    body: Bytes,
) -> Response<Bytes> {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let values: [(HeaderName, &'static str); 7] = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, cache),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in values {
        answer
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// The media type of a file; none for files that are not served.
fn kind(name: &str) -> Option<&'static str> {
    let (_, extension) = name.rsplit_once('.')?;
    Some(match extension {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "txt" => "text/plain; charset=utf-8",
        "woff2" => "font/woff2",
        _ => return None,
    })
}

/// Whether the client accepts a coding, and does not weigh it with zero.
fn accepts(headers: &HeaderMap, coding: &str) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter();
    let codings = values.filter_map(|value| value.to_str().ok());
    codings.flat_map(|list| list.split(',')).any(|item| {
        let (name, weight) = item.split_once(';').unwrap_or((item, ""));
        let weight = weight.trim().trim_start_matches("q=");
        let refused = !weight.is_empty() && weight.trim_matches(['0', '.']).is_empty();
        name.trim().eq_ignore_ascii_case(coding) && !refused
    })
}

#[cfg(test)]
mod tests;
