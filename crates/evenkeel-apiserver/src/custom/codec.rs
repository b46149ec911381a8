//! Stored objects as a request sees them: in its version.

use std::sync::Arc;

use serde_json::Value;

use super::conversion;
use crate::api::Api;
use crate::resource::ResourceType;
use crate::selector::selection_attributes;
use crate::store::{Encoded, Entry, Event};
use evenkeel_apimachinery::status::StatusError;

/// Whether a webhook converts the objects of `resource`, so that reading them takes its time.
pub(crate) fn is_asked_for(resource: &ResourceType) -> bool {
    resource.custom.as_ref().is_some_and(|custom| custom.definition.webhook.is_some())
}

/// Decodes a stored object; one of a custom resource is read into `resource`'s version.
pub(crate) async fn decode(
    api: &Api,
    resource: &ResourceType,
    entry: &Entry,
) -> Result<Value, StatusError> {
    let object = entry.decode().map_err(StatusError::internal)?;
    as_read(api, resource, object).await
}

/// The same without asking anybody; `None` where that would be needed.
pub(crate) fn decode_alone(resource: &ResourceType, entry: &Entry) -> Option<Value> {
    let mut object = entry.decode().ok()?;
    let Some(custom) = &resource.custom else { return Some(object) };
    if !is_asked_for(resource) {
        resource.strategy.convert_out(&resource.gvk, &mut object);
        return Some(object);
    }
    if object["apiVersion"] != *resource.api_version {
        return None;
    }
    custom.definition.prune_and_default(&mut object);
    Some(object)
}

/// Decodes what [`entries`] gave.
pub(crate) fn decode_read(resource: &ResourceType, entry: &Entry) -> Result<Value, StatusError> {
    let mut object = entry.decode().map_err(StatusError::internal)?;
    if resource.custom.is_some() {
        resource.strategy.convert_out(&resource.gvk, &mut object);
    }
    Ok(object)
}

/// An object in its stored form, for an answer: as [`entries`] does it.
pub(crate) async fn for_answer(
    api: &Api,
    resource: &ResourceType,
    object: Value,
) -> Result<Value, StatusError> {
    if is_asked_for(resource) { as_read(api, resource, object).await } else { Ok(object) }
}

/// An object in its stored form, read into `resource`'s version if it is a custom one.
async fn as_read(api: &Api, resource: &ResourceType, object: Value) -> Result<Value, StatusError> {
    let Some(custom) = &resource.custom else { return Ok(object) };
    let mut read = conversion::read(api, custom, vec![object]).await?;
    Ok(read.pop().unwrap_or_default())
}

/// Stored objects for an answer in `resource`'s version: what a webhook has to convert is converted, all at once.
pub(crate) async fn entries(
    api: &Api,
    resource: &ResourceType,
    entries: Vec<Arc<Entry>>,
) -> Result<Vec<Arc<Entry>>, StatusError> {
    let Some(custom) = resource.custom.as_ref().filter(|_| is_asked_for(resource)) else {
        return Ok(entries);
    };
    let objects: Result<Vec<Value>, _> = entries.iter().map(|entry| entry.decode()).collect();
    let objects = objects.map_err(StatusError::internal)?;
    let read = conversion::read(api, custom, objects).await;
    let read = read.map_err(|error| corrupt(resource, &entries, &error))?;
    let read = entries.iter().zip(&read).map(|(entry, object)| {
        let encoded = Encoded::new(object, selection_attributes(resource, object));
        Arc::new(encoded.into_entry(entry.key.clone(), entry.revision, entry.change))
    });
    Ok(read.collect())
}

/// Returns the error of a read whose objects cannot be converted; upstream treats them as corrupt.
fn corrupt(resource: &ResourceType, entries: &[Arc<Entry>], why: &StatusError) -> StatusError {
    let (key, revision) = entries.first().map_or(("", 0), |entry| (&*entry.key, entry.revision));
    StatusError::internal(format!(
        "StorageError: corrupt object, Code: 7, Key: /{}/{key}, ResourceVersion: 0, AdditionalErrorMsg: object not decodable revision={revision}: {}",
        resource.resource_prefix,
        why.message()
    ))
}

/// One stored object in the same way.
pub(crate) async fn entry(
    api: &Api,
    resource: &ResourceType,
    entry: Arc<Entry>,
) -> Result<Arc<Entry>, StatusError> {
    let mut read = entries(api, resource, vec![entry.clone()]).await?;
    Ok(read.pop().unwrap_or(entry))
}

/// Changes of objects in the same way. `before`: the states before them matter, too.
pub(crate) async fn events(
    api: &Api,
    resource: &ResourceType,
    events: Vec<Arc<Event>>,
    before: bool,
) -> Result<Vec<Arc<Event>>, StatusError> {
    if !is_asked_for(resource) || events.is_empty() {
        return Ok(events);
    }
    let previous = |event: &Arc<Event>| event.previous.clone().filter(|_| before);
    let of = |event: &Arc<Event>| [Some(event.entry.clone()), previous(event)];
    let all: Vec<Arc<Entry>> = events.iter().flat_map(of).flatten().collect();
    let mut all = entries(api, resource, all).await?.into_iter();
    let read = events.iter().filter_map(|event| {
        let entry = all.next()?;
        let previous = previous(event).and_then(|_| all.next());
        Some(Arc::new(Event::new(entry, previous)))
    });
    Ok(read.collect())
}

/// The object as it is to be stored.
pub(crate) async fn to_storage<'a>(
    api: &Api,
    resource: &ResourceType,
    object: &'a Value,
) -> Result<std::borrow::Cow<'a, Value>, StatusError> {
    let Some(custom) = &resource.custom else { return Ok(std::borrow::Cow::Borrowed(object)) };
    let stored = conversion::store(api, &custom.definition, object.clone()).await?;
    Ok(std::borrow::Cow::Owned(stored))
}
