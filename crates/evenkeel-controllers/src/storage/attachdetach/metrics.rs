//! Metrics of attach and detach operations, under upstream's names.

use super::{iscsi_fc, plan, state_of_world::StateOfWorld};
use crate::storage::DURATION_BUCKETS;
use evenkeel_api::{
    Text,
    time::Timestamp,
    views::{PersistentVolume, VolumeAttachment, VolumeSource},
};
use evenkeel_component_helpers::storage::{attach, claims, csi_translation};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    metrics,
};
use prometheus::{
    HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

/// Value of the label `operation_name` for an attach operation.
const ATTACH: &str = "volume_attach";
/// Value of the label `operation_name` for a detach operation.
const DETACH: &str = "volume_detach";
/// Value of the label `status` for an operation that succeeded.
const SUCCESS: &str = "success";
/// Value of the label `status` for an operation that failed.
const FAIL_UNKNOWN: &str = "fail-unknown";

/// Registers the counter of forced detaches by reason.
pub(super) fn register_forced_detaches(registry: &Registry) -> IntCounterVec {
    metrics::counters(
        registry,
        "attach_detach_controller_attachdetach_controller_forced_detaches",
        "Number of times the A/D Controller performed a forced detach",
        &["reason"],
    )
}

/// Durations and results of attach and detach operations of CSI drivers.
pub(super) struct OperationMetrics {
    durations: HistogramVec,
    /// Start times of the operations in progress, by name of the VolumeAttachment.
    start_times: Mutex<HashMap<Text, Timestamp>>,
}

impl OperationMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let durations = metrics::histograms(
            registry,
            "storage_operation_duration_seconds",
            "Storage operation duration",
            &DURATION_BUCKETS,
            &["volume_plugin", "operation_name", "status", "migrated"],
        );
        Self { durations, start_times: Mutex::default() }
    }

    /// Records the operations that a change of an attachment starts and ends. Ignores attachments that this
    /// controller did not create.
    pub(super) fn on_attachment_event(
        &self,
        event: &CacheEvent<VolumeAttachment>,
        volumes: &Cache<PersistentVolume>,
        now: Timestamp,
    ) {
        let is_migrated = |attachment: &VolumeAttachment| {
            let volume_name = attachment.spec.source.persistent_volume_name.as_deref();
            let volume = volume_name.and_then(|name| volumes.get("", name));
            volume.is_some_and(|volume| volume.spec.source.csi.is_none())
        };
        let attachment = event.object();
        if !plan::is_attachment_name(&attachment.meta.name) {
            return;
        }
        let change = operation_change(event);
        let mut start_times = self.start_times.lock().unwrap_or_else(PoisonError::into_inner);
        let name = &attachment.meta.name;
        if let Some(EndedOperation { operation, status }) = change.ended {
            let started_at = start_times.remove(name).unwrap_or(now);
            let plugin = format!("{CSI_PLUGIN}:{}", attachment.spec.attacher);
            let migrated = if is_migrated(attachment) { "true" } else { "false" };
            self.durations
                .with_label_values(&[&*plugin, operation, status, migrated])
                .observe(now.duration_since(started_at).as_secs_f64().max(0.0));
        }
        if change.starts_operation {
            start_times.entry(name.clone()).or_insert(now);
        }
    }
}

/// An operation with its result.
#[derive(Debug, PartialEq, Eq)]
struct EndedOperation {
    operation: &'static str,
    status: &'static str,
}

/// Operations that a change of an attachment ends and starts.
#[derive(Debug, PartialEq, Eq)]
struct OperationChange {
    ended: Option<EndedOperation>,
    starts_operation: bool,
}

impl OperationChange {
    /// Returns the change of the counters for an operation that ends with this status.
    fn ends(operation: &'static str, status: &'static str) -> Self {
        let ended = Some(EndedOperation { operation, status });
        Self { ended, starts_operation: false }
    }

    /// Returns the change of the counters for an operation that starts.
    fn starts() -> Self {
        Self { ended: None, starts_operation: true }
    }

    /// Returns the change of the counters for an operation that fails and starts again, because the driver retries it.
    fn fails(operation: &'static str) -> Self {
        Self { starts_operation: true, ..Self::ends(operation, FAIL_UNKNOWN) }
    }

    /// Returns no change: no operation starts or ends.
    fn nothing() -> Self {
        Self { ended: None, starts_operation: false }
    }
}

