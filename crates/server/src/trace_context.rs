//! W3C trace context: a caller's trace continues in the server and from there into the sandbox.

use http::HeaderMap;
use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The span of a request with these headers, as a child of the caller's. The headers then name the span
/// as the parent, so that a server in a sandbox continues the trace.
///
/// Without a collector the span is disabled, and the headers stay as they are.
pub(crate) fn continue_trace(headers: &mut HeaderMap) -> Span {
    let span = tracing::debug_span!("http.server", otel.kind = "server");
    if span.is_disabled() {
        return span;
    }
    let propagator = TraceContextPropagator::new();
    let caller = propagator.extract_with_context(&Context::new(), &HeaderExtractor(headers));
    // Fails only if no exporter records the span; then its context is empty, and nothing is injected.
    let _ = span.set_parent(caller);
    propagator.inject_context(&span.context(), &mut HeaderInjector(headers));
    span
}
