//! Encoding of a written object in the negotiated format.

use http::{Response, StatusCode};

use crate::response::Body;
use crate::verbs::attempt::{Write, Written};
use crate::verbs::{meta, respond};
use evenkeel_apimachinery::status::StatusError;

/// Responds with the written subresource if it has its own kind (`scale`), and with the object otherwise. The status is
/// 201 if the object was created, and 200 otherwise.
pub(in crate::verbs) fn encode(
    write: &Write<'_>,
    mut written: Written,
) -> Result<Response<Body>, StatusError> {
    let (request, strategy) = (write.request, &write.stored.strategy);
    let subresource = request.target.subresource;
    if let Some(entry) = &written.entry {
        let version = itoa::Buffer::new().format(entry.revision).to_owned();
        meta::set(&mut written.object, "resourceVersion", &version);
    }
    if !subresource.is_empty()
        && let Some(subresource) = strategy.read_subresource(subresource, &written.object)
    {
        return respond::with_value(request, StatusCode::OK, &subresource?);
    }
    let code = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    match &written.entry {
        Some(stored) => respond::with_written(request, stored, &written.object, code),
        None => respond::with_value(request, code, &written.object),
    }
}
