//! Traces of reconciles, with an exporter in memory.

use crate::{copy, create, fixture, map};
use evenkeel_runtime::{prelude::*, telemetry::Telemetry};
use evenkeel_test::eventually;
use http::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::client::Body;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SpanData};
use std::sync::Mutex;
use tracing_subscriber::layer::SubscriberExt as _;

/// Returns an attribute of a span as a string.
fn attribute(span: &SpanData, name: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == name);
    found.map(|attribute| attribute.value.to_string()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_pass_is_a_trace_whose_context_its_requests_carry() {
    let fixture = fixture().await;
    let parents: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
    let (inner, log) = (fixture.kube.clone(), Arc::clone(&parents));
    let service = tower::service_fn(move |request: Request<Body>| {
        if let Some(parent) = request.headers().get("traceparent") {
            let line = format!("{} {}", request.method(), request.uri().path());
            log.lock().unwrap().push((line, parent.to_str().unwrap().to_owned()));
        }
        let inner = inner.clone();
        async move { inner.send(request).await }
    });
    let kube = kube::Client::new(service, "default");
    let exporter = InMemorySpanExporter::default();
    let traces = Telemetry::with_exporter("test", exporter.clone());
    // With a single subscriber, another test's thread without a subscriber would disable the spans of all threads.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let subscriber = tracing_subscriber::registry().with(traces.layer());
    let _guard = tracing::subscriber::set_default(subscriber);

    let setup = Setup::simulated(fixture.server.clock().clone(), "me");
    let maps = CacheOptions::<ConfigMap>::in_namespace("default");
    let manager =
        Manager::builder(kube).component("test").setup(setup).cache(maps).build().unwrap();
    manager.controller::<ConfigMap>().owns::<Secret>().reconcile(copy);
    create(&fixture.maps(), map("web")).await;
    let secrets = fixture.secrets();
    manager
        .run(async move {
            eventually(&secrets, "web", |_| true).await.unwrap();
            tokio::time::sleep(Duration::from_secs(10)).await;
        })
        .await
        .unwrap();

    let spans = exporter.get_finished_spans().unwrap();
    let passes: Vec<&SpanData> = spans.iter().filter(|span| span.name == "reconcile").collect();
    assert!(!passes.is_empty());
    for pass in &passes {
        assert_eq!(
            (&*attribute(pass, "controller"), &*attribute(pass, "name")),
            ("configmap", "web")
        );
        assert_eq!(pass.parent_span_id.to_string(), "0000000000000000", "a pass begins a trace");
    }
    let of_apply = |span: &&SpanData| attribute(span, "http.request.method") == "PATCH";
    let apply = spans.iter().find(of_apply).unwrap();
    assert_eq!(attribute(apply, "url.path"), "/api/v1/namespaces/default/secrets/web");
    assert_eq!(attribute(apply, "http.response.status_code"), "201");
    let pass = passes.iter().find(|pass| pass.span_context.span_id() == apply.parent_span_id);
    let pass = pass.expect("the request belongs to a pass");
    assert_eq!(pass.span_context.trace_id(), apply.span_context.trace_id());

    let parents = parents.lock().unwrap();
    let (_, parent) = parents.iter().find(|(line, _)| line.starts_with("PATCH")).unwrap();
    let context = &apply.span_context;
    assert_eq!(*parent, format!("00-{}-{}-01", context.trace_id(), context.span_id()));
}
