//! Access of a reconcile function to the cluster, for one pass over one key.

use super::{
    applied::Applied,
    object::{ApiObject, kind_of, target_of},
    unsynced::NotSynced,
    views::ClientView,
    write::Writer,
};
use crate::{
    cache::{Cache, Dynamic, Full, Index},
    client::Metadata,
    clock::Clock,
    controller::{self, ControllerCaches, Error, Request},
    plan::{EventRecord, Key, Target},
};
use evenkeel_api::{Kind, View};
use kube::api::DynamicObject;
use std::{
    any::TypeId,
    borrow::Cow,
    fmt,
    sync::{Arc, OnceLock},
};

/// Action of events that name no action, because events.k8s.io requires one.
pub(super) const RECONCILE: &str = "Reconcile";

/// State that the passes (reconciles) of one controller share.
pub(super) struct Shared {
    pub(super) controller: Box<str>,
    pub(super) field_manager: Box<str>,
    pub(super) applied: Applied,
    /// Caches that the controller declared, and those of watches that were added later.
    pub(super) caches: ControllerCaches,
    pub(super) kube: Arc<OnceLock<kube::Client>>,
}

/// Access of a reconcile function to the cluster, for one pass over one key. `S` is the controller's own state
/// ([`ControllerBuilder::state`](super::ControllerBuilder::state)).
///
/// Reads of caches are free. Writes ([`Context::apply`] and similar methods) are fenced by the lease and rate limited. The next
/// pass over the key sees them.
pub struct Context<S = ()> {
    pub(super) inner: controller::Context,
    request: Request,
    state: Arc<S>,
    shared: Arc<Shared>,
    /// The controller's client, or this pass's own client if it has its own fence.
    pub(super) kube: Arc<OnceLock<kube::Client>>,
    pub(super) view: ClientView,
}

impl<S> Clone for Context<S> {
    fn clone(&self) -> Self {
        self.with_state(Arc::clone(&self.state))
    }
}

/// Error of reading a cache that the controller does not declare. Such a cache would be empty when the first pass reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotDeclared {
    /// Name of the controller.
    pub controller: String,
    /// Kind of the cache.
    pub kind: String,
    /// Representation in which the cache would hold the objects.
    pub form: CachedForm,
}

/// Form in which a cache holds objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CachedForm {
    /// Whole objects of a type.
    Typed,
    /// Whole objects of a kind that is known only at run time.
    Dynamic,
    /// The metadata of objects.
    Metadata,
}

impl fmt::Display for NotDeclared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { controller, kind, form } = self;
        let (cache, suffix) = match form {
            CachedForm::Typed => ("cache", ""),
            CachedForm::Dynamic => ("dynamic cache", "_dynamic"),
            CachedForm::Metadata => ("metadata cache", "_metadata"),
        };
        write!(
            f,
            "controller {controller} reads the {cache} of {kind}, but does not declare it: "
        )?;
        match form {
            CachedForm::Typed => write!(
                f,
                "add `.reads::<{kind}>()`, `.owns::<{kind}>()` or `.watches::<{kind}>(…)` to its builder"
            ),
            CachedForm::Dynamic | CachedForm::Metadata => write!(
                f,
                "add `.reads{suffix}(kind)`, `.owns{suffix}(kind)` or `.watches{suffix}(kind, …)` to its builder"
            ),
        }
    }
}

impl std::error::Error for NotDeclared {}

impl<S> Context<S> {
    pub(super) fn new(
        inner: controller::Context,
        request: Request,
        state: Arc<S>,
        shared: Arc<Shared>,
    ) -> Self {
        let kube =
            if inner.env.shards.is_some() { Arc::default() } else { Arc::clone(&shared.kube) };
        Self { inner, request, state, shared, kube, view: ClientView::default() }
    }

