//! Declaration of an operator's controllers.

use super::{
    ApiObject, Context, Predicate, Result,
    applied::Applied,
    context::Shared,
    finalizers::{self, FinalizerError, Step},
    handle::ControllerHandle,
    object::Whole,
    unsynced::Postponed,
};
use crate::{
    cache::{Cache, CacheEvent, Dynamic, Full},
    client::Metadata,
    controller::{self, Builder, Controller, Enqueue, Outcome, Request, owner_keys},
    manager::{ControllerDefaults, Manager},
    plan::{Key, PatchType, Planner, Target},
    queue::Backoff,
};
use evenkeel_api::{Kind, Meta, View};
use futures::{Stream, StreamExt as _, future::BoxFuture};
use kube::api::DynamicObject;
use std::{sync::Arc, time::Duration};

mod options;

/// Cleanup of a finalizer.
type Cleanup<K, S> =
    Arc<dyn Fn(Arc<K>, Context<S>) -> BoxFuture<'static, Result<()>> + Send + Sync>;

/// Declaration of one controller: the kind that it reconciles, the kinds that it owns and watches, and its options. See
/// [`Manager::controller`].
///
/// [`when`](Self::when) and [`optional`](Self::optional) apply to the kind that was declared last.
#[must_use = "a controller is added by `reconcile` or `planned`"]
pub struct ControllerBuilder<'m, K, S = ()> {
    manager: &'m Manager,
    builder: Builder,
    state: Arc<S>,
    timeout: Option<Duration>,
    warm_up: bool,
    finalizers: Vec<(&'static str, Cleanup<K, S>)>,
}

/// Type of a controller whose keys are not objects of one kind. See [`Manager::controller_of_requests`].
#[derive(Debug)]
pub enum Requests {}

