//! Patches from the difference of two states of an object.
//!
//! There is no strategic merge patch among them: it needs the merge keys of lists, which neither the objects nor their Rust
//! types have. To send a strategic merge patch that you wrote yourself, use [`Context::patch`].

use super::{
    ApiObject, Context, Result,
    diff::{MergePatch, json_patch, merge_patch},
};
use crate::plan::PatchType;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;

impl<S> Context<S> {
    /// Sends the difference between two states of an object as a merge patch, or nothing if they are equal. A patch that
    /// replaces, creates or removes a list, or an object that holds one, applies only to the version of `old`.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// let mut changed = ConfigMap::clone(&map);
    /// changed.data.get_or_insert_default().insert("size".to_owned(), "7".to_owned());
    /// let patched = cx.merge_patch(&*map, &changed).await?.expect("a difference");
    /// assert_eq!(patched.data, changed.data);
    /// assert!(cx.merge_patch(&*patched, &patched).await?.is_none());
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// Fails if an object cannot be encoded or the server rejects the patch.
    ///
    /// Upstream: `client.MergeFrom`.
    #[doc(alias = "MergeFrom")]
    pub async fn merge_patch<K: ApiObject>(&self, old: &K, new: &K) -> Result<Option<Arc<K>>> {
        let Some(patch) = difference(old, new, list_locked_merge_patch)? else { return Ok(None) };
        Ok(Some(self.patch(old, PatchType::Merge, &patch).await?))
    }

    /// Like [`Context::merge_patch`], but the patch always applies only to the version of `old`.
    ///
    /// # Errors
    /// Fails as [`Context::merge_patch`] does, and with a conflict if the object has changed since.
    ///
    /// Upstream: `client.MergeFromWithOptimisticLock`.
    #[doc(alias = "MergeFromWithOptimisticLock")]
    pub async fn merge_patch_with_lock<K: ApiObject>(
        &self,
        old: &K,
        new: &K,
    ) -> Result<Option<Arc<K>>> {
        let Some(patch) = difference(old, new, locked_merge_patch)? else { return Ok(None) };
        Ok(Some(self.patch(old, PatchType::Merge, &patch).await?))
    }

    /// Like [`Context::merge_patch`], but sends a JSON patch, which names single entries of lists. A patch that touches a list,
    /// or an object that holds one, applies only to the version of `old`, because it names entries by index.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # async fn run(cx: &Context, old: Arc<ConfigMap>) -> Result<()> {
    /// let mut new = ConfigMap::clone(&old);
    /// new.metadata.finalizers.get_or_insert_default().push("example.com/outside".to_owned());
    /// cx.json_patch(&*old, &new).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Context::merge_patch`] does.
    pub async fn json_patch<K: ApiObject>(&self, old: &K, new: &K) -> Result<Option<Arc<K>>> {
        let Some(patch) = difference(old, new, locked_json_patch)? else { return Ok(None) };
        Ok(Some(self.patch(old, PatchType::Json, &patch).await?))
    }
}

/// Returns the patch between two states of an object that `diff` computes. `diff` also gets the metadata of the first state.
/// Returns `None` if they are equal.
pub(super) fn difference<K: Resource + Serialize>(
    old: &K,
    new: &K,
    diff: impl FnOnce(&ObjectMeta, &Value, &Value) -> Option<Value>,
) -> Result<Option<Value>> {
    Ok(diff(old.meta(), &serde_json::to_value(old)?, &serde_json::to_value(new)?))
}

/// Returns the merge patch between two states, which applies only to the version of the first if it replaces, creates or
/// removes a list. Returns `None` if they are equal.
pub(super) fn list_locked_merge_patch(
    meta: &ObjectMeta,
    old: &Value,
    new: &Value,
) -> Option<Value> {
    let MergePatch { patch, replaces_list } = merge_patch(old, new)?;
    Some(if replaces_list { locked(meta, patch) } else { patch })
}

/// Returns the merge patch between two states, which applies only to the version of the first. Returns `None` if they are
/// equal.
pub(super) fn locked_merge_patch(meta: &ObjectMeta, old: &Value, new: &Value) -> Option<Value> {
    Some(locked(meta, merge_patch(old, new)?.patch))
}

fn locked(meta: &ObjectMeta, mut patch: Value) -> Value {
    patch["metadata"]["resourceVersion"] = json!(meta.resource_version);
    patch
}

/// Returns the JSON patch between two states, which applies only to the version of the first if it touches a list. Returns
/// `None` if they are equal.
///
/// The patch replaces the version by itself instead of testing it, because the server responds to a failed test with 422
/// instead of 409.
pub(super) fn locked_json_patch(meta: &ObjectMeta, old: &Value, new: &Value) -> Option<Value> {
    let diff = json_patch(old, new)?;
    let mut operations = diff.operations;
    if diff.touches_list {
        let path = "/metadata/resourceVersion";
        operations
            .insert(0, json!({"op": "replace", "path": path, "value": meta.resource_version}));
    }
    Some(Value::Array(operations))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_in_patches_of_lists_and_where_it_is_demanded() {
        let meta = ObjectMeta { resource_version: Some("7".to_owned()), ..ObjectMeta::default() };
        let old = json!({"n": 1, "l": ["a", "b"]});
        let lock = json!({"op": "replace", "path": "/metadata/resourceVersion", "value": "7"});
        let version = json!({"resourceVersion": "7"});
        let table = [
            (json!({"n": 1, "l": ["a", "b"]}), None),
            (
                json!({"n": 2, "l": ["a", "b"]}),
                Some((json!({"n": 2}), json!([{"op": "replace", "path": "/n", "value": 2}]))),
            ),
            (
                json!({"n": 1, "l": ["a", "b", "c"]}),
                Some((
                    json!({"l": ["a", "b", "c"], "metadata": version}),
                    json!([lock, {"op": "add", "path": "/l/2", "value": "c"}]),
                )),
            ),
            (
                json!({"n": 1, "l": ["a", "b"], "m": ["x"]}),
                Some((
                    json!({"m": ["x"], "metadata": version}),
                    json!([lock, {"op": "add", "path": "/m", "value": ["x"]}]),
                )),
            ),
            (
                json!({"n": 1}),
                Some((
                    json!({"l": null, "metadata": version}),
                    json!([lock, {"op": "remove", "path": "/l"}]),
                )),
            ),
        ];
        for (new, wanted) in table {
            let merge = list_locked_merge_patch(&meta, &old, &new);
            let patches = merge.zip(locked_json_patch(&meta, &old, &new));
            assert_eq!(patches, wanted, "{new}");
            let always = locked_merge_patch(&meta, &old, &new);
            let versions = always.map(|patch| patch["metadata"].clone());
            assert_eq!(versions, wanted.map(|_| version.clone()), "{new}");
        }
    }
}
