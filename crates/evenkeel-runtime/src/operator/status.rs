//! Patches of a status.

use super::{
    ApiObject, Context, Result, conditions,
    diff::{MergePatch, merge_patch},
    object::{Whole, kind_of, target_of},
};
use crate::{
    cache::{Dynamic, Full},
    controller::Error,
    plan::{PatchType, Target},
};
use evenkeel_api::{Kind, View};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::{Resource, api::DynamicObject, core::object::HasStatus};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use std::{marker::PhantomData, sync::Arc};

/// Change of an object's status, from [`Context::status`] and similar methods. It is written only if it differs from the
/// present status. `V` is the view of the object, and `T` the type of its status.
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
pub struct StatusPatch<'a, V, T, S> {
    context: &'a Context<S>,
    target: Target,
    meta: &'a ObjectMeta,
    /// The present status; null if there is none.
    present: Value,
    /// The changed status, or the error of a change.
    status: Result<Value>,
    types: PhantomData<fn() -> (V, T)>,
}

impl<S> Context<S> {
    /// Returns a change of the object's status, which begins with the present status. For kinds of kube's `CustomResource`; for
    /// other kinds, use [`Context::status_of`].
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
    #[doc(alias = "Status().Patch")]
    pub fn status<'a, K>(&'a self, object: &'a K) -> StatusPatch<'a, Full<K>, K::Status, S>
    where
        K: ApiObject + HasStatus<Status: Serialize>,
    {
        let present = object.status().map(serde_json::to_value).transpose();
        let present = present.map(Option::unwrap_or_default).map_err(Error::from);
        StatusPatch::new(self, &kind_of::<K>(), object, present)
    }

    /// Like [`Context::status`], for the kinds of `k8s-openapi`. `T` is the type of the status. Fields that it does not have
    /// stay unchanged.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};
    /// # async fn run(deployment: Arc<Deployment>, cx: Context) -> Result<()> {
    /// cx.status_of(&*deployment)
    ///     .set(|status: &mut DeploymentStatus| status.collision_count = Some(1))
    ///     .patch_if_changed()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn status_of<'a, T, K>(&'a self, object: &'a K) -> StatusPatch<'a, Full<K>, T, S>
    where
        T: Serialize + DeserializeOwned,
        K: ApiObject,
    {
        let present = serde_json::to_value(object).map_err(Error::from);
        let present = present.map(|mut object| object["status"].take());
        StatusPatch::new(self, &kind_of::<K>(), object, present)
    }
}

/// Changes a status as a value of its type. Fields that the type does not have stay unchanged, including those of other
/// writers.
fn changed<T>(mut status: Value, change: impl FnOnce(&mut T)) -> Result<Value>
where
    T: Serialize + DeserializeOwned + Default,
{
    let mut typed = match &status {
        Value::Null => T::default(),
        present => T::deserialize(present)?,
    };
    let before = if status.is_null() { Value::Null } else { serde_json::to_value(&typed)? };
    change(&mut typed);
    if let Some(MergePatch { patch, .. }) = merge_patch(&before, &serde_json::to_value(&typed)?) {
        json_patch::merge(&mut status, &patch);
    }
    Ok(status)
}

/// Returns a change of a dynamic object's status, like [`Context::status_of`].
pub(super) fn of_dynamic<'a, T: Serialize + DeserializeOwned, S>(
    context: &'a Context<S>,
    kind: &Kind,
    object: &'a DynamicObject,
) -> StatusPatch<'a, Dynamic, T, S> {
    let status = object.data.get("status").cloned().unwrap_or_default();
    StatusPatch::new(context, kind, object, Ok(status))
}

impl<'a, V, T, S> StatusPatch<'a, V, T, S> {
    /// Returns the change that begins with the present status.
    fn new(
        context: &'a Context<S>,
        kind: &Kind,
        object: &'a impl Resource,
        present: Result<Value>,
    ) -> Self {
        let (target, present) = match (context.target(kind, object), present) {
            (Ok(target), present) => (target, present),
            // A target outside of the view is never written.
            (Err(error), _) => (target_of(kind.clone(), object), Err(error)),
        };
        let (present, status) = match present {
            Ok(present) => (present.clone(), Ok(present)),
            Err(error) => (Value::Null, Err(error)),
        };
        Self { context, target, meta: object.meta(), present, status, types: PhantomData }
    }
}

impl<V, T, S> StatusPatch<'_, V, T, S>
where
    T: Serialize + DeserializeOwned + Default,
{
    /// Changes the status. An absent status begins with its default.
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
    pub fn set(mut self, change: impl FnOnce(&mut T)) -> Self {
        self.status = self.status.and_then(|status| changed(status, change));
        self
    }

    /// Sets a condition in `status.conditions`, whose transition time changes with its status. See [`conditions::of`]. Fields
    /// of the condition that [`Condition`] does not have stay unchanged.
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
        self.status = self.status.and_then(|value| {
            let value = match value {
                Value::Null => serde_json::to_value(T::default())?,
                value => value,
            };
            let mut status = match value {
                Value::Null => Map::new(),
                Value::Object(status) => status,
                _ => {
                    let reason = "the status is not an object: it cannot have conditions";
                    return Err(Error::terminal(reason));
                }
            };
            let list = status.entry("conditions").or_insert(Value::Null);
            set_condition(list, condition, self.context.now())?;
            Ok(Value::Object(status))
        });
        self
    }
}

