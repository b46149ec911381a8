//! Reads of objects that are computed for each request.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::Value;

use super::list::ListOptions;
use super::respond;
use crate::components;
use crate::output::{ListMeta, Purpose};
use crate::request::RequestContext;
use crate::resource::{ResourceType, Source, key};
use crate::response::{Body, answer};
use crate::store::{Change, Encoded, Entry, SelectionAttributes};
use evenkeel_apimachinery::status::StatusError;

/// Adds `apiVersion` and `kind` to an object.
fn with_type_meta(resource: &ResourceType, mut object: Value) -> Value {
    object["apiVersion"] = Value::from(&*resource.api_version);
    object["kind"] = Value::from(resource.kind());
    object
}

/// Serves GET of one object.
pub(super) fn get(
    request: &RequestContext<'_>,
    source: &dyn Source,
) -> Result<Response<Body>, StatusError> {
    let (resource, target) = (request.resource(), &request.target);
    let found = source.get(resource.plural(), target.namespace, target.name);
    let object = found.ok_or_else(|| {
        let mut name = resource.name.clone();
        if components::is_componentstatuses(resource) {
            // Upstream's error has the singular.
            name.resource = "componentstatus".into();
        }
        StatusError::not_found(&name, target.name)
    })?;
    respond::with_value(request, StatusCode::OK, &with_type_meta(resource, object))
}

/// Serves GET of a collection, in one page.
pub(super) fn list(
    request: &RequestContext<'_>,
    source: &dyn Source,
) -> Result<Response<Body>, StatusError> {
    let resource = request.resource();
    let format = request.format()?;
    let selectors = ListOptions::parse(resource, request.query, false)?.selectors;
    format.check(resource, request.target.subresource, &request.query.0, Purpose::List)?;
    let mut items: Vec<(Arc<str>, Bytes)> = Vec::new();
    for object in source.list(resource.plural(), request.target.namespace) {
        let item = object.to_string().into();
        let entry = to_entry(resource, object);
        if selectors.matches(&entry) {
            items.push((entry.key, item));
        }
    }
    // Sort by key, as in a list of stored objects.
    items.sort();
    // Computed objects and their lists have no resource version.
    let items: Vec<Bytes> = items.into_iter().map(|(_, item)| item).collect();
    let bytes = format.list(resource, &items, &ListMeta::default(), request.now)?;
    Ok(answer(StatusCode::OK, format.content_type(Purpose::List), Body::whole(bytes)))
}

/// Returns the object as a store entry, so that selectors can match it.
fn to_entry(resource: &ResourceType, object: Value) -> Entry {
    let object = with_type_meta(resource, object);
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let key = key(resource, text("namespace"), text("name"));
    let encoded = Encoded::new(&object, SelectionAttributes::new(&object, |_| {}));
    encoded.into_entry(key.into(), 0, Change::Added)
}