    /// Returns the same access with another state.
    pub(super) fn with_state<T>(&self, state: Arc<T>) -> Context<T> {
        Context {
            inner: self.inner.clone(),
            request: self.request.clone(),
            state,
            shared: Arc::clone(&self.shared),
            kube: Arc::clone(&self.kube),
            view: self.view.clone(),
        }
    }

    /// Returns the controller's own state.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// manager.controller::<ConfigMap>().state("blue").reconcile(
    ///     async |_: Arc<ConfigMap>, cx: Context<&'static str>| {
    ///         assert_eq!(*cx.state(), "blue");
    ///         Ok(Outcome::Settled)
    ///     },
    /// );
    /// # });
    /// ```
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Returns the key of this pass.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// assert_eq!(cx.key(), &Key::new("default", "settings"));
    /// # Ok(())
    /// # });
    /// ```
    pub fn key(&self) -> &Key {
        &self.request.key
    }

    /// Returns the request of this pass: its key, and the number of failures before it.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// assert_eq!(cx.request().attempt, 0);
    /// # Ok(())
    /// # });
    /// ```
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Returns the name of the cluster that the key is in, as its provider ([`crate::clusters`]) names it. Empty for a
    /// controller of the manager itself.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// assert_eq!(cx.cluster(), "");
    /// # Ok(())
    /// # });
    /// ```
    pub fn cluster(&self) -> &str {
        &self.request.cluster
    }

    /// Returns the clock of the program. In a test it is virtual.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// cx.clock().sleep(Duration::from_secs(1)).await;
    /// # Ok(())
    /// # });
    /// ```
    pub fn clock(&self) -> &Clock {
        &self.inner.env.clock
    }

    /// Returns the present time.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// let created = map.metadata.creation_timestamp.as_ref().map(|time| time.0);
    /// assert!(created.is_some_and(|created| created <= cx.now()));
    /// # Ok(())
    /// # });
    /// ```
    pub fn now(&self) -> jiff::Timestamp {
        self.clock().now()
    }

    /// Returns the cache of a kind that the controller declares.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// assert!(cx.cached::<Secret>()?.namespace("default").is_empty());
    /// // Nobody has declared Pods.
    /// assert!(cx.cached::<k8s_openapi::api::core::v1::Pod>().is_err());
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// Fails if the controller does not declare the kind; this error ([`NotDeclared`]) is terminal. When the cache has not
    /// synced ([`NotSynced`]); the pass is then repeated once the cache has synced.
    pub fn cached<K: ApiObject>(&self) -> Result<Cache<Full<K>>, Error> {
        self.synced_cache(&kind_of::<K>())
    }

    /// Like [`Context::cached`], for a kind that is known only at run time.
    ///
    /// # Errors
    /// Fails as [`Context::cached`] does.
    pub fn cached_dynamic(&self, kind: &Kind) -> Result<Cache<Dynamic>, Error> {
        self.synced_cache(kind)
    }

    /// Like [`Context::cached`], for a kind that is cached as metadata only.
    ///
    /// # Errors
    /// Fails as [`Context::cached`] does.
    pub fn cached_metadata(&self, kind: &Kind) -> Result<Cache<Metadata>, Error> {
        self.synced_cache(kind)
    }

    /// Returns an object from the cache of a kind that the controller declares, or `None` if it does not exist.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// assert!(cx.get::<Secret>("default", "settings")?.is_none());
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// Fails as [`Context::cached`] does.
    #[doc(alias = "client.Get")]
    pub fn get<K: ApiObject>(&self, namespace: &str, name: &str) -> Result<Option<Arc<K>>, Error> {
        let namespace = self.view.namespace(&kind_of::<K>(), namespace)?;
        let found = self.cached::<K>()?.get(namespace, name);
        Ok(found.map(|object| Arc::clone(object.object())))
    }

