//! Objects read live as JSON, changed and written back whole, so that fields that the lean views lack are kept.

use bytes::Bytes;
use evenkeel_api::{Encoding, View};
use evenkeel_runtime::client::{ApiError, Client, Metadata};
use http::{Request, header::ACCEPT};
use serde_json::Value;

/// An object as JSON, and its lean view.
pub(super) struct Live<V> {
    pub(super) object: Value,
    pub(super) view: V,
}

/// Reads one object live.
pub(super) async fn read<V: View>(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Live<V>, ApiError> {
    let path = format!("{}/{name}", V::kind().path(namespace));
    let problem =
        |reason: String| ApiError::Request { path: path.as_str().into(), reason: reason.into() };
    let request = Request::get(&path).header(ACCEPT, "application/json").body(Bytes::new());
    let answer = client.raw(request.map_err(|error| problem(error.to_string()))?).await?;
    let object =
        serde_json::from_slice(answer.body()).map_err(|error| problem(error.to_string()))?;
    let view = V::decode(answer.body(), Encoding::Json);
    Ok(Live { object, view: view.map_err(|error| problem(error.to_string()))? })
}

impl<V: View> Live<V> {
    /// Writes the status, with the resource version that was read as precondition.
    pub(super) async fn put_status(&self, client: &Client) -> Result<Metadata, ApiError> {
        let (kind, meta) = (V::kind(), self.view.meta());
        let body = Bytes::from(self.object.to_string());
        client.update(&kind, &meta.namespace, &meta.name, "status", body).await
    }
}
