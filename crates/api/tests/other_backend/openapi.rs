//! The OpenAPI document against the router.

use std::collections::{BTreeMap, BTreeSet};

use axum::body::Body;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

use super::Api;
use super::memory::OWN_KEY;

/// The documented methods of each path.
fn documented(document: &Value) -> BTreeMap<&str, BTreeSet<String>> {
    let paths = document["paths"].as_object().unwrap().iter();
    paths
        .map(|(path, item)| {
            let methods = item.as_object().unwrap().keys();
            let methods = methods.filter(|name| *name != "servers");
            (
                path.as_str(),
                methods.map(|name| name.to_uppercase()).collect(),
            )
        })
        .collect()
}

#[tokio::test]
async fn the_document_needs_no_key_and_its_methods_are_those_that_are_served() {
    let Api(router) = Api::new();
    let request = Request::get("/openapi.json").body(Body::empty()).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let document: Value = serde_json::from_slice(&body).unwrap();
    let documented = documented(&document);
    assert!(documented.len() > 60, "{}", documented.len());
    for (path, methods) in documented {
        // A terminal takes every method: GET, and CONNECT over HTTP/2.
        if path.ends_with("/ws") {
            continue;
        }
        // A method that no route has is refused with those that the route has.
        let request = Request::builder()
            .method(Method::TRACE)
            .uri(path.replace(['{', '}'], ""))
            .header("x-api-key", OWN_KEY);
        let request = request.body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
        let allowed = response.headers()[ALLOW].to_str().unwrap();
        let mut allowed: BTreeSet<String> = allowed.split(',').map(str::to_owned).collect();
        // Every GET route answers it.
        allowed.remove("HEAD");
        assert_eq!(allowed, methods, "{path}");
    }
}
