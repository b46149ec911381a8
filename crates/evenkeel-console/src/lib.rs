//! The console of a running cluster in the browser: nodes as a heat map, controllers, plots, objects with the next actions of
//! their controllers, and why a pod is pending. The server renders the pages; a small script keeps them current.
//!
//! `evenkeel up` serves it on 127.0.0.1. The URL's token authenticates the cluster's administrator, whose pages the process's
//! own client reads. Other users log in with a bearer token of the API. The console sends their requests with that token, and
//! shows data of this process (caches, controllers, metrics) according to their rights (`session`, `rights`). It writes
//! nothing except the annotations of the simulation, and these only if [`ConsoleOptions::allows_writes`] is set. [`access`]
//! refuses requests of other pages and users.
//!
//! Pages are bounded: a list has 500 rows, a heat map of more than 2,000 nodes a row for each zone, and a stream of changes
//! one page. Pure functions (`view`) and templates decide what the pages show.

mod access;
mod pages;
mod rights;
mod route;
mod samples;
mod scheduler;
mod serve;
mod session;
mod source;
mod time;
mod view;

pub use scheduler::MakeSchedulerOptions;
pub use serve::Body;

use access::Keys;
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::{cache::Caches, clock::Clock, introspect::Introspection, tasks::watch};
use prometheus::Registry;
use samples::{IDLE_INTERVAL, INTERVAL, Sample, Samples};
use scheduler::DryScheduler;
use session::{Session, Sessions};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use time::ClusterTime;
use tokio::{
    runtime::Handle,
    sync::{Notify, Semaphore},
};

/// Maximum number of pages that are kept current at once.
const MAX_STREAMS: usize = 16;

/// Time after a request for which the console counts as viewed.
const VISIT: Duration = Duration::from_secs(60);

/// Sources and permissions of a console.
pub struct ConsoleOptions {
    /// Name of the cluster.
    pub cluster: String,
    /// Client that reads for the administrator.
    pub kube: kube::Client,
    /// Client without credentials of its own, to which the console adds the bearer token of a user who has logged in.
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
    /// Metrics of controllers, clients and scheduler.
    pub registries: Vec<Registry>,
    /// Options of the cluster's scheduler, for dry runs.
    pub scheduler: MakeSchedulerOptions,
    /// Whether pages have switches of the simulation.
    pub allows_writes: bool,
}

/// Error: the system has no random numbers for the console's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system has no random numbers for the console's tokens")]
pub struct NoRandomNumbers;

/// Console of one cluster.
pub struct Console {
    cluster: String,
    clock: Clock,
    time: ClusterTime,
    keys: Keys,
    sessions: Sessions,
    caches: Caches,
    introspection: Introspection,
    scheduler: DryScheduler,
    registries: Vec<Registry>,
    samples: Mutex<Samples>,
    /// Counts samples. Streams wait for the next one.
    ticks: watch::Sender<u64>,
    streams: Arc<Semaphore>,
    /// Time of the last request.
    visited: Mutex<Option<Timestamp>>,
    /// Wakes the sampling task when a request arrives.
    visits: Notify,
    allows_writes: bool,
}

impl Console {
    /// Creates a console with new tokens. Nothing is read until [`Console::serve`].
    ///
    /// # Errors
    /// When the system has no random numbers.
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
            scheduler,
            allows_writes,
        } = options;
        let sessions = Sessions::new(&kube, anonymous, &clock, allows_writes);
        Ok(Arc::new(Self {
            cluster,
            keys: Keys::draw().map_err(|_| NoRandomNumbers)?,
            sessions,
            caches,
            introspection,
            scheduler: DryScheduler::new(kube, clock.clone(), scheduler),
            clock,
            time: ClusterTime::new(cluster_clock, runtime),
            registries,
            samples: Mutex::default(),
            ticks: watch::Sender::new(0),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            visited: Mutex::default(),
            visits: Notify::new(),
            allows_writes,
        }))
    }

    /// Returns the URL that lets a browser in. It has a token, so it is for the user alone.
    pub fn url(&self, address: SocketAddr) -> String {
        format!("http://{address}/?token={}", self.keys.url_token())
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
        is_recent || self.streams.available_permits() < MAX_STREAMS
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

    fn gather(&self) -> Sample {
        let families: Vec<_> = self.registries.iter().flat_map(Registry::gather).collect();
        Sample::of(&families)
    }

    /// Samples the metrics again and again: often while somebody looks, or else seldom.
    async fn sample(&self) {
        loop {
            self.samples().push(self.clock.now(), self.gather());
            self.ticks.send_modify(|tick| *tick = tick.wrapping_add(1));
            self.scheduler.end_if_idle().await;
            let interval = if self.is_watched() { INTERVAL } else { IDLE_INTERVAL };
            tokio::select! {
                () = self.clock.sleep(interval) => {}
                () = self.visits.notified() => {}
            }
        }
    }
}
