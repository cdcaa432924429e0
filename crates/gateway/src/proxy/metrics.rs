//! The metrics of forwarded requests.

use http::Response;
use shoal_core::template::RuntimeName;

use super::GatewayBody;

/// Counts a response, by its status class and the sandbox's runtime.
pub(super) fn count(answer: &Response<GatewayBody>, runtime: Option<&RuntimeName>) {
    let class = answer.status().as_u16() / 100;
    let labels = [
        ("status", format!("{class}xx")),
        // None if the request reached no sandbox.
        (
            "runtime",
            runtime.map_or_else(|| "none".to_owned(), ToString::to_string),
        ),
    ];
    ::metrics::counter!("shoal_gateway_requests_total", &labels).increment(1);
}
