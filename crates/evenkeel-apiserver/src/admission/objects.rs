//! Typed views of objects for admission plug-ins: only the fields that a plug-in reads are decoded.

use std::sync::Arc;

use evenkeel_api::{Encoding, View};
use evenkeel_apimachinery::status::StatusError;
use serde_json::Value;

use crate::api::Context;
use crate::store::Entry;

/// Returns the stored objects of a resource in the request's namespace, each with its entry in the store.
pub(super) fn namespaced<V: View>(
    cx: &Context<'_>,
    resource_prefix: &str,
) -> Result<Vec<(Arc<Entry>, V)>, StatusError> {
    let entries = cx.api.store.within(resource_prefix, cx.namespace);
    entries.into_iter().map(|entry| Ok((entry.clone(), viewed(&entry)?))).collect()
}

/// Decodes the fields of `V` from a stored object.
pub(super) fn viewed<V: View>(entry: &Entry) -> Result<V, StatusError> {
    V::decode(entry.json(), Encoding::Json).map_err(StatusError::internal)
}

/// Decodes the fields of `V` from an object in JSON.
pub(super) fn decoded<V: View>(object: &Value) -> Result<V, StatusError> {
    let bytes = serde_json::to_vec(object).map_err(StatusError::internal)?;
    V::decode(&bytes, Encoding::Json).map_err(StatusError::internal)
}
