//! Dry runs of the scheduler for pages. The caches run while pages use them, and end a minute later.

use crate::source::PageError;
use evenkeel_api::{time::Timestamp, views::Pod};
use evenkeel_explain::{LiveScheduler, Unsynced};
use evenkeel_runtime::clock::Clock;
use evenkeel_scheduler::{DEFAULT_SCHEDULER, SchedulerOptions, explain::Explained};
use futures::future::BoxFuture;
use http::StatusCode;
use std::{sync::Arc, time::Duration};
use tokio::sync::Mutex;

/// Time after the last use for which the caches stay.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of the caches' sync.
const SYNC_TIMEOUT: Duration = Duration::from_secs(20);

/// Returns new options of the cluster's schedulers. Each call creates new plugins, because a plugin is connected to one set of
/// caches.
pub type MakeSchedulerOptions = Box<dyn Fn() -> Vec<SchedulerOptions> + Send + Sync>;

/// Dry runs of the scheduler for the pages of a console. A program that creates none does not link the scheduler.
pub struct Scheduling(Box<dyn DryRuns>);

/// Dry runs of a scheduler.
trait DryRuns: Send + Sync {
    /// Explains how a pod would be scheduled now.
    fn explain<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Explained, PageError>>;
    /// Explains how a pod that may differ from the cluster's would be scheduled now.
    fn explain_pod(&self, pod: Arc<Pod>) -> BoxFuture<'_, Result<Explained, PageError>>;
    /// Returns the names of the profiles.
    fn names(&self) -> &[String];
    /// Ends the dry runs that no request has used for a minute. Returns whether none runs.
    fn end_if_idle(&self) -> BoxFuture<'_, bool>;
}

impl Scheduling {
    /// Creates dry runs of a scheduler with these options, whose caches read with `kube` while pages use them. Nothing is
    /// started yet.
    pub fn new(kube: kube::Client, clock: Clock, options: MakeSchedulerOptions) -> Self {
        let names = options().iter().flat_map(SchedulerOptions::names).map(str::to_owned).collect();
        Self(Box::new(DryScheduler { kube, clock, options, names, running: Mutex::default() }))
    }

    /// Returns the names of the profiles of all schedulers. Empty for a cluster without a scheduler, whose pods are explained
    /// by upstream's defaults.
    pub(crate) fn names(&self) -> &[String] {
        self.0.names()
    }

    /// Explains how a pod would be scheduled now. Starts the caches if none run.
    ///
    /// # Errors
    /// Fails if the caches do not sync in time, or no profile selects the pod.
    pub(crate) async fn explain(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Explained, PageError> {
        self.0.explain(namespace, name).await
    }

    /// Like [`Scheduling::explain`], for a pod that may differ from that of the cluster.
    ///
    /// # Errors
    /// Fails as [`Scheduling::explain`] does.
    pub(crate) async fn explain_pod(&self, pod: Arc<Pod>) -> Result<Explained, PageError> {
        self.0.explain_pod(pod).await
    }

    /// Ends the caches if no request has used them for a minute. Returns whether none run.
    pub(crate) async fn end_if_idle(&self) -> bool {
        self.0.end_if_idle().await
    }
}

/// Schedulers for dry runs, which exist only while they are used.
struct DryScheduler {
    kube: kube::Client,
    clock: Clock,
    options: MakeSchedulerOptions,
    /// Names of the profiles of all schedulers.
    names: Vec<String>,
    running: Mutex<Option<Running>>,
}

/// Scheduler that runs while a user needs it, and the time of its last use.
struct Running {
    scheduler: LiveScheduler,
    used: Timestamp,
}

impl DryRuns for DryScheduler {
    fn explain<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Explained, PageError>> {
        Box::pin(self.dry_run(namespace, name, |scheduler| scheduler.explain(namespace, name)))
    }

    fn explain_pod(&self, pod: Arc<Pod>) -> BoxFuture<'_, Result<Explained, PageError>> {
        Box::pin(async move {
            let (namespace, name) = (&*pod.meta.namespace, &*pod.meta.name);
            self.dry_run(namespace, name, |scheduler| scheduler.explain_pod(&pod)).await
        })
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn end_if_idle(&self) -> BoxFuture<'_, bool> {
        Box::pin(self.end())
    }
}

impl DryScheduler {
    async fn dry_run(
        &self,
        namespace: &str,
        name: &str,
        explain: impl FnOnce(&mut LiveScheduler) -> Option<Explained>,
    ) -> Result<Explained, PageError> {
        let mut running = self.running.lock().await;
        if running.is_none() {
            *running = Some(self.start().await?);
        }
        let explained = running.as_mut().and_then(|running| {
            running.used = self.clock.now();
            explain(&mut running.scheduler)
        });
        explained.ok_or_else(|| {
            let names = match self.names.as_slice() {
                [] => DEFAULT_SCHEDULER.to_owned(),
                names => names.join(", "),
            };
            PageError::not_found(format!(
                "No scheduler has a profile for the pod {namespace}/{name}: see spec.schedulerName. There are: {names}."
            ))
        })
    }

    async fn start(&self) -> Result<Running, PageError> {
        let (kube, options) = (self.kube.clone(), (self.options)());
        let scheduler = LiveScheduler::start(kube, &self.clock, &options, "evenkeel-console");
        // Options cannot be shared between threads.
        drop(options);
        let scheduler = scheduler.synced(SYNC_TIMEOUT).await?;
        Ok(Running { scheduler, used: self.clock.now() })
    }

    async fn end(&self) -> bool {
        // A scheduler that is in use is not idle.
        let Ok(mut running) = self.running.try_lock() else { return false };
        let is_idle = running.as_ref().is_some_and(|running| {
            let idle = self.clock.now().duration_since(running.used);
            Duration::try_from(idle).is_ok_and(|idle| idle > IDLE_TIMEOUT)
        });
        if is_idle && let Some(Running { scheduler, .. }) = running.take() {
            scheduler.stop().await;
        }
        running.is_none()
    }
}

impl From<Unsynced> for PageError {
    fn from(error: Unsynced) -> Self {
        let message = format!("The scheduler's caches have not synced: {error}.");
        Self { status: StatusCode::GATEWAY_TIMEOUT, message }
    }
}
