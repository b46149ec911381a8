//! Aggregation stage: sends the requests for APIs of extension API servers on to them.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;

use crate::aggregation::forward::{self, Forwarded};
use crate::aggregation::remotes::Remote;
use crate::api::Api;
use crate::openapi;
use crate::response::Body;
use evenkeel_apimachinery::status::StatusError;

/// Returns the API of an extension API server that a path belongs to, or whose OpenAPI document it is.
pub(super) fn remote(api: &Api, path: &str) -> Option<Arc<Remote>> {
    let remotes = api.aggregation.current();
    if let Some(remote) = remotes.of_path(path) {
        return Some(remote.clone());
    }
    let name = path.strip_prefix("/openapi/v3/").filter(|_| !remotes.all.is_empty())?;
    remotes.of_openapi(name).filter(|_| !openapi::is_own(api, name)).cloned()
}

/// Sends a request on to an extension API server.
///
/// Upstream: `proxyHandler.ServeHTTP`.
pub(super) async fn aggregate<B>(
    forwarded: &Forwarded<'_>,
    remote: &Remote,
    body: Pin<&mut B>,
) -> Result<Response<Body>, StatusError>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: std::fmt::Display,
{
    forward::serve(forwarded, remote, body).await
}
