//! POST on a collection.

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::attempt::{CreatedBy, MAX_WRITE_ATTEMPTS, Write};
use super::{meta, stages};
use crate::decode;
use crate::request::RequestContext;
use crate::request::WriteOptions;
use crate::response::Body;
use evenkeel_apimachinery::status::StatusError;

/// Creates an object.
pub(super) async fn serve(
    request: &RequestContext<'_>,
    body: &Bytes,
) -> Result<Response<Body>, StatusError> {
    request.format()?;
    decode::check_media_type(request.header(CONTENT_TYPE))?;
    let options = WriteOptions::parse(request.query, request.user_agent(), "CreateOptions", false)?;
    let mut object = stages::decode(request, body, &options)?;
    let mut write = Write::new(request, options);
    stages::log_request_object(&write, &object);
    set_namespace(request, &mut object)?;
    request.warnings.add(meta::dedup_owner_references(&mut object, ""));
    let copy = request.api.authorizer.has_webhooks().then(|| object.clone());
    let mut written = write.create(object, CreatedBy::Post).await;
    for _ in 1..MAX_WRITE_ATTEMPTS {
        let is_undecided = write.answers.settle().await;
        let Some(object) = copy.clone().filter(|_| is_undecided) else { break };
        written = write.create(object, CreatedBy::Post).await;
    }
    stages::encode(&write, written?)
}

/// Sets the object's namespace to that of the path. Refuses an object with another namespace. Removes the namespace of
/// a cluster-scoped object.
///
/// Upstream: `EnsureObjectNamespaceMatchesRequestNamespace`.
pub(super) fn set_namespace(
    request: &RequestContext<'_>,
    object: &mut Value,
) -> Result<(), StatusError> {
    check_namespace(request, object)?;
    meta::set(object, "namespace", request.target.namespace);
    Ok(())
}

/// Refuses an object whose namespace differs from the path's.
pub(super) fn check_namespace(
    request: &RequestContext<'_>,
    object: &Value,
) -> Result<(), StatusError> {
    let path_namespace = request.target.namespace;
    let namespace = meta::text(object, "namespace");
    if !namespace.is_empty() && !path_namespace.is_empty() && namespace != path_namespace {
        return Err(StatusError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}
