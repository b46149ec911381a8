//! Builder of the webhooks of one type.

use super::{
    AdmissionRequest, Denied, Hooked, Warnings,
    answer::Routes,
    conversion::Converters,
    typed::{SetDefaults, Validators, defaulter, path, validator},
};
use std::{fmt::Display, sync::Arc};

/// Builder of the webhooks of `K`. Each method adds a webhook to the server.
///
/// Upstream: `WebhookBuilder` of controller-runtime.
pub struct WebhookBuilder<'s, K> {
    routes: &'s Routes,
    validators: Validators<K>,
}

impl<'s, K: Hooked> WebhookBuilder<'s, K> {
    pub(super) fn new(routes: &'s Routes) -> Self {
        Self { routes, validators: Validators { writes: None, deletions: None } }
    }

    /// Sets defaults on objects that are created or updated, at `/mutate-GROUP-VERSION-KIND`. The response is a JSON patch with
    /// the function's changes. Fields that `K` does not know stay unchanged.
    ///
    /// ```
    /// use evenkeel_runtime::webhook::{Certificates, WebhookServer};
    /// use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// let hooks = WebhookServer::new(9443, Certificates::self_managed("map-hooks"));
    /// hooks.webhook::<ConfigMap>().defaults(|map, request| {
    ///     let labels = map.metadata.labels.get_or_insert_default();
    ///     let user = request.user_info.username.clone().unwrap_or_default();
    ///     labels.entry("created-by".to_owned()).or_insert(user);
    ///     Ok(())
    /// });
    /// ```
    ///
    /// # Panics
    /// Panics if the path has a webhook already.
    #[doc(alias = "WithDefaulter")]
    pub fn defaults<F>(self, default: F) -> Self
    where
        F: Fn(&mut K, &AdmissionRequest) -> Result<(), Denied> + Send + Sync + 'static,
    {
        self.default_with(Arc::new(move |mut object, request| {
            let result = default(&mut object, &request).map(|()| object);
            Box::pin(std::future::ready(result))
        }))
    }

