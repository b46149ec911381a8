//! The console of a running cluster in the browser. It shows nodes as a heat map, controllers, plots, objects with the
//! next actions of their controllers, and the reasons why a pod is pending. The server renders the pages; a small
//! script keeps them current.
//!
//! `evenkeel up` serves it on 127.0.0.1. The URL's token authenticates the cluster's administrator, whose pages the process's
//! own client reads. Other users log in with a bearer token of the API. The console sends their requests with that token, and
//! shows data of this process (caches, controllers, metrics) according to their permissions (`session`, `permissions`). It
//! writes only the switches of the simulation, and only if [`ConsoleOptions::allows_writes`] is set. [`access`] refuses
//! requests of other pages and users.
//!
//! The drop-in programs also serve it if a flag enables it (`program`): over TLS, to users who log in.
//!
//! Pages are bounded: a list has 500 rows, a heat map of more than 2,000 nodes a row for each zone, and a stream of changes one
//! page. Pure functions (`view`) and templates decide the content of the pages.

mod access;
mod edit;
mod pages;
mod permissions;
mod planners;
pub mod program;
mod route;
mod samples;
mod scheduler;
mod serve;
mod session;
mod simulation;
mod source;
mod streams;
mod time;
mod view;
mod what_if;

pub use planners::{Planners, PreviewReports};
pub use scheduler::{MakeSchedulerOptions, Scheduling};
pub use serve::Body;
pub use simulation::TimeControl;
pub use what_if::{PreparedWhatIf, Proceed, WhatIf, WhatIfChange, WhatIfProgress, WhatIfReport};

use access::Keys;
use edit::MAX_PREVIEWS;
use evenkeel_api::{View, time::Timestamp};
use evenkeel_nodes::NodeFaults;
use evenkeel_runtime::{
    cache::{Cache, Caches},
    clock::Clock,
    introspect::Introspection,
    tasks::watch,
};
use program::Program;
use prometheus::{Registry, proto::MetricFamily};
use samples::{IDLE_INTERVAL, INTERVAL, Sample, Samples};
use session::{Session, Sessions};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use streams::Streams;
use time::ClusterTime;
use tokio::{
    runtime::Handle,
    sync::{Notify, Semaphore},
};
use what_if::WhatIfs;

/// Time after a request for which the console counts as viewed.
const VISIT: Duration = Duration::from_secs(60);

/// Sources and permissions of a console.
pub struct ConsoleOptions {
    /// Name of the cluster.
    pub cluster: String,
    /// Client that reads for the administrator.
    pub kube: kube::Client,
    /// Client without credentials. The console adds the bearer token of the logged-in user to its requests.
    pub anonymous: kube::Client,
    /// Clock of the process, for the console's own samples and timeouts.
    pub clock: Clock,
    /// Clock of the cluster's components, for the ages of objects.
    pub cluster_clock: Clock,
    /// Runtime of the components, whose time their clock follows.
    pub runtime: Handle,
    /// Caches with the cluster's nodes, pods and namespaces.
    pub caches: Caches,
    /// Controllers of the process.
    pub introspection: Introspection,
    /// Metrics of controllers, clients and schedulers.
    pub registries: Vec<Registry>,
    /// Faults of the simulated nodes.
    pub node_faults: NodeFaults,
    /// Options of the cluster's schedulers, for dry runs.
    pub scheduler: MakeSchedulerOptions,
    /// Planners of the cluster's controllers, for previews of edits. `None` for none.
    pub planners: Option<Arc<dyn Planners>>,
    /// Simulator of changes. `None` for none.
    pub what_if: Option<Arc<dyn WhatIf>>,
    /// Control of the cluster's time, if the cluster has its own time.
    pub time_control: Option<Arc<dyn TimeControl>>,
    /// Whether pages have switches of the simulation.
    pub allows_writes: bool,
}

/// Error: the system has no random numbers for the console's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system has no random numbers for the console's tokens")]
pub struct NoRandomNumbers;

/// Parts that every console needs.
struct Parts {
    cluster: String,
    program: Option<Program>,
    keys: Option<Keys>,
    administrator: Option<kube::Client>,
    anonymous: kube::Client,
    clock: Clock,
    cluster_clock: Clock,
    runtime: Handle,
    caches: Caches,
    introspection: Introspection,
    registries: Vec<Registry>,
    scheduling: Option<Scheduling>,
    node_faults: NodeFaults,
    planners: Option<Arc<dyn Planners>>,
    what_if: Option<Arc<dyn WhatIf>>,
    time_control: Option<Arc<dyn TimeControl>>,
    allows_writes: bool,
}

/// Console of one cluster, or of a program.
pub struct Console {
    /// Name of the cluster, or of the program.
    cluster: String,
    /// The program, if the console shows a single program instead of a whole cluster.
    program: Option<Program>,
    clock: Clock,
    time: ClusterTime,
    /// Tokens of the URL that grants the administrator access. `None` if all users log in.
    keys: Option<Keys>,
    sessions: Sessions,
    caches: Caches,
    introspection: Introspection,
    node_faults: NodeFaults,
    /// Dry runs of the scheduler. `None` in a program that schedules no pods.
    scheduling: Option<Scheduling>,
    registries: Vec<Registry>,
    samples: Mutex<Samples>,
    /// Counts samples. Streams wait for the next one.
    ticks: watch::Sender<u64>,
    streams: Arc<Streams>,
    /// Time of the last request.
    visited: Mutex<Option<Timestamp>>,
    /// Wakes the sampling task when a request arrives.
    visits: Notify,
    /// Planners for previews of edits. `None` if edits are not previewed.
    planners: Option<Arc<dyn Planners>>,
    /// Permits for concurrent previews.
    previewing: Semaphore,
    /// What-ifs. `None` if they are not available.
    what_if: Option<WhatIfs>,
    /// Control of the cluster's time. `None` if the cluster uses the system's time.
    time_control: Option<Arc<dyn TimeControl>>,
    allows_writes: bool,
}

