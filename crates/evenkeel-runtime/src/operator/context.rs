//! Access of a reconcile function to the cluster, for one pass over one key.

use super::{
    applied::Applied,
    object::{ApiObject, kind_of, target_of},
    write::Writer,
};
use crate::{
    cache::{Cache, Full},
    clock::Clock,
    controller::{self, ControllerCaches, Error, Request},
    plan::{EventRecord, Key, Target},
};
use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
};

/// Action of events that name none, which events.k8s.io demands.
const RECONCILE: &str = "Reconcile";

/// What the passes of one controller share.
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
/// Reads of caches are free. Writes ([`Context::apply`] and its neighbours) are fenced by the lease, rate limited, and
/// seen by the next pass over the key.
pub struct Context<S = ()> {
    inner: controller::Context,
    request: Request,
    state: Arc<S>,
    shared: Arc<Shared>,
    /// The controller's, or this pass's own if its client has a fence of its own.
    kube: Arc<OnceLock<kube::Client>>,
}

impl<S> Clone for Context<S> {
    fn clone(&self) -> Self {
        self.with_state(Arc::clone(&self.state))
    }
}

/// Error of reading a cache that the controller does not declare. It would be empty when the first pass reads it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "controller {controller} reads the cache of {kind}, but does not declare it: add `.reads::<{kind}>()`, `.owns::<{kind}>()` or `.watches::<{kind}>(…)` to its builder"
)]
pub struct NotDeclared {
    /// Name of the controller.
    pub controller: String,
    /// Kind of the cache.
    pub kind: String,
}

impl<S> Context<S> {
    pub(super) fn new(
        inner: controller::Context,
        request: Request,
        state: Arc<S>,
        shared: Arc<Shared>,
    ) -> Self {
        let kube =
            if inner.env.shards.is_some() { Arc::default() } else { Arc::clone(&shared.kube) };
        Self { inner, request, state, shared, kube }
    }

    /// Returns the same access with another state.
    pub(super) fn with_state<T>(&self, state: Arc<T>) -> Context<T> {
        Context {
            inner: self.inner.clone(),
            request: self.request.clone(),
            state,
            shared: Arc::clone(&self.shared),
            kube: Arc::clone(&self.kube),
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
    /// When the controller does not declare the kind. The error is terminal.
    pub fn cached<K: ApiObject>(&self) -> Result<Cache<Full<K>>, Error> {
        let kind = kind_of::<K>();
        let found = self.shared.caches.find_map(Cache::of_informer);
        found.ok_or_else(|| {
            Error::terminal(NotDeclared {
                controller: self.shared.controller.to_string(),
                kind: kind.kind.to_string(),
            })
        })
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
    /// As [`Context::cached`].
    pub fn get<K: ApiObject>(&self, namespace: &str, name: &str) -> Result<Option<Arc<K>>, Error> {
        let found = self.cached::<K>()?.get(namespace, name);
        Ok(found.map(|object| Arc::clone(object.object())))
    }

    /// Records a `Normal` event about an object. `reason` is one word in CamelCase.
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
        self.record(&EventRecord::normal(target, reason, message), RECONCILE, None);
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
        self.record(&EventRecord::warning(target, reason, message), RECONCILE, None);
    }

    /// Like [`Context::event`], about an `action`, such as `Scale`, with a related object. Both are kept only in
    /// events.k8s.io ([`ControllerBuilder::series_events`](super::ControllerBuilder::series_events)).
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
        self.record(&EventRecord::normal(target, reason, message), action, Some(&related));
    }

    fn record(&self, event: &EventRecord, action: &'static str, related: Option<&Target>) {
        match &self.inner.series {
            Some(series) => series.record(event, action, related),
            None => self.inner.events.record(event),
        }
    }

    /// Returns a kube client for requests that this type has no method for. It writes only while this process leads. The
    /// next pass does not wait for its writes.
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

    /// Returns the parts that a controller of [`crate::controller::Builder`] has, for plans and resources of any kind.
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
        }
    }
}
