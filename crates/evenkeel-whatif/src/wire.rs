//! The wire between components and the API server, which counts writes.

use crate::{
    observe::Recorder,
    recording::Write,
    server_thread::{Answer, ServerHandle},
};
use bytes::Bytes;
use evenkeel_api::selector::Selector;
use evenkeel_nodes::Usage;
use evenkeel_runtime::clock::Clock;
use futures::{FutureExt as _, future::BoxFuture};
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT, CONTENT_TYPE, USER_AGENT},
};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

/// Service of the API server that reports executed writes to a recorder.
#[derive(Clone)]
pub(crate) struct Wire {
    server: ServerHandle,
    clock: Clock,
    recorder: Recorder,
    metrics: PodMetrics,
}

impl Wire {
    /// Returns a client of the server whose writes the recorder counts.
    pub(crate) fn client(
        server: ServerHandle,
        clock: &Clock,
        recorder: Recorder,
        metrics: PodMetrics,
    ) -> kube::Client {
        kube::Client::new(Self { server, clock: clock.clone(), recorder, metrics }, "default")
    }
}

/// Metrics of pods. They are computed on the components' side, where the caches have the same time. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct PodMetrics(Arc<OnceLock<Usage>>);

impl PodMetrics {
    /// Serves `metrics.k8s.io` from now on.
    pub(crate) fn serve(&self, usage: &Usage) {
        // A run has only one source.
        let _ = self.0.set(usage.clone());
    }

    /// Returns the response to a list of the metrics of a namespace's pods; `None` for another request.
    fn answer(&self, request: &Request<kube::client::Body>) -> Option<Response<Answer>> {
        let usage = self.0.get()?;
        let (namespace, selector) = metrics_of(request.method(), request.uri())?;
        let mut items = usage.pod_metrics(&namespace);
        items.retain(|item| {
            let labels = item.pointer("/metadata/labels").and_then(Value::as_object);
            let labels = labels.into_iter().flatten();
            let labels = labels.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
            selector.matches(&labels.collect())
        });
        let list = json!({
            "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetricsList",
            "metadata": {}, "items": items,
        });
        Some(json_answer(StatusCode::OK, list.to_string().into()))
    }
}

/// Returns the namespace and the label selector of a request for the metrics of pods; `None` for another request.
fn metrics_of(method: &Method, uri: &Uri) -> Option<(String, Selector)> {
    let path = uri.path().strip_prefix("/apis/metrics.k8s.io/v1beta1/namespaces/")?;
    let namespace = path.strip_suffix("/pods").filter(|_| *method == Method::GET)?;
    let mut parameters = uri.query().unwrap_or_default().split('&');
    let encoded = parameters.find_map(|parameter| parameter.strip_prefix("labelSelector="));
    let text = encoded.unwrap_or_default().replace('+', " ");
    let text = percent_encoding::percent_decode_str(&text).decode_utf8().ok()?;
    Some((namespace.to_owned(), Selector::parse(&text).ok()?))
}

impl tower::Service<Request<kube::client::Body>> for Wire {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Answer>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<kube::client::Body>) -> Self::Future {
        accept_json(request.headers_mut());
        let agent = request.headers().get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        let write = write(agent.unwrap_or_default(), request.method(), request.uri().path());
        let Some(write) = write else {
            return match self.metrics.answer(&request) {
                Some(answer) => futures::future::ok(answer).boxed(),
                None => self.server.call(request, self.clock.now()),
            };
        };
        // A namespace's deletion still lists events on the server, which has none.
        if write.resource == "events" && matches!(write.verb, "create" | "patch") {
            self.recorder.count(write);
            return futures::future::ok(written_event(request.method())).boxed();
        }
        let answer = self.server.call(request, self.clock.now());
        let recorder = self.recorder.clone();
        async move {
            let answer = answer.await?;
            if answer.status().is_success() {
                recorder.count(write);
            }
            Ok(answer)
        }
        .boxed()
    }
}

