//! Controllers over a read-only connection. They never run; only their planners are called, to report their next actions.
//!
//! `evenkeel explain --offline` uses them for a cluster, and the console for the same cluster with an edited object.

use anyhow::Result;
use evenkeel_controllers::{
    core::garbagecollector::Snapshot,
    needs::Resources,
    options::Options,
    wiring::descriptor::{ControllerContext, descriptors},
};
use evenkeel_runtime::{
    cache::Caches,
    client::{Client, dry_run},
    clock::Clock,
    controller::Env,
    discovery::ServerResources,
    introspect::{CacheState, Introspection, ObjectReport, Subject},
    tasks::{AbortOnDrop, Tasks},
};
use prometheus::Registry;
use std::{collections::HashSet, sync::Arc, time::Duration};
use tokio::sync::Mutex;

/// Maximum time to wait for the caches. Afterwards, the report names the caches that have not synced.
const SYNC_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum time to wait for caches whose requests the server rejects.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between checks whether the caches have synced.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time that reflectors have to stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Controllers that never run, with caches of the object's namespace.
pub struct Offline {
    client: Client,
    clock: Clock,
    resources: Arc<ServerResources>,
    /// Snapshot for the garbage collector, read on first use.
    snapshot: Mutex<Option<Snapshot>>,
    namespace: String,
    caches: Caches,
    introspection: Introspection,
    reflectors: Tasks,
    /// Stops the tasks when this value is dropped.
    _reflectors_end: AbortOnDrop,
    /// Resources of caches that did not sync in time. The next report does not wait for them again.
    unsynced: Mutex<HashSet<String>>,
}

impl Offline {
    /// Sets up the controllers for reports about `subject` and its dependents. Reads nothing.
    ///
    /// # Errors
    /// Fails if a controller cannot be set up.
    pub async fn start(
        kube: kube::Client,
        clock: &Clock,
        resources: Arc<ServerResources>,
        subject: &Subject,
    ) -> Result<Self> {
        let (kube, _) = dry_run(kube);
        let client =
            Client::builder(kube, clock.clone()).qps(-1.0).user_agent("evenkeel-explain").build();
        // For a Namespace, read the objects in it.
        let is_namespace = subject.kind == "Namespace" && subject.group.is_empty();
        let namespace = if is_namespace { &subject.name } else { &subject.namespace };
        let registry = Registry::new();
        let caches =
            Caches::in_namespaces(client.clone(), clock.clone(), &registry, [namespace.as_str()]);
        let mut env = Env::new(client.clone(), caches.clone(), clock.clone(), &registry);
        env.introspection = Introspection::keeping(caches.clone(), clock.clone());
        let introspection = env.introspection.clone();
        // Cancel the tasks before they start, so that the controllers are set up but never run.
        let stopped = Tasks::new();
        stopped.token().cancel();
        let shared_client = client.clone();
        let clients = Arc::new(move |_: &str| shared_client.clone());
        {
            let mut context =
                ControllerContext::new(env, clients, stopped.clone(), registry, Options::default());
            context.resources = Resources::discovered(&resources);
            for descriptor in descriptors() {
                if let Err(error) = context.start(&descriptor) {
                    tracing::debug!(%error, "left out");
                }
            }
        }
        stopped.shut_down(SHUTDOWN_TIMEOUT).await;
        let reflectors = Tasks::new();
        Ok(Self {
            client,
            clock: clock.clone(),
            resources,
            snapshot: Mutex::new(None),
            namespace: namespace.clone(),
            caches,
            introspection,
            _reflectors_end: reflectors.abort_on_drop(),
            reflectors,
            unsynced: Mutex::default(),
        })
    }

    /// Stops the reflectors.
    pub async fn stop(&self) {
        self.reflectors.shut_down(SHUTDOWN_TIMEOUT).await;
    }

    /// Fills the caches of the controllers that reconcile objects of this kind.
    async fn sync_caches(&self, subject: &Subject) {
        let kind = match &*subject.group {
            "" => subject.kind.clone(),
            group => format!("{}.{group}", subject.kind),
        };
        let reports = || {
            let all = self.introspection.all().into_iter().map(|inspect| inspect.report());
            all.filter(|report| report.kind == kind)
        };
        let needed_caches: Vec<String> =
            reports().flat_map(|report| report.caches).map(|cache| cache.resource).collect();
        self.caches.start_some(&self.reflectors, |kind| {
            let dot = if kind.group.is_empty() { "" } else { "." };
            needed_caches.contains(&format!("{}{dot}{}", kind.plural, kind.group))
        });
        let mut unsynced = self.unsynced.lock().await;
        let start = self.clock.now();
        loop {
            let waited_for: Vec<CacheState> = reports()
                .flat_map(|report| report.caches)
                .filter(|cache| !cache.synced && !unsynced.contains(&cache.resource))
                .collect();
            let waited = self.clock.now().duration_since(start).unsigned_abs();
            let are_refused = waited_for.iter().all(|cache| cache.trouble.is_some());
            if waited_for.is_empty() {
                return;
            }
            if waited >= SYNC_TIMEOUT || are_refused && waited >= REFUSAL_TIMEOUT {
                // The report names these caches, with the reason.
                unsynced.extend(waited_for.into_iter().map(|cache| cache.resource));
                return;
            }
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the garbage collector's report, from live reads.
    async fn garbage_collector_report(&self, subject: &Subject) -> Result<Option<ObjectReport>> {
        let namespace = if subject.namespace.is_empty() { "" } else { &*self.namespace };
        let mut snapshot = self.snapshot.lock().await;
        if snapshot.is_none() {
            let (client, resources) = (self.client.clone(), Arc::clone(&self.resources));
            *snapshot = Some(Snapshot::read(client, resources, namespace).await);
        }
        let Some(snapshot) = snapshot.as_mut() else { return Ok(None) };
        Ok(snapshot.report(subject, self.clock.now()).await?)
    }
}

impl Offline {
    /// Returns the report of each controller that handles the object. Waits for the caches that it needs, for a limited time.
    ///
    /// # Errors
    /// Fails if the objects of the garbage collector's report cannot be read.
    pub async fn reports(&self, subject: &Subject) -> Result<Vec<ObjectReport>> {
        self.sync_caches(subject).await;
        let mut reports = self.introspection.object_reports(subject);
        reports.extend(self.garbage_collector_report(subject).await?);
        Ok(reports)
    }
}
