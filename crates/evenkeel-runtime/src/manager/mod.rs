//! Manager of a program: starts its runnables in order, runs the leader's runnables while the process holds the lease,
//! and stops all in reverse order.
//!
//! ```no_run
//! use evenkeel_runtime::prelude::*;
//! use k8s_openapi::api::{apps::v1::Deployment, core::v1::{ConfigMap, Secret}};
//!
//! async fn reconcile(map: Arc<ConfigMap>, cx: Context) -> Result<Outcome> {
//!     cx.event(&*map, "Seen", format!("{} entries", map.data.as_ref().map_or(0, |data| data.len())));
//!     Ok(Outcome::again(Duration::from_secs(300)))
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let manager = Manager::builder(kube::Client::try_default().await?)
//!     .component("maps")
//!     .leader_election_id("maps.example.com")
//!     .build()?;
//! manager
//!     .controller::<ConfigMap>()
//!     .owns::<Deployment>()
//!     .watches(|secret: &Secret| vec![Key::of_object(secret)])
//!     .max_concurrent(4)
//!     .reconcile(reconcile);
//! manager.run(shutdown_signal()).await?;
//! # Ok(())
//! # }
//! ```

mod builder;
mod caches;
mod defaults;
#[cfg(feature = "serve")]
mod listeners;
mod member;
mod removal;
mod run;
mod runnable;
mod runnables;
mod setup;
mod signal;

pub use builder::{BuildError, ManagerBuilder};
pub use caches::{CacheSyncError, UnsyncedCache};
pub use defaults::ControllerDefaults;
#[cfg(feature = "serve")]
pub use listeners::Metrics;
pub(crate) use removal::Removal;
pub use runnable::{ManagerError, RunContext, RunnableGroup};
pub use setup::Setup;
pub use signal::shutdown_signal;

