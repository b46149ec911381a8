//! PartialObjectMetadata: of an object nothing but its metadata, copied as it stands.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{ListMeta, META, open};
use crate::status::StatusError;

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

/// Writes the PartialObjectMetadata of an object, its metadata copied as it stands.
pub(super) fn partial(object: &[u8], out: &mut Vec<u8>) -> Result<(), StatusError> {
    let head: Head<'_> = serde_json::from_slice(object).map_err(StatusError::internal)?;
    out.extend_from_slice(
        b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":",
    );
    out.extend_from_slice(head.metadata.get().as_bytes());
    out.push(b'}');
    Ok(())
}

/// The same of a tree.
pub(super) fn partial_value(object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": metadata})
}

/// A list of them.
pub(super) fn metadata_list(
    items: &mut dyn ExactSizeIterator<Item = Bytes>,
    meta: &ListMeta,
) -> Result<Bytes, StatusError> {
    let mut out = Vec::with_capacity(256 + items.len() * 256);
    let head =
        json!({"kind": "PartialObjectMetadataList", "apiVersion": META, "metadata": meta.value()});
    open(&head, &mut out);
    for (at, item) in items.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        partial(&item, &mut out)?;
    }
    out.extend_from_slice(b"]}");
    Ok(out.into())
}

/// The version that an object's metadata says.
pub(super) fn version_of(object: &[u8]) -> Value {
    let value: Option<Value> = serde_json::from_slice::<Head<'_>>(object)
        .ok()
        .and_then(|head| serde_json::from_str(head.metadata.get()).ok());
    value.and_then(|meta| meta.get("resourceVersion").cloned()).unwrap_or_default()
}
