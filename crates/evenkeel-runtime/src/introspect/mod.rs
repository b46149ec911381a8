//! Introspection of running controllers: the facts that each controller observes about an object, its next actions, and the
//! reasons why it waits.
//!
//! Every controller of a [`crate::controller::Builder`] registers in the program's [`Introspection`]. Other controllers
//! implement [`Inspect`] and register themselves. Reports are computed on request: the controller reads its caches and plans
//! the object again.

mod answer;
mod history;
mod text;
mod types;
mod words;

pub use history::History;
pub(crate) use history::{RecordedActions, format_duration};
pub use text::render;
pub use types::{
    CacheState, ControllerReport, Description, Fact, Failed, KeyState, Listing, ObjectReport, Pass,
    QueueState, Subject, Summary,
};
pub(crate) use words::hide_secrets;
pub use words::{action, changes, differences};

use crate::{cache::Caches, clock::Clock};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

/// Maximum number of keys in each state that a report lists. The counts include all keys.
pub const LISTED: usize = 100;

/// Controller that can be inspected. Reports are computed on request.
pub trait Inspect: Send + Sync {
    /// Returns the name of the controller, as in `--controllers`.
    fn name(&self) -> &str;
    /// Reports the queue, the caches, and the last passes and failures.
    fn report(&self) -> ControllerReport;
    /// Reports on one object. Returns `None` if the controller does not handle objects of this kind.
    fn object(&self, subject: &Subject) -> Option<ObjectReport>;
}

/// Running controllers of a program. Clones share them.
///
/// ```
/// use evenkeel_runtime::{cache::Caches, client::Client, clock::Clock, introspect::Introspection};
/// # use evenkeel_runtime::introspect::Subject;
/// # async fn look(client: Client, caches: Caches) {
/// let introspection = Introspection::new(caches, Clock::system());
/// for report in introspection.object_reports(&Subject::new("apps", "Deployment", "default", "web")) {
///     println!("{} would: {:?}", report.controller, report.would);
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct Introspection {
    inner: Arc<Inner>,
}

/// State that the clones of [`Introspection`] share.
struct Inner {
    caches: Caches,
    clock: Clock,
    /// Weak references: introspection does not keep a controller alive.
    running: Mutex<Vec<Weak<dyn Inspect>>>,
    /// Strong references, for a program that inspects controllers and never runs them.
    kept: Option<Mutex<Vec<Arc<dyn Inspect>>>>,
    /// Those of other clusters, by name.
    clusters: Mutex<BTreeMap<Arc<str>, Introspection>>,
}

impl std::fmt::Debug for Introspection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.all().iter().map(|inspect| inspect.name().to_owned())).finish()
    }
}

impl Introspection {
    /// Creates an empty set. A controller that ends is removed from it.
    pub fn new(caches: Caches, clock: Clock) -> Self {
        Self::with_kept(caches, clock, None)
    }

    /// Like [`Introspection::new`], for a program that inspects controllers without running them. It keeps them
    /// alive.
    pub fn keeping(caches: Caches, clock: Clock) -> Self {
        Self::with_kept(caches, clock, Some(Mutex::default()))
    }

    fn with_kept(caches: Caches, clock: Clock, kept: Option<Mutex<Vec<Arc<dyn Inspect>>>>) -> Self {
        let (running, clusters) = (Mutex::default(), Mutex::default());
        Self { inner: Arc::new(Inner { caches, clock, running, kept, clusters }) }
    }

    /// Adds the controllers and caches of another cluster.
    pub(crate) fn add_cluster(&self, cluster: &Arc<str>, introspection: &Self) {
        lock(&self.inner.clusters).insert(Arc::clone(cluster), introspection.clone());
    }

    /// Removes the controllers and caches of another cluster.
    pub(crate) fn remove_cluster(&self, cluster: &str) {
        let removed = lock(&self.inner.clusters).remove(cluster);
        drop(removed);
    }

    /// Returns the registered controllers of all clusters, or of one. Those of the program's own cluster come first, under an
    /// empty name.
    fn of_clusters(&self, cluster: Option<&str>) -> Vec<(Arc<str>, Self)> {
        let others = lock(&self.inner.clusters).clone();
        let own = (Arc::from(""), self.clone());
        let mut all: Vec<(Arc<str>, Self)> = std::iter::once(own).chain(others).collect();
        all.retain(|(name, _)| cluster.is_none_or(|cluster| **name == *cluster));
        all
    }

    /// Adds a controller. It stays until its last other owner drops it, or forever if the set keeps controllers.
    pub fn add(&self, inspect: &Arc<dyn Inspect>) {
        let mut running = lock(&self.inner.running);
        running.retain(|controller| controller.strong_count() > 0);
        running.push(Arc::downgrade(inspect));
        if let Some(kept) = &self.inner.kept {
            lock(kept).push(Arc::clone(inspect));
        }
    }

    /// Returns the registered controllers of the program's own cluster, sorted by name.
    pub fn all(&self) -> Vec<Arc<dyn Inspect>> {
        let mut all: Vec<_> = lock(&self.inner.running).iter().filter_map(Weak::upgrade).collect();
        all.sort_by(|a, b| a.name().cmp(b.name()));
        all
    }

    /// Returns summaries of all controllers, and the state of all caches.
    pub fn listing(&self) -> Listing {
        self.listing_of(None)
    }

    /// Returns summaries of the controllers, and the state of the caches, of all clusters or of one.
    fn listing_of(&self, cluster: Option<&str>) -> Listing {
        let (mut controllers, mut caches) = (Vec::new(), Vec::new());
        for (name, introspection) in self.of_clusters(cluster) {
            let all = introspection.all();
            controllers.extend(all.iter().map(|controller| controller.report().summary()));
            let states = introspection.inner.caches.states().into_iter();
            caches.extend(states.map(|state| CacheState { cluster: name.to_string(), ..state }));
        }
        Listing { now: self.inner.clock.now(), controllers, caches }
    }

    /// Returns the full report of one controller. If several clusters have a controller of this name, returns the report of the
    /// first one.
    pub fn controller(&self, name: &str) -> Option<ControllerReport> {
        self.controller_of(name, None)
    }

    fn controller_of(&self, name: &str, cluster: Option<&str>) -> Option<ControllerReport> {
        self.find(name, cluster).map(|controller| controller.report())
    }

    fn find(&self, name: &str, cluster: Option<&str>) -> Option<Arc<dyn Inspect>> {
        let mut all = self.of_clusters(cluster).into_iter().flat_map(|(_, of_one)| of_one.all());
        all.find(|controller| controller.name() == name)
    }

    /// Returns the reports of all controllers that handle an object, in all clusters.
    pub fn object_reports(&self, subject: &Subject) -> Vec<ObjectReport> {
        self.object_reports_of(subject, None)
    }

    fn object_reports_of(&self, subject: &Subject, cluster: Option<&str>) -> Vec<ObjectReport> {
        let all = self.of_clusters(cluster).into_iter().flat_map(|(_, of_one)| of_one.all());
        all.filter_map(|controller| controller.object(subject)).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