impl Manager {
    /// Declares a controller of all objects of `K`. Its default name is the kind in lower case.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::operator(
    /// # |builder| {
    /// # let manager = builder.build()?;
    /// manager.controller::<ConfigMap>().owns::<Secret>().reconcile(
    ///     async |map: Arc<ConfigMap>, cx: Context| {
    ///         let mut secret = Secret { string_data: map.data.clone(), ..Secret::default() };
    ///         secret.metadata.name = map.metadata.name.clone();
    ///         secret.controlled_by(&*map)?;
    ///         cx.apply(&secret).await?;
    ///         Ok(Outcome::Settled)
    ///     },
    /// );
    /// # Ok(manager)
    /// # },
    /// # async |client| {
    /// # let secrets = kube::Api::<Secret>::default_namespaced(client);
    /// # let copy = evenkeel_test::eventually(&secrets, "settings", |_| true).await?;
    /// # assert_eq!(copy.data.unwrap()["color"].0, b"blue");
    /// # Ok(())
    /// # },
    /// # );
    /// ```
    #[doc(alias = "For")]
    pub fn controller<K: ApiObject>(&self) -> ControllerBuilder<'_, K> {
        self.declare(&self.cached::<K>())
    }

    /// Declares a controller of all objects of a kind that is known only at run time.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// let leases = Kind::new("coordination.k8s.io", "v1", "Lease", "leases", true);
    /// manager.controller_of_dynamic(leases).reconcile_dynamic(reconcile);
    /// # });
    /// ```
    pub fn controller_of_dynamic(&self, kind: Kind) -> ControllerBuilder<'_, DynamicObject> {
        self.declare(&self.cached_dynamic(kind))
    }

    /// Declares a controller of all objects of a kind that is cached and watched as metadata only. The reconcile function gets
    /// the metadata; [`Context::dynamic`] writes the objects.
    ///
    /// ```no_run
    /// use evenkeel_runtime::{client::Metadata, plan::PatchType, prelude::*, serde_json::json};
    ///
    /// fn label_nodes(manager: &Manager) {
    ///     let nodes = Kind::new("", "v1", "Node", "nodes", false);
    ///     manager.controller_of_metadata(nodes.clone()).state(nodes).reconcile_metadata(
    ///         async |node: Arc<Metadata>, cx: Context<Kind>| {
    ///             if node.meta.labels.get("example.com/seen").is_none() {
    ///                 let patch = json!({"metadata": {"labels": {"example.com/seen": "true"}}});
    ///                 cx.dynamic(cx.state().clone()).patch(&*node, PatchType::Merge, &patch).await?;
    ///             }
    ///             Ok(Outcome::Settled)
    ///         },
    ///     );
    /// }
    /// ```
    #[doc(alias = "OnlyMetadata")]
    pub fn controller_of_metadata(&self, kind: Kind) -> ControllerBuilder<'_, Metadata> {
        self.declare(&self.cached_metadata(kind))
    }

    /// Declares a controller whose keys are not objects of one kind. Its watches and sources may enqueue any keys.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// let ticks = futures::stream::iter([Key::new("", "first"), Key::new("", "second")]);
    /// manager.controller_of_requests("ticks").source(ticks).reconcile_requests(
    ///     async |request, _: Context| {
    ///         println!("{}", request.key);
    ///         Ok(Outcome::Settled)
    ///     },
    /// );
    /// # });
    /// ```
    pub fn controller_of_requests(&self, name: &str) -> ControllerBuilder<'_, Requests> {
        let no_kind = Kind::new("", "", "", "", true);
        ControllerBuilder::new(self, Builder::of_keys(self.env(), name, no_kind))
    }

    /// Returns the cache of a kind, for example to declare an index ([`Cache::index`]) that reconcile functions read. The
    /// cache fills when the manager runs.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// let by_type = manager.cached::<Secret>().index("type", |secret, add| {
    ///     secret.type_.iter().for_each(|type_| add(type_));
    /// });
    /// manager.controller::<ConfigMap>().state(by_type).reads::<Secret>().reconcile(
    ///     async |_: Arc<ConfigMap>, cx: Context<Index<Full<Secret>>>| {
    ///         let tls = cx.state().get("kubernetes.io/tls");
    ///         println!("{} certificates", tls.len());
    ///         Ok(Outcome::Settled)
    ///     },
    /// );
    /// # });
    /// ```
    pub fn cached<K: ApiObject>(&self) -> Cache<Full<K>> {
        self.env().caches.packed::<Full<K>>()
    }

    /// Like [`Manager::cached`], for a kind that is known only at run time.
    pub fn cached_dynamic(&self, kind: Kind) -> Cache<Dynamic> {
        self.env().caches.dynamic(kind)
    }

    /// Like [`Manager::cached`], for a kind that is cached as metadata only.
    pub fn cached_metadata(&self, kind: Kind) -> Cache<Metadata> {
        self.env().caches.metadata(kind)
    }

    pub(crate) fn declare<K, V: View>(&self, root: &Cache<V>) -> ControllerBuilder<'_, K> {
        let name = root.kind().kind.to_lowercase();
        ControllerBuilder::new(self, Builder::new(self.env(), &name, root))
    }
}

impl<'m, K> ControllerBuilder<'m, K> {
    fn new(manager: &'m Manager, builder: Builder) -> Self {
        let defaults = manager.controller_defaults();
        let &ControllerDefaults { max_concurrent, max_retries, backoff, timeout, warm_up, .. } =
            defaults;
        let builder = builder.logs_each_failure().backoff(backoff).defaults(defaults);
        let builder = max_concurrent.into_iter().fold(builder, Builder::workers);
        Self {
            manager,
            builder: max_retries.into_iter().fold(builder, Builder::max_retries),
            state: Arc::new(()),
            timeout,
            warm_up,
            finalizers: Vec::new(),
        }
    }

