//! Sub-resources of objects.

use super::{ApiObject, Context, Result, object::kind_of};
use crate::{
    cache::Dynamic,
    client::Metadata,
    plan::{PatchType, Target},
};
use evenkeel_api::View;
use k8s_openapi::api::{autoscaling::v1::Scale, core::v1::Pod};
use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::{Value, json};

/// Sub-resource of one object, such as `scale`, `status` or `resize`, from [`Context::subresource`] and
/// [`DynamicObjects::subresource`](super::DynamicObjects::subresource).
///
/// The methods return dynamic objects, because a sub-resource may have its own kind. `try_parse` converts them to a type.
#[doc(alias = "SubResourceClient")]
pub struct SubResource<'a, S> {
    context: &'a Context<S>,
    /// The object, or the error that the object is outside the view.
    target: Result<Target>,
    name: &'static str,
}

impl<'a, S> SubResource<'a, S> {
    pub(super) fn new(context: &'a Context<S>, target: Result<Target>, name: &'static str) -> Self {
        Self { context, target, name }
    }

    /// Reads the sub-resource.
    ///
    /// # Errors
    /// Fails if the kind has no such sub-resource, or the server rejects the request.
    pub async fn get(self) -> Result<DynamicObject> {
        let Target { kind, namespace, name, .. } = &self.target?;
        let client = &self.context.inner().env.client;
        let found = client.get_subresource::<Dynamic>(kind, namespace, name, self.name).await?;
        Ok(found.into_inner())
    }

    /// Posts to the sub-resource, such as to `token` of a ServiceAccount.
    ///
    /// # Errors
    /// Fails if the kind has no such sub-resource, or the server rejects the request.
    pub async fn create(self, body: &impl Serialize) -> Result<DynamicObject> {
        let (target, body) = (self.target?, serde_json::to_vec(body)?.into());
        let Target { kind, namespace, name, .. } = &target;
        let writer = self.context.writer();
        let created = writer
            .client()
            .create_subresource::<Dynamic>(kind, namespace, name, self.name, body)
            .await;
        answer(self.context, &target, writer.record("create", &target, self.name, created)?)
    }

    /// Replaces the sub-resource, such as the `approval` of a CertificateSigningRequest. `body` is the whole object for most
    /// sub-resources.
    ///
    /// # Errors
    /// Fails if the kind has no such sub-resource, or the server rejects the request.
    pub async fn update(self, body: &impl Serialize) -> Result<DynamicObject> {
        let (target, body) = (self.target?, serde_json::to_vec(body)?.into());
        let Target { kind, namespace, name, .. } = &target;
        let writer = self.context.writer();
        let updated =
            writer.client().update::<Dynamic>(kind, namespace, name, self.name, body).await;
        answer(self.context, &target, writer.record("update", &target, self.name, updated)?)
    }

    /// Patches the sub-resource, such as the `resize` of a Pod.
    ///
    /// # Errors
    /// Fails if the kind has no such sub-resource, or the server rejects the request.
    pub async fn patch(self, form: PatchType, patch: &Value) -> Result<DynamicObject> {
        let (target, body) = (self.target?, serde_json::to_vec(patch)?.into());
        let Target { kind, namespace, name, .. } = &target;
        let writer = self.context.writer();
        let patched =
            writer.client().patch::<Dynamic>(kind, namespace, name, self.name, form, body).await;
        answer(self.context, &target, writer.record("patch", &target, self.name, patched)?)
    }
}

/// Returns the object in the response to a write. If its version is the version of the object itself, the key waits
/// until the caches show it.
fn answer<S>(context: &Context<S>, target: &Target, answer: Dynamic) -> Result<DynamicObject> {
    let meta = View::meta(&answer);
    if meta.version() != 0 && *meta.name == *target.name {
        context.writer().wrote(target, meta);
    }
    Ok(answer.into_inner())
}

/// Access to the sub-resources of objects.
impl<S> Context<S> {
    /// Returns a sub-resource of an object. The sub-resources for [`Context::status`], [`Context::scale`] and
    /// [`Context::evict`] have their own methods.
    ///
    /// ```
    /// # use evenkeel_runtime::{plan::PatchType, prelude::*, serde_json::json};
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # async fn run(cx: &Context, pod: &Pod) -> Result<()> {
    /// let cpu = json!({"spec": {"containers": [{"name": "web", "resources": {"limits": {"cpu": "2"}}}]}});
    /// cx.subresource(pod, "resize").patch(PatchType::Strategic, &cpu).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "SubResource")]
    pub fn subresource<K: ApiObject>(&self, object: &K, name: &'static str) -> SubResource<'_, S> {
        SubResource::new(self, self.target(&kind_of::<K>(), object), name)
    }

    /// Sets the replicas of an object by its `scale` sub-resource. Returns the Scale, which has the desired and the present
    /// replicas, and the selector.
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
    /// Fails if the kind has no such sub-resource, or the server rejects the change.
    pub async fn scale<K: ApiObject>(&self, object: &K, replicas: i32) -> Result<Scale> {
        scale(self.subresource(object, "scale"), replicas).await
    }

    /// Reads the `scale` sub-resource of an object.
    ///
    /// # Errors
    /// Fails if the kind has no such sub-resource, or the server rejects the request.
    pub async fn get_scale<K: ApiObject>(&self, object: &K) -> Result<Scale> {
        get_scale(self.subresource(object, "scale")).await
    }

    /// Evicts a pod, subject to its PodDisruptionBudgets. Returns false if a budget does not permit it now.
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
    /// Fails if the server rejects the eviction for another reason.
    pub async fn evict(&self, pod: &Pod) -> Result<bool> {
        let target = self.target(&kind_of::<Pod>(), pod)?;
        let Target { kind, namespace, name, uid } = &target;
        let uid = (!uid.is_empty()).then_some(&**uid);
        let body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": **namespace, "name": **name},
            "deleteOptions": {"preconditions": {"uid": uid}},
        });
        let body = serde_json::to_vec(&body)?.into();
        let writer = self.writer();
        let evicted = writer
            .client()
            .create_subresource::<Metadata>(kind, namespace, name, "eviction", body)
            .await;
        match writer.record("create", &target, "eviction", evicted) {
            Ok(_) => Ok(true),
            Err(error) if error.is_too_many_requests() => Ok(false),
            Err(error) if error.is_not_found_or_replaced() => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

/// Sets the replicas by a `scale` sub-resource.
pub(super) async fn scale<S>(subresource: SubResource<'_, S>, replicas: i32) -> Result<Scale> {
    let patch = json!({"spec": {"replicas": replicas}});
    Ok(subresource.patch(PatchType::Merge, &patch).await?.try_parse()?)
}

/// Reads a `scale` sub-resource.
pub(super) async fn get_scale<S>(subresource: SubResource<'_, S>) -> Result<Scale> {
    Ok(subresource.get().await?.try_parse()?)
}
