//! Keys and values of etcd, by its JSON API.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

/// Returns all keys that begin with a prefix, each with its value.
pub(crate) async fn keys(url: &str, prefix: &str) -> Vec<(String, Vec<u8>)> {
    let mut end = prefix.as_bytes().to_vec();
    *end.last_mut().expect("a prefix") += 1;
    let body = json!({"key": STANDARD.encode(prefix), "range_end": STANDARD.encode(end)});
    let found = post(url, "/v3/kv/range", &body).await;
    let decode =
        |value: &Value| STANDARD.decode(value.as_str().unwrap_or_default()).expect("base64");
    let kvs = found["kvs"].as_array().cloned().unwrap_or_default();
    let kvs = kvs
        .iter()
        .map(|kv| (String::from_utf8(decode(&kv["key"])).expect("a text"), decode(&kv["value"])));
    kvs.collect()
}

/// Posts a request of the JSON API.
pub(crate) async fn post(url: &str, path: &str, body: &Value) -> Value {
    let address = url.strip_prefix("http://").expect("http");
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.expect("HTTP");
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    tokio::spawn(connection);
    let request = Request::post(path).header("host", address);
    let request = request.body(Full::new(bytes::Bytes::from(body.to_string()))).expect("a request");
    let response = sender.send_request(request).await.expect("an answer");
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    serde_json::from_slice(&bytes).expect("JSON")
}
