//! Typed reads and writes of a pass, which is one reconcile of a key.

use super::{
    ApiObject, Context, Result,
    applied::Applied,
    object::{Whole, kind_of, target_of},
    views::ClientView,
};
use crate::{
    cache::{Full, Reader, WriteInFlight},
    client::{ApiError, Client, DeleteOptions, ListOptions, negotiation, send::ApiRequest},
    controller::{self, ControllerCaches, Error},
    plan::{PatchType, Target},
};
use bytes::Bytes;
use evenkeel_api::{Encoding, Kind, Meta, View, json};
use http::HeaderMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// Writes of one pass. All go through the fenced client, and the key waits for the caches to show them.
pub(super) struct Writer<'a> {
    pub(super) context: &'a controller::Context,
    pub(super) key: &'a crate::plan::Key,
    pub(super) field_manager: &'a str,
    pub(super) applied: &'a Applied,
    /// Caches of the controller.
    pub(super) caches: &'a ControllerCaches,
    pub(super) view: &'a ClientView,
}

impl Writer<'_> {
    pub(super) fn client(&self) -> &Client {
        &self.context.env.client
    }

    /// Returns the declared cache's object, if one holds it.
    fn cached<R: View>(&self, target: &Target) -> Option<Arc<R>> {
        self.caches.find_map(|cache| {
            let is_of_kind = cache.scope().kind == target.kind;
            is_of_kind.then(|| cache.get_as(&target.namespace, &target.name)).flatten()
        })
    }

    /// Like [`Self::cached`], but only if the cache does not transform the object.
    fn cached_untransformed<R: View>(&self, target: &Target) -> Option<Arc<R>> {
        self.caches.find_map(|cache| {
            let is_of_kind = cache.scope().kind == target.kind && !cache.transforms();
            is_of_kind.then(|| cache.get_as(&target.namespace, &target.name)).flatten()
        })
    }

    /// Returns whether an object that no cache shows certainly does not exist. This is the case if a declared cache holds all
    /// objects of the kind, and shows the writes of this pass.
    fn is_absent<R: View>(&self, target: &Target) -> bool {
        let holds_all = |cache: &Arc<Reader>| {
            let scope = cache.scope();
            cache.is_of_view::<R>()
                && !cache.transforms()
                && cache.has_synced()
                && scope.kind == target.kind
                && scope.selects_all_in(&target.namespace)
        };
        self.caches.any(holds_all) && self.context.caches_show_writes(self.key)
    }

    /// Sends a write, and decodes the object in the response. If the kind has a cache, they share the decoded object, so that
    /// the write's event is not decoded again.
    async fn send<R: View>(&self, target: &Target, call: ApiRequest) -> Result<Arc<R>, ApiError> {
        let in_flight = (!self.view.dry_run)
            .then(|| {
                self.caches.find_map(|cache| {
                    let is_of_kind = cache.scope().kind == target.kind && cache.is_of_view::<R>();
                    // Objects that the cache transforms, or that the server sends as protobuf, are never recognized.
                    let is_recognized = !R::PROTOBUF && !cache.transforms();
                    (is_of_kind && is_recognized).then(|| WriteInFlight::of(cache))
                })
            })
            .flatten();
        let decode = |headers: &HeaderMap, body: &[u8]| match &in_flight {
            Some(in_flight) if negotiation::response_encoding(headers) == Encoding::Json => {
                in_flight.decode_answer(body)
            }
            _ => negotiation::decode_object(headers, body).map(Arc::new),
        };
        self.client().exchange_with(call, decode).await
    }

    /// Records the result of a write for reports, unless it is a dry run.
    pub(super) fn record<T>(
        &self,
        verb: &'static str,
        target: &Target,
        subresource: &'static str,
        result: Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        if self.view.dry_run {
            return result;
        }
        self.context.record(verb, target, subresource, result)
    }

    /// Makes the key wait until the caches show a write, unless no cache will show it.
    pub(super) fn wrote(&self, target: &Target, returned: &Meta) {
        let shows =
            |cache: &Arc<Reader>| cache.scope().kind == target.kind && cache.will_show(returned);
        if !self.view.dry_run && self.caches.any(shows) {
            self.context.wrote(self.key, &target.kind, returned);
        }
    }

    pub(super) async fn apply<R: Whole>(
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
        let call = Client::apply_request::<R>(&target, self.field_manager, force, body.clone());
        let applied = self.send::<R>(&target, call).await;
        let returned = self.record("apply", &target, "", applied)?;
        self.wrote(&target, returned.meta());
        if !self.view.dry_run {
            self.applied.remember(target, &body, returned.meta());
        }
        Ok(returned.whole())
    }

    pub(super) async fn patch<R: View>(
        &self,
        target: &Target,
        subresource: &'static str,
        form: PatchType,
        body: Bytes,
    ) -> Result<Arc<R>, ApiError> {
        let Target { kind, namespace, name, .. } = target;
        let call = self.client().patch_request::<R>(kind, namespace, name, subresource, form, body);
        let patched = self.send::<R>(target, call).await;
        let patched = self.record("patch", target, subresource, patched)?;
        self.wrote(target, patched.meta());
        Ok(patched)
    }

    pub(super) async fn create<R: Whole>(
        &self,
        target: &Target,
        body: Bytes,
    ) -> Result<Arc<R::Object>, ApiError> {
        let call = self.client().create_request::<R>(&target.kind, &target.namespace, body);
        let created = self.send::<R>(target, call).await;
        let created = self.record("create", target, "", created)?;
        self.wrote(target, created.meta());
        Ok(created.whole())
    }

    pub(super) async fn update<R: Whole>(
        &self,
        target: &Target,
        body: Bytes,
    ) -> Result<Arc<R::Object>, ApiError> {
        let Target { kind, namespace, name, .. } = target;
        let call = self.client().update_request::<R>(kind, namespace, name, "", body);
        let updated = self.send::<R>(target, call).await;
        let updated = self.record("update", target, "", updated)?;
        self.wrote(target, updated.meta());
        Ok(updated.whole())
    }

    pub(super) async fn delete(
        &self,
        target: &Target,
        options: DeleteOptions,
    ) -> Result<bool, ApiError> {
        if !self.view.dry_run {
            self.applied.forget(&Target { uid: Arc::from(""), ..target.clone() });
        }
        let uid = if options.uid.is_empty() { (*target.uid).to_owned() } else { options.uid };
        let options = DeleteOptions { uid, ..options };
        let known = Target { uid: Arc::from(&*options.uid), ..target.clone() };
        let mut awaited = self.context.identified(&known);
        let Target { kind, namespace, name, .. } = target;
        let deleted = self.client().delete(kind, namespace, name, &options).await;
        match self.record("delete", target, "", deleted) {
            Ok(deleted) => {
                if awaited.uid.is_empty() {
                    // The caches may not show an object that this pass has created.
                    awaited.uid = Arc::from(&*deleted.meta.uid);
                }
                let is_cached = self.caches.any(|cache| cache.scope().kind == target.kind);
                if is_cached && !self.view.dry_run {
                    self.context.deleted(self.key, &awaited);
                }
                Ok(true)
            }
            Err(error) if error.is_not_found_or_replaced() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads an object from the server. Returns `None` if it does not exist.
    pub(super) async fn get_live<R: Whole>(
        &self,
        target: &Target,
    ) -> Result<Option<Arc<R::Object>>> {
        let Target { kind, namespace, name, .. } = target;
        match self.client().get_as::<R>(kind, namespace, name).await {
            Ok(object) => Ok(Some(object.whole())),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates an object, or changes it if it exists.
    pub(super) async fn create_or_update<R: Whole<Object: Clone + Resource + Serialize>>(
        &self,
        target: &Target,
        mut object: R::Object,
        change: impl FnOnce(&mut R::Object) -> Result<()> + Send,
    ) -> Result<Arc<R::Object>> {
        let present = match self.cached_untransformed::<R>(target) {
            Some(cached) => Some(cached.whole()),
            None if self.is_absent::<R>(target) => None,
            None => self.get_live::<R>(target).await?,
        };
        let Some(present) = present else {
            change(&mut object)?;
            let body = encode(&target.kind, &object)?;
            return Ok(self.create::<R>(target, body).await?);
        };
        let mut changed = R::Object::clone(&present);
        let before = text_without_metadata(&mut changed)?;
        change(&mut changed)?;
        if is_same_json(&before, &text_without_metadata(&mut changed)?)?
            && is_same_metadata(present.meta(), changed.meta())?
        {
            return Ok(present);
        }
        Ok(self.update::<R>(target, encode(&target.kind, &changed)?).await?)
    }
}

/// Encodes an object without its metadata, which is the larger part of the work. The object stays unchanged.
fn text_without_metadata(object: &mut (impl Resource + Serialize)) -> Result<Vec<u8>> {
    let metadata = std::mem::take(object.meta_mut());
    let text = serde_json::to_vec(object);
    *object.meta_mut() = metadata;
    Ok(text?)
}

/// Returns whether two encodings of one type are the same JSON.
fn is_same_json(left: &[u8], right: &[u8]) -> Result<bool> {
    // Unordered maps may encode the same JSON in another order, but with the same length.
    if left == right || left.len() != right.len() {
        return Ok(left == right);
    }
    Ok(json::from_slice::<Value>(left)? == json::from_slice::<Value>(right)?)
}

/// Returns whether two metadata have the same JSON, which has no fractions of seconds.
fn is_same_metadata(left: &ObjectMeta, right: &ObjectMeta) -> Result<bool> {
    Ok(left == right || serde_json::to_vec(left)? == serde_json::to_vec(right)?)
}

/// Encodes an object, without fields that a write may not contain.
pub(super) fn encode(kind: &Kind, object: &(impl Resource + Serialize)) -> Result<Bytes> {
    if object.meta().managed_fields.is_none() {
        let text = serde_json::to_vec(object)?;
        if begins_with_type(&text, kind) {
            return Ok(text.into());
        }
    }
    encode_without(&["managedFields"], kind, object)
}

/// Returns whether the JSON of an object begins with its `apiVersion` and `kind`, as for most Rust types.
fn begins_with_type(text: &[u8], kind: &Kind) -> bool {
    let field = |text: &[u8], name: &str, value: &str| {
        let rest = text.strip_prefix(name.as_bytes())?.strip_prefix(value.as_bytes())?;
        rest.strip_prefix(b"\",").map(|rest| text.len() - rest.len())
    };
    let after_version = field(text, "{\"apiVersion\":\"", &kind.api_version());
    after_version.is_some_and(|at| field(&text[at..], "\"kind\":\"", &kind.kind).is_some())
}

/// Encodes an object for server-side apply: without fields that only the server sets.
pub(super) fn encode_intent(kind: &Kind, object: &impl Serialize) -> Result<Bytes> {
    const SET_BY_SERVER: [&str; 6] =
        ["creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"];
    encode_without(&SET_BY_SERVER, kind, object)
}

/// Encodes an object without these fields of its metadata. Adds `apiVersion` and `kind` if they are missing.
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

impl<S> Context<S> {
    /// Returns an object as a target, in the namespace of this view.
    ///
    /// # Errors
    /// Fails if the object is in another namespace.
    pub(super) fn target(&self, kind: &Kind, object: &impl Resource) -> Result<Target> {
        self.in_view(target_of(kind.clone(), object))
    }

    /// Returns a target in the namespace of this view.
    ///
    /// # Errors
    /// Fails if the object is in another namespace.
    pub(super) fn in_view(&self, target: Target) -> Result<Target> {
        let namespace = self.view.namespace(&target.kind, &target.namespace)?;
        let namespace = (*namespace != *target.namespace).then(|| Arc::from(namespace));
        Ok(Target {
            namespace: namespace.unwrap_or_else(|| Arc::clone(&target.namespace)),
            ..target
        })
    }
}

/// Typed reads and writes. A write is sent only while this process leads, and is subject to the client's rate limit. The next
/// pass over the key sees the write, because it waits until the controller's caches show it.
impl<S> Context<S> {
    /// Applies an object (server-side apply with force, as the manager's component). Creates it if it does not exist.
    /// Sends nothing if this intent was applied before and no other write has changed the object since, apart from its status.
    ///
    /// `object` holds exactly the fields that the controller owns. Fields of an earlier intent that it no longer contains are
    /// removed.
    ///
    /// An object of this name that another client created is adopted: its other fields stay, and the garbage collector deletes
    /// it with an owner that `object` refers to. The server refuses a second controller reference, unless the first is of an
    /// earlier intent, which it replaces. If another client may use the name, first check the object from [`Context::get`] with
    /// [`is_controlled_by`](super::OwnerExt::is_controlled_by), or use [`Context::create`].
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
    /// Fails if the object cannot be encoded or the server rejects it.
    #[doc(alias = "client.Apply")]
    pub async fn apply<K: ApiObject>(&self, object: &K) -> Result<Arc<K>> {
        let kind = kind_of::<K>();
        let body = encode_intent(&kind, object)?;
        self.writer().apply::<Full<K>>(self.target(&kind, object)?, body, true).await
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
    /// Fails as [`Context::apply`] does, and when another manager owns one of the fields with another value.
    pub async fn apply_without_force<K: ApiObject>(&self, object: &K) -> Result<Arc<K>> {
        let kind = kind_of::<K>();
        let body = encode_intent(&kind, object)?;
        self.writer().apply::<Full<K>>(self.target(&kind, object)?, body, false).await
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
    /// Fails if the object cannot be encoded or the server rejects it, for example because it exists
    /// ([`ApiError::is_already_exists`]).
    pub async fn create<K: ApiObject>(&self, object: &K) -> Result<Arc<K>> {
        let kind = kind_of::<K>();
        let body = encode(&kind, object)?;
        Ok(self.writer().create::<Full<K>>(&self.target(&kind, object)?, body).await?)
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
    /// Fails if the object cannot be encoded or the server rejects it, for example because of a conflict.
    pub async fn update<K: ApiObject>(&self, object: &K) -> Result<Arc<K>> {
        let kind = kind_of::<K>();
        let body = encode(&kind, object)?;
        Ok(self.writer().update::<Full<K>>(&self.target(&kind, object)?, body).await?)
    }

    /// Creates an object, or changes it if it exists. `object` names it; `change` sets the desired fields, on `object` itself
    /// or on the present object. Sends nothing if the present object already has them.
    ///
    /// The present object is read from a cache, unless its options [transform](crate::cache::CacheOptions::transform) it: an
    /// update would remove the fields that the cache has dropped.
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
    /// Fails as [`Context::create`] and [`Context::update`] do, and when the object cannot be read.
    ///
    /// Upstream: `controllerutil.CreateOrUpdate`.
    #[doc(alias = "CreateOrUpdate")]
    pub async fn create_or_update<K: ApiObject + Clone>(
        &self,
        object: K,
        change: impl FnOnce(&mut K) -> Result<()> + Send,
    ) -> Result<Arc<K>> {
        let target = self.target(&kind_of::<K>(), &object)?;
        self.writer().create_or_update::<Full<K>>(&target, object, change).await
    }

    /// Patches an object. [`Context::subresource`] patches its sub-resources.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// use evenkeel_runtime::plan::PatchType;
    ///
    /// let patch = serde_json::json!({"data": {"color": "red"}});
    /// let patched = cx.patch(&*map, PatchType::Merge, &patch).await?;
    /// assert_eq!(patched.data.as_ref().unwrap()["color"], "red");
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// Fails if the server rejects the patch.
    pub async fn patch<K: ApiObject>(
        &self,
        object: &K,
        form: PatchType,
        patch: &Value,
    ) -> Result<Arc<K>> {
        let target = self.target(&kind_of::<K>(), object)?;
        let body = serde_json::to_vec(patch)?.into();
        let patched = self.writer().patch::<Full<K>>(&target, "", form, body).await?;
        Ok(patched.whole())
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
    /// Fails if the server rejects the deletion.
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
    /// Fails if the server rejects the deletion.
    pub async fn delete_with<K: ApiObject>(
        &self,
        object: &K,
        options: DeleteOptions,
    ) -> Result<bool> {
        Ok(self.writer().delete(&self.target(&kind_of::<K>(), object)?, options).await?)
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
    /// Fails if the read from the server fails.
    #[doc(alias = "APIReader")]
    pub async fn get_live<K: ApiObject>(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<K>>> {
        let target = self.in_view(Target::new(kind_of::<K>(), namespace, name, ""))?;
        self.writer().get_live::<Full<K>>(&target).await
    }

    /// Lists objects from the server, not from a cache. An empty namespace lists the objects of all namespaces.
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
    /// Fails if the read from the server fails.
    pub async fn list_live<K: ApiObject>(
        &self,
        namespace: &str,
        options: &ListOptions,
    ) -> Result<Vec<Arc<K>>> {
        let namespace = self.view.namespace(&kind_of::<K>(), namespace)?;
        let list = self.inner().env.client.list::<Full<K>>(namespace, options).await?;
        Ok(list.items.iter().map(Whole::whole).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::DynamicObject;
    use serde_json::json;

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
        let untyped =
            DynamicObject { types: None, metadata: ObjectMeta::default(), data: json!({}) };
        let typed = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}});
        assert_eq!(encoded(encode(&kind, &untyped).unwrap()), typed);
    }

    #[test]
    fn an_object_that_begins_with_its_type_is_sent_as_it_is_written() {
        let (kind, map) = (kind_of::<ConfigMap>(), ConfigMap::default());
        let text = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}"#;
        assert_eq!(encode(&kind, &map).unwrap(), text);
        assert!(begins_with_type(text.as_bytes(), &kind));
        for other in [
            r#"{"apiVersion":"v2","kind":"ConfigMap","metadata":{}}"#,
            r#"{"apiVersion":"v1","kind":"ConfigMaps","metadata":{}}"#,
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{}}"#,
            r#"{"apiVersion":"v1","metadata":{}}"#,
            "{}",
        ] {
            assert!(!begins_with_type(other.as_bytes(), &kind), "{other}");
        }
    }

    #[test]
    fn objects_are_compared_by_their_json() {
        let table = [
            (r#"{"a":1,"b":2}"#, r#"{"a":1,"b":2}"#, true),
            (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, true),
            (r#"{"a":1,"b":2}"#, r#"{"a":1,"b":3}"#, false),
            (r#"{"a":1}"#, r#"{"a":1,"b":2}"#, false),
        ];
        for (left, right, expected) in table {
            let same = is_same_json(left.as_bytes(), right.as_bytes()).unwrap();
            assert_eq!(same, expected, "{left} {right}");
        }
        let mut map: ConfigMap =
            serde_json::from_value(json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).unwrap();
        let text = text_without_metadata(&mut map).unwrap();
        assert!(!String::from_utf8(text).unwrap().contains("name"));
        assert_eq!(map.metadata.name.as_deref(), Some("a"));
        let at = |second: &str, label: &str| -> ObjectMeta {
            let time = format!("2026-01-01T00:00:{second}Z");
            serde_json::from_value(json!({"creationTimestamp": time, "labels": {"l": label}}))
                .unwrap()
        };
        for (second, label, expected) in
            [("00.5", "x", true), ("01", "x", false), ("00", "y", false)]
        {
            let same = is_same_metadata(&at("00", "x"), &at(second, label)).unwrap();
            assert_eq!(same, expected, "{second} {label}");
        }
    }
}
