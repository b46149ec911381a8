//! What a manager is made of.

use super::Manager;
use crate::{
    cache::Caches,
    client::{Client, Transport},
    clock::Clock,
    controller::Env,
    events::Recorder,
    health::{Health, LEADER_TOLERANCE},
    lease::{self, Config, ConfigError, LeaderElection},
};
use prometheus::Registry;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// A manager that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The election's times cannot work together.
    #[error("leader election")]
    Election(#[from] ConfigError),
}

/// What [`Manager::builder`] collects.
#[must_use = "a builder does nothing until built"]
pub struct ManagerBuilder {
    transport: Transport,
    client: Option<Client>,
    caches: Option<Caches>,
    clock: Clock,
    registry: Registry,
    component: String,
    grace: Duration,
    election: Option<Config>,
}

impl ManagerBuilder {
    pub(super) fn new(transport: Transport) -> Self {
        Self {
            transport,
            client: None,
            caches: None,
            clock: Clock::system(),
            registry: Registry::new(),
            component: "evenkeel".to_owned(),
            grace: Duration::from_secs(30),
            election: None,
        }
    }

    /// Name of the program, as its user agent and the source of its own events.
    pub fn component(mut self, name: &str) -> Self {
        self.component = name.to_owned();
        self
    }

    /// Uses this client, which has its own rate limit, metrics and user agent.
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// Uses these caches instead of new ones. They must not be started yet.
    pub fn caches(mut self, caches: Caches) -> Self {
        self.caches = Some(caches);
        self
    }

    /// The clock, for simulations.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Where metrics go; a registry of its own unless said otherwise.
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// How long stopping may take before what still runs is aborted; 30 s unless said otherwise.
    pub fn grace_period(mut self, period: Duration) -> Self {
        self.grace = period;
        self
    }

    /// Runs [`super::Group::Leader`] only while holding the Lease of this name, as `identity`, with upstream's times.
    pub fn leader_election(self, namespace: &str, name: &str, identity: &str) -> Self {
        self.election(Config::new(namespace, name, identity))
    }

    /// As [`ManagerBuilder::leader_election`] with everything said.
    pub fn election(mut self, config: Config) -> Self {
        self.election = Some(config);
        self
    }

    /// The manager. To be called inside the tokio runtime that it will run in.
    ///
    /// # Errors
    /// When the election's times cannot work together.
    pub fn build(self) -> Result<Manager, BuildError> {
        let Self { transport, client, caches, clock, registry, component, grace, election } = self;
        let client = client.unwrap_or_else(|| {
            Client::builder(transport, clock.clone())
                .user_agent(&component)
                .registry(&registry)
                .build()
        });
        let caches =
            caches.unwrap_or_else(|| Caches::new(client.clone(), clock.clone(), &registry));
        let events = Recorder::new(client.clone(), &component, clock.clone());
        let (health, readiness) = (Health::new(), Health::new());
        let lease_metrics = election.as_ref().map(|_| lease::Metrics::register(&registry));
        let election = match election.zip(lease_metrics.clone()) {
            None => None,
            Some((config, metrics)) => {
                let election = LeaderElection::new(
                    &client,
                    config,
                    clock.clone(),
                    Some(events.clone()),
                    metrics,
                )?;
                Some(Arc::new(election))
            }
        };
        if let Some(election) = election.clone() {
            health.add("leaderElection", move || election.check(LEADER_TOLERANCE));
        }
        let synced = caches.clone();
        readiness.add("informer-sync", move || {
            let missing = synced.unsynced();
            if missing.is_empty() {
                return Ok(());
            }
            let names: Vec<&str> = missing.iter().map(|kind| &*kind.plural).collect();
            Err(format!("{} caches not filled yet: {}", names.len(), names.join(", ")))
        });
        let gated = election.as_ref().map(|election| client.gated(&election.gate()));
        let env = Env::new(gated.unwrap_or_else(|| client.clone()), caches, clock, &registry);
        Ok(Manager {
            env,
            client,
            lease_metrics,
            registry,
            health,
            readiness,
            events,
            election,
            grace,
            runnables: Mutex::default(),
        })
    }
}
