//! Export of traces to an OpenTelemetry collector over OTLP.
//!
//! Each pass is a trace: its span `reconcile` has the controller, the key and the attempt, and a child for each request to
//! the API server, except for those of [`Context::kube`](crate::operator::Context::kube). A request carries the context of its
//! span in the header `traceparent`, so that the spans of an API server with tracing join the trace.
//!
//! ```no_run
//! use evenkeel_runtime::{prelude::*, telemetry};
//! use tracing_subscriber::{
//!     Layer as _, filter::LevelFilter, layer::SubscriberExt as _, util::SubscriberInitExt as _,
//! };
//!
//! # async fn run(manager: Manager) -> Result<(), Box<dyn std::error::Error>> {
//! let traces = telemetry::otlp("webapp-operator")?;
//! tracing_subscriber::registry()
//!     .with(tracing_subscriber::fmt::layer().with_filter(LevelFilter::INFO))
//!     .with(traces.layer())
//!     .init();
//! manager.run(shutdown_signal()).await?;
//! traces.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! The environment sets the rest, as OpenTelemetry specifies it: `OTEL_EXPORTER_OTLP_ENDPOINT` (default
//! `http://localhost:4317`, gRPC), `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`, `OTEL_BSP_*`.
//!
//! Upstream: `component-base/tracing`, KEP-647.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use opentelemetry::{
    Key,
    propagation::{Injector, TextMapPropagator as _},
    trace::{TraceContextExt as _, TracerProvider as _},
};
use opentelemetry_otlp::ExporterBuildError;
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{SdkTracerProvider, SpanExporter},
};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tracing::{Level, Metadata, Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, filter_fn},
    registry::LookupSpan,
};

/// Time that the last spans have to be exported.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Crates that the exporter itself calls, besides those of OpenTelemetry. Exporting their spans would create more spans,
/// endlessly.
const OF_EXPORTER: [&str; 5] = ["h2", "hyper", "hyper_util", "tonic", "tower"];

/// Whether this process exports traces. Without that, requests have no spans.
static IS_ACTIVE: AtomicBool = AtomicBool::new(false);

/// Error of an exporter that cannot be built.
#[derive(Debug, thiserror::Error)]
#[error("traces cannot be exported: check the environment variables OTEL_EXPORTER_OTLP_*")]
pub struct TelemetryError(#[from] ExporterBuildError);

/// Export of traces of a process. It ends when this is dropped; [`Telemetry::shutdown`] also waits for the last spans.
#[must_use = "dropping it ends the export"]
#[derive(Debug)]
pub struct Telemetry {
    provider: SdkTracerProvider,
}

/// Returns an export over OTLP with gRPC, in batches. `service` is the name of the program, unless the environment sets
/// another. Call it inside a tokio runtime of several threads.
///
/// # Errors
/// Fails if the environment names an endpoint or another setting that is not valid.
pub fn otlp(service: &str) -> Result<Telemetry, TelemetryError> {
    let exporter = opentelemetry_otlp::SpanExporter::builder().with_tonic().build()?;
    let builder = SdkTracerProvider::builder().with_batch_exporter(exporter);
    Ok(Telemetry::new(builder.with_resource(resource(service)).build()))
}

impl Telemetry {
    fn new(provider: SdkTracerProvider) -> Self {
        IS_ACTIVE.store(true, Ordering::Relaxed);
        Self { provider }
    }

    /// Returns an export to another exporter, which gets each span when it ends. For tests, and for exporters with batches of
    /// their own.
    pub fn with_exporter(service: &str, exporter: impl SpanExporter + 'static) -> Self {
        let builder = SdkTracerProvider::builder().with_simple_exporter(exporter);
        Self::new(builder.with_resource(resource(service)).build())
    }

    /// Returns the layer of a subscriber that exports its spans of the levels INFO, WARN and ERROR, and their events.
    pub fn layer<S>(&self) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let tracer = self.provider.tracer(env!("CARGO_PKG_NAME"));
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        // Tasks have spans of the level DEBUG, which last as long as the program. A pass must not belong to one.
        let filter = filter_fn(is_exported).with_max_level_hint(LevelFilter::INFO);
        layer.with_filter(filter).boxed()
    }

    /// Ends the export, and waits up to five seconds until the last spans are exported.
    pub async fn shutdown(self) {
        #[expect(clippy::disallowed_methods, reason = "a panic only loses the last spans")]
        let ended = tokio::task::spawn_blocking(move || drop(self));
        // An error means that the exporter panicked.
        let _ = ended.await;
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Err(error) = self.provider.shutdown_with_timeout(SHUTDOWN_TIMEOUT) {
            tracing::warn!(%error, "the last spans were not exported");
        }
    }
}

