//! Metadata of lists, and the encoding of a list up to its items.

use serde_json::{Value, json};

use crate::resource::ResourceType;

/// Values of a list's `metadata`.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListMeta {
    /// Revision of the list; 0 if it has none.
    pub(crate) resource_version: u64,
    /// Continue token for the next page; empty on the last page.
    pub(crate) token: String,
    /// Number of objects after this page, if it is known.
    pub(crate) remaining: Option<u64>,
    /// Selector in `shardInfo`; empty for a list of all shards.
    pub(crate) shard_selector: String,
}

impl ListMeta {
    /// Returns the `metadata` of a list of objects of `resource`. As in upstream, a list of custom objects has the
    /// field `continue` even if it is empty, and only a list of whole objects has `shardInfo`.
    pub(super) fn to_json_for(&self, resource: &ResourceType) -> Value {
        let mut meta = self.to_json();
        if resource.custom.is_some() && self.token.is_empty() {
            meta["continue"] = Value::from("");
        }
        if !self.shard_selector.is_empty() {
            meta["shardInfo"] = json!({"selector": self.shard_selector});
        }
        meta
    }

    /// Returns the `metadata` of a Table or of a list of metadata, with the fields that are set.
    ///
    /// Upstream: `asPartialObjectMetadataList`.
    pub(super) fn to_json(&self) -> Value {
        let mut meta = json!({});
        if self.resource_version > 0 {
            meta["resourceVersion"] = Value::from(self.resource_version.to_string());
        }
        if !self.token.is_empty() {
            meta["continue"] = Value::from(self.token.as_str());
        }
        if let Some(remaining) = self.remaining {
            meta["remainingItemCount"] = Value::from(remaining);
        }
        meta
    }
}

/// Writes the list's fields in `head` and the start of the array of its items. The caller writes the items and closes
/// both.
pub(super) fn open_list(head: &Value, items_field: &str, out: &mut Vec<u8>) {
    let head = head.to_string();
    out.extend_from_slice(head.strip_suffix('}').unwrap_or(&head).as_bytes());
    out.extend_from_slice(format!(",\"{items_field}\":[").as_bytes());
}
