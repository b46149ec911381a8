//! Metrics of claims and volumes, under upstream's names.

use super::Binder;
use crate::storage::DURATION_BUCKETS;
use evenkeel_api::{
    Meta, Text,
    time::Timestamp,
    views::{PersistentVolume, PersistentVolumeSource},
};
use evenkeel_component_helpers::storage::volume;
use evenkeel_runtime::{metrics, plan::Key};
use prometheus::{
    HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

/// Labels of the metrics of volume operations.
const OPERATION_LABELS: &[&str] = &["plugin_name", "operation_name"];

/// Handles of the metrics. Clones refer to the same metrics.
#[derive(Clone)]
pub(super) struct Metrics {
    default_class_updates: IntCounter,
    default_class_errors: IntCounter,
    durations: HistogramVec,
    /// The same counter under both names that upstream uses.
    errors: [IntCounterVec; 2],
    /// Claims that are being provisioned, with their provisioner and start time.
    provisioning: Arc<Mutex<ClaimsInProvisioning>>,
}

/// Claims that are being provisioned.
type ClaimsInProvisioning = HashMap<Key, Provisioning>;

/// Provisioning of a volume in progress.
struct Provisioning {
    provisioner: Text,
    started_at: Timestamp,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(name, help).expect("the name is a valid literal");
            metrics::register(registry, counter)
        };
        let errors_help = "Total volume operation errors";
        Self {
            default_class_updates: counter(
                "retroactive_storageclass_total",
                "Total number of retroactive StorageClass assignments to persistent volume claim",
            ),
            default_class_errors: counter(
                "retroactive_storageclass_errors_total",
                "Total number of failed retroactive StorageClass assignments to persistent volume claim",
            ),
            durations: metrics::histograms(
                registry,
                "volume_operation_total_seconds",
                "Storage operation end to end duration in seconds",
                &DURATION_BUCKETS,
                OPERATION_LABELS,
            ),
            errors: ["volume_operation_total_errors", "volume_operation_errors_total"]
                .map(|name| metrics::counters(registry, name, errors_help, OPERATION_LABELS)),
            provisioning: Arc::default(),
        }
    }

    /// Counts an update that sets the default class of a claim, and its failure (`retroactive_storageclass_total`,
    /// `retroactive_storageclass_errors_total`).
    pub(super) fn count_default_class_update(&self, succeeded: bool) {
        self.default_class_updates.inc();
        if !succeeded {
            self.default_class_errors.inc();
        }
    }

    /// Locks the claims that are being provisioned.
    fn provisioning(&self) -> MutexGuard<'_, ClaimsInProvisioning> {
        self.provisioning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the start of a claim's provisioning, unless it is already recorded.
    pub(super) fn provisioning_started(&self, claim: &Meta, provisioner: &str, now: Timestamp) {
        let provisioning = || Provisioning { provisioner: provisioner.into(), started_at: now };
        self.provisioning().entry(Key::of(claim)).or_insert_with(provisioning);
    }

    /// Records the duration of a claim's provisioning, if its start was recorded.
    pub(super) fn provisioning_ended(&self, claim: &Meta, now: Timestamp) {
        let ended = self.provisioning().remove(&Key::of(claim));
        if let Some(Provisioning { provisioner, started_at }) = ended {
            let seconds = now.duration_since(started_at).as_secs_f64();
            self.durations.with_label_values(&[&*provisioner, "provision"]).observe(seconds);
        }
    }

    /// Counts a failed provisioning operation of the claim.
    pub(super) fn provisioning_failed(&self, claim: &Meta) {
        if let Some(Provisioning { provisioner, .. }) = self.provisioning().get(&Key::of(claim)) {
            for errors in &self.errors {
                errors.with_label_values(&[&**provisioner, "provision"]).inc();
            }
        }
    }

    /// Removes the record of a deleted claim.
    pub(super) fn forget(&self, claim: &Meta) {
        self.provisioning().remove(&Key::of(claim));
    }

    /// Registers the gauges of claims and volumes.
    pub(super) fn register_counts(&self, registry: &Registry, binder: &Arc<Binder>) {
        if let Err(error) = registry.register(Box::new(VolumeCounts::new(binder))) {
            tracing::debug!(%error, "volumes are counted already");
        }
    }
}

