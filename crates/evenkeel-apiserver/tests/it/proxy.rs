//! Proxies of pods, Services and nodes: the requests that backends get, and the responses that clients get.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use evenkeel_apiserver::{Kubelet, LogLine, PodConnection, PodRef, Server, StreamError, Streams};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::Client;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Sends the same bytes in response to every request on port 80, and records the requests.
#[derive(Default)]
struct Echo {
    answer: Mutex<String>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Echo {
    fn serve(&self) -> PodConnection {
        let (stream, mut server) = tokio::io::duplex(64 * 1024);
        let answer = self.answer.lock().expect("a lock").clone();
        let requests = self.requests.clone();
        let server = async move {
            let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
            let is_whole = |request: &[u8]| {
                let text = String::from_utf8_lossy(request);
                let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                length.is_none_or(|length| length == body.len().to_string())
            };
            while !is_whole(&request) {
                let size = server.read(&mut buffer).await.expect("it is read");
                request.extend_from_slice(&buffer[..size]);
            }
            let text = String::from_utf8_lossy(&request).into_owned();
            requests.lock().expect("a lock").push(text);
            server.write_all(answer.as_bytes()).await.expect("it is written");
        };
        PodConnection { stream, server: Box::pin(server) }
    }
}

impl Kubelet for Echo {
    fn container_log(&self, _: PodRef<'_>, _: &str, _: bool) -> Vec<LogLine> {
        Vec::new()
    }

    fn follow_log(&self, _: PodRef<'_>, _: &str, _: bool, _: usize) -> BoxStream<'static, LogLine> {
        Box::pin(futures::stream::empty())
    }

    fn exec(
        &self,
        _: PodRef<'_>,
        container: &str,
        _: Vec<String>,
        _: Streams,
    ) -> BoxFuture<'static, Result<i32, StreamError>> {
        Box::pin(std::future::ready(Err(StreamError::NoContainer(container.to_owned()))))
    }

    fn attach(
        &self,
        _: PodRef<'_>,
        _: &str,
        _: Streams,
    ) -> BoxFuture<'static, Result<(), StreamError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn connect(&self, _: PodRef<'_>, port: u16) -> Option<PodConnection> {
        (port == 80).then(|| self.serve())
    }

    fn connect_node(&self, _: &str) -> Option<PodConnection> {
        Some(self.serve())
    }
}

