//! The server through its service, in process.

mod admission;
mod aggregation;
mod authentication;
mod authorization;
mod conversion;
mod creation;
mod custom;
mod deletion;
mod durability;
mod encryption;
mod escalation;
mod exec;
mod extension;
mod flow;
mod full_disk;
mod hostile;
mod impersonation;
mod issuer;
mod kms;
mod limits;
mod noderestriction;
mod nodes;
mod owner_references;
mod proxy;
mod server;
mod services;
mod settings;
mod shards;
mod snapshot;
mod store;
mod transactions;
mod verbs;
mod webhook;
mod wire;

use bytes::Bytes;
use evenkeel_apiserver::{Body, Server};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use tower::Service as _;

/// A client of a server in this process.
struct Client(evenkeel_apiserver::Service);

impl Client {
    async fn start() -> Self {
        Self(Server::builder().build().await.expect("a server in memory").service())
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Response<Body> {
        let mut request =
            Request::builder().method(method.parse::<Method>().expect("a method")).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).expect("a request");
        self.0.clone().call(request).await.expect("it never fails")
    }

    async fn ask(&self, method: &str, path: &str, body: Value) -> (StatusCode, Value) {
        let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let media =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let response = self.send(method, path, &[("content-type", media)], bytes).await;
        let code = response.status();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// Server-side apply with the field manager `test`.
    async fn apply(&self, path: &str, body: Value) -> (StatusCode, Value) {
        self.patch(&format!("{path}?fieldManager=test&force=true"), "apply-patch+yaml", body).await
    }

    /// Sends a patch of one of the forms.
    async fn patch(&self, path: &str, form: &str, body: Value) -> (StatusCode, Value) {
        let media = format!("application/{form}");
        let headers = [("content-type", media.as_str())];
        let response = self.send("PATCH", path, &headers, body.to_string().into()).await;
        let code = response.status();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// Creates an object that the test needs.
    async fn make(&self, path: &str, body: Value) -> Value {
        let (code, made) = self.ask("POST", path, body).await;
        assert_eq!(code, StatusCode::CREATED, "{path}: {made}");
        made
    }

    async fn get(&self, path: &str) -> Value {
        self.ask("GET", path, Value::Null).await.1
    }
}

/// Returns the events in the next chunk of a stream.
async fn events(body: &mut Body) -> Vec<Value> {
    let frame = body.frame().await.expect("a frame").expect("no error").into_data().expect("data");
    frame
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| evenkeel_api::json::from_slice(l).expect("json"))
        .collect()
}