/// Collector of the gauges of claims and volumes. Each scrape computes them from the caches.
struct VolumeCounts {
    binder: Weak<Binder>,
    volumes: IntGaugeVec,
    bound_volumes: IntGaugeVec,
    unbound_volumes: IntGaugeVec,
    bound_claims: IntGaugeVec,
    unbound_claims: IntGaugeVec,
    /// Lock held while a scrape fills the gauges, so that concurrent scrapes do not mix their values.
    fill_lock: Mutex<()>,
}

impl VolumeCounts {
    fn new(binder: &Arc<Binder>) -> Self {
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            let opts = Opts::new(name, help);
            IntGaugeVec::new(opts, labels).expect("the name is a valid literal")
        };
        let claim_labels = ["namespace", "storage_class", "volume_attributes_class"];
        Self {
            binder: Arc::downgrade(binder),
            volumes: gauges(
                "pv_collector_total_pv_count",
                "Gauge measuring total number of persistent volumes",
                &["plugin_name", "volume_mode"],
            ),
            bound_volumes: gauges(
                "pv_collector_bound_pv_count",
                "Gauge measuring number of persistent volume currently bound",
                &["storage_class"],
            ),
            unbound_volumes: gauges(
                "pv_collector_unbound_pv_count",
                "Gauge measuring number of persistent volume currently unbound",
                &["storage_class"],
            ),
            bound_claims: gauges(
                "pv_collector_bound_pvc_count",
                "Gauge measuring number of persistent volume claim currently bound",
                &claim_labels,
            ),
            unbound_claims: gauges(
                "pv_collector_unbound_pvc_count",
                "Gauge measuring number of persistent volume claim currently unbound",
                &claim_labels,
            ),
            fill_lock: Mutex::new(()),
        }
    }

    /// Returns all gauges of the collector.
    fn gauges(&self) -> [&IntGaugeVec; 5] {
        [
            &self.volumes,
            &self.bound_volumes,
            &self.unbound_volumes,
            &self.bound_claims,
            &self.unbound_claims,
        ]
    }

    /// Adds all cached volumes and claims to the gauges.
    fn fill(&self, binder: &Binder) {
        for volume in binder.volumes.list() {
            let mode = if &*volume.spec.volume_mode == "Block" { "Block" } else { "Filesystem" };
            self.volumes.with_label_values(&[&*plugin_name(&volume), mode]).inc();
            let is_bound = &*volume.status.phase == "Bound";
            let gauge = if is_bound { &self.bound_volumes } else { &self.unbound_volumes };
            gauge.with_label_values(&[&*volume.spec.storage_class_name]).inc();
        }
        for claim in binder.claims.list() {
            let is_bound = &*claim.status.phase == "Bound";
            let gauge = if is_bound { &self.bound_claims } else { &self.unbound_claims };
            let class = volume::class_of_claim(&claim);
            let attributes = &*claim.spec.volume_attributes_class_name;
            gauge.with_label_values(&[&*claim.meta.namespace, class, attributes]).inc();
        }
    }
}

impl Collector for VolumeCounts {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(binder) = self.binder.upgrade() else { return Vec::new() };
        let _guard = self.fill_lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.gauges().into_iter().for_each(IntGaugeVec::reset);
        self.fill(&binder);
        self.gauges().into_iter().flat_map(Collector::collect).collect()
    }
}

/// Returns the name of the volume's plugin in upstream's metrics.
fn plugin_name(volume: &PersistentVolume) -> String {
    match &volume.spec.source {
        PersistentVolumeSource { host_path: Some(_), .. } => "kubernetes.io/host-path".to_owned(),
        PersistentVolumeSource { nfs: Some(_), .. } => "kubernetes.io/nfs".to_owned(),
        PersistentVolumeSource { csi: Some(csi), .. } => {
            format!("kubernetes.io/csi:{}", csi.driver)
        }
        _ => "N/A".to_owned(),
    }
}
