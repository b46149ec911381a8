//! Stored objects as a request sees them: in its version.

use serde_json::Value;

use crate::resource::ResourceType;
use crate::status::StatusError;
use crate::store::Entry;

/// Decodes a stored object; one of a custom resource is read into `resource`'s version.
pub(crate) fn decode(resource: &ResourceType, entry: &Entry) -> Result<Value, StatusError> {
    let mut object = entry.decode().map_err(StatusError::internal)?;
    if resource.custom.is_some() {
        resource.hooks.convert_out(resource, &mut object);
    }
    Ok(object)
}

/// The object as it is to be stored.
pub(crate) fn to_storage<'a>(
    resource: &ResourceType,
    object: &'a Value,
) -> std::borrow::Cow<'a, Value> {
    if resource.custom.is_none() {
        return std::borrow::Cow::Borrowed(object);
    }
    let mut object = object.clone();
    resource.hooks.to_storage(&mut object);
    std::borrow::Cow::Owned(object)
}