/// Returns the operations that an event of an attachment starts and ends.
fn operation_change(event: &CacheEvent<VolumeAttachment>) -> OperationChange {
    let (old, new) = match event {
        CacheEvent::Added { object, .. } => {
            let is_pending = !object.status.attached || object.meta.deleting();
            return if is_pending { OperationChange::starts() } else { OperationChange::nothing() };
        }
        CacheEvent::Deleted(_) => return OperationChange::ends(DETACH, SUCCESS),
        CacheEvent::Updated { old, new } => (old, new),
    };
    let before = &old.status;
    let after = &new.status;
    let is_new_detach_error =
        after.detach_error.is_some() && before.detach_error != after.detach_error;
    let is_new_attach_error =
        after.attach_error.is_some() && before.attach_error != after.attach_error;
    match (old.meta.deleting(), new.meta.deleting()) {
        (true, _) if is_new_detach_error => OperationChange::fails(DETACH),
        // The detach operation starts. If the volume is not attached yet, the attach operation has failed.
        (false, true) if before.attached => OperationChange::starts(),
        (false, true) => OperationChange::fails(ATTACH),
        (false, false) if after.attached && !before.attached => {
            OperationChange::ends(ATTACH, SUCCESS)
        }
        (false, false) if !after.attached && is_new_attach_error => OperationChange::fails(ATTACH),
        _ => OperationChange::nothing(),
    }
}

/// Prefix of the plugin names of CSI drivers.
const CSI_PLUGIN: &str = "kubernetes.io/csi";

/// Returns the name of the plugin with which a unique volume name begins.
fn plugin_of_name(name: &str) -> String {
    match attach::split_attached_name(name) {
        Some((driver, _)) => format!("{CSI_PLUGIN}:{driver}"),
        None => name.splitn(3, '/').take(2).collect::<Vec<_>>().join("/"),
    }
}

/// Returns the plugin that attaches a PersistentVolume, if any.
fn plugin_of_volume(volume: &PersistentVolume) -> Option<String> {
    match csi_translation::driver_and_handle(volume) {
        Some((driver, _)) => Some(format!("{CSI_PLUGIN}:{driver}")),
        None => iscsi_fc::unique_volume_name(volume).as_deref().map(plugin_of_name),
    }
}

/// Returns the plugin that attaches a pod's inline volume, if any.
fn plugin_of_inline(source: &VolumeSource) -> Option<String> {
    if let Some(csi) = &source.csi {
        return Some(format!("{CSI_PLUGIN}:{}", csi.driver));
    }
    let migrated = csi_translation::plugin_of_inline(source);
    if let Some(driver) = migrated.and_then(csi_translation::driver_of) {
        return Some(format!("{CSI_PLUGIN}:{driver}"));
    }
    iscsi_fc::unique_volume_name_of_inline(source).as_deref().map(plugin_of_name)
}

/// Registers the gauges of volumes in the actual and the desired state of world.
pub(super) fn register_volume_counts(registry: &Registry, state_of_world: &Arc<StateOfWorld>) {
    if let Err(error) = registry.register(Box::new(VolumeCounts::new(state_of_world))) {
        tracing::debug!(%error, "attached volumes are counted already");
    }
}

/// Collector that counts the volumes in both states of world when metrics are scraped.
struct VolumeCounts {
    state_of_world: Weak<StateOfWorld>,
    total: IntGaugeVec,
    in_use: IntGaugeVec,
    /// Lock held while a scrape fills the gauges, so that concurrent scrapes do not mix their values.
    fill_lock: Mutex<()>,
}

