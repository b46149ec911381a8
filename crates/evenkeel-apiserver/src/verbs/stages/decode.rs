//! Decoding of a create's or an update's body.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use serde_json::Value;

use crate::decode;
use crate::request::{RequestContext, WriteOptions};
use evenkeel_apimachinery::status::StatusError;

/// Returns the object of a body in the request's version. The options determine whether unknown fields are errors,
/// cause warnings or are dropped.
pub(in crate::verbs) fn decode(
    request: &RequestContext<'_>,
    body: &Bytes,
    options: &WriteOptions,
) -> Result<Value, StatusError> {
    let (kind, content_type) = (request.kind(), request.header(CONTENT_TYPE));
    let decoded =
        decode::object(request.resource(), &kind, content_type, body, options.validation)?;
    request.warnings.add(decoded.warnings);
    decoded.refusal.map_or(Ok(decoded.object), Err)
}
