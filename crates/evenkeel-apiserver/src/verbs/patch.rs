//! PATCH of an object or of its subresource, and server-side apply.

use std::borrow::Cow;

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::attempt::{AttemptError, Creates, MAX_WRITE_ATTEMPTS, Write, Written};
use super::{create, meta, scale, stages};
use crate::custom::codec;
use crate::request::RequestContext;
use crate::request::WriteOptions;
use crate::resource::key;
use crate::response::Body;
use crate::store::Entry;
use evenkeel_apimachinery::patch::{self, PatchType, Patched};
use evenkeel_apimachinery::status::StatusError;

/// Patches an object.
pub(super) async fn serve(
    request: &RequestContext<'_>,
    body: &Bytes,
) -> Result<Response<Body>, StatusError> {
    let form = form(request)?;
    let options = WriteOptions::parse(
        request.query,
        request.user_agent(),
        "PatchOptions",
        form == PatchType::Apply,
    )?;
    request.format()?;
    // The patch of an apply is YAML, of which JSON is a part.
    request.audit.request_patch(|| evenkeel_apimachinery::decode::file(body).ok());
    let mut write = Write::new(request, options);
    for _ in 0..MAX_WRITE_ATTEMPTS {
        match once(&mut write, form, body).await {
            Ok(written) => return stages::encode(&write, &written),
            Err(AttemptError::Race | AttemptError::Taken) => {}
            Err(AttemptError::Refused(error)) => return Err(error),
        }
    }
    Err(StatusError::modified(&request.resource().name, request.target.name))
}

/// Returns the patch type of the request's `Content-Type`.
fn form(request: &RequestContext<'_>) -> Result<PatchType, StatusError> {
    let content_type = request.header(CONTENT_TYPE);
    let media = content_type.split(';').next().unwrap_or_default().trim();
    Ok(match media {
        "application/json-patch+json" => PatchType::Json,
        "application/merge-patch+json" => PatchType::Merge,
        "application/strategic-merge-patch+json" if request.resource().custom.is_none() => {
            PatchType::Strategic
        }
        "application/apply-patch+yaml" => PatchType::Apply,
        _ if request.resource().custom.is_some() => {
            return Err(StatusError::unsupported_media_type(&[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/apply-patch+yaml",
            ]));
        }
        _ => {
            return Err(StatusError::unsupported_media_type(&[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
                "application/apply-patch+yaml",
                "application/apply-patch+cbor",
            ]));
        }
    })
}

/// Attempts the patch once.
async fn once(
    write: &mut Write<'_>,
    form: PatchType,
    body: &Bytes,
) -> Result<Written, AttemptError> {
    let request = write.request;
    let stored = write.stored.clone();
    let key = key(&stored, request.target.namespace, request.target.name);
    let Some(entry) = request.api.store.latest(&stored.resource_prefix, &key) else {
        if form == PatchType::Apply && request.target.subresource.is_empty() {
            return Ok(apply_new(write, body).await?);
        }
        return Err(StatusError::not_found(&stored.name, request.target.name).into());
    };
    let old = codec::decode(request.api, &stored, &entry).await?;
    let part = stored.strategy.part_to_patch(request.target.subresource, &old).map(Ok);
    if let Some(part) = part.or_else(|| stored.strategy.read_part(request.target.subresource, &old))
    {
        return patch_part(write, form, body, &entry, &old, part?).await;
    }
    let mut current = Cow::Borrowed(&old);
    if request.resource().converts() {
        write.convert_out(current.to_mut());
    }
    let Patched { object, warnings } = patched(write, form, body, &current)?;
    write.request.warnings.add(warnings);
    check_identity(request, &object)?;
    write.replace(&entry, &old, object, form == PatchType::Apply).await
}

fn patched(
    write: &Write<'_>,
    form: PatchType,
    body: &Bytes,
    current: &Value,
) -> Result<Patched, StatusError> {
    let request = write.request;
    let kind = request.kind();
    let schema = request.resource().schema(&kind);
    if form == PatchType::Apply {
        let writer = write.writer();
        let force = write.options.force.unwrap_or(false);
        return patch::apply(
            &kind,
            schema.as_ref(),
            Some(current),
            body,
            &writer,
            force,
            write.options.validation,
        );
    }
    patch::patch(&kind, schema.as_ref(), form, current, body, write.options.validation)
}

/// Patches a view of the object, and writes the result to the object.
async fn patch_part(
    write: &mut Write<'_>,
    form: PatchType,
    body: &Bytes,
    entry: &std::sync::Arc<Entry>,
    old: &Value,
    part: Value,
) -> Result<Written, AttemptError> {
    let request = write.request;
    let mut before = part;
    let managed = scale::is_managed(request);
    if managed {
        scale::show(&request.kind(), old, &mut before);
    }
    let Patched { object: mut part, warnings } = patched(write, form, body, &before)?;
    write.request.warnings.add(warnings);
    check_identity(request, &part)?;
    let mut new = old.clone();
    if let Some(result) =
        write.stored.strategy.write_part(request.target.subresource, &mut new, &part)
    {
        result?;
    }
    if managed {
        scale::check_uid(request, old, &part)?;
    }
    let version = meta::text(&part, "resourceVersion").to_owned();
    meta::set(&mut new, "resourceVersion", &version);
    if managed && form != PatchType::Apply {
        scale::track(&request.kind(), &before, &mut part, &write.writer());
    }
    let tracked =
        !managed || scale::settle(&request.kind(), &write.stored.gvk, old, &part, &mut new);
    write.convert_out(&mut new);
    write.replace(entry, old, new, tracked).await
}

/// Refuses a patch that changes the name or the namespace of the object.
///
/// Upstream: `EnsureObjectNamespaceMatchesRequestNamespace`, `checkName`.
fn check_identity(request: &RequestContext<'_>, object: &Value) -> Result<(), StatusError> {
    create::check_namespace(request, object)?;
    let name = meta::text(object, "name");
    if name.is_empty() {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            request.target.name
        )));
    }
    if name != request.target.name {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            request.target.name
        )));
    }
    Ok(())
}

/// Creates the object of an apply if it does not exist.
async fn apply_new(write: &mut Write<'_>, body: &Bytes) -> Result<Written, StatusError> {
    let request = write.request;
    let force = write.options.force.unwrap_or(false);
    let Patched { mut object, warnings } = patch::apply(
        &request.resource().gvk,
        request.resource().schema(&request.resource().gvk).as_ref(),
        None,
        body,
        &write.writer(),
        force,
        write.options.validation,
    )?;
    write.request.warnings.add(warnings);
    write.absent_uid(&object, Creates::Apply)?;
    check_identity(request, &object)?;
    create::place(request, &mut object)?;
    write.create(object, Creates::Apply).await
}