use crate::{
    client::{Client, LeaderFence, RecordedWrites, Transport},
    controller::{Controller, Env},
    events::EventRecorder,
    health::{Health, LEADER_TOLERANCE},
    latch::Latch,
    leaderelection::{self, CandidateConfig, Config, ConfigError, LeaderElector},
    metrics::ClusterRegistries,
    permissions::Permissions,
    sharding::Member,
    tasks::Supervisor,
};
use prometheus::Registry;
use runnable::Runnable;
use runnables::Runnables;
use std::{
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Shared parts of a program, and its runnables. Clones share them: one clone runs ([`Manager::run`]), while others add
/// controllers and runnables, which start immediately.
#[derive(Clone)]
pub struct Manager {
    env: Env,
    /// The client without the leader fence.
    unfenced_client: Client,
    /// Name of the program.
    component: Box<str>,
    /// Metrics of leader election. `None` without leader election, until [`Manager::new_elector`] registers them.
    election_metrics: Option<leaderelection::Metrics>,
    registry: Registry,
    /// Registries of other clusters, whose metrics are among those of `registry`.
    cluster_registries: ClusterRegistries,
    health: Health,
    readiness: Health,
    supervisor: Supervisor,
    events: EventRecorder,
    elector: Option<Arc<LeaderElector>>,
    /// This process as a member of a sharded operator.
    member: Option<Arc<Member>>,
    /// Maximum time for runnables to stop when the manager stops.
    grace_period: Duration,
    /// Maximum time for caches to fill; `None` for no limit.
    cache_sync_timeout: Option<Duration>,
    controller_defaults: ControllerDefaults,
    /// Candidate of a coordinated election.
    candidate: Option<CandidateConfig>,
    dry_run_writes: Option<RecordedWrites>,
    /// Permissions that the manager and its controllers need.
    permissions: Arc<Mutex<Permissions>>,
    setup: Option<Setup>,
    elected: Latch,
    runnables: Arc<Runnables>,
    #[cfg(feature = "serve")]
    addresses: listeners::Addresses,
}

impl Manager {
    /// Returns a builder of a manager that uses this transport.
    ///
    /// ```
    /// # use evenkeel_test::TestServer;
    /// use evenkeel_runtime::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let kube = TestServer::start().await?.client();
    /// // let kube = kube::Client::try_default().await?;
    /// let manager = Manager::builder(kube).component("maps").build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(transport: impl Into<Transport>) -> ManagerBuilder {
        ManagerBuilder::new(transport.into())
    }

    /// Returns the client, caches, clock and metrics that all runnables share. With leader election the client
    /// is fenced: it writes only while this process leads.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::starts(|manager| {
    /// let env = manager.env();
    /// println!("{}: {} caches", env.clock.now(), env.caches.states().len());
    /// # });
    /// ```
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Returns the program's name: its user agent, the source of its events, and by default the field manager of its writes.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::starts(|manager| {
    /// assert_eq!(manager.component(), "example");
    /// # });
    /// ```
    pub fn component(&self) -> &str {
        &self.component
    }

    /// Returns the field manager of the writes of controllers.
    pub fn field_manager(&self) -> &str {
        self.unfenced_client.field_manager().unwrap_or(&self.component)
    }

    /// Returns the writes of a [dry run](ManagerBuilder::dry_run) so far, or `None` without one. Clones of the result share the
    /// record, even after the manager has ended.
    pub fn dry_run_writes(&self) -> Option<&RecordedWrites> {
        self.dry_run_writes.as_ref()
    }

    /// Returns the permissions that the operator needs: for the manager, for the controllers that were added so far,
    /// and for reads by the caches that were requested so far. See [`crate::permissions`].
    pub fn permissions(&self) -> Permissions {
        let mut permissions =
            self.permissions.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for scope in self.env.caches.scopes() {
            permissions.add_read(&scope);
        }
        permissions
    }

    /// Returns the registry of the program's metrics.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::starts(|manager| {
    /// let copies = evenkeel_runtime::prometheus::IntCounter::new("copies_total", "Number of copies.");
    /// let copies = copies.expect("a valid name");
    /// manager.registry().register(Box::new(copies.clone())).expect("a new name");
    /// # });
    /// ```
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the checks of `/healthz`. The check `tasks` fails with the names of the failed tasks.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::starts(|manager| {
    /// assert!(manager.health().failures().is_empty());
    /// # });
    /// ```
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Adds a check to `/healthz`, or replaces the check of that name. An error is the reason of a failure. The check runs for
    /// each request, so it must be quick.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::starts(|manager| {
    /// manager.health_check("disk", || Err("the disk is full".to_owned()));
    /// assert_eq!(manager.health().failures()[0].0, "disk");
    /// # });
    /// ```
    #[doc(alias = "AddHealthzCheck")]
    pub fn health_check(
        &self,
        name: &str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.health.add(name, check);
    }

    /// Adds a check to `/readyz`, as [`Manager::health_check`] does to `/healthz`.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::starts(|manager| {
    /// manager.ready_check("upstream", || Err("not connected yet".to_owned()));
    /// # });
    /// ```
    #[doc(alias = "AddReadyzCheck")]
    pub fn ready_check(
        &self,
        name: &str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.readiness.add(name, check);
    }

    /// Waits until this process leads and its controllers have started. Without leader election, waits only until they have
    /// started.
    ///
    /// ```
    /// # use evenkeel_runtime::manager::{Manager, RunnableGroup};
    /// # fn add(manager: &Manager) {
    /// let elected = manager.elected();
    /// manager.add(RunnableGroup::Others, "announcement", |context| async move {
    ///     if context.token().run_until_cancelled(elected).await.is_some() {
    ///         println!("this replica leads");
    ///     }
    ///     Ok(())
    /// });
    /// # }
    /// ```
    #[doc(alias = "Elected")]
    pub fn elected(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let elected = self.elected.clone();
        async move { elected.wait().await }
    }

    /// Returns the checks of `/readyz`. The check `informer-sync` fails until all caches have synced.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::starts(|manager| {
    /// assert!(manager.readiness().failures().is_empty(), "without a controller, no cache has to fill");
    /// # });
    /// ```
    pub fn readiness(&self) -> &Health {
        &self.readiness
    }

    /// Returns the supervisor of all tasks of the program. The manager stops when a task fails that cannot be
    /// restarted.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::starts(|manager| {
    /// assert!(manager.supervisor().check().is_ok());
    /// # });
    /// ```
    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Returns the event recorder that has the program as its source.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::starts(|manager| {
    /// assert_eq!(manager.events().dropped(), 0);
    /// # });
    /// ```
    pub fn events(&self) -> &EventRecorder {
        &self.events
    }

    /// Returns the program's elector, or `None` without leader election.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::starts(|manager| {
    /// assert!(manager.elector().is_none(), "without leader election");
    /// # });
    /// ```
    pub fn elector(&self) -> Option<&Arc<LeaderElector>> {
        self.elector.as_ref()
    }

    /// Returns the leader fence, which is always open without leader election. Pass it to [`Client::fenced`] if the
    /// leader's work uses other clients than the client of [`Manager::env`].
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::starts(|manager| {
    /// let other = manager.unfenced_client().fenced(&manager.fence());
    /// # let _ = other;
    /// # });
    /// ```
    pub fn fence(&self) -> LeaderFence {
        self.elector.as_ref().map_or_else(LeaderFence::always_open, LeaderElector::fence)
    }

    /// Returns the client without the fence, which can write even if this process does not lead.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::starts(|manager| {
    /// // A standby reports by itself.
    /// let kube = manager.unfenced_client().kube();
    /// # let _ = kube;
    /// # });
    /// ```
    pub fn unfenced_client(&self) -> &Client {
        &self.unfenced_client
    }

    /// Returns the options of all controllers.
    pub(crate) fn controller_defaults(&self) -> &ControllerDefaults {
        &self.controller_defaults
    }

    /// Returns the environment that was set in the builder, or `None` for the environment of the process.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::starts(|manager| {
    /// assert_eq!(manager.setup().and_then(Setup::namespace), Some("default"));
    /// # });
    /// ```
    pub fn setup(&self) -> Option<&Setup> {
        self.setup.as_ref()
    }

    /// Returns an elector for a second lease, which leader migration (KEP-2436) needs. The caller acquires, renews and
    /// releases that lease. The health check `name` checks its renewal.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::starts(|manager| {
    /// use evenkeel_runtime::leaderelection::Config;
    ///
    /// let config = Config::new("default", "migration", "replica-1");
    /// let elector = manager.new_elector(config, "migration").expect("valid durations");
    /// assert!(!elector.is_leader());
    /// # });
    /// ```
    ///
    /// # Errors
    /// Fails if the configuration violates a rule of [`Config::check`].
    pub fn new_elector(
        &self,
        config: Config,
        name: &str,
    ) -> Result<Arc<LeaderElector>, ConfigError> {
        let metrics = match &self.election_metrics {
            Some(metrics) => metrics.clone(),
            None => leaderelection::Metrics::register(&self.registry),
        };
        let (clock, events) = (self.env.clock.clone(), Some(self.events.clone()));
        let client = &self.unfenced_client;
        let elector = Arc::new(LeaderElector::new(client, config, clock, events, metrics)?);
        let checked = Arc::clone(&elector);
        self.health.add(name, move || checked.check(LEADER_TOLERANCE));
        Ok(elector)
    }

    /// Adds a runnable. `run` works until [`RunContext::stopped`] completes. Servers ([`RunnableGroup::HttpServers`])
    /// call [`RunContext::ready`] when they serve. An error stops the program. If the group has started, the runnable
    /// starts immediately.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::starts(|manager| {
    /// use evenkeel_runtime::manager::RunnableGroup;
    ///
    /// manager.add(RunnableGroup::LeaderElection, "report", |running| async move {
    ///     println!("this replica leads");
    ///     running.stopped().await;
    ///     Ok(())
    /// });
    /// # });
    /// ```
    pub fn add<F, Fut>(&self, group: RunnableGroup, name: &str, run: F)
    where
        F: FnOnce(RunContext) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        self.runnables.add(Runnable::new(group, name, run));
    }

    /// Adds a controller as a runnable of [`RunnableGroup::LeaderElection`], or of [`RunnableGroup::Others`] with
    /// [sharding](ManagerBuilder::sharding) and if it needs no
    /// [leader election](crate::controller::Builder::needs_leader_election). If its caches do not fill within the limit of
    /// [`ManagerBuilder::cache_sync_timeout`], the manager stops.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # evenkeel_test::example::starts(|manager| {
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// use evenkeel_runtime::controller::Builder;
    ///
    /// let maps = manager.cached::<ConfigMap>();
    /// let controller = Builder::new(manager.env(), "maps", &maps);
    /// manager.add_controller(controller.reconcile(async |_, _| Ok(Outcome::Settled)));
    /// # });
    /// ```
    pub fn add_controller(&self, controller: Controller) {
        self.add_removable(controller);
    }

    /// Adds a controller like [`Manager::add_controller`]. Returns a handle that removes the controller again.
    pub(crate) fn add_removable(&self, controller: Controller) -> Removal {
        let (name, timeout) = (controller.name().to_owned(), self.cache_sync_timeout);
        self.permissions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add_declared(controller.declared());
        let is_leaders = self.member.is_none() && controller.needs_leader_election();
        let group = if is_leaders { RunnableGroup::LeaderElection } else { RunnableGroup::Others };
        let removal = Removal::of(controller, &self.env.caches);
        let running = removal.clone();
        self.add(group, &name, move |context| async move {
            running.run(context.token(), timeout).await?;
            Ok(())
        });
        removal
    }
}
