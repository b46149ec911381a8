//! Conversion of custom resources between versions (upstream: `apiserver/conversion`).
//!
//! A read prunes a stored object by its own version and sets that version's defaults. Then it converts the object and
//! prunes it by the requested version. That version's defaults apply only to objects that clients send. Without a
//! webhook, conversion changes only `apiVersion`.

use std::sync::Arc;

use serde_json::Value;

use crate::api::Api;
use crate::resource::custom::{Definition, Version};
use crate::webhook::{self, Limits, MAX_RESPONSE_SIZE};
use evenkeel_apiextensions::conversion::ConversionWebhook;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::value::{json_length, text};

/// Timeout of a conversion webhook in seconds, the same as upstream.
const TIMEOUT_SECONDS: i64 = 30;
/// Maximum number of objects in one call of the webhook.
const MAX_OBJECTS_PER_CALL: usize = 100;
/// Size in bytes of the objects of one call, after which no further object is added to it.
const BYTES_PER_CALL: usize = 1 << 20;

/// Converts stored objects to `version`.
pub(crate) async fn read(
    api: &Api,
    version: &Version,
    mut objects: Vec<Value>,
) -> Result<Vec<Value>, StatusError> {
    for object in &mut objects {
        version.definition.prune_and_default(object);
    }
    to_version(api, version, objects).await
}

/// Converts objects to `version`, and prunes the converted objects.
pub(crate) async fn to_version(
    api: &Api,
    version: &Version,
    objects: Vec<Value>,
) -> Result<Vec<Value>, StatusError> {
    let definition = &version.definition;
    let to = &*version.api_version;
    let needs_conversion: Vec<bool> =
        objects.iter().map(|object| text(object, "apiVersion") != to).collect();
    let mut objects = convert(api, definition, objects, to).await?;
    for (object, was_converted) in objects.iter_mut().zip(needs_conversion) {
        if was_converted {
            definition.prune(object);
        }
    }
    Ok(objects)
}

/// Converts an object to the storage version.
pub(crate) async fn store(
    api: &Api,
    definition: &Arc<Definition>,
    object: Value,
) -> Result<Value, StatusError> {
    let to = &*definition.stored_as;
    if text(&object, "apiVersion") == to {
        return Ok(object);
    }
    let mut converted = convert(api, definition, vec![object], to).await?;
    let mut object = converted.pop().unwrap_or_default();
    definition.prune(&mut object);
    Ok(object)
}

/// Converts objects to version `to`. The webhook receives only objects of other versions.
async fn convert(
    api: &Api,
    definition: &Definition,
    mut objects: Vec<Value>,
    to: &str,
) -> Result<Vec<Value>, StatusError> {
    let Some(webhook) = &definition.webhook else {
        for object in &mut objects {
            set_version(object, to);
        }
        return Ok(objects);
    };
    let is_other = |object: &&mut Value| text(object, "apiVersion") != to;
    let mut unconverted: Vec<&mut Value> = objects.iter_mut().filter(is_other).collect();
    let unknown =
        unconverted.iter().find(|object| !definition.has_version(text(object, "apiVersion")));
    if let Some(object) = unknown {
        let version = text(object, "apiVersion");
        let message = format!("request to convert CR from an invalid group/version: {version}");
        return Err(StatusError::plain_internal(message));
    }
    let mut rest = &mut unconverted[..];
    while !rest.is_empty() {
        let Call { objects: count, bytes } = first_call(rest.iter().map(|object| &**object));
        let (chunk, later) = rest.split_at_mut(count);
        rest = later;
        let sent: Vec<Value> = chunk.iter_mut().map(|object| object.take()).collect();
        let converted = call_webhook(api, webhook, &sent, bytes, to).await;
        let converted = converted.map_err(StatusError::plain_internal)?;
        for (old, new) in chunk.iter_mut().zip(converted) {
            **old = new;
        }
    }
    Ok(objects)
}

/// Number and size in bytes of the objects in one call of the webhook.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    objects: usize,
    bytes: usize,
}

/// Returns how many of the objects are in the first call. Upstream sends all in one, without a limit on the response.
fn first_call<'a>(objects: impl Iterator<Item = &'a Value>) -> Call {
    let mut call = Call { objects: 0, bytes: 0 };
    for object in objects.take(MAX_OBJECTS_PER_CALL) {
        if call.bytes >= BYTES_PER_CALL {
            break;
        }
        call.objects = call.objects.saturating_add(1);
        call.bytes = call.bytes.saturating_add(json_length(object));
    }
    call
}

/// Calls the webhook to convert objects of this size, none of them in version `to`.
async fn call_webhook(
    api: &Api,
    webhook: &ConversionWebhook,
    objects: &[Value],
    bytes: usize,
    to: &str,
) -> Result<Vec<Value>, String> {
    let uid = api.uid();
    let review = webhook.review(&uid, objects, to);
    let limits = Limits {
        seconds: TIMEOUT_SECONDS,
        // Objects may grow when they are converted.
        response_bytes: MAX_RESPONSE_SIZE.saturating_add(bytes.saturating_mul(2)),
    };
    let response = webhook::post(api, &webhook.client_config, &review, limits).await;
    webhook.converted(&uid, response, objects, to)
}

/// Sets an object's `apiVersion`.
fn set_version(object: &mut Value, api_version: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), Value::from(api_version));
    }
}
