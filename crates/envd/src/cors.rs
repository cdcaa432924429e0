//! CORS: pages of any origin may call the daemon. Authentication is by token, not by origin.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN,
};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};

use crate::response::{self, HttpResponse};

/// How long a browser may cache a preflight response, in seconds.
const PREFLIGHT_SECONDS: &str = "7200";

/// Whether the request comes from a web page.
pub(crate) fn is_from_page<B>(request: &Request<B>) -> bool {
    request.headers().contains_key(ORIGIN)
}

/// The response to a preflight request.
pub(crate) fn preflight<B>(request: &Request<B>) -> Option<HttpResponse> {
    let asked = request.headers();
    let asks = is_from_page(request)
        && request.method() == Method::OPTIONS
        && asked.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    asks.then(|| preflight_response(asked))
}

/// Allows the page to read the response.
pub(crate) fn allow_origin(answer: &mut HttpResponse) {
    let any = HeaderValue::from_static("*");
    let headers = answer.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, any.clone());
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, any);
}

fn preflight_response(asked: &HeaderMap) -> HttpResponse {
    let mut answer = response::status(StatusCode::NO_CONTENT);
    let headers = answer.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    let methods = HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE, HEAD");
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    let age = HeaderValue::from_static(PREFLIGHT_SECONDS);
    headers.insert(ACCESS_CONTROL_MAX_AGE, age);
    if let Some(names) = asked.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    answer
}
