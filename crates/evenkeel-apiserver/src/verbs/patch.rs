//! PATCH of an object or of a part of it, and server-side apply.

use std::borrow::Cow;

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::write::{Creates, Lost, TRIES, Write, Written};
use super::{create, current, meta, scale, update};
use crate::pipeline::Ask;
use crate::pipeline::query::WriteOptions;
use crate::resource::key;
use crate::serve::Body;
use crate::store::Entry;
use evenkeel_apimachinery::patch::{self, PatchType, Patched, Writer};
use evenkeel_apimachinery::status::StatusError;

/// Patches an object.
pub(super) async fn serve(ask: &Ask<'_>, body: &Bytes) -> Result<Response<Body>, StatusError> {
    let form = form(ask)?;
    let options =
        WriteOptions::parse(ask.query, ask.user_agent(), "PatchOptions", form == PatchType::Apply)?;
    ask.format(crate::output::Purpose::Object)?;
    let mut write = Write::new(ask, options);
    for _ in 0..TRIES {
        match once(&mut write, form, body).await {
            Ok(written) => return update::respond(&write, &written),
            Err(Lost::Race | Lost::Taken) => {}
            Err(Lost::Refused(error)) => return Err(error),
        }
    }
    Err(StatusError::modified(&ask.resource().name, ask.target.name))
}

fn form(ask: &Ask<'_>) -> Result<PatchType, StatusError> {
    let content_type = ask.header(CONTENT_TYPE);
    let media = content_type.split(';').next().unwrap_or_default().trim();
    Ok(match media {
        "application/json-patch+json" => PatchType::Json,
        "application/merge-patch+json" => PatchType::Merge,
        "application/strategic-merge-patch+json" if ask.resource().custom.is_none() => {
            PatchType::Strategic
        }
        "application/apply-patch+yaml" => PatchType::Apply,
        _ if ask.resource().custom.is_some() => {
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

async fn once(write: &mut Write<'_>, form: PatchType, body: &Bytes) -> Result<Written, Lost> {
    let ask = write.ask;
    let stored = write.stored.clone();
    let key = key(&stored, ask.target.namespace, ask.target.name);
    let Some(entry) = ask.api.store.peek(&stored.shelf, &key) else {
        if form == PatchType::Apply && ask.target.subresource.is_empty() {
            return Ok(apply_new(write, body).await?);
        }
        return Err(StatusError::not_found(&stored.name, ask.target.name).into());
    };
    let old = current::decode(ask.api, &stored, &entry).await?;
    let part = stored.hooks.part_to_patch(ask.target.subresource, &old).map(Ok);
    if let Some(part) = part.or_else(|| stored.hooks.read_part(ask.target.subresource, &old)) {
        return patch_part(write, form, body, &entry, &old, part?).await;
    }
    let mut current = Cow::Borrowed(&old);
    if ask.resource().converts() {
        write.convert_out(current.to_mut());
    }
    let Patched { object, warnings } = patched(write, form, body, &current)?;
    write.warnings = warnings;
    checked(ask, &object)?;
    write.replace(&entry, &old, object, form == PatchType::Apply).await
}

fn patched(
    write: &Write<'_>,
    form: PatchType,
    body: &Bytes,
    current: &Value,
) -> Result<Patched, StatusError> {
    let ask = write.ask;
    let kind = update::part_kind(ask);
    let schema = ask.resource().schema(&kind);
    if form == PatchType::Apply {
        let writer = writer(write);
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

pub(super) fn writer<'a>(write: &'a Write<'_>) -> Writer<'a> {
    Writer {
        manager: &write.options.manager,
        subresource: write.ask.target.subresource,
        now: write.ask.now,
    }
}

/// A view of the object is patched, and written back into it.
async fn patch_part(
    write: &mut Write<'_>,
    form: PatchType,
    body: &Bytes,
    entry: &std::sync::Arc<Entry>,
    old: &Value,
    part: Value,
) -> Result<Written, Lost> {
    let ask = write.ask;
    let mut before = part;
    let managed = scale::is_managed(ask);
    if managed {
        scale::show(&update::part_kind(ask), old, &mut before);
    }
    let Patched { object: mut part, warnings } = patched(write, form, body, &before)?;
    write.warnings = warnings;
    checked(ask, &part)?;
    let mut new = old.clone();
    let cx = write.context(ask.target.name);
    if let Some(result) =
        write.stored.hooks.write_part(&cx, ask.target.subresource, &mut new, &part)
    {
        result?;
    }
    let version = meta::text(&part, "resourceVersion").to_owned();
    meta::set(&mut new, "resourceVersion", &version);
    if managed && form != PatchType::Apply {
        scale::track(&update::part_kind(ask), &before, &mut part, &writer(write));
    }
    let tracked =
        !managed || scale::settle(&update::part_kind(ask), &write.stored.gvk, old, &part, &mut new);
    write.convert_out(&mut new);
    write.replace(entry, old, new, tracked).await
}

/// A patch may not rename.
fn checked(ask: &Ask<'_>, object: &Value) -> Result<(), StatusError> {
    let name = meta::text(object, "name");
    if name != ask.target.name {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            ask.target.name
        )));
    }
    let namespace = meta::text(object, "namespace");
    if namespace != ask.target.namespace {
        return Err(StatusError::bad_request(
            "the namespace of the object does not match the namespace on the URL",
        ));
    }
    Ok(())
}

/// An apply of what is not there makes it.
async fn apply_new(write: &mut Write<'_>, body: &Bytes) -> Result<Written, StatusError> {
    let ask = write.ask;
    let force = write.options.force.unwrap_or(false);
    let Patched { mut object, warnings } = patch::apply(
        &ask.resource().gvk,
        ask.resource().schema(&ask.resource().gvk).as_ref(),
        None,
        body,
        &writer(write),
        force,
        write.options.validation,
    )?;
    write.warnings = warnings;
    if meta::text(&object, "name").is_empty() {
        meta::set(&mut object, "name", ask.target.name);
    }
    create::place(ask, &mut object)?;
    checked(ask, &object)?;
    write.create(object, Creates::Apply).await
}