    /// Sets the controller's own state, which [`Context::state`] returns.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// struct Settings {
    ///     color: &'static str,
    /// }
    ///
    /// manager.controller::<ConfigMap>().state(Settings { color: "blue" }).reconcile(
    ///     async |_: Arc<ConfigMap>, cx: Context<Settings>| {
    ///         assert_eq!(cx.state().color, "blue");
    ///         Ok(Outcome::Settled)
    ///     },
    /// );
    /// # });
    /// ```
    pub fn state<S: Send + Sync + 'static>(self, state: S) -> ControllerBuilder<'m, K, S>
    where
        K: Send + Sync + 'static,
    {
        let Self { manager, builder, timeout, warm_up, finalizers, .. } = self;
        let with_state = |(name, cleanup): (&'static str, Cleanup<K, ()>)| {
            let cleanup: Cleanup<K, S> =
                Arc::new(move |object, context| cleanup(object, context.with_state(Arc::new(()))));
            (name, cleanup)
        };
        let finalizers = finalizers.into_iter().map(with_state).collect();
        ControllerBuilder { manager, builder, state: Arc::new(state), timeout, warm_up, finalizers }
    }
}

/// Kinds whose events enqueue keys.
impl<K, S: Send + Sync + 'static> ControllerBuilder<'_, K, S> {
    /// Enqueues the owner (controller reference) of each `D` on the `D`'s events.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// manager.controller::<ConfigMap>().owns::<Secret>().reconcile(reconcile);
    /// # });
    /// ```
    #[doc(alias = "Owns")]
    pub fn owns<D: ApiObject>(self) -> Self {
        let cache = self.manager.cached::<D>();
        self.change(|builder| builder.owns(&cache))
    }

    /// Enqueues all owners of each `D` on the `D`'s events, not only its controller.
    ///
    /// Upstream: `builder.MatchEveryOwner`.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// manager.controller::<ConfigMap>().owns_by_any_reference::<Secret>().reconcile(reconcile);
    /// # });
    /// ```
    #[doc(alias = "MatchEveryOwner")]
    pub fn owns_by_any_reference<D: ApiObject>(self) -> Self {
        let (cache, root) = (self.manager.cached::<D>(), self.builder.root().clone());
        let this = self.writes::<D>();
        this.watches_cache(&cache, move |object: &Full<D>| owner_keys(&root, object.meta()))
    }

    /// Like [`Self::owns`], for a kind that is known only at run time.
    #[doc(alias = "Unstructured")]
    pub fn owns_dynamic(self, kind: Kind) -> Self {
        let cache = self.manager.cached_dynamic(kind);
        self.change(|builder| builder.owns(&cache))
    }

    /// Like [`Self::owns`], for a kind that is cached as metadata only.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// let secrets = Kind::new("", "v1", "Secret", "secrets", true);
    /// manager.controller::<ConfigMap>().owns_metadata(secrets).reconcile(reconcile);
    /// # });
    /// ```
    #[doc(alias = "OnlyMetadata")]
    pub fn owns_metadata(self, kind: Kind) -> Self {
        let cache = self.manager.cached_metadata(kind);
        self.change(|builder| builder.owns(&cache))
    }

    /// Enqueues the keys that `map` returns for each `W` on the `W`'s events. On an update, it enqueues the keys of the
    /// old and of the new state.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// // A Secret `settings-key` belongs to the ConfigMap `settings`.
    /// let of_secret = |secret: &Secret| {
    ///     let Key { namespace, name } = Key::of_object(secret);
    ///     name.strip_suffix("-key").map(|name| Key::new(&namespace, name)).into_iter().collect()
    /// };
    /// manager.controller::<ConfigMap>().watches(of_secret).reconcile(reconcile);
    /// # });
    /// ```
    #[doc(alias = "Watches")]
    pub fn watches<W: ApiObject>(
        self,
        map: impl Fn(&W) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        let cache = self.manager.cached::<W>();
        self.watches_cache(&cache, move |object: &Full<W>| map(object))
    }

