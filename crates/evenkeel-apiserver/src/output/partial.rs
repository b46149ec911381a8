//! PartialObjectMetadata: an object's metadata, copied without decoding.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::list_meta::{ListMeta, open_list};
use evenkeel_apimachinery::status::StatusError;

/// The `metadata` of an encoded object, as JSON text.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

/// Writes the PartialObjectMetadata of an encoded object with a copy of its metadata. `version` is the API version of
/// the response: `meta.k8s.io/v1` or `meta.k8s.io/v1beta1`.
pub(super) fn partial(
    version: &'static str,
    object: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), StatusError> {
    let head: Head<'_> = serde_json::from_slice(object).map_err(StatusError::internal)?;
    out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"");
    out.extend_from_slice(version.as_bytes());
    out.extend_from_slice(b"\",\"metadata\":");
    out.extend_from_slice(head.metadata.get().as_bytes());
    out.push(b'}');
    Ok(())
}

/// Returns the PartialObjectMetadata of a decoded object.
pub(super) fn partial_value(version: &'static str, object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": metadata})
}

/// Encodes a PartialObjectMetadataList.
pub(super) fn metadata_list(
    version: &'static str,
    items: &mut dyn ExactSizeIterator<Item = Bytes>,
    meta: &ListMeta,
) -> Result<Bytes, StatusError> {
    let mut out = Vec::with_capacity(256 + items.len() * 256);
    let head = json!({"kind": "PartialObjectMetadataList", "apiVersion": version, "metadata": meta.to_json()});
    open_list(&head, &mut out);
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        partial(version, &item, &mut out)?;
    }
    out.extend_from_slice(b"]}\n");
    Ok(out.into())
}

/// Returns the resource version of an encoded object.
pub(super) fn version_of(object: &[u8]) -> Value {
    let value: Option<Value> = serde_json::from_slice::<Head<'_>>(object)
        .ok()
        .and_then(|head| evenkeel_api::json::from_slice(head.metadata.get().as_bytes()).ok());
    value.and_then(|meta| meta.get("resourceVersion").cloned()).unwrap_or_default()
}
