//! Typed reads and writes of a pass.

use super::{
    ApiObject, Context, Result,
    applied::Applied,
    diff::merge_patch,
    object::{Whole, kind_of, target_of},
};
use crate::{
    cache::{Dynamic, Full, Reader},
    client::{ApiError, Client, DeleteOptions, ListOptions},
    controller::{self, ControllerCaches, Error},
    plan::{PatchForm, Target},
};
use bytes::Bytes;
use evenkeel_api::{Kind, View};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Writes of one pass. All go through the fenced client, and the key waits for the caches to show them.
pub(super) struct Writer<'a> {
    pub(super) context: &'a controller::Context,
    pub(super) key: &'a crate::plan::Key,
    pub(super) field_manager: &'a str,
    pub(super) applied: &'a Applied,
    /// Caches of the controller.
    pub(super) caches: &'a ControllerCaches,
}

impl Writer<'_> {
    fn client(&self) -> &Client {
        &self.context.env.client
    }

    /// Returns the declared cache that holds this object, if one does.
    fn cached<R: View>(&self, target: &Target) -> Option<Arc<R>> {
        self.caches.find_map(|cache| {
            let is_of_kind = cache.scope().kind == target.kind;
            is_of_kind.then(|| cache.get_as(&target.namespace, &target.name)).flatten()
        })
    }

    /// Returns whether an object that no cache shows does not exist, as far as this controller can know: a declared cache
    /// holds all of its kind, and shows the writes of this pass.
    fn is_absent<R: View>(&self, target: &Target) -> bool {
        let holds_all = |cache: &Arc<Reader>| {
            let scope = cache.scope();
            cache.holds::<R>()
                && cache.has_synced()
                && scope.kind == target.kind
                && scope.selects_all_in(&target.namespace)
        };
        self.caches.any(holds_all) && self.context.caches_show_writes(self.key)
    }

    /// Makes the key wait until the caches show a write, unless they never will.
    fn wrote(&self, target: &Target, returned: &impl View) {
        let meta = returned.meta();
        let shows =
            |cache: &Arc<Reader>| cache.scope().kind == target.kind && cache.scope().selects(meta);
        if self.caches.any(shows) {
            self.context.wrote(self.key, &target.kind, meta);
        }
    }

    async fn apply<R: Whole>(
        &self,
        target: Target,
        body: Bytes,
        force: bool,
    ) -> Result<Arc<R::Object>> {
        let target = Target { uid: Arc::from(""), ..target };
        if let Some(cached) = self.cached::<R>(&target)
            && self.applied.is_current(&target, &body, cached.meta())
        {
            return Ok(cached.whole());
        }
        let applied =
            self.client().apply::<R>(&target, self.field_manager, force, body.clone()).await;
        let returned = self.context.record("apply", &target, "", applied)?;
        self.wrote(&target, &returned);
        self.applied.remember(target, &body, returned.meta());
        Ok(returned.whole())
    }

    pub(super) async fn patch<K: ApiObject>(
        &self,
        target: &Target,
        subresource: &'static str,
        form: PatchForm,
        body: Bytes,
    ) -> Result<Arc<K>, ApiError> {
        let Target { kind, namespace, name, .. } = target;
        let patched =
            self.client().patch::<Full<K>>(kind, namespace, name, subresource, form, body).await;
        let patched = self.context.record("patch", target, subresource, patched)?;
        self.wrote(target, &patched);
        Ok(patched.whole())
    }

    async fn create<R: Whole>(
        &self,
        target: &Target,
        body: Bytes,
    ) -> Result<Arc<R::Object>, ApiError> {
        let created = self.client().create::<R>(&target.kind, &target.namespace, body).await;
        let created = self.context.record("create", target, "", created)?;
        self.wrote(target, &created);
        Ok(created.whole())
    }

    async fn update<R: Whole>(
        &self,
        target: &Target,
        body: Bytes,
    ) -> Result<Arc<R::Object>, ApiError> {
        let Target { kind, namespace, name, .. } = target;
        let updated = self.client().update::<R>(kind, namespace, name, "", body).await;
        let updated = self.context.record("update", target, "", updated)?;
        self.wrote(target, &updated);
        Ok(updated.whole())
    }

    async fn delete(&self, target: &Target, options: DeleteOptions) -> Result<bool, ApiError> {
        self.applied.forget(&Target { uid: Arc::from(""), ..target.clone() });
        let uid = if options.uid.is_empty() { (*target.uid).to_owned() } else { options.uid };
        let options = DeleteOptions { uid, ..options };
        let Target { kind, namespace, name, .. } = target;
        let deleted = self.client().delete(kind, namespace, name, &options).await;
        match self.context.record("delete", target, "", deleted) {
            Ok(_) => {
                if self.caches.any(|cache| cache.scope().kind == target.kind) {
                    self.context.deleted(self.key, target);
                }
                Ok(true)
            }
            Err(error) if error.is_not_found_or_replaced() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Returns whether two objects have the same JSON.
fn is_equal(left: &impl Serialize, right: &impl Serialize) -> Result<bool> {
    // Equal text needs no second look; maps without an order may also be written differently.
    let is_same_text = serde_json::to_vec(left)? == serde_json::to_vec(right)?;
    Ok(is_same_text || serde_json::to_value(left)? == serde_json::to_value(right)?)
}

/// Encodes an object, without fields that a write may not contain.
fn encode(kind: &Kind, object: &impl Serialize) -> Result<Bytes> {
    encode_without(&["managedFields"], kind, object)
}

/// Encodes an object for server-side apply: without fields that only the server sets.
fn encode_intent(kind: &Kind, object: &impl Serialize) -> Result<Bytes> {
    const SET_BY_SERVER: [&str; 6] =
        ["creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"];
    encode_without(&SET_BY_SERVER, kind, object)
}

/// Encodes an object without these fields of its metadata. Its type is added if it has none.
fn encode_without(fields: &[&str], kind: &Kind, object: &impl Serialize) -> Result<Bytes> {
    let mut value = serde_json::to_value(object)?;
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| !fields.contains(&&**name));
    }
    let object =
        value.as_object_mut().ok_or_else(|| Error::terminal("the object is not a JSON object"))?;
    object.entry("apiVersion").or_insert_with(|| kind.api_version().into());
    object.entry("kind").or_insert_with(|| (&*kind.kind).into());
    Ok(serde_json::to_vec(&value)?.into())
}

