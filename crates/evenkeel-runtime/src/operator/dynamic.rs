//! Reads and writes of kinds that are known only at run time.

use super::{
    Context, Result,
    context::RECONCILE,
    object::{Identified, Whole},
    patches::{difference, list_locked_merge_patch, locked_json_patch, locked_merge_patch},
    status::{self, StatusPatch},
    subresource::{self, SubResource},
    write::{encode, encode_intent},
};
use crate::{
    cache::Dynamic,
    client::{DeleteOptions, ListOptions},
    plan::{EventRecord, PatchType, Target},
};
use evenkeel_api::Kind;
use k8s_openapi::api::autoscaling::v1::Scale;
use kube::api::{DynamicObject, ObjectMeta, TypeMeta};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{borrow::Cow, sync::Arc};

impl<S> Context<S> {
    /// Returns the reads and writes of a kind that is known only at run time.
    ///
    /// ```
    /// # use evenkeel_runtime::{prelude::*, serde_json::json};
    /// # async fn run(cx: &Context) -> Result<()> {
    /// let gadgets = cx.dynamic(Kind::new("example.com", "v1", "Gadget", "gadgets", true));
    /// let mut gadget = gadgets.new_object("default", "web");
    /// gadget.data = json!({"spec": {"size": 3}});
    /// let gadget = gadgets.apply(&gadget).await?;
    /// gadgets.status(&gadget).set(|status| status["phase"] = json!("New")).patch_if_changed().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "Unstructured")]
    pub fn dynamic(&self, kind: Kind) -> DynamicObjects<'_, S> {
        DynamicObjects { context: self, kind }
    }
}

/// Reads and writes of a kind that is known only at run time, from [`Context::dynamic`]. The methods correspond to those of
/// [`Context`] with the same name. Methods that only need the object's identity also accept its
/// [`Metadata`](crate::client::Metadata).
pub struct DynamicObjects<'a, S> {
    context: &'a Context<S>,
    kind: Kind,
}

/// Reads from the declared cache, and live reads from the server.
impl<S> DynamicObjects<'_, S> {
    /// Returns the kind that was passed to [`Context::dynamic`].
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Returns an object of the kind that has only this name.
    pub fn new_object(&self, namespace: &str, name: &str) -> DynamicObject {
        let namespace = Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty());
        DynamicObject {
            types: Some(TypeMeta {
                api_version: self.kind.api_version().into_owned(),
                kind: self.kind.kind.to_string(),
            }),
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace,
                ..ObjectMeta::default()
            },
            data: json!({}),
        }
    }

    /// Like [`Context::get_dynamic`].
    ///
    /// # Errors
    /// Fails as [`Context::cached`] does.
    pub fn get(&self, namespace: &str, name: &str) -> Result<Option<Arc<DynamicObject>>> {
        self.context.get_dynamic(&self.kind, namespace, name)
    }

    /// Like [`Context::get_live`].
    ///
    /// # Errors
    /// Fails if the read from the server fails.
    pub async fn get_live(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<DynamicObject>>> {
        let target = self.context.in_view(Target::new(self.kind.clone(), namespace, name, ""))?;
        self.context.writer().get_live::<Dynamic>(&target).await
    }

    /// Like [`Context::list_live`]. Each object has its `types`.
    ///
    /// # Errors
    /// Fails if the read from the server fails.
    pub async fn list_live(
        &self,
        namespace: &str,
        options: &ListOptions,
    ) -> Result<Vec<Arc<DynamicObject>>> {
        let namespace = self.context.view.namespace(&self.kind, namespace)?;
        let client = &self.context.inner().env.client;
        let list = client.list_as::<Dynamic>(&self.kind, namespace, options).await?;
        Ok(list.items.into_iter().map(|object| object.with_type(&self.kind).whole()).collect())
    }

    /// Like [`Context::get_scale`].
    ///
    /// # Errors
    /// Fails as [`Context::get_scale`] does.
    pub async fn get_scale(&self, object: &impl Identified) -> Result<Scale> {
        subresource::get_scale(self.subresource(object, "scale")).await
    }
}