/// Returns the response to the creation or the patch of an Event, which is not stored. No component reads Events in a
/// simulation, and a large cluster creates a hundred thousand a day.
fn written_event(method: &Method) -> Response<Answer> {
    const EVENT: &str = r#"{"apiVersion":"v1","kind":"Event","metadata":{"name":"event"}}"#;
    let code = if method == Method::POST { StatusCode::CREATED } else { StatusCode::OK };
    json_answer(code, Bytes::from_static(EVENT.as_bytes()))
}

/// Returns a response with JSON.
fn json_answer(code: StatusCode, body: Bytes) -> Response<Answer> {
    let mut answer = Response::new(Full::new(body).boxed_unsync());
    *answer.status_mut() = code;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// Requests JSON, which is the format in the store, instead of protobuf. Without a socket between server and client, protobuf
/// saves no bytes, and the server would have to encode each object.
fn accept_json(headers: &mut HeaderMap) {
    let Some(accept) = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()) else { return };
    let Some((first, rest)) = accept.split_once(',') else { return };
    if first.starts_with("application/vnd.kubernetes.protobuf")
        && let Ok(rest) = HeaderValue::from_str(rest.trim_start())
    {
        headers.insert(ACCEPT, rest);
    }
}

/// Returns the kind of a write, or `None` for other requests. Leases do not count: in a simulation, they are renewed at
/// longer intervals.
fn write(agent: &str, method: &Method, path: &str) -> Option<Write> {
    let verb = match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => return None,
    };
    let mut segments = path.trim_start_matches('/').split('/');
    // The core group is `/api/v1`, all others `/apis/GROUP/VERSION`.
    let before_resource = if segments.next()? == "api" { 1 } else { 2 };
    let segments: Vec<&str> = segments.skip(before_resource).collect();
    let segments = match &*segments {
        ["namespaces", _, rest @ ..] if rest.first().is_some_and(|next| !is_of_namespace(next)) => {
            rest
        }
        all => all,
    };
    let resource = match segments {
        ["leases", ..] => return None,
        [resource] | [resource, _] => (*resource).to_owned(),
        [resource, _, subresource @ ..] => format!("{resource}/{}", subresource.join("/")),
        [] => return None,
    };
    Some(Write { component: component(agent), verb, resource })
}

/// Returns whether a segment after a namespace's name is a subresource of the namespace.
fn is_of_namespace(segment: &str) -> bool {
    matches!(segment, "status" | "finalize")
}

