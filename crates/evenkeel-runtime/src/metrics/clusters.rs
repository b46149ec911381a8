//! Metrics of other clusters among those of a program.

use prometheus::{Registry, core::Collector, core::Desc, proto::MetricFamily};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Registries of clusters, which one registry collects. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct ClusterRegistries(Arc<Mutex<BTreeMap<Arc<str>, Registry>>>);

impl ClusterRegistries {
    /// Creates an empty set, and registers it. A registry collects the first one that is registered.
    pub(crate) fn register(registry: &Registry) -> Self {
        let this = Self::default();
        // Only a second set of the registry can fail.
        let _ = registry.register(Box::new(this.clone()));
        this
    }

    /// Adds the registry of a cluster, or replaces it.
    pub(crate) fn add(&self, cluster: &Arc<str>, registry: &Registry) {
        self.lock().insert(Arc::clone(cluster), registry.clone());
    }

    /// Removes the registry of a cluster.
    pub(crate) fn remove(&self, cluster: &str) {
        self.lock().remove(cluster);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Registry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for ClusterRegistries {
    /// Returns nothing, because the metrics in the registries change over time.
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let registries: Vec<Registry> = self.lock().values().cloned().collect();
        registries.iter().flat_map(Registry::gather).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::{IntCounter, TextEncoder};

    #[test]
    fn metrics_of_a_cluster_have_its_label_while_it_is_there() {
        let host = Registry::new();
        let clusters = ClusterRegistries::register(&host);
        let count = |registry: &Registry, n| {
            let counter = IntCounter::new("passes_total", "Passes.").unwrap();
            counter.inc_by(n);
            registry.register(Box::new(counter)).unwrap();
        };
        count(&host, 1);
        for (name, n) in [("west", 3), ("east", 2)] {
            let labels = [("cluster".to_owned(), name.to_owned())].into();
            let registry = Registry::new_custom(None, Some(labels)).unwrap();
            count(&registry, n);
            clusters.add(&Arc::from(name), &registry);
        }
        let shown = || {
            let text = TextEncoder::new().encode_to_string(&host.gather()).unwrap();
            text.lines()
                .filter(|line| !line.starts_with('#'))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let [own, east, west] = [
            "passes_total 1",
            "passes_total{cluster=\"east\"} 2",
            "passes_total{cluster=\"west\"} 3",
        ];
        assert_eq!(shown(), [own, east, west]);
        clusters.remove("east");
        assert_eq!(shown(), [own, west]);
    }
}