    /// Like [`Self::watches`], for a kind that is cached as metadata only.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// let secrets = Kind::new("", "v1", "Secret", "secrets", true);
    /// manager
    ///     .controller::<ConfigMap>()
    ///     .watches_metadata(secrets, |meta| vec![Key::new(&meta.namespace, &meta.name)])
    ///     .reconcile(reconcile);
    /// # });
    /// ```
    #[doc(alias = "WatchesMetadata")]
    pub fn watches_metadata(
        self,
        kind: Kind,
        map: impl Fn(&Meta) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        let cache = self.manager.cached_metadata(kind);
        self.watches_cache(&cache, move |object: &Metadata| map(&object.meta))
    }

    /// Like [`Self::watches`], for a kind that is known only at run time.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// let leases = Kind::new("coordination.k8s.io", "v1", "Lease", "leases", true);
    /// manager
    ///     .controller::<ConfigMap>()
    ///     .watches_dynamic(leases, |lease| vec![Key::of_object(lease)])
    ///     .reconcile(reconcile);
    /// # });
    /// ```
    pub fn watches_dynamic(
        self,
        kind: Kind,
        map: impl Fn(&DynamicObject) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        let cache = self.manager.cached_dynamic(kind);
        self.watches_cache(&cache, move |object: &Dynamic| map(object))
    }

    /// Declares a kind whose cache the controller reads, but whose events enqueue nothing.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// manager.controller::<ConfigMap>().reads::<Secret>().reconcile(
    ///     async |_: Arc<ConfigMap>, cx: Context| {
    ///         println!("{} secrets", cx.cached::<Secret>()?.len());
    ///         Ok(Outcome::Settled)
    ///     },
    /// );
    /// # });
    /// ```
    pub fn reads<R: ApiObject>(self) -> Self {
        let cache = self.manager.cached::<R>();
        self.change(|builder| builder.reads(&cache))
    }

    /// Like [`Self::reads`], for a kind that is known only at run time.
    pub fn reads_dynamic(self, kind: Kind) -> Self {
        let cache = self.manager.cached_dynamic(kind);
        self.change(|builder| builder.reads(&cache))
    }

    /// Like [`Self::reads`], for a kind that is cached as metadata only.
    pub fn reads_metadata(self, kind: Kind) -> Self {
        let cache = self.manager.cached_metadata(kind);
        self.change(|builder| builder.reads(&cache))
    }

    /// Enqueues the keys of a stream, such as of a channel, while the controller runs.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// let (sender, keys) = futures::channel::mpsc::unbounded();
    /// manager.controller::<ConfigMap>().source(keys).reconcile(reconcile);
    /// sender.unbounded_send(Key::new("default", "settings")).expect("the controller exists");
    /// # });
    /// ```
    #[doc(alias = "WatchesRawSource")]
    pub fn source(self, keys: impl Stream<Item = Key> + Send + 'static) -> Self {
        self.change(|builder| builder.source(keys.boxed()))
    }

    /// Limits the events of the last declared kind that enqueue keys to those that pass the predicate. With a
    /// [finalizer](Self::finalizer), an object is also reconciled when its deletion begins.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// let typed = on_change(|old: &Secret, new: &Secret| old.data != new.data);
    /// manager
    ///     .controller::<ConfigMap>()
    ///     .when(generation_changed().or(labels_changed()))
    ///     .owns::<Secret>()
    ///     .when(typed)
    ///     .reconcile(reconcile);
    /// # });
    /// ```
    #[doc(alias = "WithPredicates")]
    pub fn when(self, predicate: Predicate) -> Self {
        self.change(|builder| builder.filter_last(move |event| predicate.passes(event)))
    }

    /// Lets the controller run before the server serves the last declared kind. The kind's events follow once its
    /// CustomResourceDefinition is installed. Until then, a read of its cache fails with [`NotSynced`](super::NotSynced).
    /// [`Context::has_synced`] checks this in advance.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// let widgets = Kind::new("example.com", "v1", "Widget", "widgets", true);
    /// manager
    ///     .controller::<ConfigMap>()
    ///     .watches_dynamic(widgets, |widget| vec![Key::of_object(widget)])
    ///     .optional()
    ///     .reconcile(reconcile);
    /// # });
    /// ```
    pub fn optional(self) -> Self {
        self.change(Builder::optional_last)
    }