/// Returns the component of a user agent: its program, and the controller if there is one.
fn component(agent: &str) -> String {
    let program = agent.split(['/', ' ']).next().unwrap_or_default();
    // Unlike a version or a platform, a component has only these characters.
    let is_of_name = |c: char| c.is_ascii_lowercase() || c == '-';
    match agent.rsplit_once('/') {
        Some((_, part)) if !part.is_empty() && part.chars().all(is_of_name) => {
            format!("{program}/{part}")
        }
        _ => program.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_thread;
    use evenkeel_runtime::{client::Metadata, plan::PatchType};
    use serde_json::Value;

    #[test]
    fn events_are_counted_and_not_stored() {
        server_thread::tests::with_server(|server, clock| async move {
            count_events(server, clock).await;
        });
    }

    async fn count_events(server: ServerHandle, clock: Clock) {
        let recorder = Recorder::new(&clock);
        recorder.begin();
        let client = Wire::client(server, &clock, recorder.clone(), PodMetrics::default());
        let client = evenkeel_runtime::client::Client::builder(client, clock).build();
        let kind = evenkeel_api::Kind::new("", "v1", "Event", "events", true);
        let event =
            serde_json::json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}});
        let body = serde_json::to_vec(&event).expect("JSON");
        let made = client.create::<Metadata>(&kind, "default", body.clone().into()).await;
        made.expect("it is answered");
        let form = PatchType::Strategic;
        let changed = client.patch::<Metadata>(&kind, "default", "e", "", form, body.into()).await;
        changed.expect("it is answered");
        let path = "/api/v1/namespaces/default/events";
        let events = Request::delete(path).body(Bytes::new()).expect("a request");
        let deleted = client.raw(events).await.expect("it is answered");
        let deleted: Value = serde_json::from_slice(deleted.body()).expect("JSON");
        assert_eq!(deleted["items"], serde_json::json!([]), "{deleted}");
        let events = Request::get(path);
        let stored = client.raw(events.body(Bytes::new()).expect("a request")).await;
        let stored: Value = serde_json::from_slice(stored.expect("a list").body()).expect("JSON");
        assert_eq!(stored["items"], serde_json::json!([]));
        let writes = recorder.take().writes;
        let counted: Vec<_> = writes.iter().map(|(write, count)| (write.verb, *count)).collect();
        assert_eq!(counted, [("create", 1), ("delete", 1), ("patch", 1)]);
    }

    #[test]
    fn objects_and_metadata_are_requested_in_json() {
        for (accept, expected) in [
            (
                "application/vnd.kubernetes.protobuf, application/json;q=0.9",
                "application/json;q=0.9",
            ),
            ("application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf"),
            ("application/json", "application/json"),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, \
                 application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json;q=0.9",
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json;q=0.9",
            ),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            accept_json(&mut headers);
            assert_eq!(headers[ACCEPT], expected);
        }
        let mut headers = HeaderMap::new();
        accept_json(&mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn requests_for_metrics_of_pods_are_recognized() {
        let of_shop = "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods";
        for (method, uri, expected) in [
            (Method::GET, of_shop.to_owned(), Some("")),
            (
                Method::GET,
                format!("{of_shop}?limit=1&labelSelector=app%3Dweb%2Ctier+in+%28a%2Cb%29"),
                Some("app=web,tier in (a,b)"),
            ),
            (Method::GET, format!("{of_shop}?labelSelector=a%3Db%3Dc"), None),
            (Method::GET, format!("{of_shop}/web"), None),
            (Method::POST, of_shop.to_owned(), None),
            (Method::GET, "/api/v1/namespaces/shop/pods".to_owned(), None),
        ] {
            let found = metrics_of(&method, &uri.parse().expect("a URI"));
            let expected = expected.map(|selector| {
                ("shop".to_owned(), Selector::parse(selector).expect("a selector"))
            });
            assert_eq!(found, expected, "{method} {uri}");
        }
    }

    #[test]
    fn writes_are_named_by_component_verb_and_resource() {
        for (agent, method, path, expected) in [
            (
                "kube-controller-manager/replicaset-controller",
                Method::POST,
                "/api/v1/namespaces/shop/pods",
                "kube-controller-manager/replicaset-controller create pods",
            ),
            (
                "kube-scheduler/v1.37.1 (linux/amd64)",
                Method::POST,
                "/api/v1/namespaces/shop/pods/web/binding",
                "kube-scheduler create pods/binding",
            ),
            ("kubelet", Method::PATCH, "/api/v1/nodes/a/status", "kubelet patch nodes/status"),
            ("x", Method::PUT, "/api/v1/namespaces/shop/finalize", "x update namespaces/finalize"),
            ("x", Method::DELETE, "/api/v1/namespaces/shop", "x delete namespaces"),
            (
                "x",
                Method::PATCH,
                "/apis/apps/v1/namespaces/shop/deployments/web/status",
                "x patch deployments/status",
            ),
            ("x", Method::GET, "/api/v1/pods", ""),
            ("kubelet", Method::PATCH, "/apis/coordination.k8s.io/v1/namespaces/n/leases/a", ""),
        ] {
            let found = write(agent, &method, path);
            let found = found.map(|Write { component, verb, resource }| {
                format!("{component} {verb} {resource}")
            });
            assert_eq!(found.unwrap_or_default(), expected, "{method} {path}");
        }
    }
}