/// Writes through the leader fence. Each method corresponds to the method of [`Context`] with the same name.
impl<S> DynamicObjects<'_, S> {
    /// Like [`Context::apply`].
    ///
    /// # Errors
    /// Fails as [`Context::apply`] does.
    pub async fn apply(&self, object: &DynamicObject) -> Result<Arc<DynamicObject>> {
        let body = encode_intent(&self.kind, object)?;
        self.context.writer().apply::<Dynamic>(self.target(object)?, body, true).await
    }

    /// Like [`Context::apply_without_force`].
    ///
    /// # Errors
    /// Fails as [`Context::apply_without_force`] does.
    pub async fn apply_without_force(&self, object: &DynamicObject) -> Result<Arc<DynamicObject>> {
        let body = encode_intent(&self.kind, object)?;
        self.context.writer().apply::<Dynamic>(self.target(object)?, body, false).await
    }

    /// Like [`Context::create`].
    ///
    /// # Errors
    /// Fails as [`Context::create`] does.
    pub async fn create(&self, object: &DynamicObject) -> Result<Arc<DynamicObject>> {
        let body = encode(&self.kind, object)?;
        Ok(self.context.writer().create::<Dynamic>(&self.target(object)?, body).await?)
    }

    /// Like [`Context::update`].
    ///
    /// # Errors
    /// Fails as [`Context::update`] does.
    pub async fn update(&self, object: &DynamicObject) -> Result<Arc<DynamicObject>> {
        let body = encode(&self.kind, object)?;
        Ok(self.context.writer().update::<Dynamic>(&self.target(object)?, body).await?)
    }

    /// Like [`Context::create_or_update`].
    ///
    /// # Errors
    /// Fails as [`Context::create_or_update`] does.
    pub async fn create_or_update(
        &self,
        object: DynamicObject,
        change: impl FnOnce(&mut DynamicObject) -> Result<()> + Send,
    ) -> Result<Arc<DynamicObject>> {
        let target = self.target(&object)?;
        self.context.writer().create_or_update::<Dynamic>(&target, object, change).await
    }

    /// Like [`Context::patch`].
    ///
    /// # Errors
    /// Fails as [`Context::patch`] does.
    pub async fn patch(
        &self,
        object: &impl Identified,
        form: PatchType,
        patch: &Value,
    ) -> Result<Arc<DynamicObject>> {
        let target = self.target(object)?;
        let body = serde_json::to_vec(patch)?.into();
        Ok(self.context.writer().patch::<Dynamic>(&target, "", form, body).await?.whole())
    }

    /// Like [`Context::merge_patch`].
    ///
    /// # Errors
    /// Fails as [`Context::merge_patch`] does.
    pub async fn merge_patch(
        &self,
        old: &DynamicObject,
        new: &DynamicObject,
    ) -> Result<Option<Arc<DynamicObject>>> {
        let Some(patch) = difference(old, new, list_locked_merge_patch)? else { return Ok(None) };
        Ok(Some(self.patch(old, PatchType::Merge, &patch).await?))
    }

    /// Like [`Context::merge_patch_with_lock`].
    ///
    /// # Errors
    /// Fails as [`Context::merge_patch_with_lock`] does.
    pub async fn merge_patch_with_lock(
        &self,
        old: &DynamicObject,
        new: &DynamicObject,
    ) -> Result<Option<Arc<DynamicObject>>> {
        let Some(patch) = difference(old, new, locked_merge_patch)? else { return Ok(None) };
        Ok(Some(self.patch(old, PatchType::Merge, &patch).await?))
    }

    /// Like [`Context::json_patch`].
    ///
    /// # Errors
    /// Fails as [`Context::json_patch`] does.
    pub async fn json_patch(
        &self,
        old: &DynamicObject,
        new: &DynamicObject,
    ) -> Result<Option<Arc<DynamicObject>>> {
        let Some(patch) = difference(old, new, locked_json_patch)? else { return Ok(None) };
        Ok(Some(self.patch(old, PatchType::Json, &patch).await?))
    }

    /// Like [`Context::delete`].
    ///
    /// # Errors
    /// Fails as [`Context::delete`] does.
    pub async fn delete(&self, object: &impl Identified) -> Result<bool> {
        self.delete_with(object, DeleteOptions::default()).await
    }

    /// Like [`Context::delete_with`].
    ///
    /// # Errors
    /// Fails as [`Context::delete_with`] does.
    pub async fn delete_with(
        &self,
        object: &impl Identified,
        options: DeleteOptions,
    ) -> Result<bool> {
        let target = self.target(object)?;
        Ok(self.context.writer().delete(&target, options).await?)
    }

    /// Like [`Context::scale`].
    ///
    /// # Errors
    /// Fails as [`Context::scale`] does.
    pub async fn scale(&self, object: &impl Identified, replicas: i32) -> Result<Scale> {
        subresource::scale(self.subresource(object, "scale"), replicas).await
    }

    fn target(&self, object: &impl Identified) -> Result<Target> {
        self.context.in_view(object.target(&self.kind))
    }
}

/// Status, sub-resources and events.
impl<'a, S> DynamicObjects<'a, S> {
    /// Returns a change of the object's status, like [`Context::status`]. The status is JSON; it is null if the object has no
    /// status.
    pub fn status<'o>(&self, object: &'o DynamicObject) -> StatusPatch<'o, Dynamic, Value, S>
    where
        'a: 'o,
    {
        status::of_dynamic(self.context, &self.kind, object)
    }

    /// Like [`DynamicObjects::status`], with a type that has some of the status's fields. Other fields stay unchanged.
    pub fn status_of<'o, T>(&self, object: &'o DynamicObject) -> StatusPatch<'o, Dynamic, T, S>
    where
        'a: 'o,
        T: Serialize + DeserializeOwned,
    {
        status::of_dynamic(self.context, &self.kind, object)
    }

    /// Returns the access to a sub-resource of an object, like [`Context::subresource`].
    pub fn subresource(&self, object: &impl Identified, name: &'static str) -> SubResource<'a, S> {
        SubResource::new(self.context, self.target(object), name)
    }

    /// Records a normal event on an object, like [`Context::event`].
    pub fn event(
        &self,
        object: &impl Identified,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        let event = EventRecord::normal(object.target(&self.kind), reason, message);
        self.context.record_event(&event, RECONCILE, None);
    }

    /// Records a warning on an object, like [`Context::warning`].
    pub fn warning(
        &self,
        object: &impl Identified,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        let event = EventRecord::warning(object.target(&self.kind), reason, message);
        self.context.record_event(&event, RECONCILE, None);
    }

    /// Like [`Context::event_related`]. [`Target::of_object`] and [`Identified::target`] name the related object.
    pub fn event_related(
        &self,
        object: &impl Identified,
        related: &Target,
        action: &'static str,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        let event = EventRecord::normal(object.target(&self.kind), reason, message);
        self.context.record_event(&event, action, Some(related));
    }
}
