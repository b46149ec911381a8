//! The wire between components and the API server, which counts writes.

use crate::{
    observe::Recorder,
    recording::Write,
    server_thread::{Answer, ServerHandle},
};
use bytes::Bytes;
use evenkeel_runtime::clock::Clock;
use futures::{FutureExt as _, future::BoxFuture};
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, USER_AGENT},
};
use http_body_util::{BodyExt as _, Full};
use std::{
    convert::Infallible,
    task::{Context, Poll},
};

/// Service of the API server that reports executed writes to a recorder.
#[derive(Clone)]
pub(crate) struct Wire {
    server: ServerHandle,
    clock: Clock,
    recorder: Recorder,
}

impl Wire {
    /// Returns a client of the server whose writes the recorder counts.
    pub(crate) fn client(server: ServerHandle, clock: &Clock, recorder: Recorder) -> kube::Client {
        kube::Client::new(Self { server, clock: clock.clone(), recorder }, "default")
    }
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
        let Some(write) = write else { return self.server.call(request, self.clock.now()) };
        // A namespace's deletion still asks the server, which says that it has none.
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

/// Answers the creation or the patch of an Event, of which nothing is stored: nobody reads them in a simulation, and a day of a
/// large cluster has a hundred thousand.
fn written_event(method: &Method) -> Response<Answer> {
    const EVENT: &str = r#"{"apiVersion":"v1","kind":"Event","metadata":{"name":"event"}}"#;
    let code = if method == Method::POST { StatusCode::CREATED } else { StatusCode::OK };
    let mut answer = Response::new(Full::new(Bytes::from_static(EVENT.as_bytes())).boxed_unsync());
    *answer.status_mut() = code;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// Asks for JSON instead of protobuf, as the store holds objects: without a socket between server and client, protobuf saves
/// no bytes, and the server would have to encode each object.
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

/// Reports whether a segment after a namespace's name is a subresource of the namespace.
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
    use evenkeel_runtime::{client::Metadata, plan::PatchForm};
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
        let client = Wire::client(server, &clock, recorder.clone());
        let client = evenkeel_runtime::client::Client::builder(client, clock).build();
        let kind = evenkeel_api::Kind::new("", "v1", "Event", "events", true);
        let event =
            serde_json::json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}});
        let body = serde_json::to_vec(&event).expect("JSON");
        let made = client.create::<Metadata>(&kind, "default", body.clone().into()).await;
        made.expect("it is answered");
        let form = PatchForm::Strategic;
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
