//! Patches of a status.

use super::{
    ApiObject, Context, Result, conditions,
    diff::{MergePatch, merge_patch},
    object::{kind_of, target_of},
};
use crate::{controller::Error, plan::PatchForm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::core::object::HasStatus;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::sync::Arc;

/// Change of an object's status, from [`Context::status`]. It is written only if it differs from the present status.
///
/// ```
/// # use evenkeel_runtime::prelude::*;
/// # use evenkeel_test::example::WebApp;
/// # let shop = evenkeel_test::example::app(async |app: Arc<WebApp>, cx: Context| {
/// let ready = conditions::of(&*app, "Ready", true, "Replicas", "3 of 3 are ready");
/// cx.status(&*app).set(|status| status.ready = 3).condition(ready).patch_if_changed().await?;
/// # Ok(())
/// # });
/// let status = shop.status.unwrap();
/// assert_eq!((status.ready, status.conditions.len()), (3, 1));
/// ```
#[must_use = "a status is written by `patch_if_changed`"]
pub struct StatusPatch<'a, K, S> {
    context: &'a Context<S>,
    object: &'a K,
    /// The present status; null if there is none.
    present: Value,
    /// The changed status, or the error of a change.
    status: Result<Value>,
}

impl<S> Context<S> {
    /// Returns a change of the object's status, which begins with the present status.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Default, Serialize, Deserialize)]
    /// # struct WebAppStatus { replicas: i32 }
    /// # async fn run<K>(app: Arc<K>, ready: i32, cx: Context) -> Result<()>
    /// # where K: ApiObject + kube::core::object::HasStatus<Status = WebAppStatus> {
    /// cx.status(&*app)
    ///     .set(|status| status.replicas = ready)
    ///     .condition(conditions::of(&*app, "Ready", ready == 3, "Replicas", format!("{ready} of 3")))
    ///     .patch_if_changed()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn status<'a, K>(&'a self, object: &'a K) -> StatusPatch<'a, K, S>
    where
        K: ApiObject + HasStatus<Status: Serialize>,
    {
        let encoded = object.status().map(serde_json::to_value).transpose();
        let (present, status) = match encoded.map(Option::unwrap_or_default) {
            Ok(present) => (present.clone(), Ok(present)),
            Err(error) => (Value::Null, Err(Error::from(error))),
        };
        StatusPatch { context: self, object, present, status }
    }
}

impl<K, S> StatusPatch<'_, K, S>
where
    K: ApiObject + HasStatus<Status: Serialize + DeserializeOwned + Default>,
{
    /// Changes the status. An absent one begins with its default.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::WebApp;
    /// # let shop = evenkeel_test::example::app(async |app: Arc<WebApp>, cx: Context| {
    /// cx.status(&*app).set(|status| status.ready = 3).patch_if_changed().await?;
    /// # Ok(())
    /// # });
    /// assert_eq!(shop.status.unwrap().ready, 3);
    /// ```
    pub fn set(mut self, change: impl FnOnce(&mut K::Status)) -> Self {
        self.status = self.status.and_then(|value| {
            let mut status = match value {
                Value::Null => K::Status::default(),
                value => serde_json::from_value(value)?,
            };
            change(&mut status);
            Ok(serde_json::to_value(&status)?)
        });
        self
    }

    /// Sets a condition in `status.conditions`, whose transition time changes with its status. See [`conditions::of`].
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::WebApp;
    /// # let shop = evenkeel_test::example::app(async |app: Arc<WebApp>, cx: Context| {
    /// let ready = conditions::of(&*app, "Ready", true, "Replicas", "3 of 3 are ready");
    /// cx.status(&*app).condition(ready).patch_if_changed().await?;
    /// # Ok(())
    /// # });
    /// assert!(conditions::is_true(&shop.status.unwrap().conditions, "Ready"));
    /// ```
    pub fn condition(mut self, condition: Condition) -> Self {
        self.status = self.status.and_then(|mut value| {
            let status = match &mut value {
                Value::Object(status) => status,
                other => {
                    *other = serde_json::to_value(K::Status::default())?;
                    other.as_object_mut().ok_or_else(|| {
                        Error::terminal("the status is not an object: it cannot have conditions")
                    })?
                }
            };
            let present = status.remove("conditions").unwrap_or_default();
            let mut list: Vec<Condition> = match present {
                Value::Null => Vec::new(),
                present => serde_json::from_value(present)?,
            };
            conditions::set(&mut list, condition, self.context.now());
            status.insert("conditions".to_owned(), serde_json::to_value(list)?);
            Ok(value)
        });
        self
    }

    /// Writes the status as a merge patch of its differences, or nothing if it has not changed. Returns the object with
    /// the new status, or `None` without a change.
    ///
    /// A patch that replaces a list, such as the conditions, applies only to the version that was read: otherwise it
    /// could undo the change of another writer. The conflict is an error, after which the key is retried.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::WebApp;
    /// # let shop = evenkeel_test::example::app(async |app: Arc<WebApp>, cx: Context| {
    /// let changed = cx.status(&*app).set(|status| status.ready = 3).patch_if_changed().await?;
    /// let app = changed.expect("a change");
    /// assert!(cx.status(&*app).set(|status| status.ready = 3).patch_if_changed().await?.is_none());
    /// # Ok(())
    /// # });
    /// assert_eq!(shop.status.unwrap().ready, 3);
    /// ```
    ///
    /// # Errors
    /// When a change fails or the server refuses the patch.
    pub async fn patch_if_changed(self) -> Result<Option<Arc<K>>> {
        let Some(patch) = status_patch(self.object.meta(), &self.present, &self.status?) else {
            return Ok(None);
        };
        let target = target_of(kind_of::<K>(), self.object);
        let body = serde_json::to_vec(&patch)?.into();
        let writer = self.context.writer();
        Ok(Some(writer.patch(&target, "status", PatchForm::Merge, body).await?))
    }
}

/// Returns the merge patch of a status, with its preconditions, or `None` if the status has not changed.
fn status_patch(meta: &ObjectMeta, old: &Value, new: &Value) -> Option<Value> {
    let MergePatch { patch, replaces_list } = merge_patch(old, new)?;
    let mut body = json!({"metadata": {"uid": meta.uid}, "status": patch});
    if replaces_list {
        body["metadata"]["resourceVersion"] = json!(meta.resource_version);
    }
    Some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_patch_of_a_list_demands_the_version() {
        let meta: ObjectMeta =
            serde_json::from_value(json!({"uid": "u", "resourceVersion": "7"})).unwrap();
        let old = json!({"n": 1, "conditions": [{"type": "A"}]});
        let table = [
            (old.clone(), None),
            (
                json!({"n": 2, "conditions": [{"type": "A"}]}),
                Some(json!({"metadata": {"uid": "u"}, "status": {"n": 2}})),
            ),
            (
                json!({"n": 1, "conditions": [{"type": "B"}]}),
                Some(json!({
                    "metadata": {"uid": "u", "resourceVersion": "7"},
                    "status": {"conditions": [{"type": "B"}]},
                })),
            ),
        ];
        for (new, wanted) in table {
            assert_eq!(status_patch(&meta, &old, &new), wanted);
        }
    }
}
