//! Spans of reconciles and of their requests. They continue the trace in which an object was made: an annotation
//! has its W3C context.

use std::collections::{BTreeMap, HashMap};

use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TraceContextExt;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use shoal_crds::{kruise, names};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::cache::{Kind, key};

/// The span of one pass over an object. Without a collector it is disabled, and costs nothing.
pub(crate) fn reconcile<K: Kind>(controller: &'static str, object: &K) -> Span {
    let span = tracing::debug_span!(
        "reconcile",
        otel.name = tracing::field::Empty,
        sandbox.name = tracing::field::Empty,
        sandbox.namespace = tracing::field::Empty,
        controller,
    );
    if span.is_disabled() {
        return span;
    }
    let (namespace, name) = key(object);
    span.record("otel.name", format!("Reconcile{}", K::kind(&())));
    span.record("sandbox.name", name);
    span.record("sandbox.namespace", namespace);
    if let Some(parent) = object.meta().annotations.as_ref().and_then(parent) {
        // Fails only if no exporter records the span.
        let _ = span.set_parent(parent);
    }
    span
}

/// The span of a request to the API server.
pub(crate) fn request<K: Kind>(verb: &'static str) -> Span {
    let span = tracing::debug_span!(
        "request",
        otel.name = tracing::field::Empty,
        otel.kind = "client"
    );
    if !span.is_disabled() {
        span.record("otel.name", format!("{verb} {}", K::kind(&())));
    }
    span
}

/// The context that an annotation carries: a JSON map of headers, or OpenKruise's `traceparent`.
fn parent(annotations: &BTreeMap<String, String>) -> Option<Context> {
    let headers: HashMap<String, String> =
        if let Some(text) = annotations.get(names::annotation::TRACE_CONTEXT) {
            serde_json::from_str(text).ok()?
        } else {
            let text = annotations.get(kruise::names::annotation::TRACE_CONTEXT)?;
            HashMap::from([("traceparent".to_owned(), text.clone())])
        };
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &headers);
    let is_valid = context.span().span_context().is_valid();
    is_valid.then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn trace(key: &str, value: &str) -> Option<String> {
        let annotations = BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let context = parent(&annotations)?;
        Some(context.span().span_context().trace_id().to_string())
    }

    #[test]
    fn both_annotations_carry_the_context() {
        let known = Some("0af7651916cd43dd8448eb211c80319c".to_owned());
        let headers = format!(r#"{{"traceparent": "{PARENT}"}}"#);
        assert_eq!(trace("opentelemetry.io/trace-context", &headers), known);
        assert_eq!(trace("agents.kruise.io/trace-context", PARENT), known);
    }

    #[test]
    fn what_is_no_context_begins_a_trace() {
        for text in [
            "",
            "{",
            "[]",
            r#"{"traceparent": 7}"#,
            r#"{"traceparent": "00-0-0-01"}"#,
        ] {
            assert_eq!(
                trace("opentelemetry.io/trace-context", text),
                None,
                "{text}"
            );
        }
        assert_eq!(trace("agents.kruise.io/trace-context", "no context"), None);
    }
}
