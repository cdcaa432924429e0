use std::path::Path;

use super::*;

fn get(path: &str, coding: &'static str) -> Option<Response<Bytes>> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(coding));
    answer(&Method::GET, path, &headers)
}

#[test]
fn only_paths_of_the_ui_are_answered() {
    for path in [
        "/",
        "/uix",
        "/u",
        "/sandboxes",
        "//ui/",
        "/UI/",
        "/docsx",
        "//docs/",
    ] {
        assert!(get(path, "").is_none(), "{path}");
    }
    for path in ["/ui", "/docs"] {
        let slash = get(path, "").unwrap();
        assert_eq!(slash.status(), StatusCode::PERMANENT_REDIRECT);
        assert_eq!(slash.headers()[LOCATION], format!("{path}/"));
    }
}

#[test]
fn the_page_is_there_with_or_without_a_build_and_is_guarded() {
    let page = get("/ui/", "").unwrap();
    assert_eq!(page.status(), StatusCode::OK);
    assert!(page.body().starts_with(b"<!doctype html>"));
    let policy = page.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
    assert_eq!(page.headers()[REFERRER_POLICY], "no-referrer");
}

#[test]
fn other_files_are_not_found() {
    for path in [
        "/ui/assets/none.js",
        "/ui/../Cargo.toml",
        "/ui/.gitignore",
        "/ui//etc/passwd.html",
        "/ui/assets/../../package.json",
        "/docs/../../package.json",
        "/docs/none.html",
        "/docs/files/",
    ] {
        let missing = get(path, "br").unwrap();
        assert_eq!(missing.status(), StatusCode::NOT_FOUND, "{path}");
    }
    let refused = answer(&Method::POST, "/ui/", &HeaderMap::new()).unwrap();
    assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[test]
fn a_name_does_not_lead_out_of_the_directory() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert!(files::from(here, "src/lib.rs").is_some());
    for name in [
        "../ui/src/lib.rs",
        "/etc/passwd",
        "src/../../ui/src/lib.rs",
        "./src",
    ] {
        assert!(files::from(here, name).is_none(), "{name}");
    }
}

#[test]
fn codings_with_weight_zero_are_refused() {
    let accepted = |list: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(list));
        (accepts(&headers, "br"), accepts(&headers, "gzip"))
    };
    assert_eq!(accepted("gzip, deflate, br"), (true, true));
    assert_eq!(accepted("gzip;q=0.5"), (false, true));
    assert_eq!(accepted("br;q=0, gzip;q=0.0"), (false, false));
    assert_eq!(accepted(""), (false, false));
    assert_eq!(accepted("brotli"), (false, false));
}

#[test]
fn hashed_files_are_kept_for_ever_and_the_page_is_not() {
    let body = || Bytes::from_static(b"x");
    let hashed = found("assets/index-1.js", "text/javascript", body());
    assert_eq!(hashed.headers()[CACHE_CONTROL], FOREVER);
    let of_docs = found("docs/assets/app-1.js", "text/javascript", body());
    assert_eq!(of_docs.headers()[CACHE_CONTROL], FOREVER);
    let page = found("index.html", "text/html", body());
    assert_eq!(page.headers()[CACHE_CONTROL], "no-cache");
}

#[test]
fn pages_of_the_documentation_have_a_policy_of_their_own() {
    let page = found("docs/ports.html", "text/html", Bytes::new());
    let policy = page.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"));
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
}
