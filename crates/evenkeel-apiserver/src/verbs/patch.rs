//! PATCH of an object or of its subresource, and server-side apply.

use std::borrow::Cow;

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::attempt::{AttemptError, CreatedBy, MAX_WRITE_ATTEMPTS, Write, Written};
use super::{create, meta, scale, stages};
use crate::custom::codec;
use crate::request::RequestContext;
use crate::request::WriteOptions;
use crate::resource::key;
use crate::response::Body;
use crate::store::Entry;
use evenkeel_apimachinery::patch::{self, PatchType, Patched};
use evenkeel_apimachinery::status::StatusError;
use evenkeel_tasks::run_busy;

/// Maximum length in bytes of a patch that is applied on the runtime's thread without giving up its other tasks.
const MAX_INLINE_BYTES: usize = 64 * 1024;

/// Patches an object.
pub(super) async fn serve(
    request: &RequestContext<'_>,
    body: &Bytes,
) -> Result<Response<Body>, StatusError> {
    let patch_type = patch_type(request)?;
    let options = WriteOptions::parse(
        request.query,
        request.user_agent(),
        "PatchOptions",
        patch_type == PatchType::Apply,
    )?;
    request.format()?;
    // The patch of an apply is YAML. The other patches are JSON, which the YAML parser also reads.
    request.audit.request_patch(|| evenkeel_apimachinery::decode::file(body).ok());
    let mut write = Write::new(request, options);
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let result = attempt(&mut write, patch_type, body).await;
        if write.answers.settle().await {
            continue;
        }
        match result {
            Ok(written) => return stages::encode(&write, written),
            Err(AttemptError::Race | AttemptError::Taken) => {}
            Err(AttemptError::Refused(error)) => return Err(error),
        }
    }
    Err(StatusError::modified(&request.resource().name, request.target.name))
}

/// Returns the patch type of the request's `Content-Type`.
pub(super) fn patch_type(request: &RequestContext<'_>) -> Result<PatchType, StatusError> {
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

/// Attempts to patch the object once.
async fn attempt(
    write: &mut Write<'_>,
    patch_type: PatchType,
    body: &Bytes,
) -> Result<Written, AttemptError> {
    let request = write.request;
    let stored = write.stored.clone();
    let key = key(&stored, request.target.namespace, request.target.name);
    let Some(entry) = request.api.store.latest(&stored.resource_prefix, &key) else {
        if patch_type == PatchType::Apply && request.target.subresource.is_empty() {
            return Ok(apply_new(write, body).await?);
        }
        patch::check_syntax(patch_type, body)?;
        return Err(StatusError::not_found(&stored.name, request.target.name).into());
    };
    let old = codec::decode(request.api, &stored, &entry).await?;
    let subresource_name = request.target.subresource;
    if let Some(subresource) = stored.strategy.subresource_to_write(subresource_name, &old) {
        return patch_subresource(write, patch_type, body, &entry, &old, subresource?).await;
    }
    let mut current = Cow::Borrowed(&old);
    if request.resource().converts() {
        write.convert_out(current.to_mut());
    }
    let Patched { object, warnings } = apply_patch(write, patch_type, body, &current)?;
    write.request.warnings.add(warnings);
    check_identity(request, &object)?;
    write.replace(&entry, &old, object, patch_type == PatchType::Apply).await
}

/// Applies the patch to an object in the request's version.
fn apply_patch(
    write: &Write<'_>,
    patch_type: PatchType,
    body: &Bytes,
    current: &Value,
) -> Result<Patched, StatusError> {
    let request = write.request;
    let kind = request.kind();
    let schema = request.resource().schema(&kind);
    let validation = write.options.validation;
    let apply = || match patch_type {
        PatchType::Apply => {
            let writer = write.writer();
            let force = write.options.force.unwrap_or(false);
            patch::apply(&kind, schema.as_ref(), Some(current), body, &writer, force, validation)
        }
        _ => patch::patch(&kind, schema.as_ref(), patch_type, current, body, validation),
    };
    if body.len() > MAX_INLINE_BYTES { run_busy(apply) } else { apply() }
}

/// Patches a subresource with its own kind, such as `scale`, and changes the object accordingly.
async fn patch_subresource(
    write: &mut Write<'_>,
    patch_type: PatchType,
    body: &Bytes,
    entry: &std::sync::Arc<Entry>,
    old: &Value,
    subresource: Value,
) -> Result<Written, AttemptError> {
    let request = write.request;
    let mut before = subresource;
    scale::copy_managers_to_scale(request, old, &mut before);
    if patch_type == PatchType::Apply {
        scale::remove_unset_replicas(&mut before);
    }
    let Patched { object: mut patched, warnings } = apply_patch(write, patch_type, body, &before)?;
    write.request.warnings.add(warnings);
    check_identity(request, &patched)?;
    let mut new = old.clone();
    if let Some(result) =
        write.stored.strategy.write_subresource(request.target.subresource, &mut new, &patched)
    {
        result?;
    }
    scale::check_uid(request, old, &patched)?;
    meta::set_requested_version(&patched, &mut new);
    if patch_type != PatchType::Apply {
        scale::update_scale_managers(&request.kind(), &before, &mut patched, &write.writer());
    }
    let has_managed_fields =
        scale::copy_managers_to_object(request, &write.stored, old, &patched, &mut new);
    write.convert_out(&mut new);
    write.replace(entry, old, new, has_managed_fields).await
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

/// Creates the object of a server-side apply, which does not exist.
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
    write.check_absent_uid(&object, CreatedBy::Apply)?;
    check_identity(request, &object)?;
    create::set_namespace(request, &mut object)?;
    write.create(object, CreatedBy::Apply).await
}