impl VolumeCounts {
    fn new(state_of_world: &Arc<StateOfWorld>) -> Self {
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            IntGaugeVec::new(Opts::new(name, help), labels).expect("the name is a valid literal")
        };
        Self {
            state_of_world: Arc::downgrade(state_of_world),
            total: gauges(
                "attachdetach_controller_total_volumes",
                "Number of volumes in A/D Controller",
                &["plugin_name", "state"],
            ),
            in_use: gauges(
                "storage_count_attachable_volumes_in_use",
                "Measure number of volumes in use",
                &["node", "volume_plugin"],
            ),
            fill_lock: Mutex::new(()),
        }
    }

    /// Adds the volumes of both states of world to the gauges.
    fn fill(&self, state_of_world: &StateOfWorld) {
        let desired_state = "desired_state_of_world";
        let actual_state = "actual_state_of_world";
        let add = |plugin: &str, state| self.total.with_label_values(&[plugin, state]).inc();
        for node in state_of_world.nodes.list() {
            if plan::is_managed(&node) {
                for volume in state_of_world.desired_volumes(&node.meta.name) {
                    add(&plugin_of_name(&volume.name), desired_state);
                }
            }
            let reported_attached = node.status.volumes_attached.iter().map(|volume| &*volume.name);
            for name in reported_attached.filter(|name| iscsi_fc::is_iscsi_or_fc(name)) {
                add(&plugin_of_name(name), actual_state);
            }
        }
        for attachment in state_of_world.attachments.list() {
            if attachment.status.attached && attachment.spec.source.persistent_volume_name.is_some()
            {
                add(&format!("{CSI_PLUGIN}:{}", attachment.spec.attacher), actual_state);
            }
        }
        for pod in state_of_world.pods.list() {
            let node = &*pod.spec.node_name;
            if node.is_empty() {
                continue;
            }
            let claimed = claims::of_pod(&pod)
                .filter_map(|used| plugin_of_volume(&*state_of_world.bound_volume(&pod, &used)?));
            let volumes = pod.spec.volumes.iter();
            let inline = volumes.filter_map(|volume| plugin_of_inline(&volume.source));
            for plugin in claimed.chain(inline) {
                self.in_use.with_label_values(&[node, &*plugin]).inc();
            }
        }
    }
}

impl Collector for VolumeCounts {
    fn desc(&self) -> Vec<&Desc> {
        [&self.total, &self.in_use].into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(state_of_world) = self.state_of_world.upgrade() else { return Vec::new() };
        let _guard = self.fill_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let gauges = [&self.total, &self.in_use];
        gauges.into_iter().for_each(IntGaugeVec::reset);
        self.fill(&state_of_world);
        gauges.into_iter().flat_map(Collector::collect).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, object};
    use serde_json::json;

    #[test]
    fn volume_name_begins_with_the_plugin_name() {
        for (name, want) in [
            ("kubernetes.io/csi/d.example^h/1", "kubernetes.io/csi:d.example"),
            ("kubernetes.io/iscsi/10.0.0.1:3260:iqn.x:0", "kubernetes.io/iscsi"),
            ("kubernetes.io/fc/[a b]:1", "kubernetes.io/fc"),
        ] {
            assert_eq!(plugin_of_name(name), want);
        }
    }

    #[test]
    fn attachment_events_start_and_end_operations() {
        let attachment_with = |status: serde_json::Value, terminating: bool| {
            let mut attachment: VolumeAttachment =
                object(&json!({"metadata": {"name": "a"}, "status": status}));
            attachment.meta.deletion = terminating.then_some(T0);
            Arc::new(attachment)
        };
        let (requested, attached) =
            (attachment_with(json!({}), false), attachment_with(json!({"attached": true}), false));
        let refused = attachment_with(json!({"attachError": {"message": "no"}}), false);
        let terminating = attachment_with(json!({"attached": true}), true);
        let given_up = attachment_with(json!({}), true);
        let stuck =
            attachment_with(json!({"attached": true, "detachError": {"message": "no"}}), true);
        let new = |object: &Arc<VolumeAttachment>| CacheEvent::Added {
            object: Arc::clone(object),
            initial: false,
        };
        let change = |old: &Arc<VolumeAttachment>, new: &Arc<VolumeAttachment>| {
            CacheEvent::Updated { old: Arc::clone(old), new: Arc::clone(new) }
        };
        type Change = OperationChange;
        for (case, event, want) in [
            ("created", new(&requested), Change::starts()),
            ("created as attached", new(&attached), Change::nothing()),
            ("attached", change(&requested, &attached), Change::ends(ATTACH, SUCCESS)),
            ("unchanged", change(&attached, &attached), Change::nothing()),
            ("attach error", change(&requested, &refused), Change::fails(ATTACH)),
            ("same attach error", change(&refused, &refused), Change::nothing()),
            ("deletion requested", change(&attached, &terminating), Change::starts()),
            (
                "deletion requested before attached",
                change(&requested, &given_up),
                Change::fails(ATTACH),
            ),
            ("detach error", change(&terminating, &stuck), Change::fails(DETACH)),
            ("detached", CacheEvent::Deleted(terminating), Change::ends(DETACH, SUCCESS)),
        ] {
            assert_eq!(operation_change(&event), want, "{case}");
        }
    }
}