/// Typed reads and writes. A write is sent only while this process leads, is subject to the client's rate limit, and is
/// seen by the next pass over the key: it waits until the controller's caches show the write.
impl<S> Context<S> {
    /// Applies an object (server-side apply with force, as the manager's component). Creates it if it does not exist.
    /// Sends nothing if this intent was applied before and nobody has changed the object since, apart from its status.
    ///
    /// `object` holds exactly the fields that the controller owns. Fields of an earlier intent that it does not contain
    /// any more are removed.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// let mut secret = Secret { string_data: map.data.clone(), ..Secret::default() };
    /// secret.metadata.name = Some("copy".to_owned());
    /// secret.controlled_by(&*map)?;
    /// let applied = cx.apply(&secret).await?;
    /// assert_eq!(applied.data.as_ref().unwrap()["color"].0, b"blue");
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// When the object cannot be encoded or the server refuses it.
    #[doc(alias = "client.Apply")]
    pub async fn apply<K: ApiObject>(&self, object: &K) -> Result<Arc<K>> {
        let kind = kind_of::<K>();
        let body = encode_intent(&kind, object)?;
        self.writer().apply::<Full<K>>(target_of(kind, object), body, true).await
    }

    /// Like [`Context::apply`], but fails with a conflict instead of taking fields from other managers.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// # let mut secret = Secret { string_data: map.data.clone(), ..Secret::default() };
    /// # secret.metadata.name = Some("copy".to_owned());
    /// # secret.metadata.namespace = Some("default".to_owned());
    ///
    /// cx.apply(&secret).await?;
    /// cx.apply_without_force(&secret).await?; // no other manager has the fields
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// As [`Context::apply`], and when another manager owns one of the fields with another value.
    pub async fn apply_without_force<K: ApiObject>(&self, object: &K) -> Result<Arc<K>> {
        let kind = kind_of::<K>();
        let body = encode_intent(&kind, object)?;
        self.writer().apply::<Full<K>>(target_of(kind, object), body, false).await
    }

