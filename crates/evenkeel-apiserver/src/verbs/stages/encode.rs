//! Encoding of a written object in the negotiated format.

use http::{Response, StatusCode};
use serde_json::Value;

use crate::response::Body;
use crate::verbs::attempt::{Write, Written};
use crate::verbs::{meta, respond};
use evenkeel_apimachinery::status::StatusError;

/// Responds with the written subresource if it has its own kind (`scale`), and with the object otherwise. The status is
/// 201 if the object was created, and 200 otherwise.
pub(in crate::verbs) fn encode(
    write: &Write<'_>,
    written: &Written,
) -> Result<Response<Body>, StatusError> {
    let (request, strategy) = (write.request, &write.stored.strategy);
    let subresource = request.target.subresource;
    if !subresource.is_empty()
        && let Some(subresource) =
            strategy.read_subresource(subresource, &with_resource_version(written))
    {
        return respond::with_value(request, StatusCode::OK, &subresource?);
    }
    let code = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    match &written.entry {
        Some(stored) => respond::with_entry(request, &request.format()?, stored, code),
        None => respond::with_value(request, code, &written.object),
    }
}

fn with_resource_version(written: &Written) -> Value {
    let mut object = written.object.clone();
    if let Some(entry) = &written.entry {
        meta::set(&mut object, "resourceVersion", itoa::Buffer::new().format(entry.revision));
    }
    object
}
