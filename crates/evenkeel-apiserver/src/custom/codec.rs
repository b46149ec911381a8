//! Conversion of stored objects to a request's version, and of objects to their storage version.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use serde_json::Value;

use super::conversion;
use crate::api::Api;
use crate::resource::ResourceType;
use crate::selector::selection_attributes;
use crate::store::{Encoded, Entry, Event};
use evenkeel_apimachinery::status::StatusError;

/// Returns whether a webhook converts the objects of `resource` between versions.
pub(crate) fn needs_webhook(resource: &ResourceType) -> bool {
    resource.custom.as_ref().is_some_and(|custom| custom.definition.webhook.is_some())
}

/// Decodes a stored object, and converts a custom resource to `resource`'s version.
pub(crate) async fn decode(
    api: &Api,
    resource: &ResourceType,
    entry: &Entry,
) -> Result<Value, StatusError> {
    let object = entry.decode().map_err(StatusError::internal)?;
    convert_to_version(api, resource, object).await
}

/// Decodes a stored object without calling a webhook. Returns `None` if only a webhook can convert the object, or if
/// the object does not decode.
pub(crate) fn decode_alone(resource: &ResourceType, entry: &Entry) -> Option<Value> {
    let mut object = entry.decode().ok()?;
    let Some(custom) = &resource.custom else { return Some(object) };
    if !needs_webhook(resource) {
        resource.strategy.convert_out(&resource.gvk, &mut object);
        return Some(object);
    }
    if evenkeel_apimachinery::value::text(&object, "apiVersion") != &*resource.api_version {
        return None;
    }
    custom.definition.prune_and_default(&mut object);
    Some(object)
}

/// Decodes an entry that [`entries`] returned, and converts it to `resource`'s version.
pub(crate) fn decode_read(resource: &ResourceType, entry: &Entry) -> Result<Value, StatusError> {
    let mut object = entry.decode().map_err(StatusError::internal)?;
    if resource.custom.is_some() {
        resource.strategy.convert_out(&resource.gvk, &mut object);
    }
    Ok(object)
}

/// Converts an object in its stored form for a response, as [`entries`] does.
pub(crate) async fn for_answer(
    api: &Api,
    resource: &ResourceType,
    object: Value,
) -> Result<Value, StatusError> {
    if needs_webhook(resource) {
        convert_to_version(api, resource, object).await
    } else {
        Ok(object)
    }
}

/// Converts a custom resource from its stored form to `resource`'s version. Returns other objects unchanged.
async fn convert_to_version(
    api: &Api,
    resource: &ResourceType,
    object: Value,
) -> Result<Value, StatusError> {
    let Some(custom) = &resource.custom else { return Ok(object) };
    let mut converted = conversion::read(api, custom, vec![object]).await?;
    Ok(converted.pop().unwrap_or_default())
}

/// Converts stored objects to `resource`'s version by webhook, if the definition has one.
pub(crate) async fn entries(
    api: &Api,
    resource: &ResourceType,
    entries: Vec<Arc<Entry>>,
) -> Result<Vec<Arc<Entry>>, StatusError> {
    let Some(custom) = resource.custom.as_ref().filter(|_| needs_webhook(resource)) else {
        return Ok(entries);
    };
    let objects: Result<Vec<Value>, _> = entries.iter().map(|entry| entry.decode()).collect();
    let objects = objects.map_err(StatusError::internal)?;
    let converted = conversion::read(api, custom, objects).await;
    let converted = converted.map_err(|error| corrupt_object_error(resource, &entries, &error))?;
    let converted = entries.iter().zip(&converted).map(|(entry, object)| {
        let encoded = Encoded::new(object, selection_attributes(resource, object));
        Arc::new(encoded.into_entry(entry.key.clone(), entry.revision, entry.change))
    });
    Ok(converted.collect())
}

/// Returns the error of a read whose objects cannot be converted. Upstream reports such objects as corrupt.
fn corrupt_object_error(
    resource: &ResourceType,
    entries: &[Arc<Entry>],
    cause: &StatusError,
) -> StatusError {
    let (key, revision) = entries.first().map_or(("", 0), |entry| (&*entry.key, entry.revision));
    StatusError::internal(format!(
        "StorageError: corrupt object, Code: 7, Key: /{}/{key}, ResourceVersion: 0, AdditionalErrorMsg: object not decodable revision={revision}: {}",
        resource.resource_prefix,
        cause.message()
    ))
}

/// Converts one stored object as [`entries`] does.
pub(crate) async fn entry(
    api: &Api,
    resource: &ResourceType,
    entry: Arc<Entry>,
) -> Result<Arc<Entry>, StatusError> {
    let mut converted = entries(api, resource, vec![entry.clone()]).await?;
    Ok(converted.pop().unwrap_or(entry))
}

/// Converts the objects of events as [`entries`] does. If `with_previous` is true, it also converts the previous
/// objects.
pub(crate) async fn events(
    api: &Api,
    resource: &ResourceType,
    events: Vec<Arc<Event>>,
    with_previous: bool,
) -> Result<Vec<Arc<Event>>, StatusError> {
    if !needs_webhook(resource) || events.is_empty() {
        return Ok(events);
    }
    let previous = |event: &Arc<Event>| event.previous.clone().filter(|_| with_previous);
    // Convert the entries of all events together, and distribute the results in the same order.
    let mut unconverted: Vec<Arc<Entry>> = Vec::new();
    for event in &events {
        unconverted.push(event.entry.clone());
        unconverted.extend(previous(event));
    }
    let mut converted = entries(api, resource, unconverted).await?.into_iter();
    let events = events.iter().filter_map(|event| {
        let entry = converted.next()?;
        let previous = previous(event).and_then(|_| converted.next());
        Some(Arc::new(Event::new(entry, previous)))
    });
    Ok(events.collect())
}

/// Converts an object to its storage version.
pub(crate) async fn to_storage<'a>(
    api: &Api,
    resource: &ResourceType,
    object: &'a Value,
) -> Result<std::borrow::Cow<'a, Value>, StatusError> {
    let Some(custom) = &resource.custom else { return Ok(std::borrow::Cow::Borrowed(object)) };
    let stored = conversion::store(api, &custom.definition, object.clone()).await?;
    Ok(std::borrow::Cow::Owned(stored))
}