/// Sets a condition in a list of conditions, or in null. See [`conditions::set`].
fn set_condition(list: &mut Value, condition: Condition, now: jiff::Timestamp) -> Result<()> {
    if list.is_null() {
        *list = json!([]);
    }
    let list =
        list.as_array_mut().ok_or_else(|| Error::terminal("status.conditions is not a list"))?;
    let is_present = |entry: &&mut Value| entry["type"] == *condition.type_;
    let Some(entry) = list.iter_mut().find(is_present) else {
        let mut only = Vec::new();
        conditions::set(&mut only, condition, now);
        list.extend(only.iter().map(|condition| json!(condition)));
        return Ok(());
    };
    let mut only: Vec<Condition> = vec![serde_json::from_value(entry.clone())?];
    conditions::set(&mut only, condition, now);
    if let Some(entry) = entry.as_object_mut() {
        // A condition of an object without a generation has no `observedGeneration`.
        entry.remove("observedGeneration");
    }
    for (field, value) in only.iter().filter_map(|new| json!(new).as_object().cloned()).flatten() {
        entry[field] = value;
    }
    Ok(())
}

impl<V: View, T, S> StatusPatch<'_, V, T, S> {
    async fn patch(self) -> Result<Option<Arc<V>>> {
        let Some(patch) = status_patch(self.meta, &self.present, &self.status?) else {
            return Ok(None);
        };
        let body = serde_json::to_vec(&patch)?.into();
        let writer = self.context.writer();
        Ok(Some(writer.patch::<V>(&self.target, "status", PatchType::Merge, body).await?))
    }
}

impl<K: ApiObject, T, S> StatusPatch<'_, Full<K>, T, S> {
    /// Writes the status as a merge patch of its differences, or not at all if it has not changed. Returns the object with the
    /// new status, or `None` without a change.
    ///
    /// A patch that creates or replaces a list, such as the conditions, applies only to the version that was read. So does a
    /// first status. Otherwise, the patch could undo another writer's change. A conflict is an error, after which the key is
    /// retried.
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
    /// Fails if a change fails or the server rejects the patch.
    pub async fn patch_if_changed(self) -> Result<Option<Arc<K>>> {
        Ok(self.patch().await?.map(|object| object.whole()))
    }
}

impl<T, S> StatusPatch<'_, Dynamic, T, S> {
    /// Writes the status as for a typed object: as a merge patch of its differences, or not at all if it has not
    /// changed.
    ///
    /// # Errors
    /// Fails if a change fails or the server rejects the patch.
    pub async fn patch_if_changed(self) -> Result<Option<Arc<DynamicObject>>> {
        Ok(self.patch().await?.map(|object| object.whole()))
    }
}

/// Returns the merge patch of a status, with its preconditions, or `None` if the status has not changed.
fn status_patch(meta: &ObjectMeta, old: &Value, new: &Value) -> Option<Value> {
    let MergePatch { patch, replaces_list } = merge_patch(old, new)?;
    let mut body = json!({"metadata": {"uid": meta.uid}, "status": patch});
    // Another client may have written a first status meanwhile.
    if replaces_list || old.is_null() {
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
        let locked = json!({"uid": "u", "resourceVersion": "7"});
        let first_ones = [
            (json!({"n": 1}), json!({"n": 1, "conditions": [{"type": "A"}]})),
            (Value::Null, json!({"conditions": [{"type": "A"}]})),
            (Value::Null, json!({"n": 1})),
        ];
        for (old, new) in first_ones {
            let patch = status_patch(&meta, &old, &new).unwrap();
            assert_eq!(patch["metadata"], locked, "another may have written it meanwhile: {new}");
        }
    }

    #[test]
    fn a_condition_keeps_the_fields_that_its_type_does_not_have() {
        let now: jiff::Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let object = k8s_openapi::api::core::v1::ConfigMap::default();
        let mut list = json!([
            {
                "type": "Ready", "status": "True", "reason": "A", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "u",
            },
            {"type": "Other", "odd": 1},
        ]);
        let condition = |type_, holds| conditions::of(&object, type_, holds, "B", "m");
        set_condition(&mut list, condition("Ready", true), now).unwrap();
        set_condition(&mut list, condition("New", false), now).unwrap();
        assert_eq!(
            list,
            json!([
                {
                    "type": "Ready", "status": "True", "reason": "B", "message": "m",
                    "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "u",
                },
                {"type": "Other", "odd": 1},
                {
                    "type": "New", "status": "False", "reason": "B", "message": "m",
                    "lastTransitionTime": "2026-01-02T00:00:00Z",
                },
            ])
        );
        assert!(set_condition(&mut json!({}), condition("New", true), now).is_err());
    }

    #[test]
    fn fields_that_a_type_does_not_have_stay_as_they_are() {
        #[derive(Default, Serialize, serde::Deserialize)]
        struct Part {
            n: Option<i32>,
        }
        let present = json!({"n": 1, "conditions": [{"type": "Other", "odd": 1}]});
        let table = [(Some(2), json!(2)), (None, Value::Null)];
        for (n, expected) in table {
            let status = changed(present.clone(), |part: &mut Part| part.n = n).unwrap();
            assert_eq!(status["n"], expected);
            assert_eq!(status["conditions"], present["conditions"]);
            // This prevents the removal or overwriting of a condition of another writer that was not read.
            let patch = status_patch(&ObjectMeta::default(), &present, &status).unwrap();
            assert_eq!(patch["status"], json!({"n": expected}));
        }
        let new = changed(Value::Null, |part: &mut Part| part.n = Some(1)).unwrap();
        assert_eq!(new, json!({"n": 1}));
        assert!(changed(json!({"n": "x"}), |_: &mut Part| ()).is_err());
    }
}
