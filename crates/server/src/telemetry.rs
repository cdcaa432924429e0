//! Log, traces and metrics.
//!
//! The standard OpenTelemetry variables (`OTEL_EXPORTER_OTLP_ENDPOINT`, …) enable traces.

use std::env;
use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::routing::get;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use opentelemetry::trace::TracerProvider;
use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use shoal_tasks::Tasks;
use tokio::net::TcpListener;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use crate::config::{Config, LogFormat};

/// The variables with the collector's address.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
];

/// The histogram buckets of times, in seconds: from a claim to a build.
const SECONDS: [f64; 15] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0,
];

/// The interval of the exporter's upkeep.
const UPKEEP: Duration = Duration::from_secs(5);

/// The started exporters, which end with the server.
pub(crate) struct Telemetry {
    traces: Traces,
    counters: PrometheusHandle,
}

/// Starts logging to standard error, metrics, and traces if configured. Call it outside the runtime:
/// traces are sent by a blocking thread.
///
/// # Errors
/// When the filter is invalid, or the trace exporter cannot start.
pub(crate) fn start(config: &Config) -> anyhow::Result<Telemetry> {
    let traces = log(&config.log.level, config.log.format)?;
    let counters = counting()?.install_recorder()?;
    Ok(Telemetry { traces, counters })
}

/// Starts logging to standard error, and traces if configured. Call it outside the runtime.
///
/// # Errors
/// When the filter is invalid, or the trace exporter cannot start.
pub(crate) fn log(level: &str, format: LogFormat) -> anyhow::Result<Traces> {
    // The MCP library logs messages of clients, and the ids of their sessions.
    let level = format!("rmcp=error,{level}");
    let filter = EnvFilter::builder().parse(level).context("the log level")?;
    let traces = env::vars_os().any(|(name, _)| ENDPOINTS.iter().any(|known| name == *known));
    let traces = traces.then(|| trace_provider(None)).transpose()?;
    let log = fmt::layer()
        // No colours in files and pipes.
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let log = match format {
        LogFormat::Text => log.boxed(),
        LogFormat::Json => log.json().boxed(),
    };
    subscriber(log, filter, traces.as_ref()).try_init()?;
    Ok(Traces(traces))
}

/// The exporter of traces, if there is a collector.
pub(crate) struct Traces(Option<SdkTracerProvider>);

impl Traces {
    /// Sends pending traces.
    pub(crate) fn end(self) {
        if let Some(traces) = self.0
            && let Err(error) = traces.shutdown()
        {
            tracing::warn!(%error, "some traces were lost");
        }
    }
}

/// A subscriber that writes what passes the filter to `log`, and exports spans.
///
/// Each has a filter of its own. The spans of traces are at level debug: without a collector they are
/// disabled and cost nothing. The span of a request is at level error, and always enabled: every line
/// of the request shows its id, whatever the filter of the log.
pub(crate) fn subscriber(
    log: Box<dyn Layer<Registry> + Send + Sync>,
    filter: EnvFilter,
    traces: Option<&SdkTracerProvider>,
) -> impl Subscriber + Send + Sync + use<> {
    let of_request =
        |metadata: &Metadata<'_>| metadata.is_span() && *metadata.level() == Level::ERROR;
    // The hints keep calls below these levels as cheap as with a global filter.
    let of_request = filter_fn(of_request).with_max_level_hint(LevelFilter::ERROR);
    let log = log.with_filter(filter.or(of_request));
    let traces = traces.map(|provider| {
        let exported = |metadata: &Metadata<'_>| {
            let most = if metadata.is_span() {
                Level::DEBUG
            } else {
                Level::INFO
            };
            metadata.target().starts_with("shoal") && *metadata.level() <= most
        };
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("shoal"));
        layer.with_filter(filter_fn(exported).with_max_level_hint(LevelFilter::DEBUG))
    });
    Registry::default().with(log).with(traces)
}

fn counting() -> Result<PrometheusBuilder, BuildError> {
    let seconds = Matcher::Suffix("_seconds".to_owned());
    PrometheusBuilder::new().set_buckets_for_metric(seconds, &SECONDS)
}