    /// Creates an object.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// # let mut secret = Secret { string_data: map.data.clone(), ..Secret::default() };
    /// # secret.metadata.name = Some("copy".to_owned());
    /// # secret.metadata.namespace = Some("default".to_owned());
    ///
    /// let created = cx.create(&secret).await?;
    /// assert!(created.metadata.uid.is_some());
    /// assert!(cx.create(&secret).await.is_err(), "it exists");
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// When the object cannot be encoded or the server refuses it, for example because it exists
    /// ([`ApiError::is_already_exists`]).
    pub async fn create<K: ApiObject>(&self, object: &K) -> Result<Arc<K>> {
        let kind = kind_of::<K>();
        let body = encode(&kind, object)?;
        Ok(self.writer().create::<Full<K>>(&target_of(kind, object), body).await?)
    }

    /// Replaces an object. Its `metadata.resourceVersion`, if set, has to be the current one.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// let mut changed = ConfigMap::clone(&map);
    /// changed.data.get_or_insert_default().insert("color".to_owned(), "red".to_owned());
    /// let updated = cx.update(&changed).await?;
    /// assert_eq!(updated.data.as_ref().unwrap()["color"], "red");
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// When the object cannot be encoded or the server refuses it, for example because of a conflict.
    pub async fn update<K: ApiObject>(&self, object: &K) -> Result<Arc<K>> {
        let kind = kind_of::<K>();
        let body = encode(&kind, object)?;
        Ok(self.writer().update::<Full<K>>(&target_of(kind, object), body).await?)
    }

    /// Creates an object, or changes it if it exists. `object` names it; `change` sets the desired fields, on `object`
    /// itself or on the present object. Sends nothing if the present object is so already.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// # let mut secret = Secret { string_data: map.data.clone(), ..Secret::default() };
    /// # secret.metadata.name = Some("copy".to_owned());
    /// # secret.metadata.namespace = Some("default".to_owned());
    ///
    /// let created = cx.create_or_update(secret, |secret| {
    ///     secret.immutable = Some(true);
    ///     Ok(())
    /// });
    /// assert_eq!(created.await?.immutable, Some(true));
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// As [`Context::create`] and [`Context::update`], and when the object cannot be read.
    ///
    /// Upstream: `controllerutil.CreateOrUpdate`.
    #[doc(alias = "CreateOrUpdate")]
    pub async fn create_or_update<K: ApiObject + Clone>(
        &self,
        mut object: K,
        change: impl FnOnce(&mut K) -> Result<()> + Send,
    ) -> Result<Arc<K>> {
        let target = target_of(kind_of::<K>(), &object);
        let present = match self.writer().cached::<Full<K>>(&target) {
            Some(cached) => Some(Arc::clone(cached.object())),
            None if self.writer().is_absent::<Full<K>>(&target) => None,
            None => self.get_live::<K>(&target.namespace, &target.name).await?,
        };
        let Some(present) = present else {
            change(&mut object)?;
            return self.create(&object).await;
        };
        let mut changed = K::clone(&present);
        change(&mut changed)?;
        if is_equal(&*present, &changed)? {
            return Ok(present);
        }
        self.update(&changed).await
    }

    /// Sends the difference between two states of an object as a merge patch, or nothing if they are equal. A patch that
    /// replaces a list applies only to the version of `old`.
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
    /// When an object cannot be encoded or the server refuses the patch.
    ///
    /// Upstream: `client.MergeFrom`.
    #[doc(alias = "MergeFrom")]
    pub async fn merge_patch<K: ApiObject>(&self, old: &K, new: &K) -> Result<Option<Arc<K>>> {
        let Some(diff) = merge_patch(&serde_json::to_value(old)?, &serde_json::to_value(new)?)
        else {
            return Ok(None);
        };
        let mut patch = diff.patch;
        if diff.replaces_list {
            patch["metadata"]["resourceVersion"] = json!(old.meta().resource_version);
        }
        Ok(Some(self.patch(old, PatchForm::Merge, &patch).await?))
    }

    /// Patches an object.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// use evenkeel_runtime::plan::PatchForm;
    ///
    /// let patch = serde_json::json!({"data": {"color": "red"}});
    /// let patched = cx.patch(&*map, PatchForm::Merge, &patch).await?;
    /// assert_eq!(patched.data.as_ref().unwrap()["color"], "red");
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// When the server refuses the patch.
    pub async fn patch<K: ApiObject>(
        &self,
        object: &K,
        form: PatchForm,
        patch: &Value,
    ) -> Result<Arc<K>> {
        let target = target_of(kind_of::<K>(), object);
        Ok(self.writer().patch(&target, "", form, serde_json::to_vec(patch)?.into()).await?)
    }

