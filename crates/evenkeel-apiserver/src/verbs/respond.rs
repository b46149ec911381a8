//! Responses of the verbs in the negotiated format.

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::Value;

use crate::output::{Format, Purpose};
use crate::request::RequestContext;
use crate::response::{Body, answer};
use crate::store::{Encoded, Entry};
use evenkeel_apimachinery::status::StatusError;

/// Responds with an object that is not stored in this form: a subresource, a review, a deleted
/// object, or the object of a dry run.
pub(super) fn with_value(
    request: &RequestContext<'_>,
    code: StatusCode,
    object: &Value,
) -> Result<Response<Body>, StatusError> {
    let format = request.format()?;
    format.check(
        request.resource(),
        request.target.subresource,
        &request.query.0,
        Purpose::Object,
    )?;
    let bytes = encode_value(request, &format, object)?;
    Ok(answer(code, format.content_type(Purpose::Object), Body::whole(bytes)))
}

/// Encodes an object in the format of the response.
fn encode_value(
    request: &RequestContext<'_>,
    format: &Format,
    object: &Value,
) -> Result<Bytes, StatusError> {
    let mut bytes = Encoded::plain(object);
    if format.is_stored_form(request.resource()) {
        bytes.push(b'\n');
        return Ok(bytes.into());
    }
    format.object(request.resource(), &bytes, request.now)
}

/// Returns JSON followed by a newline.
fn with_newline(json: &[u8]) -> Bytes {
    [json, b"\n"].concat().into()
}

/// Responds with a Status of success, as deletions and bindings do.
pub(super) fn with_status(
    request: &RequestContext<'_>,
    code: StatusCode,
    status: &Value,
) -> Response<Body> {
    let bytes = serde_json::to_vec(status).unwrap_or_default();
    let (content_type, bytes) = Format::status(request.headers, &request.query.0, &bytes);
    answer(code, content_type, Body::whole(bytes))
}

/// Responds with an object that was just written, whose stored state is `entry`.
pub(super) fn with_written(
    request: &RequestContext<'_>,
    entry: &Entry,
    object: &Value,
    code: StatusCode,
) -> Result<Response<Body>, StatusError> {
    let format = request.format()?;
    if format.is_stored_protobuf(request.resource()) {
        // The caller has the object, so its stored JSON need not be decoded.
        entry.protobuf(|_| Format::message_of(request.resource(), object))?;
    }
    with_entry(request, &format, entry, code)
}

/// Responds with a stored object.
pub(super) fn with_entry(
    request: &RequestContext<'_>,
    format: &Format,
    entry: &Entry,
    code: StatusCode,
) -> Result<Response<Body>, StatusError> {
    let resource = request.resource();
    format.check(resource, request.target.subresource, &request.query.0, Purpose::Object)?;
    let bytes = if format.is_stored_form(resource) {
        with_newline(entry.json())
    } else if format.is_stored_protobuf(resource) {
        // Watches send the same message.
        let message = entry.protobuf(|json| Format::message(resource, json))?;
        format.message_object(resource, message)?.into()
    } else {
        format.object(resource, entry.json(), request.now)?
    };
    Ok(answer(code, format.content_type(Purpose::Object), Body::whole(bytes)))
}
