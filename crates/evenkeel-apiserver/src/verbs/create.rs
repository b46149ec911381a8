//! POST on a collection.

use bytes::Bytes;
use http::Response;
use serde_json::Value;

use super::attempt::{Creates, Write};
use super::{meta, stages};
use crate::request::RequestContext;
use crate::request::WriteOptions;
use crate::response::Body;
use evenkeel_apimachinery::status::StatusError;

/// Creates an object.
pub(super) async fn serve(
    request: &RequestContext<'_>,
    body: &Bytes,
) -> Result<Response<Body>, StatusError> {
    let options = WriteOptions::parse(request.query, request.user_agent(), "CreateOptions", false)?;
    request.format()?;
    let mut object = stages::decode(request, body, &options)?;
    let mut write = Write::new(request, options);
    stages::log_request_object(&write, &object);
    place(request, &mut object)?;
    let written = write.create(object, Creates::Post).await?;
    stages::encode(&write, &written)
}

/// Sets the object's namespace to the path's. Refuses an object of another namespace. A cluster-scoped object loses its
/// namespace.
///
/// Upstream: `EnsureObjectNamespaceMatchesRequestNamespace`.
pub(super) fn place(request: &RequestContext<'_>, object: &mut Value) -> Result<(), StatusError> {
    check_namespace(request, object)?;
    meta::set(object, "namespace", request.target.namespace);
    Ok(())
}

/// Refuses an object whose namespace differs from the path's.
pub(super) fn check_namespace(
    request: &RequestContext<'_>,
    object: &Value,
) -> Result<(), StatusError> {
    let (namespace, given) = (request.target.namespace, meta::text(object, "namespace"));
    if !given.is_empty() && !namespace.is_empty() && given != namespace {
        return Err(StatusError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}
