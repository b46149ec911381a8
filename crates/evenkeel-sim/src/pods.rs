//! Counts pods at every change, so that no short violation of a disruption budget is missed.

use evenkeel_api::{Text, views::Pod};
use evenkeel_runtime::cache::{CacheEvent, Caches};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Number of pods by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count {
    /// Pods that are neither finished nor being deleted.
    pub active: usize,
    /// Active pods that are ready.
    pub ready: usize,
}

/// All counts of the selected pods since the last reset.
#[derive(Debug, Clone)]
pub struct PodWatch(Arc<Mutex<State>>);

/// Observed pods, and their counts over time.
#[derive(Debug, Default)]
struct State {
    /// Present state of the selected pods, by UID.
    pods: BTreeMap<Text, PodState>,
    /// Count at the last reset, and after each change of a selected pod since then.
    counts: Vec<Count>,
}

/// State of a pod.
#[derive(Debug)]
struct PodState {
    active: bool,
    /// Whether the pod is active and ready.
    ready: bool,
}

impl PodWatch {
    /// Starts to count the pods with the label `label`, a pair of name and value.
    pub(crate) async fn start(caches: &Caches, namespace: &str, label: (&str, &str)) -> Self {
        let watch = Self(Arc::default());
        let (this, namespace) = (watch.clone(), namespace.to_owned());
        let (name, value) = (label.0.to_owned(), label.1.to_owned());
        let cache = caches.of::<Pod>();
        cache.subscribe(move |event| {
            let pod = event.object();
            if *pod.meta.namespace == *namespace && pod.meta.labels.get(&name) == Some(&*value) {
                match event {
                    CacheEvent::Deleted(_) => this.lock().remove(pod),
                    _ => this.lock().update(pod),
                }
            }
        });
        cache.synced().await;
        watch.reset();
        watch
    }

    /// Returns the current count.
    pub fn now(&self) -> Count {
        self.lock().count()
    }

    /// Drops the earlier counts and keeps only the current one.
    pub fn reset(&self) {
        let mut state = self.lock();
        state.counts = vec![state.count()];
    }

    /// Returns the distinct counts since the last reset, sorted.
    pub fn counts(&self) -> Vec<Count> {
        let mut counts = self.lock().counts.clone();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// Returns the maximum number of active pods since the last reset.
    pub fn max_active(&self) -> usize {
        self.lock().counts.iter().map(|count| count.active).max().unwrap_or_default()
    }

    /// Returns the minimum number of ready pods since the last reset.
    pub fn min_ready(&self) -> usize {
        self.lock().counts.iter().map(|count| count.ready).min().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn update(&mut self, pod: &Pod) {
        let finished = matches!(&*pod.status.phase, "Succeeded" | "Failed");
        let active = !finished && pod.meta.deletion.is_none();
        let ready = pod
            .status
            .conditions
            .iter()
            .any(|condition| &*condition.type_ == "Ready" && &*condition.status == "True");
        self.pods.insert(pod.meta.uid.clone(), PodState { active, ready: active && ready });
        self.record_count();
    }

    fn remove(&mut self, pod: &Pod) {
        self.pods.remove(&pod.meta.uid);
        self.record_count();
    }

    fn record_count(&mut self) {
        let count = self.count();
        self.counts.push(count);
    }

    fn count(&self) -> Count {
        Count {
            active: self.pods.values().filter(|pod| pod.active).count(),
            ready: self.pods.values().filter(|pod| pod.ready).count(),
        }
    }
}