    /// Enqueues every object of the last declared kind each `period`, as an update without a change. `owns` and its variants
    /// ignore such updates. The shortest requested period applies to the kind's cache, and so to all of its readers.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// let hour = Duration::from_secs(3600);
    /// manager.controller::<ConfigMap>().resync_every(hour).reconcile(reconcile);
    /// # });
    /// ```
    #[doc(alias = "SyncPeriod")]
    pub fn resync_every(self, period: Duration) -> Self {
        self.change(|builder| builder.resync_last(period))
    }

    pub(crate) fn watches_cache<V: View>(
        self,
        cache: &Cache<V>,
        map: impl Fn(&V) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        self.change(|builder| builder.watches(cache, mapping(map)))
    }

    fn change(self, change: impl FnOnce(Builder) -> Builder) -> Self {
        Self { builder: change(self.builder), ..self }
    }
}

/// Options of the controller.
impl<K, S: Send + Sync + 'static> ControllerBuilder<'_, K, S> {
    /// Sets the controller's name, for a second controller of the same kind.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// manager.controller::<ConfigMap>().reconcile(reconcile);
    /// let second = manager.controller::<ConfigMap>().named("labels").reconcile(reconcile);
    /// assert_eq!(second.name(), "labels");
    /// # });
    /// ```
    pub fn named(self, name: &str) -> Self {
        self.change(|builder| builder.named(name))
    }

    /// Sets the number of keys that are reconciled concurrently. Default: 1.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// manager.controller::<ConfigMap>().max_concurrent(4).reconcile(reconcile);
    /// # });
    /// ```
    #[doc(alias = "MaxConcurrentReconciles")]
    pub fn max_concurrent(self, n: usize) -> Self {
        self.change(|builder| builder.workers(n))
    }

    /// Limits the consecutive retries of a key. After the last one, the key waits for its next event. Default: no limit.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// manager.controller::<ConfigMap>().max_retries(10).reconcile(reconcile);
    /// # });
    /// ```
    pub fn max_retries(self, n: u32) -> Self {
        self.change(|builder| builder.max_retries(n))
    }

    /// Sets the backoff of failed keys. Default: from 5 ms, doubled up to 1000 s.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// use evenkeel_runtime::queue::Backoff;
    ///
    /// let backoff = Backoff { max_delay: Duration::from_secs(60), ..Backoff::default() };
    /// manager.controller::<ConfigMap>().backoff(backoff).reconcile(reconcile);
    /// # });
    /// ```
    #[doc(alias = "RateLimiter")]
    pub fn backoff(self, backoff: Backoff) -> Self {
        self.change(|builder| builder.backoff(backoff))
    }

    /// Fails a pass (one reconcile) that takes longer. Its key is retried with backoff. Default: no limit.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// let minute = Duration::from_secs(60);
    /// manager.controller::<ConfigMap>().timeout(minute).reconcile(reconcile);
    /// # });
    /// ```
    #[doc(alias = "ReconciliationTimeout")]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Records the controller's events in events.k8s.io, where repeats become a series. By default, they are events of the
    /// core group.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// manager.controller::<ConfigMap>().series_events().reconcile(reconcile);
    /// # });
    /// ```
    #[doc(alias = "GetEventRecorder")]
    pub fn series_events(self) -> Self {
        // Maximum length of a reporting instance that the API server accepts.
        const MAX_INSTANCE: usize = 128;
        let component = self.manager.component();
        let mut instance = match self.manager.setup() {
            Some(setup) => format!("{component}-{}", setup.identity()),
            None => component.to_owned(),
        };
        instance.truncate(instance.floor_char_boundary(MAX_INSTANCE));
        self.change(|builder| builder.series_events(&instance))
    }

    /// Fills the queue before this process is elected, so that a new leader begins immediately.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// manager.controller::<ConfigMap>().warm_up().reconcile(reconcile);
    /// # });
    /// ```
    #[doc(alias = "EnableWarmup")]
    pub fn warm_up(self) -> Self {
        Self { warm_up: true, ..self }
    }