    /// Deletes an object, if it still has the uid of `object`. Returns whether it existed.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// assert!(cx.delete(&*map).await?);
    /// assert!(!cx.delete(&*map).await?, "it does not exist any more");
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// When the server refuses the deletion.
    pub async fn delete<K: ApiObject>(&self, object: &K) -> Result<bool> {
        self.delete_with(object, DeleteOptions::default()).await
    }

    /// Like [`Context::delete`], with options.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// use evenkeel_runtime::plan::Propagation;
    ///
    /// let propagation = Some(Propagation::Foreground);
    /// cx.delete_with(&*map, DeleteOptions { propagation, ..DeleteOptions::default() }).await?;
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// When the server refuses the deletion.
    pub async fn delete_with<K: ApiObject>(
        &self,
        object: &K,
        options: DeleteOptions,
    ) -> Result<bool> {
        Ok(self.writer().delete(&target_of(kind_of::<K>(), object), options).await?)
    }

    /// Evicts a pod, which respects its PodDisruptionBudgets. Returns false if a budget does not permit it now.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// let pod: Pod = serde_json::from_value(serde_json::json!({
    ///     "metadata": {"name": "a", "namespace": "default"},
    ///     "spec": {"containers": [{"name": "a", "image": "nginx"}]},
    /// }))?;
    /// let pod = cx.create(&pod).await?;
    /// assert!(cx.evict(&pod).await?, "no budget protects it");
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// When the server refuses the eviction for another reason.
    pub async fn evict(&self, pod: &Pod) -> Result<bool> {
        let target = target_of(kind_of::<Pod>(), pod);
        let Target { kind, namespace, name, uid } = &target;
        let uid = (!uid.is_empty()).then_some(&**uid);
        let body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": **namespace, "name": **name},
            "deleteOptions": {"preconditions": {"uid": uid}},
        });
        let body = serde_json::to_vec(&body)?.into();
        let client = &self.inner().env.client;
        let evicted = client
            .create_subresource::<crate::client::Metadata>(kind, namespace, name, "eviction", body)
            .await;
        match self.inner().record("create", &target, "eviction", evicted) {
            Ok(_) => Ok(true),
            Err(error) if error.is_too_many_requests() => Ok(false),
            Err(error) if error.is_not_found_or_replaced() => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets the replicas of an object by its `scale` sub-resource.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// # let labels = serde_json::json!({"app": "web"});
    /// # let web = serde_json::json!({
    /// #     "metadata": {"name": "web", "namespace": "default"},
    /// #     "spec": {
    /// #         "selector": {"matchLabels": labels},
    /// #         "template": {
    /// #             "metadata": {"labels": labels},
    /// #             "spec": {"containers": [{"name": "a", "image": "nginx"}]},
    /// #         },
    /// #     },
    /// # });
    /// # let web: Deployment = serde_json::from_value(web)?;
    /// let web = cx.create(&web).await?;
    /// cx.scale(&*web, 3).await?;
    /// let web = cx.get_live::<Deployment>("default", "web").await?.expect("it exists");
    /// assert_eq!(web.spec.replicas, Some(3));
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// When the kind has no such sub-resource, or the server refuses the change.
    pub async fn scale<K: ApiObject>(&self, object: &K, replicas: i32) -> Result<()> {
        let target = target_of(kind_of::<K>(), object);
        let Target { kind, namespace, name, .. } = &target;
        let body = serde_json::to_vec(&json!({"spec": {"replicas": replicas}}))?.into();
        let client = &self.inner().env.client;
        let scaled = client
            .patch::<crate::client::Metadata>(
                kind,
                namespace,
                name,
                "scale",
                PatchForm::Merge,
                body,
            )
            .await;
        self.inner().record("patch", &target, "scale", scaled)?;
        Ok(())
    }

    /// Reads an object from the server, not from a cache. Returns `None` if it does not exist.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// let live = cx.get_live::<ConfigMap>("default", "settings").await?.expect("it exists");
    /// assert_eq!(live.data, map.data);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// When the server cannot be read.
    pub async fn get_live<K: ApiObject>(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<K>>> {
        match self.inner().env.client.get::<Full<K>>(namespace, name).await {
            Ok(object) => Ok(Some(object.whole())),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Lists objects from the server, not from a cache. An empty namespace lists those of all namespaces.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// let options = ListOptions { labels: "app=web".to_owned(), ..ListOptions::default() };
    /// assert!(cx.list_live::<Secret>("default", &options).await?.is_empty());
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// When the server cannot be read.
    pub async fn list_live<K: ApiObject>(
        &self,
        namespace: &str,
        options: &ListOptions,
    ) -> Result<Vec<Arc<K>>> {
        let list = self.inner().env.client.list::<Full<K>>(namespace, options).await?;
        Ok(list.items.iter().map(Whole::whole).collect())
    }

    /// Returns the reads and writes of a kind that is known only at run time.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// let leases = Kind::new("coordination.k8s.io", "v1", "Lease", "leases", true);
    /// assert!(cx.dynamic(leases).get_live("default", "a").await?.is_none());
    /// # Ok(())
    /// # });
    /// ```
    pub fn dynamic(&self, kind: Kind) -> DynamicObjects<'_, S> {
        DynamicObjects { context: self, kind }
    }
}

/// Reads and writes of a kind that is known only at run time, from [`Context::dynamic`].
pub struct DynamicObjects<'a, S> {
    context: &'a Context<S>,
    kind: Kind,
}

impl<S> DynamicObjects<'_, S> {
    /// Like [`Context::apply`].
    ///
    /// # Errors
    /// As [`Context::apply`].
    pub async fn apply(&self, object: &DynamicObject) -> Result<Arc<DynamicObject>> {
        let body = encode_intent(&self.kind, object)?;
        self.context.writer().apply::<Dynamic>(self.target(object), body, true).await
    }

    /// Like [`Context::create`].
    ///
    /// # Errors
    /// As [`Context::create`].
    pub async fn create(&self, object: &DynamicObject) -> Result<Arc<DynamicObject>> {
        let body = encode(&self.kind, object)?;
        Ok(self.context.writer().create::<Dynamic>(&self.target(object), body).await?)
    }

    /// Like [`Context::update`].
    ///
    /// # Errors
    /// As [`Context::update`].
    pub async fn update(&self, object: &DynamicObject) -> Result<Arc<DynamicObject>> {
        let body = encode(&self.kind, object)?;
        Ok(self.context.writer().update::<Dynamic>(&self.target(object), body).await?)
    }

    /// Like [`Context::delete`].
    ///
    /// # Errors
    /// As [`Context::delete`].
    pub async fn delete(&self, object: &DynamicObject) -> Result<bool> {
        Ok(self.context.writer().delete(&self.target(object), DeleteOptions::default()).await?)
    }

    /// Like [`Context::get_live`].
    ///
    /// # Errors
    /// When the server cannot be read.
    pub async fn get_live(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<DynamicObject>>> {
        let client = &self.context.inner().env.client;
        match client.get_as::<Dynamic>(&self.kind, namespace, name).await {
            Ok(object) => Ok(Some(object.whole())),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn target(&self, object: &DynamicObject) -> Target {
        target_of(self.kind.clone(), object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    #[test]
    fn an_intent_has_its_type_and_no_field_of_the_server() {
        let map: ConfigMap = serde_json::from_value(json!({
            "metadata": {
                "name": "a", "uid": "u", "resourceVersion": "7", "generation": 2,
                "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{"manager": "m"}],
            },
        }))
        .unwrap();
        let encoded = |bytes: Bytes| serde_json::from_slice::<Value>(&bytes).unwrap();
        let kind = kind_of::<ConfigMap>();
        assert_eq!(
            encoded(encode_intent(&kind, &map).unwrap()),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
        );
        let whole = encoded(encode(&kind, &map).unwrap());
        assert_eq!(
            (&whole["metadata"]["uid"], &whole["metadata"]["managedFields"]),
            (&json!("u"), &Value::Null)
        );
        let untyped = encoded(encode(&kind, &json!({"metadata": {}})).unwrap());
        assert_eq!(untyped, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}));
    }
}
