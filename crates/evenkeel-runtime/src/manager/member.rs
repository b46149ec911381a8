//! Managers of other clusters within one process. They share the lease of their host.

use super::{Manager, RunnableGroup, runnables::Runnables};
use crate::{
    cache::Caches,
    client::{Client, Transport},
    controller::{self, Env},
    events::EventRecorder,
    health::Health,
    latch::Latch,
    tasks::Tasks,
};
use prometheus::Registry;
use std::{sync::Arc, time::Duration};
use tokio::sync::mpsc;

/// Label of the metrics of a cluster.
const LABEL: &str = "cluster";

/// Manager of another cluster. Its metrics and reports are among those of the host until it is dropped.
pub(crate) struct MemberManager {
    manager: Manager,
    host: Manager,
    name: Arc<str>,
}

impl Manager {
    /// Returns the maximum time for runnables to stop.
    pub(crate) fn grace_period(&self) -> Duration {
        self.grace_period
    }

    /// Returns the same manager for controllers that run only in the leader, although others are sharded.
    pub(crate) fn of_leader(&self) -> Self {
        let env = Env { shards: None, ..self.env.clone() };
        let controller_defaults = self.controller_defaults.needs_leader_election(true);
        Self { env, member: None, controller_defaults, ..self.clone() }
    }

    /// Returns a manager for controllers of another cluster. It has its own client, caches, queues and metrics; this manager's
    /// lease fences its writes. Its caches have no timeout, because the cluster may be unreachable.
    pub(crate) fn of_cluster(&self, name: &Arc<str>, transport: Transport) -> MemberManager {
        let labels = [(LABEL.to_owned(), name.to_string())].into();
        let registry = Registry::new_custom(None, Some(labels)).unwrap_or_default();
        let clock = &self.env.clock;
        let transport = match &self.dry_run_writes {
            Some(writes) => writes.record_writes_of(transport.into()).into(),
            None => transport,
        };
        let client = Client::builder(transport, clock.clone())
            .user_agent(&self.component)
            .registry(&registry)
            .build()
            .with_options_of(&self.unfenced_client)
            .fenced(&self.fence());
        let caches = Caches::new(client.clone(), clock.clone(), &registry);
        let metrics = controller::Metrics::register_with_controller(&registry);
        let env = Env::with_metrics(client.clone(), caches, clock.clone(), metrics);
        let env = Env { cluster: Arc::clone(name), ..env };
        self.cluster_registries.add(name, &registry);
        self.env.introspection.add_cluster(name, &env.introspection);
        let manager = Self {
            events: EventRecorder::new(client.clone(), &self.component, clock.clone()),
            env,
            unfenced_client: client,
            component: self.component.clone(),
            election_metrics: None,
            registry,
            cluster_registries: Default::default(),
            health: Health::new(),
            readiness: Health::new(),
            supervisor: self.supervisor.clone(),
            elector: self.elector.clone(),
            member: None,
            grace_period: self.grace_period,
            cache_sync_timeout: None,
            // Only the leader connects to clusters, and its lease fences all writes to them.
            controller_defaults: self.controller_defaults.needs_leader_election(true),
            candidate: None,
            dry_run_writes: self.dry_run_writes.clone(),
            permissions: Arc::default(),
            setup: self.setup.clone(),
            elected: Latch::default(),
            runnables: Arc::new(Runnables::default()),
            #[cfg(feature = "serve")]
            addresses: Default::default(),
        };
        MemberManager { manager, host: self.clone(), name: Arc::clone(name) }
    }
}

impl MemberManager {
    pub(crate) fn manager(&self) -> &Manager {
        &self.manager
    }

    /// Starts the caches and the controllers in these groups. Controllers that are added later start immediately.
    pub(crate) fn start(&self, caches: &Tasks, controllers: &Tasks) {
        self.manager.env.caches.start(caches);
        // A runnable logs its failure, which only concerns this cluster.
        let (failed, _) = mpsc::unbounded_channel();
        for group in [RunnableGroup::Others, RunnableGroup::LeaderElection] {
            self.manager.runnables.start(group, controllers, &failed);
        }
        self.manager.elected.set();
    }

    /// Prevents further controllers from starting.
    pub(crate) fn close(&self) {
        self.manager.runnables.close();
    }
}

impl Drop for MemberManager {
    fn drop(&mut self) {
        self.close();
        self.host.cluster_registries.remove(&self.name);
        self.host.env.introspection.remove_cluster(&self.name);
    }
}