impl Console {
    /// Creates a console with new tokens. Nothing is read until [`Console::serve`].
    ///
    /// # Errors
    /// Fails if the system provides no random numbers.
    pub fn new(options: ConsoleOptions) -> Result<Arc<Self>, NoRandomNumbers> {
        let ConsoleOptions {
            cluster,
            kube,
            anonymous,
            clock,
            cluster_clock,
            runtime,
            caches,
            introspection,
            registries,
            node_faults,
            scheduler,
            planners,
            what_if,
            time_control,
            allows_writes,
        } = options;
        Ok(Self::of_parts(Parts {
            cluster,
            program: None,
            keys: Some(Keys::draw().map_err(|_| NoRandomNumbers)?),
            scheduling: Some(Scheduling::new(kube.clone(), clock.clone(), scheduler)),
            administrator: Some(kube),
            anonymous,
            clock,
            cluster_clock,
            runtime,
            caches,
            introspection,
            node_faults,
            registries,
            planners,
            what_if,
            time_control,
            allows_writes,
        }))
    }

    fn of_parts(parts: Parts) -> Arc<Self> {
        let Parts { administrator, anonymous, clock, allows_writes, .. } = parts;
        let sessions = Sessions::new(administrator.as_ref(), anonymous, &clock, allows_writes);
        Arc::new(Self {
            cluster: parts.cluster,
            program: parts.program,
            keys: parts.keys,
            sessions,
            caches: parts.caches,
            introspection: parts.introspection,
            scheduling: parts.scheduling,
            node_faults: parts.node_faults,
            clock,
            time: ClusterTime::new(parts.cluster_clock, parts.runtime),
            registries: parts.registries,
            samples: Mutex::default(),
            ticks: watch::Sender::new(0),
            streams: Arc::default(),
            visited: Mutex::default(),
            visits: Notify::new(),
            planners: parts.planners,
            previewing: Semaphore::new(MAX_PREVIEWS),
            what_if: parts.what_if.map(WhatIfs::new),
            time_control: parts.time_control,
            allows_writes,
        })
    }

    /// Returns the URL of the console. The URL of a cluster's console contains a token that grants access, so keep it secret.
    pub fn url(&self, address: SocketAddr) -> String {
        match &self.keys {
            Some(keys) => format!("http://{address}/?token={}", keys.url_token()),
            None => format!("https://{address}/"),
        }
    }

    /// Returns the cache of a kind. A program has it only if the program itself reads the kind, and the cache has synced.
    fn cached<V: View>(&self) -> Option<Cache<V>> {
        match &self.program {
            Some(_) => self.caches.existing::<V>().filter(Cache::has_synced),
            None => Some(self.caches.of::<V>()),
        }
    }

    /// Returns whether controllers run in this process, whose reports can be shown.
    fn has_controllers(&self) -> bool {
        !self.introspection.all().is_empty()
    }

    fn samples(&self) -> MutexGuard<'_, Samples> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the form token of switches; empty if pages only read.
    fn switch_token<'a>(&self, session: &'a Session) -> &'a str {
        if self.allows_writes { session.form_token() } else { "" }
    }

    /// Returns whether the console is viewed: whether a request arrived recently.
    fn is_watched(&self) -> bool {
        let visited = *self.visited.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = visited.is_some_and(|visited| {
            let ago = Duration::try_from(self.clock.now().duration_since(visited));
            ago.is_ok_and(|ago| ago < VISIT)
        });
        is_recent || !self.streams.is_empty()
    }

    /// Records that a request arrived.
    fn visit(&self) {
        let was_watched = self.is_watched();
        let now = self.clock.now();
        *self.visited.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        if !was_watched {
            self.visits.notify_one();
        }
    }

    /// Lets open pages check for changes.
    fn tick(&self) {
        self.ticks.send_modify(|tick| *tick = tick.wrapping_add(1));
    }

    fn families(&self) -> Vec<MetricFamily> {
        self.registries.iter().flat_map(Registry::gather).collect()
    }

    fn gather(&self) -> Sample {
        let sample = Sample::of(&self.families());
        // A program without controllers has only the queues of its certificates.
        let has_queues = self.program.is_none() || self.has_controllers();
        if has_queues { sample } else { sample.without_queues() }
    }

    /// Returns whether there is a page of the pods that wait for a node: in a scheduler, whose cache has them.
    fn has_pending(&self) -> bool {
        self.program.is_some() && self.scheduling.is_some()
    }

    /// Samples the metrics periodically: often while the console is viewed, otherwise rarely. A program's metrics are sampled
    /// only while the console is viewed, so that an unused console costs nothing.
    async fn sample(&self) {
        loop {
            let is_watched = self.is_watched();
            let is_idle = match &self.scheduling {
                Some(scheduling) => scheduling.end_if_idle().await,
                None => true,
            };
            if self.program.is_some() && !is_watched {
                self.samples().clear();
                if is_idle {
                    self.visits.notified().await;
                    continue;
                }
            } else {
                self.samples().push(self.clock.now(), self.gather());
                self.tick();
            }
            let interval = if is_watched { INTERVAL } else { IDLE_INTERVAL };
            tokio::select! {
                () = self.clock.sleep(interval) => {}
                () = self.visits.notified() => {}
            }
        }
    }
}
