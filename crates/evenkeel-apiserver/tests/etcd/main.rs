//! The server on a real etcd: alone, with a second one, and beside upstream's kube-apiserver.
//!
//! The tests run if `EVENKEEL_UPSTREAM_BIN` names the folder of upstream's programs (`tests/upstream/build FOLDER`
//! builds them).

mod alone;
mod beside_upstream;
mod etcd;
#[path = "../parity/examples.rs"]
mod examples;
#[path = "../parity/mod.rs"]
mod parity;
mod proxy;
mod shared;

use std::time::Duration;

use evenkeel_apiserver::{EtcdOptions, Server};
use parity::kube_apiserver::{Etcd, TOKENS};
use parity::servers::{Answer, Connection, Oracle, Sent};
use serde_json::{Value, json};

/// Starts etcd. Without upstream's programs, prints that the test is skipped, and returns `None`.
fn start_etcd() -> Option<Etcd> {
    parity::binaries("etcd").map(|binaries| Etcd::start(&binaries))
}

/// Starts a server on etcd.
async fn server(url: &str) -> Server {
    let builder = Server::builder().tokens_csv(TOKENS);
    let options = EtcdOptions::new([url.to_owned()]);
    builder.etcd(options).build().await.expect("a server")
}

/// Returns a connection to a server.
async fn connect(server: &Server) -> Connection {
    Oracle::Embedded(server.clone()).connect().await
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[expect(clippy::needless_pass_by_value, reason = "it reads better")]
fn map(name: &str, data: Value) -> Value {
    json!({"metadata": {"name": name}, "data": data})
}

/// Returns the body of a response, which must have this code.
#[track_caller]
fn body(answer: Answer, code: u16) -> Value {
    assert_eq!(answer.code, code, "{}", answer.body);
    answer.body
}

fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().expect("a version").to_owned()
}

fn sent(method: http::Method, path: &str, body: Value) -> Sent {
    let media = if method == http::Method::PATCH {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    Sent { method, path: path.to_owned(), media, body }
}

/// Opens a watch of the ConfigMaps.
async fn watch(server: &Server, revision: &str) -> parity::servers::Stream {
    let path = format!("{MAPS}?watch=1&resourceVersion={revision}");
    let request = http::Request::get(path).header("host", "localhost");
    let request = request.body(http_body_util::Full::default()).expect("a request");
    Oracle::Embedded(server.clone()).stream(request).await
}

/// Waits until a condition holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..600 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what}");
}
