//! PUT of an object or of its subresource.

use bytes::Bytes;
use http::Response;
use serde_json::Value;

use super::attempt::{AttemptError, CreatedBy, MAX_WRITE_ATTEMPTS, Write, Written};
use super::{create, meta, scale, stages};
use crate::custom::codec;
use crate::request::RequestContext;
use crate::request::WriteOptions;
use crate::resource::key;
use crate::response::Body;
use evenkeel_apimachinery::status::StatusError;

/// Replaces an object.
pub(super) async fn serve(
    request: &RequestContext<'_>,
    body: &Bytes,
) -> Result<Response<Body>, StatusError> {
    let options = WriteOptions::parse(request.query, request.user_agent(), "UpdateOptions", false)?;
    request.format()?;
    let resource = request.resource();
    let mut object = stages::decode(request, body, &options)?;
    let mut write = Write::new(request, options);
    stages::log_request_object(&write, &object);
    create::set_namespace(request, &mut object)?;
    check_name(request, &object)?;
    request.warnings.add(meta::dedup_owner_references(&mut object, ""));
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let result = attempt(&mut write, &object).await;
        if write.answers.settle().await {
            continue;
        }
        match result {
            Ok(written) => return stages::encode(&write, written),
            Err(AttemptError::Race | AttemptError::Taken) => {}
            Err(AttemptError::Refused(error)) => return Err(error),
        }
    }
    Err(StatusError::modified(&resource.name, request.target.name))
}

/// Refuses an object whose name is absent or differs from the path's.
fn check_name(request: &RequestContext<'_>, object: &Value) -> Result<(), StatusError> {
    let (name, path_name) = (meta::text(object, "name"), request.target.name);
    if name.is_empty() {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({path_name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if name != path_name {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({path_name})"
        )));
    }
    Ok(())
}

/// Attempts to update the object once.
async fn attempt(write: &mut Write<'_>, object: &Value) -> Result<Written, AttemptError> {
    let request = write.request;
    let key = key(&write.stored, request.target.namespace, request.target.name);
    let Some(entry) = request.api.store.latest(&write.stored.resource_prefix, &key) else {
        if request.target.subresource.is_empty() && write.stored.strategy.allow_create_on_update() {
            return Ok(write.create(object.clone(), CreatedBy::Put).await?);
        }
        return Err(StatusError::not_found(&write.stored.name, request.target.name).into());
    };
    let old = codec::decode(request.api, &write.stored, &entry).await?;
    let strategy = &write.stored.strategy;
    let subresource = request.target.subresource;
    let Some(before) = strategy.subresource_to_write(subresource, &old) else {
        return write.replace(&entry, &old, object.clone(), false).await;
    };
    write.check_uid(&old, object)?;
    let mut before = before?;
    let mut new = old.clone();
    strategy.write_subresource(subresource, &mut new, object).transpose()?;
    meta::set_requested_version(object, &mut new);
    let mut written = object.clone();
    scale::copy_managers_to_scale(request, &old, &mut before);
    scale::update_scale_managers(&request.kind(), &before, &mut written, &write.writer());
    let has_managed_fields =
        scale::copy_managers_to_object(request, &write.stored, &old, &written, &mut new);
    write.convert_out(&mut new);
    write.replace(&entry, &old, new, has_managed_fields).await
}
