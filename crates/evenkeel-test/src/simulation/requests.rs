//! Requests of a test's user. Every method except `send` panics if the server returns an error.

use bytes::Bytes;
use evenkeel_runtime::client::{ApiError, Client};
use http::{Method, Request, header};
use serde_json::{Value, json};

/// Client of the test's user. It takes paths of the API, such as `/api/v1/nodes`.
#[derive(Debug, Clone)]
pub struct Requests(pub(super) Client);

impl Requests {
    /// Sends a request with a JSON body, or without a body if `body` is null. Returns the JSON response.
    ///
    /// # Errors
    /// Returns the server's error status.
    pub async fn send(
        &self,
        method: Method,
        target: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<Value, ApiError> {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let mut request = Request::builder().method(method).uri(target);
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let request = request.header(header::ACCEPT, "application/json").body(body);
        let request = request.unwrap_or_else(|error| panic!("{target}: {error}"));
        let answer = self.0.raw(request).await?;
        let answer = serde_json::from_slice(answer.body());
        Ok(answer.unwrap_or_else(|error| panic!("{target}: {error}")))
    }

    async fn send_or_panic(
        &self,
        method: Method,
        target: &str,
        content_type: &str,
        body: &Value,
    ) -> Value {
        let answer = self.send(method.clone(), target, content_type, body).await;
        answer.unwrap_or_else(|error| panic!("{method} {target}: {error}"))
    }

    /// Creates an object in the collection at `path`.
    pub async fn create(&self, path: &str, object: &Value) -> Value {
        self.send_or_panic(Method::POST, path, "application/json", object).await
    }

    /// Server-side applies `object` at `path`, with field manager `user`.
    pub async fn apply(&self, path: &str, object: &Value) -> Value {
        let target = format!("{path}?fieldManager=user&force=true");
        self.send_or_panic(Method::PATCH, &target, "application/apply-patch+yaml", object).await
    }

    /// Sends a JSON merge patch of the object at `path`.
    pub async fn merge(&self, path: &str, patch: &Value) -> Value {
        self.send_or_panic(Method::PATCH, path, "application/merge-patch+json", patch).await
    }

    /// Deletes the object at `path`; `propagation` is `Background`, `Foreground` or `Orphan`.
    pub async fn delete(&self, path: &str, propagation: &str) -> Value {
        let options = json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation,
        });
        self.send_or_panic(Method::DELETE, path, "application/json", &options).await
    }

    /// Returns the object at `path`; `None` if it does not exist.
    pub async fn get(&self, path: &str) -> Option<Value> {
        match self.send(Method::GET, path, "", &Value::Null).await {
            Ok(object) => Some(object),
            Err(error) if error.is_not_found() => None,
            Err(error) => panic!("GET {path}: {error}"),
        }
    }

    /// Returns the objects of the collection at `path`, which may include a query.
    pub async fn list(&self, path: &str) -> Vec<Value> {
        match self.send_or_panic(Method::GET, path, "", &Value::Null).await["items"].take() {
            Value::Array(items) => items,
            other => panic!("GET {path}: items are {other}"),
        }
    }
}
