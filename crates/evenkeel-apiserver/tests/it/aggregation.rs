//! Aggregation: extension API servers behind APIServices.

use std::time::Duration;

use bytes::Bytes;
use evenkeel_apiserver::{AggregationOptions, Server, User};
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::extension::{Extension, GROUP};
use crate::webhook::Identity;
use crate::{Client, events};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "v1.shop.example.com";
const THINGS: &str = "/apis/shop.example.com/v1/namespaces/default/things";

/// Returns the APIService of an extension API server.
fn api_service(extension: &Extension, port: u16) -> Value {
    let service = json!({"namespace": "default", "name": "api", "port": port});
    json!({"metadata": {"name": NAME}, "spec": {"group": GROUP, "version": "v1", "service": service,
        "caBundle": extension.identity.bundle(), "groupPriorityMinimum": 1500, "versionPriority": 10}})
}

/// Returns a Service of type ExternalName that names this machine.
fn external_name(port: u16) -> Value {
    json!({"metadata": {"name": "api"}, "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}})
}

/// Waits until the APIService has a condition with this reason, and returns the condition.
async fn condition(client: &Client, reason: &str) -> Value {
    let current = async || {
        let service = client.get(&format!("{SERVICES}/{NAME}")).await;
        let conditions = service["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|one| one["reason"] == reason)
    };
    eventually(async || current().await.is_some()).await;
    current().await.expect("the condition")
}

/// Starts a server, and an extension API server that is available.
async fn start() -> (Server, Client, Extension) {
    let server = Server::builder().build().await.expect("a server");
    let extension = Extension::start().await;
    let client = register(&server, &extension).await;
    (server, client, extension)
}

async fn register(server: &Server, extension: &Extension) -> Client {
    let client = Client(server.service());
    client.make("/api/v1/namespaces/default/services", external_name(extension.port)).await;
    client.make(SERVICES, api_service(extension, extension.port)).await;
    let passed = condition(&client, "Passed").await;
    assert_eq!(
        (&passed["status"], &passed["message"]),
        (&json!("True"), &json!("all checks passed"))
    );
    eventually(async || client.send("GET", THINGS, &[], Bytes::new()).await.status() == 200).await;
    extension.take();
    client
}

/// Waits until a condition is true. A wait for a time only has to wait for other tasks. A wait for a socket needs the
/// clock to stand still for a while.
async fn eventually(is_so: impl AsyncFn() -> bool) {
    for _ in 0..200 {
        for _ in 0..200 {
            if is_so().await {
                return;
            }
            tokio::task::yield_now().await;
        }
        pass(Duration::from_secs(1)).await;
    }
    panic!("it is not so after minutes");
}

/// Moves the clock of timers. Sockets work in real time.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

async fn text<B: http_body::Body<Data = Bytes>>(response: Response<B>) -> (u16, String)
where
    B::Error: std::fmt::Debug,
{
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (code, String::from_utf8_lossy(&bytes).into_owned())
}

#[tokio::test]
async fn requests_reach_the_server_with_their_user_and_without_credentials() {
    let (server, _, extension) = start().await;
    let user = User {
        name: "ann".into(),
        uid: "7".into(),
        groups: ["system:masters".into(), "devs".into()].into(),
        extra: [("example.com/scope".into(), ["a".into(), "b".into()].into())].into(),
    };
    let client = Client(server.service_as(user));
    let hostile = [
        ("x-remote-user", "system:admin"),
        ("x-remote-group", "system:masters"),
        ("x-remote-uid", "0"),
        ("x-remote-extra-scope", "all"),
        ("x-forwarded-for", "10.1.1.1"),
        ("cookie", "a=b"),
        ("connection", "x-mine"),
        ("x-mine", "1"),
        ("audit-id", "id-1"),
    ];
    let path = format!("{THINGS}/a%20b?x=1&y=a%2Fb");
    let response = client.send("POST", &path, &hostile, Bytes::from_static(b"{\"a\":1}")).await;
    assert_eq!(response.headers()["x-served-by"], "extension");
    assert!(!response.headers().contains_key("access-control-allow-origin"));
    assert_eq!(text(response).await, (200, json!({"kind": "ThingList"}).to_string()));
    let [asked] = &extension.take()[..] else { panic!("one request") };
    assert_eq!(asked.line, format!("POST {path}"));
    assert_eq!(asked.body, "{\"a\":1}");
    let all = |name: &str| -> Vec<&str> {
        asked.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect()
    };
    let address = format!("localhost:{}", extension.port);
    for (name, values) in [
        ("x-remote-user", &["ann"][..]),
        ("x-remote-uid", &["7"]),
        ("x-remote-group", &["system:masters", "devs"]),
        ("x-remote-extra-example.com%2fscope", &["a", "b"]),
        ("x-remote-extra-scope", &[]),
        ("x-mine", &[]),
        ("cookie", &["a=b"]),
        ("audit-id", &["id-1"]),
        ("host", &[&*address]),
        ("x-forwarded-host", &[&*address]),
        ("x-forwarded-proto", &["https"]),
        ("x-forwarded-uri", &[&*format!("{THINGS}/a%20b")]),
    ] {
        assert_eq!(all(name), values, "{name}");
    }
    let token = format!("Bearer {}", server.admin_token());
    let headers = [("authorization", &*token)];
    let response = client.send("GET", THINGS, &headers, Bytes::new()).await;
    assert_eq!(response.status(), 200);
    let [asked] = &extension.take()[..] else { panic!("one request") };
    assert_eq!(asked.headers["x-remote-user"], "kubernetes-admin");
    assert!(!asked.headers.contains_key("authorization"));
    let (code, _) =
        text(client.send("GET", &format!("/apis/{GROUP}/v1/none"), &[], Bytes::new()).await).await;
    assert_eq!(code, 404);
}

#[tokio::test]
async fn who_may_not_is_refused_here() {
    let (server, _, extension) = start().await;
    let nobody = Client(server.service_as(User::authenticated("bob", [])));
    let (code, answer) = nobody.ask("GET", THINGS, Value::Null).await;
    let why = "things.shop.example.com is forbidden: User \"bob\" cannot list resource \"things\" in API group \"shop.example.com\" in the namespace \"default\"";
    assert_eq!((code, &answer["message"]), (StatusCode::FORBIDDEN, &json!(why)));
    // The extension API server gets the impersonated user.
    let admin = Client(server.service());
    let headers = [("impersonate-user", "bob"), ("impersonate-group", "system:masters")];
    assert_eq!(admin.send("GET", THINGS, &headers, Bytes::new()).await.status(), 200);
    let [asked] = &extension.take()[..] else { panic!("one request") };
    assert_eq!(asked.headers["x-remote-user"], "bob");
    assert!(!asked.headers.contains_key("impersonate-user"));
}

#[tokio::test]
async fn the_condition_follows_the_service_and_its_server() {
    let server = Server::builder().build().await.expect("a server");
    let (client, extension) = (Client(server.service()), Extension::start().await);
    client.make(SERVICES, api_service(&extension, 443)).await;
    let unavailable = async |reason: &str, message: &str| {
        let found = condition(&client, reason).await;
        assert_eq!((&found["status"], &found["message"]), (&json!("False"), &json!(message)));
        let response = client.send("GET", THINGS, &[], Bytes::new()).await;
        assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
        assert_eq!(text(response).await, (503, "service unavailable\n".to_owned()));
    };
    unavailable("ServiceNotFound", "service/api in \"default\" is not present").await;
    let services = "/api/v1/namespaces/default/services";
    let ports = json!([{"name": "web", "port": 80}]);
    client.make(services, json!({"metadata": {"name": "api"}, "spec": {"ports": ports}})).await;
    unavailable("ServicePortError", "service/api in \"default\" is not listening on port 443")
        .await;
    let ports = json!({"spec": {"ports": [{"name": "https", "port": 443}]}});
    client.patch(&format!("{services}/api"), "merge-patch+json", ports).await;
    unavailable("EndpointsNotFound", "cannot find endpointslices for service/api in \"default\"")
        .await;
    let slice = |ready: bool| {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "api-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "api"}},
            "addressType": "IPv4", "ports": [{"name": "https", "port": extension.port}],
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": ready}}]})
    };
    let put = async |ready| {
        let slice = slice(ready);
        server
            .put_unchecked("discovery.k8s.io/v1", "endpointslices", &slice)
            .await
            .expect("stored");
    };
    put(false).await;
    let why =
        "endpointslices for service/api in \"default\" have no addresses with port name \"https\"";
    unavailable("MissingEndpoints", why).await;
    put(true).await;
    let passed = condition(&client, "Passed").await;
    assert_eq!(passed["status"], "True");
    eventually(async || client.send("GET", THINGS, &[], Bytes::new()).await.status() == 200).await;
    extension.stop().await;
    let url = format!("https://127.0.0.1:{}/apis/{GROUP}/v1", extension.port);
    let refused = format!("dial tcp 127.0.0.1:{}: connect: connection refused", extension.port);
    let why = format!("failing or missing response from {url}: Get \"{url}\": {refused}");
    // Until it is noticed, requests fail.
    let (code, answer) = text(client.send("GET", THINGS, &[], Bytes::new()).await).await;
    assert_eq!((code, answer), (503, format!("error trying to reach service: {refused}\n")));
    unavailable("FailedDiscoveryCheck", &why).await;
    let metrics = text(client.send("GET", "/metrics", &[], Bytes::new()).await).await.1;
    let gauge = "aggregator_unavailable_apiservice{name=\"v1.shop.example.com\"} 1\n";
    assert!(metrics.contains(gauge) && metrics.contains("{name=\"v1.apps\"} 0\n"), "{metrics}");
}

#[tokio::test]
async fn an_untrusted_server_is_not_available() {
    let server = Server::builder().build().await.expect("a server");
    let (client, extension) = (Client(server.service()), Extension::start().await);
    client.make("/api/v1/namespaces/default/services", external_name(extension.port)).await;
    let mut service = api_service(&extension, extension.port);
    service["spec"]["caBundle"] = json!(Identity::own(|_| ()).bundle());
    client.make(SERVICES, service).await;
    let failed = condition(&client, "FailedDiscoveryCheck").await;
    let why = failed["message"].as_str().expect("a message");
    assert!(
        why.contains(
            "tls: failed to verify certificate: x509: certificate signed by unknown authority"
        ),
        "{why}"
    );
    let trusting = json!({"spec": {"caBundle": null, "insecureSkipTLSVerify": true}});
    client.patch(&format!("{SERVICES}/{NAME}"), "merge-patch+json", trusting).await;
    condition(&client, "Passed").await;
}

#[tokio::test]
async fn redirects_are_refused_unless_an_option_allows_them() {
    let path = format!("/apis/{GROUP}/v1/redirect");
    let (_, client, _) = start().await;
    let response = client.send("GET", &path, &[], Bytes::new()).await;
    assert!(!response.headers().contains_key("location"));
    let why = "the backend attempted to redirect this request, which is not permitted";
    assert_eq!(text(response).await, (502, why.to_owned()));
    let options = AggregationOptions { forward_redirects: true, ..AggregationOptions::default() };
    let server = Server::builder().aggregation(options).build().await.expect("a server");
    let extension = Extension::start().await;
    let client = register(&server, &extension).await;
    let response = client.send("GET", &path, &[], Bytes::new()).await;
    let location = format!("https://localhost:{}/elsewhere", extension.port);
    assert_eq!(response.status(), StatusCode::FOUND);
    assert_eq!(response.headers()["location"], &*location);
}

#[tokio::test]
async fn discovery_and_openapi_include_the_servers_documents() {
    let (_, client, extension) = start().await;
    let version = json!({"groupVersion": format!("{GROUP}/v1"), "version": "v1"});
    let group = json!({"name": GROUP, "versions": [version], "preferredVersion": version});
    let groups = client.get("/apis").await;
    let groups = groups["groups"].as_array().expect("groups");
    assert_eq!(groups.last(), Some(&group));
    assert_eq!(groups[0]["name"], "apiregistration.k8s.io");
    assert_eq!(client.get(&format!("/apis/{GROUP}")).await["kind"], "APIGroup");
    assert_eq!(client.get(&format!("/apis/{GROUP}/v1")).await["kind"], "APIResourceList");
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let last = async || {
        let response = client.send("GET", "/apis", &[("accept", aggregated)], Bytes::new()).await;
        let list: Value = serde_json::from_str(&text(response).await.1).expect("JSON");
        let last = list["items"].as_array().and_then(|items| items.last()).cloned();
        last.unwrap_or_default()
    };
    eventually(async || last().await["versions"][0]["freshness"] == "Current").await;
    let last_group = last().await;
    assert_eq!(last_group["metadata"]["name"], GROUP);
    assert_eq!(last_group["versions"][0]["resources"][0]["resource"], "things");
    eventually(async || {
        let index = client.get("/openapi/v3").await;
        index["paths"].get("apis/shop.example.com/v1").is_some()
    })
    .await;
    let index = client.get("/openapi/v3").await;
    let url = &index["paths"]["apis/shop.example.com/v1"]["serverRelativeURL"];
    assert_eq!(url, "/openapi/v3/apis/shop.example.com/v1?hash=1");
    // The server's own documents are kept.
    let own = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().expect("a URL");
    assert!(!own.contains("evil"), "{own}");
    assert_eq!(
        client.get("/openapi/v3/apis/shop.example.com/v1").await,
        json!({"openapi": "3.0.0"})
    );
    assert!(client.get("/openapi/v3/apis/apps/v1").await["info"].is_object());
    let listed = client.get("/").await;
    assert!(
        listed["paths"].as_array().expect("paths").contains(&json!("/apis/shop.example.com/v1"))
    );
    extension.stop().await;
    eventually(async || last().await["versions"][0]["freshness"] == "Stale").await;
    client.ask("DELETE", &format!("{SERVICES}/{NAME}"), Value::Null).await;
    eventually(async || last().await["metadata"]["name"] != GROUP).await;
    assert_eq!(client.ask("GET", THINGS, Value::Null).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn watches_and_upgraded_connections_are_streams() {
    let (server, client, _) = start().await;
    let path = format!("{THINGS}?watch=1");
    let mut body = client.send("GET", &path, &[], Bytes::new()).await.into_body();
    let mut names = Vec::new();
    while names.len() < 2 {
        names.extend(
            events(&mut body).await.iter().map(|event| event["object"]["metadata"]["name"].clone()),
        );
    }
    assert_eq!(names, ["a", "b"]);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (of_server, token) = (server.clone(), server.admin_token().to_owned());
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    tokio::spawn(async move { of_server.serve_plain(listener, std::future::pending()).await });
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
    let request = format!(
        "GET /apis/{GROUP}/v1/stream HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a byte"));
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    stream.write_all(b"abcd").await.expect("written");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("read");
    assert_eq!(answer, b"dcba");
}

#[tokio::test]
async fn an_answer_that_breaks_off_or_takes_too_long_fails() {
    let (_server, client, _extension) = start().await;
    for target in ["?stall", "/cut"] {
        let path = format!("/apis/shop.example.com/v1{target}");
        let response = client.send("GET", &path, &[], Bytes::new()).await;
        assert_eq!(response.status(), StatusCode::OK, "{target}");
        // Longer than the timeout of a request for a discovery document.
        pass(Duration::from_secs(6)).await;
        assert!(response.into_body().collect().await.is_err(), "{target}");
    }
}

#[tokio::test]
async fn the_server_identifies_itself_by_its_certificate() {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(DnType::CommonName, "front-proxy-client");
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    let proxy_client = Some((certificate.clone(), key.serialize_pem()));
    let options = AggregationOptions { proxy_client, ..AggregationOptions::default() };
    let server = Server::builder().aggregation(options).build().await.expect("a server");
    let extension = Extension::start().await;
    register(&server, &extension).await;
    let all = extension.all();
    assert!(all.iter().all(|asked| asked.certificate == "front-proxy-client"), "{all:?}");
    let other = KeyPair::generate().expect("a key").serialize_pem();
    let proxy_client = Some((certificate, other));
    let options = AggregationOptions { proxy_client, ..AggregationOptions::default() };
    let refused = Server::builder().aggregation(options).build().await.expect_err("another key");
    assert!(refused.to_string().starts_with("proxy-client-cert-file: "), "{refused}");
}

#[tokio::test]
async fn definitions_have_apiservices_that_come_back() {
    let client = Client::start().await;
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let version = |name: &str, served: bool| json!({"name": name, "served": served, "storage": name == "v1", "schema": schema});
    let definition = json!({"metadata": {"name": "things.shop.example.com"}, "spec": {"group": GROUP, "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"}, "versions": [version("v1", true), version("v2", false)]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    client.make(definitions, definition).await;
    let one = format!("{SERVICES}/{NAME}");
    let found = condition(&client, "Local").await;
    assert_eq!(found["message"], "Local APIServices are always available");
    let made = client.get(&one).await;
    let spec = json!({"group": GROUP, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100});
    assert_eq!(made["spec"], spec);
    assert_eq!(
        made["metadata"]["labels"],
        json!({"kube-aggregator.kubernetes.io/automanaged": "true"})
    );
    assert_eq!(
        client.ask("GET", &format!("{SERVICES}/v2.{GROUP}"), Value::Null).await.0,
        StatusCode::NOT_FOUND
    );
    let priority = json!({"spec": {"versionPriority": 7}});
    client.patch(&one, "merge-patch+json", priority.clone()).await;
    eventually(async || client.get(&one).await["spec"] == spec).await;
    client.ask("DELETE", &one, Value::Null).await;
    let is_new = |now: &Value| {
        now["metadata"]["uid"].is_string() && now["metadata"]["uid"] != made["metadata"]["uid"]
    };
    eventually(async || is_new(&client.get(&one).await)).await;
    // Without the label, the server does not restore it.
    let unlabelled = json!({"metadata": {"labels": null}, "spec": {"versionPriority": 7}});
    client.patch(&one, "merge-patch+json", unlabelled).await;
    client.ask("DELETE", &format!("{definitions}/things.shop.example.com"), Value::Null).await;
    eventually(async || client.ask("GET", THINGS, Value::Null).await.0 == StatusCode::NOT_FOUND)
        .await;
    assert_eq!(client.get(&one).await["spec"]["versionPriority"], 7);
    let labelled =
        json!({"metadata": {"labels": {"kube-aggregator.kubernetes.io/automanaged": "true"}}});
    client.patch(&one, "merge-patch+json", labelled).await;
    eventually(async || client.ask("GET", &one, Value::Null).await.0 == StatusCode::NOT_FOUND)
        .await;
    // APIServices of built-in groups are created again at the server's next start.
    client.ask("DELETE", &format!("{SERVICES}/v1.apps"), Value::Null).await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(
        client.ask("GET", &format!("{SERVICES}/v1.apps"), Value::Null).await.0,
        StatusCode::NOT_FOUND
    );
    assert_eq!(client.ask("GET", "/apis/apps/v1/deployments", Value::Null).await.0, StatusCode::OK);
}
