//! GET of one object, or of a part of it.

use http::{Response, StatusCode};

use super::{answer_value, current};
use crate::output::Purpose;
use crate::pipeline::{Ask, answer};
use crate::resource::key;
use crate::serve::Body;
use crate::store::Entry;
use evenkeel_apimachinery::status::StatusError;

/// The object as it is stored, encoded as asked.
pub(super) async fn serve(ask: &Ask<'_>) -> Result<Response<Body>, StatusError> {
    let format = ask.format(Purpose::Object)?;
    check_version(ask).await?;
    let resource = ask.resource();
    let key = key(resource, ask.target.namespace, ask.target.name);
    let Some(entry) = ask.api.store.get(&resource.shelf, &key).await? else {
        return Err(StatusError::not_found(&resource.name, ask.target.name));
    };
    let entry = current::entry(ask.api, resource, entry).await?;
    respond(ask, &format, &entry, StatusCode::OK)
}

/// Answers a stored object.
pub(super) fn respond(
    ask: &Ask<'_>,
    format: &crate::output::Format,
    entry: &Entry,
    code: StatusCode,
) -> Result<Response<Body>, StatusError> {
    let resource = ask.resource();
    let bytes = if format.is_stored_form(resource) {
        entry.object()
    } else {
        format.object(resource, entry.json(), ask.now)?
    };
    Ok(answer(code, format.content_type(Purpose::Object), Body::whole(bytes)))
}

/// A sub-resource: the object itself, or the view that the kind makes of it.
pub(super) async fn part(ask: &Ask<'_>) -> Result<Response<Body>, StatusError> {
    let resource = ask.resource();
    let key = key(resource, ask.target.namespace, ask.target.name);
    let Some(entry) = ask.api.store.get(&resource.shelf, &key).await? else {
        return Err(StatusError::not_found(&resource.name, ask.target.name));
    };
    let entry = current::entry(ask.api, resource, entry).await?;
    let object = current::decode_read(resource, &entry)?;
    match resource.hooks.read_part(ask.target.subresource, &object) {
        Some(part) => answer_value(ask, StatusCode::OK, &part?),
        None => respond(ask, &ask.format(Purpose::Object)?, &entry, StatusCode::OK),
    }
}

/// A GET may ask for a state not older than a version.
async fn check_version(ask: &Ask<'_>) -> Result<(), StatusError> {
    match ask.query.get("resourceVersion") {
        "" | "0" => Ok(()),
        text => super::list::wait_until_revision(ask, super::list::parse_version(text)?).await,
    }
}
