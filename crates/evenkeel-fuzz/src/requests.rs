//! Fuzz target for requests to a server in memory. Each part is a request: a line of method and URL, header lines,
//! an empty line, and a body.

use std::cell::RefCell;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_apiserver::{Clock, Server, Service};
use futures::FutureExt as _;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tower::Service as _;

use crate::input;

/// Maximum number of requests of one input.
const MAX_REQUESTS: usize = 6;
/// Maximum number of frames to read of one response, because a watch has no end.
const MAX_FRAMES: usize = 64;
/// Number of inputs per server. A new server for each input would be slow.
const INPUTS: usize = 256;
/// Virtual time between requests.
const REQUEST_INTERVAL: Duration = Duration::from_secs(1);

/// API server that handles the requests of the inputs.
struct Running {
    runtime: Runtime,
    service: Service,
    inputs: usize,
    // Keeps the server's tasks alive.
    _server: Server,
}

thread_local! {
    static SERVER: RefCell<Option<Running>> = const { RefCell::new(None) };
}

/// Sends requests. Checks that none panics, that JSON responses parse, and that a created object can be read,
/// updated and deleted.
pub(crate) fn requests(data: &[u8]) {
    // Skip inputs that could make the server connect to an arbitrary address.
    let dials = [&b"ebhook"[..], b"apiservices"];
    if dials.iter().any(|word| data.windows(word.len()).any(|window| window == *word)) {
        return;
    }
    SERVER.with(|server| {
        let mut running =
            server.take().filter(|running| running.inputs < INPUTS).unwrap_or_else(start);
        running.inputs += 1;
        for part in input::parts(data).take(MAX_REQUESTS) {
            if let Some(request) = parse(part) {
                running.runtime.block_on(async {
                    exchange(&running.service, request).await;
                    // Let the server's controllers run in virtual time.
                    tokio::time::sleep(REQUEST_INTERVAL).await;
                });
            }
        }
        server.replace(Some(running));
    });
}

fn start() -> Running {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("the runtime starts");
    let now = Timestamp::from_second(1_800_000_000).expect("the time is in range");
    let server = Server::builder().seed(1).clock(Clock::new(move || now));
    let server = runtime.block_on(server.build()).expect("a server in memory starts");
    let service = server.service();
    // Pods need the default ServiceAccount, but its controller does not run here.
    let account = Request::post("/api/v1/namespaces/default/serviceaccounts");
    let account = account.body(Full::from(r#"{"metadata":{"name":"default"}}"#));
    runtime.block_on(send(&service, account.expect("the request is valid")));
    Running { runtime, service, inputs: 0, _server: server }
}

fn parse(part: &[u8]) -> Option<Request<Full<Bytes>>> {
    let end = part.windows(2).position(|window| window == b"\n\n").unwrap_or(part.len());
    let (head, body) = part.split_at(end);
    let mut lines = std::str::from_utf8(head).ok()?.lines();
    let (method, url) = lines.next()?.split_once(' ')?;
    let mut request = Request::builder().method(method.parse::<Method>().ok()?).uri(url);
    for line in lines {
        let (name, value) = line.split_once(": ")?;
        request = request.header(name, value);
    }
    let body = Bytes::copy_from_slice(body.get(2..).unwrap_or_default());
    request.body(Full::new(body)).ok()
}

/// Sends a request. If it created an object, reads, updates and deletes the object.
async fn exchange(service: &Service, request: Request<Full<Bytes>>) {
    let path = request.uri().path().trim_end_matches('/').to_owned();
    let is_plain = request.uri().query().is_none()
        && request.headers().keys().all(|name| name == "content-type" || name == "accept");
    let creates = request.method() == Method::POST && is_plain && is_collection(&path);
    let (status, created) = send(service, request).await;
    let name = created["metadata"]["name"].as_str().unwrap_or_default();
    let stored = created["metadata"]["uid"].is_string();
    if status != StatusCode::CREATED || !creates || !stored {
        return;
    }
    let name: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let one = |method: Method, body: Bytes| {
        let request = Request::builder().method(method).uri(format!("{path}/{name}"));
        let request = request.header("content-type", "application/json");
        request.body(Full::new(body)).expect("the request is valid")
    };
    let (status, read) = send(service, one(Method::GET, Bytes::new())).await;
    assert_eq!(status, StatusCode::OK, "a created object can be read: {read}");
    let (status, updated) = send(service, one(Method::PUT, read.to_string().into())).await;
    let accepted = status.is_success() || is_policy(status, &updated);
    assert!(accepted, "an update without a change succeeds: {updated}");
    let (status, deleted) = send(service, one(Method::DELETE, Bytes::new())).await;
    assert!(
        status.is_success() || is_policy(status, &deleted),
        "a created object can be deleted: {deleted}"
    );
}

/// Returns whether a policy, quota or limit that an earlier input created rejected the request.
fn is_policy(status: StatusCode, refusal: &Value) -> bool {
    let message = refusal["message"].as_str().unwrap_or_default();
    status == StatusCode::FORBIDDEN || message.contains("AdmissionPolicy '")
}

/// Returns whether the path is that of a collection, not of a subresource such as `token`.
fn is_collection(path: &str) -> bool {
    let mut parts = path.trim_start_matches('/').split('/');
    let prefix_length = if parts.next() == Some("api") { 1 } else { 2 };
    let rest: Vec<&str> = parts.skip(prefix_length).collect();
    matches!(rest.as_slice(), [_] | ["namespaces", _, _])
}

/// Sends a request and reads the frames of its response that are available without waiting.
async fn send(service: &Service, request: Request<Full<Bytes>>) -> (StatusCode, Value) {
    let shown = format!("{} {}", request.method(), request.uri());
    let response = service.clone().call(request).await.expect("the service never fails");
    let (head, mut body) = response.into_parts();
    let mut text = Vec::new();
    let mut is_whole = false;
    for _ in 0..MAX_FRAMES {
        match body.frame().now_or_never() {
            Some(Some(frame)) => {
                let frame = frame.expect("a body never fails");
                text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            }
            Some(None) => {
                is_whole = true;
                break;
            }
            None => break,
        }
    }
    let text_of = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let is_json =
        text_of("content-type").is_some_and(|media| media.starts_with("application/json"));
    let is_plain = text_of("content-encoding").is_none() && text_of("transfer-encoding").is_none();
    let value = evenkeel_api::json::from_slice::<Value>(&text);
    if is_whole && is_json && is_plain && !text.is_empty() {
        assert!(value.is_ok(), "{shown}: {}", String::from_utf8_lossy(&text));
    }
    let value = value.unwrap_or_default();
    let message = value["message"].as_str().unwrap_or_default();
    assert!(!message.contains("apiserver to panic"), "{shown} panicked");
    (head.status, value)
}
