//! One cluster, as the input of the function that declares its controllers.

use crate::{
    cache::{Cache, CacheOptions, Full},
    client::{Client, Metadata},
    manager::Manager,
    operator::{ApiObject, ControllerBuilder, Requests},
};
use evenkeel_api::{Kind, View};
use kube::api::DynamicObject;
use std::sync::Arc;

/// Cluster of a provider, in which controllers run. Clones are the same cluster.
///
/// ```
/// # use evenkeel_test::example::reconcile;
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # evenkeel_test::example::cluster(|cluster| {
/// cluster.controller::<ConfigMap>().owns::<Secret>().reconcile(reconcile);
/// # });
/// ```
#[derive(Clone)]
pub struct Cluster {
    name: Arc<str>,
    manager: Manager,
}

impl Cluster {
    pub(super) fn new(name: &Arc<str>, manager: &Manager) -> Self {
        Self { name: Arc::clone(name), manager: manager.clone() }
    }

    /// Returns the name that the provider gave to the cluster.
    ///
    /// ```
    /// # evenkeel_test::example::cluster(|cluster| {
    /// assert_eq!(cluster.name(), "east");
    /// # });
    /// ```
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Declares a controller of all objects of `K` in this cluster, like [`Manager::controller`].
    ///
    /// ```
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # evenkeel_test::example::cluster(|cluster| {
    /// cluster.controller::<ConfigMap>().reconcile(reconcile);
    /// # });
    /// ```
    pub fn controller<K: ApiObject>(&self) -> ControllerBuilder<'_, K> {
        self.manager.controller()
    }

    /// Declares a controller of a kind that is known only at run time, like [`Manager::controller_of_dynamic`].
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # evenkeel_test::example::cluster(|cluster| {
    /// let secrets = Kind::new("", "v1", "Secret", "secrets", true);
    /// cluster.controller_of_dynamic(secrets).reconcile_dynamic(reconcile);
    /// # });
    /// ```
    pub fn controller_of_dynamic(&self, kind: Kind) -> ControllerBuilder<'_, DynamicObject> {
        self.manager.controller_of_dynamic(kind)
    }

    /// Declares a controller of a kind that is cached as metadata only, like [`Manager::controller_of_metadata`].
    pub fn controller_of_metadata(&self, kind: Kind) -> ControllerBuilder<'_, Metadata> {
        self.manager.controller_of_metadata(kind)
    }

    /// Declares a controller whose keys are not objects of one kind, like [`Manager::controller_of_requests`].
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::cluster(|cluster| {
    /// let keys = futures::stream::iter([Key::new("", "once")]);
    /// let once = cluster.controller_of_requests("once").source(keys);
    /// once.reconcile_requests(async |_, _: Context| Ok(Outcome::Settled));
    /// # });
    /// ```
    pub fn controller_of_requests(&self, name: &str) -> ControllerBuilder<'_, Requests> {
        self.manager.controller_of_requests(name)
    }

    /// Returns the cache of a kind in this cluster, like [`Manager::cached`].
    ///
    /// ```
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::cluster(|cluster| {
    /// let secrets = cluster.cached::<Secret>();
    /// cluster.controller::<ConfigMap>().reads::<Secret>().state(secrets).reconcile(reconcile);
    /// # });
    /// ```
    pub fn cached<K: ApiObject>(&self) -> Cache<Full<K>> {
        self.manager.cached()
    }

    /// Sets which objects of `K` are cached in this cluster. Call it before the first use of that cache.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # evenkeel_test::example::cluster(|cluster| {
    /// cluster.cache(CacheOptions::<ConfigMap>::in_namespace("web"));
    /// cluster.controller::<ConfigMap>().reconcile(reconcile);
    /// # });
    /// ```
    pub fn cache<K>(&self, options: CacheOptions<K>)
    where
        K: 'static,
        Full<K>: View,
    {
        self.manager.env().caches.configure(options);
    }

    /// Like [`Cluster::cache`], for a kind that is known only at run time.
    pub fn cache_dynamic(&self, kind: Kind, options: CacheOptions<DynamicObject>) {
        self.manager.env().caches.configure_dynamic(kind, options);
    }

    /// Like [`Cluster::cache`], for a kind that is cached as metadata only.
    pub fn cache_metadata(&self, kind: Kind, options: CacheOptions<Metadata>) {
        self.manager.env().caches.configure_metadata(kind, options);
    }

    /// Returns the client of this cluster, which writes only while this process leads.
    ///
    /// ```
    /// # evenkeel_test::example::cluster(|cluster| {
    /// assert_eq!(cluster.client().user_agent(), "example");
    /// # });
    /// ```
    pub fn client(&self) -> &Client {
        &self.manager.env().client
    }

    /// Returns a kube client of this cluster, which writes only while this process leads.
    ///
    /// ```
    /// # evenkeel_test::example::cluster(|cluster| {
    /// // In the cluster's controllers this is `cx.kube()`.
    /// let kube = cluster.kube();
    /// # let _ = kube;
    /// # });
    /// ```
    pub fn kube(&self) -> kube::Client {
        self.client().kube()
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("name", &self.name).finish_non_exhaustive()
    }
}
