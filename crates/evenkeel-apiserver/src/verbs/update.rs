//! PUT of an object or of a part of it.

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::write::{Creates, Lost, TRIES, Write, Written};
use super::{answer_value, create, current, meta, scale};
use crate::decode;
use crate::pipeline::query::WriteOptions;
use crate::pipeline::{Ask, warn};
use crate::resource::GroupVersionKind;
use crate::resource::key;
use crate::serve::Body;
use evenkeel_apimachinery::status::StatusError;

/// Replaces an object.
pub(super) async fn serve(ask: &Ask<'_>, body: &Bytes) -> Result<Response<Body>, StatusError> {
    let options = WriteOptions::parse(ask.query, ask.user_agent(), "UpdateOptions", false)?;
    ask.format(crate::output::Purpose::Object)?;
    let resource = ask.resource();
    let kind: GroupVersionKind = part_kind(ask);
    let decoded =
        decode::object(resource, &kind, ask.header(CONTENT_TYPE), body, options.validation)?;
    let mut object = decoded.object;
    named(ask, &object)?;
    create::place(ask, &mut object)?;
    let mut write = Write::new(ask, options);
    write.warnings = decoded.warnings;
    for _ in 0..TRIES {
        match once(&mut write, &object).await {
            Ok(written) => return respond(&write, &written),
            Err(Lost::Race | Lost::Taken) => {}
            Err(Lost::Refused(error)) => return Err(error),
        }
    }
    Err(StatusError::modified(&resource.name, ask.target.name))
}

/// The kind that the path takes: the resource's, or that of a part which is a view.
pub(super) fn part_kind(ask: &Ask<'_>) -> GroupVersionKind {
    let resource = ask.resource();
    resource
        .subresource(ask.target.subresource)
        .map_or_else(|| resource.gvk.clone(), |part| part.kind.clone())
}

/// Answers the object, or the part that was written.
pub(super) fn respond(write: &Write<'_>, written: &Written) -> Result<Response<Body>, StatusError> {
    let ask = write.ask;
    match write.stored.hooks.read_part(ask.target.subresource, &with_version(written)) {
        Some(part) => {
            let mut response = answer_value(ask, http::StatusCode::OK, &part?)?;
            warn(&mut response, &write.warnings);
            Ok(response)
        }
        None => write.respond(written),
    }
}

fn with_version(written: &Written) -> Value {
    let mut object = written.object.clone();
    if let Some(entry) = &written.entry {
        meta::set(&mut object, "resourceVersion", itoa::Buffer::new().format(entry.revision));
    }
    object
}

fn named(ask: &Ask<'_>, object: &Value) -> Result<(), StatusError> {
    let (name, wanted) = (meta::text(object, "name"), ask.target.name);
    if name.is_empty() {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        )));
    }
    if name != wanted {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({wanted})"
        )));
    }
    Ok(())
}

async fn once(write: &mut Write<'_>, object: &Value) -> Result<Written, Lost> {
    let ask = write.ask;
    let key = key(&write.stored, ask.target.namespace, ask.target.name);
    let Some(entry) = ask.api.store.peek(&write.stored.shelf, &key) else {
        if ask.target.subresource.is_empty() && write.stored.hooks.allow_create_on_update() {
            return Ok(write.create(object.clone(), Creates::Put).await?);
        }
        return Err(StatusError::not_found(&write.stored.name, ask.target.name).into());
    };
    let old = current::decode(ask.api, &write.stored, &entry).await?;
    let mut new = old.clone();
    let part = write.stored.hooks.write_part(
        &write.context(ask.target.name),
        ask.target.subresource,
        &mut new,
        object,
    );
    match part {
        None => write.replace(&entry, &old, object.clone(), false).await,
        Some(result) => {
            result?;
            let version = meta::text(object, "resourceVersion").to_owned();
            meta::set(&mut new, "resourceVersion", &version);
            let kind = part_kind(ask);
            let managed = scale::is_managed(ask);
            let before = managed
                .then(|| write.stored.hooks.read_part(ask.target.subresource, &old).transpose())
                .transpose()?
                .flatten();
            let mut part = object.clone();
            if let Some(mut before) = before {
                scale::show(&kind, &old, &mut before);
                scale::track(&kind, &before, &mut part, &super::patch::writer(write));
            }
            let tracked =
                !managed || scale::settle(&kind, &write.stored.gvk, &old, &part, &mut new);
            write.convert_out(&mut new);
            write.replace(&entry, &old, new, tracked).await
        }
    }
}