/// Counts metrics for a command that serves them itself.
///
/// # Errors
/// When something counts already.
pub(crate) fn count(tasks: &mut Tasks) -> Result<PrometheusHandle, BuildError> {
    let counters = counting()?.install_recorder()?;
    tasks.spawn("metrics upkeep", keep_up(counters.clone()));
    Ok(counters)
}

/// Bounds the memory of metrics that are not read.
async fn keep_up(counters: PrometheusHandle) {
    loop {
        tokio::time::sleep(UPKEEP).await;
        counters.run_upkeep();
    }
}

/// Sends traces to `collector`, or to the configured one.
pub(crate) fn trace_provider(collector: Option<&str>) -> anyhow::Result<SdkTracerProvider> {
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(reqwest::blocking::Client::new());
    if let Some(collector) = collector {
        exporter = exporter.with_endpoint(collector);
    }
    let exporter = exporter.build()?;
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource(Resource::builder().build()))
        .build())
}

/// The resource of the traces: `said` has the attributes of the standard variables
/// (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`). The default service name is `shoal`.
fn resource(said: Resource) -> Resource {
    /// The prefix of OpenTelemetry's default service name.
    const NOBODY: &str = "unknown_service";
    let name = said.get(&Key::from_static_str("service.name"));
    if name.is_some_and(|name| !name.as_str().starts_with(NOBODY)) {
        return said;
    }
    let attributes = said
        .iter()
        .filter(|(key, _)| key.as_str() != "service.name");
    let attributes = attributes.map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    Resource::builder_empty()
        .with_attributes(attributes)
        .with_service_name("shoal")
        .build()
}

impl Telemetry {
    /// Serves `GET /metrics` on its own listener while the server runs. `refresh` sets gauges before each
    /// answer.
    pub(crate) fn serve_metrics(
        &self,
        listener: TcpListener,
        refresh: impl Fn() + Clone + Send + Sync + 'static,
        tasks: &mut Tasks,
    ) {
        let counters = self.counters.clone();
        tasks.spawn("metrics upkeep", keep_up(counters.clone()));
        let show = move || {
            refresh();
            let text = counters.render();
            async move { text }
        };
        #[expect(clippy::disallowed_methods, reason = "it is no route of the API")]
        let router: Router = Router::new().route("/metrics", get(show));
        tasks.spawn("metrics", async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "the metrics listener failed");
            }
        });
    }

    /// Sends pending traces.
    pub(crate) fn end(self) {
        self.traces.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_claim_is_told_to_the_millisecond() {
        let recorder = counting().unwrap().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            let claims = metrics::histogram!("shoal_pool_claim_seconds", "template" => "warm");
            claims.record(Duration::from_micros(900));
            claims.record(Duration::from_micros(1_500));
        });
        let text = recorder.handle().render();
        for (bound, count) in [("0.001", 1), ("0.002", 2), ("120", 2), ("+Inf", 2)] {
            let line = format!(
                "shoal_pool_claim_seconds_bucket{{template=\"warm\",le=\"{bound}\"}} {count}"
            );
            assert!(text.contains(&line), "no {line} in {text}");
        }
    }

    #[test]
    fn spans_of_traces_are_enabled_only_with_a_collector() {
        let of = |traces: Option<&SdkTracerProvider>| {
            let log = fmt::layer().with_writer(std::io::sink).boxed();
            subscriber(log, EnvFilter::new("info"), traces).max_level_hint()
        };
        assert_eq!(of(None), Some(LevelFilter::INFO));
        let provider = SdkTracerProvider::builder().build();
        assert_eq!(of(Some(&provider)), Some(LevelFilter::DEBUG));
    }

    #[test]
    fn whoever_names_the_service_names_it() {
        let named = |said: Resource| {
            let resource = resource(said);
            let of = |key: &'static str| {
                let value = resource.get(&Key::from_static_str(key));
                value.map(|value| value.as_str().into_owned())
            };
            (of("service.name"), of("service.version"))
        };
        let version = || KeyValue::new("service.version", "7");
        let said = || Resource::builder_empty().with_attribute(version());
        let shoal = (Some("shoal".to_owned()), Some("7".to_owned()));
        assert_eq!(named(said().build()), shoal);
        let nobody = said().with_service_name("unknown_service:shoal");
        assert_eq!(named(nobody.build()), shoal);
        let mine = said().with_service_name("mine").build();
        assert_eq!(named(mine).0.as_deref(), Some("mine"));
    }
}