    /// Like [`Context::get`], for a kind that is known only at run time.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # fn size(cx: &Context) -> Result<i64> {
    /// // The builder has `.reads_dynamic(kind)`.
    /// let kind = Kind::new("example.com", "v1", "Gadget", "gadgets", true);
    /// let gadget = cx.get_dynamic(&kind, "default", "web")?;
    /// Ok(gadget.and_then(|gadget| gadget.data["spec"]["size"].as_i64()).unwrap_or(1))
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Context::cached`] does.
    pub fn get_dynamic(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<DynamicObject>>, Error> {
        let namespace = self.view.namespace(kind, namespace)?;
        let found = self.cached_dynamic(kind)?.get(namespace, name);
        Ok(found.map(|object| Arc::clone(object.object())))
    }

    /// Like [`Context::get`], for a kind that is cached as metadata only.
    ///
    /// # Errors
    /// Fails as [`Context::cached`] does.
    pub fn get_metadata(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Metadata>>, Error> {
        let namespace = self.view.namespace(kind, namespace)?;
        Ok(self.cached_metadata(kind)?.get(namespace, name))
    }

    /// Returns whether the declared cache of a kind holds all objects. The cache of an
    /// [optional](super::ControllerBuilder::optional) kind does not, until the kind's CustomResourceDefinition is installed.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::networking::v1::Ingress;
    /// # fn ingress(cx: &Context) -> Result<Option<Arc<Ingress>>> {
    /// // The builder has `.reads::<Ingress>().optional()`.
    /// if !cx.has_synced::<Ingress>()? {
    ///     return Ok(None); // The cluster has no such kind.
    /// }
    /// cx.get::<Ingress>("default", "web")
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the controller does not declare the kind. The error is terminal.
    pub fn has_synced<K: ApiObject>(&self) -> Result<bool, Error> {
        Ok(self.declared::<Full<K>>(&kind_of::<K>())?.has_synced())
    }

    /// Like [`Context::has_synced`], for a kind that is known only at run time.
    ///
    /// # Errors
    /// Fails as [`Context::has_synced`] does.
    pub fn has_synced_dynamic(&self, kind: &Kind) -> Result<bool, Error> {
        Ok(self.declared::<Dynamic>(kind)?.has_synced())
    }

    /// Like [`Context::has_synced`], for a kind that is cached as metadata only.
    ///
    /// # Errors
    /// Fails as [`Context::has_synced`] does.
    pub fn has_synced_metadata(&self, kind: &Kind) -> Result<bool, Error> {
        Ok(self.declared::<Metadata>(kind)?.has_synced())
    }

    /// Returns an index of a cache that the controller declares. Without this check, an index of another cache may be empty
    /// when the first pass reads it.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// // `manager.cached::<Pod>().index("node", …)`, in the state of a controller with `.reads::<Pod>()`
    /// # fn pods(cx: &Context<Index<Full<Pod>>>) -> Result<usize> {
    /// let by_node = cx.state();
    /// Ok(cx.index(by_node)?.count("node-1"))
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Context::cached`] does.
    pub fn index<'i, V: View>(&self, index: &'i Index<V>) -> Result<&'i Index<V>, Error> {
        let cache = index.cache();
        let informer = cache.informer().informer();
        if !self.shared.caches.any(|known| Arc::ptr_eq(known.informer(), informer)) {
            return Err(self.not_declared::<V>(cache.kind()));
        }
        NotSynced::check(informer)?;
        Ok(index)
    }

    fn synced_cache<V: View>(&self, kind: &Kind) -> Result<Cache<V>, Error> {
        let cache = self.declared::<V>(kind)?;
        NotSynced::check(cache.informer().informer())?;
        Ok(cache)
    }

    fn declared<V: View>(&self, kind: &Kind) -> Result<Cache<V>, Error> {
        let found = self.shared.caches.find_map(|cache| {
            Cache::of_informer(cache).filter(|cache: &Cache<V>| cache.kind() == kind)
        });
        found.ok_or_else(|| self.not_declared::<V>(kind))
    }

    fn not_declared<V: View>(&self, kind: &Kind) -> Error {
        Error::terminal(NotDeclared {
            controller: self.shared.controller.to_string(),
            kind: kind.kind.to_string(),
            form: CachedForm::of::<V>(),
        })
    }

    /// Records a `Normal` event about an object. `reason` is one word in CamelCase.
    ///
    /// For a kind that is known only at run time, use [`DynamicObjects::event`](super::DynamicObjects::event).
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// cx.event(&*map, "Copied", "the map was copied");
    /// # Ok(())
    /// # });
    /// ```
    pub fn event<K: ApiObject>(
        &self,
        object: &K,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        let target = target_of(kind_of::<K>(), object);
        self.record_event(&EventRecord::normal(target, reason, message), RECONCILE, None);
    }

    /// Records a `Warning` event about an object. `reason` is one word in CamelCase.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// cx.warning(&*map, "Incomplete", "the map has no size");
    /// # Ok(())
    /// # });
    /// ```
    pub fn warning<K: ApiObject>(
        &self,
        object: &K,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        let target = target_of(kind_of::<K>(), object);
        self.record_event(&EventRecord::warning(target, reason, message), RECONCILE, None);
    }

    /// Like [`Context::event`], with an `action`, such as `Scale`, and a related object. Both are kept only in events.k8s.io
    /// ([`ControllerBuilder::series_events`](super::ControllerBuilder::series_events)).
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// # let secret = Secret::default();
    /// cx.event_related(&*map, &secret, "Copy", "Copied", "the map was copied to a secret");
    /// # Ok(())
    /// # });
    /// ```
    pub fn event_related<K: ApiObject, R: ApiObject>(
        &self,
        object: &K,
        related: &R,
        action: &'static str,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        let target = target_of(kind_of::<K>(), object);
        let related = target_of(kind_of::<R>(), related);
        self.record_event(&EventRecord::normal(target, reason, message), action, Some(&related));
    }

    /// Records an event about any object, with an `action` and a related object. [`Target::of_object`] names objects of a type,
    /// and [`Identified::target`](super::Identified::target) those of a kind that is known only at run time.
    pub fn record_event(
        &self,
        event: &EventRecord,
        action: &'static str,
        related: Option<&Target>,
    ) {
        if self.view.dry_run {
            return;
        }
        match &self.inner.series {
            Some(series) => series.record(event, action, related),
            None => self.inner.events.record(event),
        }
    }

    /// Returns a kube client for requests for which this type has no method. It writes only while this process leads. The next
    /// pass does not wait for its writes.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// let maps: kube::Api<ConfigMap> = kube::Api::default_namespaced(cx.kube().clone());
    /// let annotated = maps.get("settings").await?;
    /// assert_eq!(annotated.data, map.data);
    /// # Ok(())
    /// # });
    /// ```
    pub fn kube(&self) -> &kube::Client {
        self.kube.get_or_init(|| self.inner.env.client.kube())
    }

    /// Returns the context of a controller of [`crate::controller::Builder`], for plans and resources of any kind.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::pass(async |map: Arc<ConfigMap>, cx: Context| {
    /// assert!(cx.inner().env.caches.has_synced());
    /// # Ok(())
    /// # });
    /// ```
    pub fn inner(&self) -> &controller::Context {
        &self.inner
    }

    pub(super) fn writer(&self) -> Writer<'_> {
        Writer {
            context: &self.inner,
            key: self.key(),
            field_manager: &self.shared.field_manager,
            applied: &self.shared.applied,
            caches: &self.shared.caches,
            view: &self.view,
        }
    }
}

impl CachedForm {
    fn of<V: View>() -> Self {
        match TypeId::of::<V>() {
            id if id == TypeId::of::<Dynamic>() => Self::Dynamic,
            id if id == TypeId::of::<Metadata>() => Self::Metadata,
            _ => Self::Typed,
        }
    }
}