    /// Like [`WebhookBuilder::defaults`], with an async function that returns the object.
    ///
    /// ```
    /// use evenkeel_runtime::webhook::{Certificates, WebhookServer};
    /// use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// let hooks = WebhookServer::new(9443, Certificates::self_managed("map-hooks"));
    /// hooks.webhook::<ConfigMap>().defaults_async(|mut map, _request| async move {
    ///     map.immutable = Some(true); // after a read of something else, for example
    ///     Ok(map)
    /// });
    /// ```
    ///
    /// # Panics
    /// Panics if the path has a webhook already.
    pub fn defaults_async<F, Fut>(self, default: F) -> Self
    where
        F: Fn(K, AdmissionRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<K, Denied>> + Send + 'static,
    {
        self.default_with(Arc::new(move |object, request| Box::pin(default(object, request))))
    }

    fn default_with(self, default: SetDefaults<K>) -> Self {
        self.routes.admit(&path::<K>("mutate"), defaulter(default), false);
        self
    }

    /// Validates objects that are created or updated, at `/validate-GROUP-VERSION-KIND`. For an update, the function also
    /// receives the old object. The result is `()` or warnings, or a denial.
    ///
    /// ```
    /// use evenkeel_runtime::webhook::{Certificates, FieldError, WebhookServer, Warnings};
    /// use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// let hooks = WebhookServer::new(9443, Certificates::self_managed("map-hooks"));
    /// hooks.webhook::<ConfigMap>().validates(|map, old, _request| {
    ///     if old.is_some_and(|old| old.data != map.data) {
    ///         return Err(FieldError::forbidden("data", "it does not change").into());
    ///     }
    ///     let empty = map.data.is_none();
    ///     Ok(if empty { "the map is empty".into() } else { Warnings::default() })
    /// });
    /// ```
    ///
    /// # Panics
    /// Panics if the path has a webhook of another builder already.
    #[doc(alias = "WithValidator")]
    pub fn validates<F, W>(self, validate: F) -> Self
    where
        F: Fn(&K, Option<&K>, &AdmissionRequest) -> Result<W, Denied> + Send + Sync + 'static,
        W: Into<Warnings>,
    {
        self.validate_with(|validators| {
            validators.writes = Some(Arc::new(move |object, old, request| {
                let result = validate(&object, old.as_ref(), &request).map(Into::into);
                Box::pin(std::future::ready(result))
            }));
        })
    }

    /// Like [`WebhookBuilder::validates`], with an async function.
    ///
    /// ```
    /// use evenkeel_runtime::webhook::{Certificates, WebhookServer};
    /// use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// let hooks = WebhookServer::new(9443, Certificates::self_managed("map-hooks"));
    /// hooks.webhook::<ConfigMap>().validates_async(|map, _old, _request| async move {
    ///     if map.data.is_none() { Err("a map needs data".into()) } else { Ok(()) }
    /// });
    /// ```
    ///
    /// # Panics
    /// Panics if the path has a webhook of another builder already.
    pub fn validates_async<F, Fut, W>(self, validate: F) -> Self
    where
        F: Fn(K, Option<K>, AdmissionRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<W, Denied>> + Send + 'static,
        W: Into<Warnings>,
    {
        self.validate_with(|validators| {
            validators.writes = Some(Arc::new(move |object, old, request| {
                let result = validate(object, old, request);
                Box::pin(async move { result.await.map(Into::into) })
            }));
        })
    }

    /// Validates deletions, at the path of [`WebhookBuilder::validates`]. The function receives the object that is
    /// deleted. Without it, deletions are allowed.
    ///
    /// ```
    /// use evenkeel_runtime::webhook::{Certificates, WebhookServer};
    /// use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// let hooks = WebhookServer::new(9443, Certificates::self_managed("map-hooks"));
    /// hooks.webhook::<ConfigMap>().validates_deletions(|map, _request| {
    ///     if map.immutable == Some(true) { Err("the map stays".into()) } else { Ok(()) }
    /// });
    /// ```
    ///
    /// # Panics
    /// Panics if the path has a webhook of another builder already.
    #[doc(alias = "ValidateDelete")]
    pub fn validates_deletions<F, W>(self, validate: F) -> Self
    where
        F: Fn(&K, &AdmissionRequest) -> Result<W, Denied> + Send + Sync + 'static,
        W: Into<Warnings>,
    {
        self.validate_with(|validators| {
            validators.deletions = Some(Arc::new(move |object, _, request| {
                let result = validate(&object, &request).map(Into::into);
                Box::pin(std::future::ready(result))
            }));
        })
    }

    fn validate_with(mut self, change: impl FnOnce(&mut Validators<K>)) -> Self {
        let replaces = self.validators.writes.is_some() || self.validators.deletions.is_some();
        change(&mut self.validators);
        let handler = validator(self.validators.clone());
        self.routes.admit(&path::<K>("validate"), handler, replaces);
        self
    }

    /// Converts objects between `K`, the hub, and the version `S`, at `/convert`. Two spokes are converted through the hub.
    /// `From` is enough if a conversion cannot fail. Metadata need not be converted: it is kept, with the labels and
    /// annotations that a conversion sets.
    ///
    /// ```
    /// use evenkeel_runtime::webhook::{Certificates, WebhookServer};
    /// # macro_rules! version { ($module:ident, $version:literal, $field:ident) => { pub mod $module {
    /// #     use kube::Resource;
    /// #     use serde::{Deserialize, Serialize};
    /// #     use std::borrow::Cow;
    /// #     #[derive(Clone, Serialize, Deserialize)]
    /// #     pub struct App { pub metadata: kube::api::ObjectMeta, pub $field: i32 }
    /// #     impl Resource for App {
    /// #         type DynamicType = ();
    /// #         type Scope = kube::core::NamespaceResourceScope;
    /// #         fn kind(_: &()) -> Cow<'_, str> { "App".into() }
    /// #         fn group(_: &()) -> Cow<'_, str> { "example.com".into() }
    /// #         fn version(_: &()) -> Cow<'_, str> { $version.into() }
    /// #         fn plural(_: &()) -> Cow<'_, str> { "apps".into() }
    /// #         fn meta(&self) -> &kube::api::ObjectMeta { &self.metadata }
    /// #         fn meta_mut(&mut self) -> &mut kube::api::ObjectMeta { &mut self.metadata }
    /// #     }
    /// # } } }
    /// # version!(hub, "v1", replicas);
    /// # version!(old, "v1beta1", size);
    ///
    /// impl From<old::App> for hub::App {
    ///     fn from(app: old::App) -> Self {
    ///         Self { metadata: app.metadata, replicas: app.size }
    ///     }
    /// }
    ///
    /// impl From<hub::App> for old::App {
    ///     fn from(app: hub::App) -> Self {
    ///         Self { metadata: app.metadata, size: app.replicas }
    ///     }
    /// }
    ///
    /// let hooks = WebhookServer::new(9443, Certificates::self_managed("app-hooks"));
    /// hooks.webhook::<hub::App>().converts::<old::App>();
    /// ```
    #[doc(alias("WithConverter", "Hub", "Convertible"))]
    pub fn converts<S>(self) -> Self
    where
        S: Hooked + TryFrom<K, Error: Display>,
        K: TryFrom<S, Error: Display>,
    {
        self.routes.convert(Converters::add::<K, S>);
        self
    }
}
