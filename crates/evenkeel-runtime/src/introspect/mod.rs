//! What the controllers of a program see, would do next and wait for: for people, while it runs.
//!
//! Every controller that a [`crate::controller::Builder`] makes stands in the program's [`Introspection`]; others add
//! themselves with [`Inspect`]. Nothing is copied on the way: what is told is looked up, and planned, when somebody asks.

mod answer;
mod history;
mod text;
mod types;
mod words;

pub use history::History;
pub(crate) use history::{Deeds, written};
pub use text::render;
pub use types::{
    CacheState, ControllerReport, Description, Fact, Failed, KeyState, Listing, ObjectReport, Pass,
    QueueState, Subject, Summary,
};
pub(crate) use words::hide_secrets;
pub use words::{action, changes, differences};

use crate::{cache::Caches, clock::Clock};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Most keys that a report lists of each state; the counts are whole.
pub const LISTED: usize = 100;

/// A controller that can be looked into. Everything it says is computed when asked for.
pub trait Inspect: Send + Sync {
    /// Its name, as in `--controllers`.
    fn name(&self) -> &str;
    /// What it is at.
    fn report(&self) -> ControllerReport;
    /// What it has to say of an object; `None` when such objects are none of its business.
    fn object(&self, subject: &Subject) -> Option<ObjectReport>;
}

/// The controllers of a program, as far as they run. Clones share them.
///
/// ```
/// use evenkeel_runtime::{cache::Caches, client::Client, clock::Clock, introspect::Introspection};
/// # use evenkeel_runtime::introspect::Subject;
/// # async fn look(client: Client, caches: Caches) {
/// let introspection = Introspection::new(caches, Clock::system());
/// for report in introspection.object(&Subject::new("apps", "Deployment", "default", "web")) {
///     println!("{} would: {:?}", report.controller, report.would);
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct Introspection {
    inner: Arc<Inner>,
}

struct Inner {
    caches: Caches,
    clock: Clock,
    /// Controllers end when they like: they are only looked at.
    running: Mutex<Vec<Weak<dyn Inspect>>>,
    /// Controllers that are looked at and never run.
    kept: Option<Mutex<Vec<Arc<dyn Inspect>>>>,
}

impl std::fmt::Debug for Introspection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.all().iter().map(|inspect| inspect.name().to_owned())).finish()
    }
}

impl Introspection {
    /// No controllers yet; those that end leave by themselves.
    pub fn new(caches: Caches, clock: Clock) -> Self {
        Self { inner: Arc::new(Inner { caches, clock, running: Mutex::default(), kept: None }) }
    }

    /// As [`Introspection::new`] for a program that looks and never runs: controllers stay though they have ended.
    pub fn keeping(caches: Caches, clock: Clock) -> Self {
        let kept = Some(Mutex::default());
        Self { inner: Arc::new(Inner { caches, clock, running: Mutex::default(), kept }) }
    }

    /// Adds a controller, for as long as somebody else holds it. One of the same name that has ended gives way.
    pub fn add(&self, inspect: &Arc<dyn Inspect>) {
        let mut running = lock(&self.inner.running);
        running.retain(|present| present.strong_count() > 0);
        running.push(Arc::downgrade(inspect));
        if let Some(kept) = &self.inner.kept {
            lock(kept).push(Arc::clone(inspect));
        }
    }

    /// The controllers there are, by name.
    pub fn all(&self) -> Vec<Arc<dyn Inspect>> {
        let mut all: Vec<_> = lock(&self.inner.running).iter().filter_map(Weak::upgrade).collect();
        all.sort_by(|a, b| a.name().cmp(b.name()));
        all
    }

    /// Every controller in short, and every cache.
    pub fn listing(&self) -> Listing {
        let controllers = self.all().iter().map(|inspect| inspect.report().summary()).collect();
        Listing { now: self.inner.clock.now(), controllers, caches: self.inner.caches.states() }
    }

    /// One controller at length.
    pub fn controller(&self, name: &str) -> Option<ControllerReport> {
        self.all().into_iter().find(|inspect| inspect.name() == name).map(|i| i.report())
    }

    /// What each controller that cares for an object has to say of it.
    pub fn object(&self, subject: &Subject) -> Vec<ObjectReport> {
        self.all().iter().filter_map(|inspect| inspect.object(subject)).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