    /// Adds the controller with an async function over keys. The function also gets the keys of objects that no longer exist.
    /// It must handle finalizers itself: [`Self::finalizer`] applies only to the other functions.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// let maps = manager.cached::<ConfigMap>();
    /// manager.controller::<ConfigMap>().reconcile_requests(move |request, cx: Context| {
    ///     let map = maps.get(&request.key.namespace, &request.key.name);
    ///     async move {
    ///         match map {
    ///             Some(map) => cx.event(&**map, "Seen", "the map exists"),
    ///             None => println!("{} is gone", request.key),
    ///         }
    ///         Ok(Outcome::Settled)
    ///     }
    /// });
    /// # });
    /// ```
    pub fn reconcile_requests<F, Fut>(self, function: F) -> ControllerHandle
    where
        F: Fn(Request, Context<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome>> + Send + 'static,
    {
        let Self { manager, builder, state, timeout, warm_up, finalizers } = self;
        for (finalizer, _) in finalizers {
            let controller = builder.name();
            tracing::error!(
                controller,
                finalizer,
                "reconcile_requests ignores finalizers; use `reconcile`"
            );
        }
        let shared = Arc::new(Shared {
            controller: builder.name().into(),
            field_manager: manager.field_manager().into(),
            applied: Applied::default(),
            caches: builder.caches(),
            kube: Arc::default(),
        });
        let (function, postponed) = (Arc::new(function), Postponed::default());
        let timeouts = manager.env().metrics.timeouts_of(builder.name());
        let passes = postponed.clone();
        let reconcile = move |request: Request, inner: controller::Context| {
            let context =
                Context::new(inner, request.clone(), Arc::clone(&state), Arc::clone(&shared));
            let (function, timeouts) = (Arc::clone(&function), timeouts.clone());
            let (key, postponed) = (request.key.clone(), passes.clone());
            async move {
                // Boxed, so that the surrounding futures, which are moved several times, stay small.
                let pass = Box::pin(function(request, context));
                let Some(limit) = timeout else { return postponed.result(&key, pass.await) };
                let result = tokio::time::timeout(limit, pass).await.unwrap_or_else(|_| {
                    timeouts.inc();
                    Err(controller::Error::message(format!("not finished within {limit:?}")))
                });
                postponed.result(&key, result)
            }
        };
        let controller = builder.reconcile(reconcile);
        postponed.begin(controller.late_watches());
        add(manager, controller, warm_up)
    }
}

/// Finalizers, and functions over objects.
impl<K: Send + Sync + 'static, S: Send + Sync + 'static> ControllerBuilder<'_, K, S> {
    /// Declares a finalizer: the controller adds it before it first reconciles an object. When the object is deleted, it
    /// runs `cleanup` until that succeeds, and then removes the finalizer. The reconcile function only gets objects that
    /// have the finalizer and are not being deleted.
    ///
    /// `cleanup` may run several times, even for an object for which nothing was created. The server does not accept a name
    /// without a domain, such as `cleanup`; use `example.com/cleanup`.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # let (sender, mut cleaned) = tokio::sync::mpsc::unbounded_channel();
    /// # evenkeel_test::example::operator(
    /// # move |builder| {
    /// # let manager = builder.build()?;
    /// # let sender = sender.clone();
    /// manager
    ///     .controller::<ConfigMap>()
    ///     .finalizer("example.com/outside", move |map: Arc<ConfigMap>, _: Context| {
    ///         let sender = sender.clone(); // a client of a system outside the cluster
    ///         async move { Ok(sender.send(map.metadata.name.clone())?) }
    ///     })
    ///     .reconcile(reconcile);
    /// # Ok(manager)
    /// # },
    /// # async move |client| {
    /// # let maps = kube::Api::<ConfigMap>::default_namespaced(client);
    /// # let has = |map: &ConfigMap| map.metadata.finalizers.is_some();
    /// # evenkeel_test::eventually(&maps, "settings", has).await?;
    /// maps.delete("settings", &Default::default()).await?;
    /// assert_eq!(cleaned.recv().await, Some(Some("settings".to_owned())));
    /// # evenkeel_test::eventually_gone(&maps, "settings").await?;
    /// # Ok(())
    /// # },
    /// # );
    /// ```
    pub fn finalizer<F, Fut>(mut self, name: &'static str, cleanup: F) -> Self
    where
        F: Fn(Arc<K>, Context<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        let cleanup: Cleanup<K, S> =
            Arc::new(move |object, context| Box::pin(cleanup(object, context)));
        self.finalizers.push((name, cleanup));
        self
    }

    /// Adds the controller with an async function over the objects in a cache, with its finalizers. It is not called for a
    /// key without an object.
    fn reconcile_cached<V, F, Fut>(mut self, objects: Cache<V>, function: F) -> ControllerHandle
    where
        V: Whole<Object = K>,
        F: Fn(Arc<K>, Context<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome>> + Send + 'static,
    {
        if !self.finalizers.is_empty() {
            self.builder.declared().writes(objects.kind(), &["patch"]);
            self = self.change(Builder::enqueues_deletions);
        }
        let finalizers = std::mem::take(&mut self.finalizers);
        let finalizers = Finalizers::new(objects.kind().clone(), finalizers);
        let (finalizers, function) = (Arc::new(finalizers), Arc::new(function));
        self.reconcile_requests(move |request, context: Context<S>| {
            let found = objects.get(&request.key.namespace, &request.key.name);
            let (finalizers, function) = (Arc::clone(&finalizers), Arc::clone(&function));
            async move {
                let Some(object) = found else { return Ok(Outcome::Settled) };
                match finalizers.run(object, &context).await? {
                    Some(object) => function(object.whole(), context).await,
                    None => Ok(Outcome::Settled),
                }
            }
        })
    }
}

impl<K: ApiObject, S: Send + Sync + 'static> ControllerBuilder<'_, K, S> {
    /// Adds the controller with an async reconcile function. The function gets the object from the cache. It is not called for
    /// an object that no longer exists.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// async fn reconcile(map: Arc<ConfigMap>, cx: Context) -> Result<Outcome> {
    ///     cx.event(&*map, "Seen", "the map was seen");
    ///     Ok(Outcome::again(Duration::from_secs(300)))
    /// }
    ///
    /// manager.controller::<ConfigMap>().reconcile(reconcile);
    /// # });
    /// ```
    #[doc(alias = "Complete")]
    pub fn reconcile<F, Fut>(self, function: F) -> ControllerHandle
    where
        F: Fn(Arc<K>, Context<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome>> + Send + 'static,
    {
        let objects = self.manager.cached::<K>();
        self.reconcile_cached(objects, function)
    }
}

impl<S: Send + Sync + 'static> ControllerBuilder<'_, DynamicObject, S> {
    /// Adds the controller with an async reconcile function over objects of a kind that is known only at run time.
    ///
    /// ```no_run
    /// use evenkeel_runtime::prelude::*;
    /// use kube::api::DynamicObject;
    ///
    /// fn follow(manager: &Manager, kind: Kind) {
    ///     manager
    ///         .controller_of_dynamic(kind.clone())
    ///         .when(on_dynamic_change(|old, new| old.data["spec"] != new.data["spec"]))
    ///         .state(kind)
    ///         .finalizer("example.com/outside", async |_: Arc<DynamicObject>, _: Context<Kind>| Ok(()))
    ///         .reconcile_dynamic(async |object: Arc<DynamicObject>, cx: Context<Kind>| {
    ///             cx.dynamic(cx.state().clone()).event(&*object, "Seen", "the object was seen");
    ///             Ok(Outcome::Settled)
    ///         });
    /// }
    /// ```
    pub fn reconcile_dynamic<F, Fut>(self, function: F) -> ControllerHandle
    where
        F: Fn(Arc<DynamicObject>, Context<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome>> + Send + 'static,
    {
        let objects = self.manager.cached_dynamic(self.builder.root().clone());
        self.reconcile_cached(objects, function)
    }
}

impl<S: Send + Sync + 'static> ControllerBuilder<'_, Metadata, S> {
    /// Adds the controller with an async reconcile function over the metadata of objects. See
    /// [`Manager::controller_of_metadata`].
    pub fn reconcile_metadata<F, Fut>(self, function: F) -> ControllerHandle
    where
        F: Fn(Arc<Metadata>, Context<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome>> + Send + 'static,
    {
        let objects = self.manager.cached_metadata(self.builder.root().clone());
        self.reconcile_cached(objects, function)
    }
}

impl<K> ControllerBuilder<'_, K> {
    /// Adds the controller with a pure [`Planner`].
    pub fn planned(self, planner: impl Planner) -> ControllerHandle {
        add(self.manager, self.builder.planned(planner), self.warm_up)
    }
}

/// Adds a controller to the manager.
fn add(manager: &Manager, mut controller: Controller, warm_up: bool) -> ControllerHandle {
    if warm_up {
        controller.warm_up();
    }
    let (watches, caches) = (controller.late_watches(), manager.env().caches.clone());
    ControllerHandle::new(watches, caches, manager.add_removable(controller))
}

/// Returns the event handler that enqueues the keys of an object; on an update, the keys of both states.
pub(super) fn mapping<V: View>(
    map: impl Fn(&V) -> Vec<Key> + Send + Sync + 'static,
) -> impl Fn(&CacheEvent<V>, &Enqueue) + Send + Sync + 'static {
    move |event, enqueue| {
        let mut keys = map(event.object());
        if let CacheEvent::Updated { old, .. } = event {
            keys.extend(map(old));
        }
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter().for_each(|key| enqueue.add(key));
    }
}

/// Finalizers of one controller, with their cleanups.
struct Finalizers<K, S> {
    /// Kind of the objects.
    kind: Kind,
    names: Vec<&'static str>,
    cleanups: Vec<Cleanup<K, S>>,
}

impl<K, S> Finalizers<K, S> {
    fn new(kind: Kind, declared: Vec<(&'static str, Cleanup<K, S>)>) -> Self {
        let (names, cleanups) = declared.into_iter().unzip();
        Self { kind, names, cleanups }
    }

    /// Adds the finalizers to a new object, or runs the cleanups of an object that is being deleted. Returns the object if it
    /// must be reconciled.
    async fn run<V: Whole<Object = K>>(
        &self,
        mut object: Arc<V>,
        context: &Context<S>,
    ) -> Result<Option<Arc<V>>> {
        loop {
            let meta = View::meta(&*object);
            match finalizers::next_step(meta, &self.names) {
                Step::Reconcile => return Ok(Some(object)),
                Step::Leave => return Ok(None),
                Step::Add(missing) => {
                    let patch = finalizers::patch(meta, &missing, None);
                    object = self.patch(&*object, missing[0], &patch, context).await?;
                }
                Step::CleanUp(name) => {
                    let cleanup =
                        self.names.iter().zip(&self.cleanups).find(|(own, _)| **own == name);
                    if let Some((_, cleanup)) = cleanup {
                        cleanup(object.whole(), context.clone()).await?;
                    }
                    let patch = finalizers::patch(meta, &[], Some(name));
                    object = self.patch(&*object, name, &patch, context).await?;
                }
            }
        }
    }

    async fn patch<V: View>(
        &self,
        object: &V,
        finalizer: &str,
        patch: &serde_json::Value,
        context: &Context<S>,
    ) -> Result<Arc<V>> {
        let target = Target::of(self.kind.clone(), object.meta());
        let body = serde_json::to_vec(patch)?.into();
        let patched = context.writer().patch::<V>(&target, "", PatchType::Merge, body).await;
        Ok(patched.map_err(|source| FinalizerError { finalizer: finalizer.to_owned(), source })?)
    }
}