/// Starts a server with a pod, a Service with an endpoint, and a node. `Echo` responds in their place.
async fn start() -> (Client, Arc<Echo>) {
    let server = Server::builder().build().await.expect("a server");
    let echo = Arc::new(Echo::default());
    server.connect_kubelet(echo.clone());
    let client = Client(server.service());
    client.make("/api/v1/nodes", json!({"metadata": {"name": "n"}, "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}})).await;
    let account = json!({"metadata": {"name": "default"}});
    client.make("/api/v1/namespaces/default/serviceaccounts", account).await;
    let ports = json!([{"containerPort": 80}]);
    let spec =
        json!({"nodeName": "n", "containers": [{"name": "c", "image": "i", "ports": ports}]});
    client.make(PODS, json!({"metadata": {"name": "p"}, "spec": spec})).await;
    let status = json!({"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}});
    client.patch(&format!("{PODS}/p/status"), "merge-patch+json", status).await;
    let services = "/api/v1/namespaces/default/services";
    let spec = json!({"ports": [{"name": "web", "port": 8000, "targetPort": 80}]});
    client.make(services, json!({"metadata": {"name": "s"}, "spec": spec})).await;
    let slice = json!({"metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}}, "addressType": "IPv4",
        "ports": [{"name": "web", "port": 80}],
        "endpoints": [{"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "namespace": "default", "name": "p"}}]});
    client.make("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await;
    (client, echo)
}

impl Echo {
    /// Requests a path. Returns the response's code, headers and body, and the request that the backend received.
    async fn ask(
        &self,
        client: &Client,
        (method, path): (&str, &str),
        headers: &[(&str, &str)],
        body: &'static str,
        answer: &str,
    ) -> (http::response::Parts, String, String) {
        self.requests.lock().expect("a lock").clear();
        answer.clone_into(&mut self.answer.lock().expect("a lock"));
        let response =
            client.send(method, path, headers, Bytes::from_static(body.as_bytes())).await;
        let (head, body) = response.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        let request = self.requests.lock().expect("a lock").pop().unwrap_or_default();
        (head, String::from_utf8_lossy(&body).into_owned(), request)
    }
}

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Mine: 1\r\nAccess-Control-Allow-Origin: *\r\nKeep-Alive: 5\r\n\r\nhello";

#[tokio::test]
async fn requests_reach_their_service() {
    let (client, echo) = start().await;
    for (method, path, first) in [
        ("GET", "pods/p/proxy/a%20b?c=d&limit=y", "GET /a%20b?c=d&limit=y HTTP/1.1"),
        ("GET", "pods/p:80/proxy/", "GET / HTTP/1.1"),
        ("POST", "pods/http:p:80/proxy/x/", "POST /x/ HTTP/1.1"),
        ("PUT", "pods/p/proxy/x", "PUT /x HTTP/1.1"),
        ("PATCH", "pods/p/proxy/x", "PATCH /x HTTP/1.1"),
        ("DELETE", "pods/p/proxy/x", "DELETE /x HTTP/1.1"),
        ("OPTIONS", "pods/p/proxy/x", "OPTIONS /x HTTP/1.1"),
        ("HEAD", "pods/p/proxy/x", "HEAD /x HTTP/1.1"),
        ("POST", "pods/p/proxy", "POST / HTTP/1.1"),
        ("GET", "services/s:web/proxy/x", "GET /x HTTP/1.1"),
        ("GET", "services/s:8000/proxy/x", "GET /x HTTP/1.1"),
    ] {
        let body = if matches!(method, "POST" | "PUT") { "body" } else { "" };
        let path = format!("/api/v1/namespaces/default/{path}");
        let headers = [("host", "a:1"), ("authorization", "Basic x"), ("x-mine", "2"), ("te", "x")];
        let (head, answer, request) =
            echo.ask(&client, (method, &path), &headers, body, HELLO).await;
        assert_eq!(head.status, 200, "{method} {path} {answer}");
        assert_eq!(answer, if method == "HEAD" { "" } else { "hello" }, "{method} {path}");
        assert_eq!(head.headers["x-mine"], "1");
        assert_eq!(head.headers.get("access-control-allow-origin"), None);
        assert_eq!(head.headers.get("keep-alive"), None);
        assert_eq!(request.lines().next(), Some(first));
        assert!(
            request.contains("host: a:1\r\n") && request.contains("x-mine: 2\r\n"),
            "{request}"
        );
        assert!(!request.contains("authorization") && !request.contains("te: "), "{request}");
        assert!(request.contains("x-forwarded-uri: /api/v1/namespaces/default/"), "{request}");
        assert!(request.ends_with(&format!("\r\n\r\n{body}")), "{request}");
    }
    for path in ["n/proxy/pods", "n:10250/proxy/pods"] {
        let path = format!("/api/v1/nodes/{path}");
        let (head, answer, request) = echo.ask(&client, ("GET", &path), &[], "", HELLO).await;
        assert_eq!((head.status.as_u16(), &*answer), (200, "hello"));
        assert_eq!(request.lines().next(), Some("GET /pods HTTP/1.1"));
    }
}

#[tokio::test]
async fn answers_lead_through_the_proxy() {
    let (client, echo) = start().await;
    let prefix = format!("{PODS}/p/proxy");
    let (head, ..) = echo.ask(&client, ("GET", &format!("{prefix}?a=b")), &[], "", HELLO).await;
    assert_eq!(head.status, 301);
    assert_eq!(head.headers["location"], format!("{prefix}/?a=b"));

    let path = format!("{prefix}/");
    for (location, rewritten) in [
        ("/login?a=b", format!("{prefix}/login?a=b")),
        ("http://10.0.0.1:80/x/", format!("{prefix}/x/")),
        ("http://example.com/x", "http://example.com/x".to_owned()),
        ("relative", "relative".to_owned()),
    ] {
        let answer =
            format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
        let (head, ..) = echo.ask(&client, ("GET", &path), &[], "", &answer).await;
        assert_eq!(head.status, 302);
        assert_eq!(head.headers["location"], rewritten);
    }
    let page = "<a href=\"/x\">/x</a>";
    for (media_type, expected) in [
        ("text/html; charset=utf-8", format!("<a href=\"{prefix}/x\">/x</a>")),
        ("text/plain", page.to_owned()),
    ] {
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{page}\r\n0\r\n\r\n",
            page.len()
        );
        let (_, body, _) = echo.ask(&client, ("GET", &path), &[], "", &answer).await;
        assert_eq!(body, expected);
    }
}

#[tokio::test]
async fn requests_that_reach_nobody_are_refused() {
    let (client, echo) = start().await;
    let refused = |port| {
        format!(
            "error trying to reach service: dial tcp 10.0.0.1:{port}: connect: connection refused"
        )
    };
    for (path, code, message) in [
        ("pods/p:81/proxy/", 503, refused(81)),
        (
            "pods/https:p:80/proxy/",
            503,
            "error trying to reach service: http: server gave HTTP response to HTTPS client"
                .to_owned(),
        ),
        ("pods/none/proxy/", 404, "pods \"none\" not found".to_owned()),
        ("pods/a:b:c/proxy/", 400, "invalid pod request \"a:b:c\"".to_owned()),
        ("services/s/proxy/", 503, "no endpoints available for service \"s\"".to_owned()),
        // The EndpointSlice of another Service is ignored.
        (
            "services/other:web/proxy/",
            503,
            "no endpoints available for service \"other\"".to_owned(),
        ),
        ("services/s:81/proxy/", 503, "no service port 81 found for service \"s\"".to_owned()),
    ] {
        let path = format!("/api/v1/namespaces/default/{path}");
        let (head, answer, request) = echo.ask(&client, ("GET", &path), &[], "", HELLO).await;
        let answer: Value = serde_json::from_str(&answer).expect("a status");
        assert_eq!(
            (head.status.as_u16(), answer["message"].as_str()),
            (code, Some(&*message)),
            "{path}"
        );
        assert_eq!(request, "");
    }
    // A server that sends nothing.
    let path = format!("{PODS}/p/proxy/");
    let (head, ..) = echo.ask(&client, ("GET", &path), &[], "", "").await;
    assert_eq!(head.status, 503);
    // Loopback and link-local addresses are refused.
    for ip in ["127.0.0.1", "169.254.169.254", "::1"] {
        let status = json!({"status": {"podIP": ip, "podIPs": [{"ip": ip}]}});
        client.patch(&format!("{PODS}/p/status"), "merge-patch+json", status).await;
        let (head, ..) = echo.ask(&client, ("GET", &path), &[], "", HELLO).await;
        assert_eq!(head.status, 400, "{ip}");
    }
}
