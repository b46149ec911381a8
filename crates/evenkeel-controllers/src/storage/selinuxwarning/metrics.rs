//! Gauge of conflicts, and the shell of the volume cache.

use super::{
    SelinuxPods,
    plan::{Memory, Observed},
    volume_cache::VolumeCache,
};
use evenkeel_api::View as _;
use evenkeel_runtime::{
    metrics,
    plan::{Key, PassHandler, Planned},
};
use prometheus::{
    IntGaugeVec, Opts, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Name of the gauge of conflicts.
const GAUGE_NAME: &str = "selinux_warning_controller_selinux_volume_conflict";
/// Help text of the gauge.
const GAUGE_HELP: &str = "Conflict between two Pods using the same volume";
const GAUGE_LABELS: [&str; 7] = [
    "property",
    "pod1_namespace",
    "pod1_name",
    "pod1_value",
    "pod2_namespace",
    "pod2_name",
    "pod2_value",
];

/// Volume cache that event handlers, observations and metrics share. Clones refer to the same cache.
#[derive(Clone, Default)]
pub(super) struct SharedVolumeCache(Arc<Mutex<VolumeCache>>);

impl SharedVolumeCache {
    /// Locks the cache. A panic under the lock does not invalidate it.
    pub(super) fn lock(&self) -> MutexGuard<'_, VolumeCache> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the gauge of conflicts.
    pub(super) fn register(&self, registry: &Registry) {
        let labels = GAUGE_LABELS.map(str::to_owned).to_vec();
        let desc = Desc::new(GAUGE_NAME.to_owned(), GAUGE_HELP.to_owned(), labels, HashMap::new())
            .expect("name and labels are valid literals");
        metrics::register(registry, ConflictGauge { cache: self.clone(), desc });
    }
}

impl PassHandler<SelinuxPods> for SharedVolumeCache {
    /// Records the planned uses of the pod's volumes before the next pod is planned.
    fn on_planned(&self, observed: &Observed, planned: Planned<'_, Memory>) {
        let key = Key::of(observed.pod.meta());
        let mut cache = self.lock();
        if planned.memory.is_empty() {
            cache.delete_pod(&key);
        }
        for (volume, volume_use) in planned.memory {
            cache.add(volume, &key, volume_use);
        }
    }

    fn on_gone(&self, key: &Key) {
        self.lock().delete_pod(key);
    }
}

/// Collector of the gauge. It reads the conflicts at each scrape.
#[derive(Clone)]
struct ConflictGauge {
    cache: SharedVolumeCache,
    desc: Desc,
}

impl Collector for ConflictGauge {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let gauge = IntGaugeVec::new(Opts::new(GAUGE_NAME, GAUGE_HELP), &GAUGE_LABELS)
            .expect("name and labels are valid literals");
        for conflict in self.cache.lock().conflicts() {
            let labels: [&str; 7] = [
                conflict.property,
                &conflict.pod.namespace,
                &conflict.pod.name,
                &conflict.value,
                &conflict.other_pod.namespace,
                &conflict.other_pod.name,
                &conflict.other_value,
            ];
            gauge.with_label_values(&labels).set(1);
        }
        gauge.collect()
    }
}
