//! POST on a collection.

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::meta;
use super::write::{Creates, Write};
use crate::decode;
use crate::pipeline::Ask;
use crate::pipeline::query::WriteOptions;
use crate::serve::Body;
use evenkeel_apimachinery::status::StatusError;

/// Makes an object.
pub(super) async fn serve(ask: &Ask<'_>, body: &Bytes) -> Result<Response<Body>, StatusError> {
    let options = WriteOptions::parse(ask.query, ask.user_agent(), "CreateOptions", false)?;
    ask.format(crate::output::Purpose::Object)?;
    let resource = ask.resource();
    let decoded = decode::object(
        resource,
        &resource.gvk,
        ask.header(CONTENT_TYPE),
        body,
        options.validation,
    )?;
    let mut object = decoded.object;
    place(ask, &mut object)?;
    let mut write = Write::new(ask, options);
    write.warnings = decoded.warnings;
    let written = write.create(object, Creates::Post).await?;
    write.respond(&written)
}

/// Gives the object the namespace of the path; another one is refused.
pub(super) fn place(ask: &Ask<'_>, object: &mut Value) -> Result<(), StatusError> {
    let namespace = ask.target.namespace;
    let given = meta::text(object, "namespace");
    if !given.is_empty() && given != namespace {
        return Err(StatusError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    meta::set(object, "namespace", namespace);
    Ok(())
}