/// Returns the attributes of the process. The environment's name of the service precedes this one.
fn resource(service: &str) -> Resource {
    const SERVICE_NAME: Key = Key::from_static_str("service.name");
    let resource = Resource::builder().build();
    let is_set = resource
        .get(&SERVICE_NAME)
        .is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    if is_set {
        return resource;
    }
    Resource::builder().with_service_name(service.to_owned()).build()
}

fn is_exported(metadata: &Metadata<'_>) -> bool {
    let crate_name = metadata.target().split("::").next().unwrap_or_default();
    let is_of_exporter =
        OF_EXPORTER.contains(&crate_name) || crate_name.starts_with("opentelemetry");
    *metadata.level() <= Level::INFO && !is_of_exporter
}

/// Returns the id of the trace of the current span, such as of a pass, for messages. `None` if it is not exported.
pub fn trace_id() -> Option<String> {
    let context = Span::current().context();
    let span = context.span();
    let id = span.span_context();
    id.is_valid().then(|| id.trace_id().to_string())
}

/// Returns the span of a request, or a disabled one if this process exports no traces.
pub(crate) fn request_span(method: &Method, path: &str) -> Span {
    if !IS_ACTIVE.load(Ordering::Relaxed) {
        return Span::none();
    }
    tracing::info_span!(
        "request",
        otel.kind = "client",
        otel.status_code = tracing::field::Empty,
        http.request.method = %method,
        http.response.status_code = tracing::field::Empty,
        url.path = path,
    )
}

/// Records the response of a request in its span.
pub(crate) fn record_response(span: &Span, code: Option<StatusCode>) {
    if let Some(code) = code {
        span.record("http.response.status_code", code.as_u16());
    }
    if code.is_none_or(|code| code.is_client_error() || code.is_server_error()) {
        span.record("otel.status_code", "ERROR");
    }
}

/// Adds the context of the current span to the headers of a request.
pub(crate) fn inject(headers: &mut HeaderMap) {
    if IS_ACTIVE.load(Ordering::Relaxed) {
        let context = Span::current().context();
        TraceContextPropagator::new().inject_context(&context, &mut Headers(headers));
    }
}

struct Headers<'h>(&'h mut HeaderMap);

impl Injector for Headers<'_> {
    fn set(&mut self, name: &str, value: String) {
        // The propagator writes valid headers; an empty `tracestate` says nothing.
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(&value))
            && !value.is_empty()
        {
            self.0.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_sdk::trace::InMemorySpanExporter;

    #[tokio::test]
    async fn an_export_names_the_service() {
        let exporter = InMemorySpanExporter::default();
        let traces = Telemetry::with_exporter("webapp-operator", exporter.clone());
        assert_eq!(trace_id(), None);
        let resource = resource("webapp-operator");
        let name = resource.get(&Key::from_static_str("service.name"));
        assert_eq!(name.map(|name| name.as_str().into_owned()).as_deref(), Some("webapp-operator"));
        traces.shutdown().await;
        assert!(exporter.is_shutdown_called());
    }

    #[test]
    fn spans_of_tasks_and_of_the_exporter_are_left_out() {
        let layer = Telemetry::with_exporter("test", InMemorySpanExporter::default());
        let subscriber = tracing_subscriber::Layer::with_subscriber(
            layer.layer(),
            tracing_subscriber::registry(),
        );
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug_span!("task").in_scope(|| {
                assert_eq!(trace_id(), None);
                tracing::info_span!(target: "h2::client", "frame")
                    .in_scope(|| assert_eq!(trace_id(), None));
                let first = tracing::info_span!("reconcile").in_scope(trace_id);
                let second = tracing::info_span!("reconcile").in_scope(trace_id);
                assert!(first.is_some() && second.is_some() && first != second);
            });
        });
    }

    #[test]
    fn an_empty_state_is_left_out() {
        let mut headers = HeaderMap::new();
        Headers(&mut headers).set("tracestate", String::new());
        Headers(&mut headers).set("traceparent", "00-1-2-01".to_owned());
        assert_eq!(
            (headers.len(), &headers["traceparent"]),
            (1, &HeaderValue::from_static("00-1-2-01"))
        );
    }
}
