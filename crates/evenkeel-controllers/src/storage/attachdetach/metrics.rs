//! Metrics of attach and detach operations, under upstream's names.

use super::{iscsi_fc, plan, state_of_world::StateOfWorld};
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

/// Buckets of the histogram, in seconds.
const SECONDS: [f64; 13] =
    [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];
const ATTACH: &str = "volume_attach";
const DETACH: &str = "volume_detach";
const SUCCESS: &str = "success";
const FAIL_UNKNOWN: &str = "fail-unknown";

/// Registers the counter of forced detaches by reason.
pub(super) fn forced(registry: &Registry) -> IntCounterVec {
    metrics::counters(
        registry,
        "attach_detach_controller_attachdetach_controller_forced_detaches",
        "Number of times the A/D Controller performed a forced detach",
        &["reason"],
    )
}

/// Durations and results of attach and detach operations of CSI drivers.
pub(super) struct Operations {
    took: HistogramVec,
    /// Start times of operations in progress, by name of the attachment.
    begun: Mutex<HashMap<Text, Timestamp>>,
}

impl Operations {
    pub(super) fn new(registry: &Registry) -> Self {
        let took = metrics::histograms(
            registry,
            "storage_operation_duration_seconds",
            "Storage operation duration",
            &SECONDS,
            &["volume_plugin", "operation_name", "status", "migrated"],
        );
        Self { took, begun: Mutex::default() }
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
            let volume = attachment.spec.source.persistent_volume_name.as_deref();
            let volume = volume.and_then(|volume| volumes.get("", volume));
            volume.is_some_and(|volume| volume.spec.source.csi.is_none())
        };
        let attachment = event.object();
        if !plan::is_attachment_name(&attachment.meta.name) {
            return;
        }
        let (ended, begins) = operations_of_change(event);
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let name = &attachment.meta.name;
        if let Some((operation, status)) = ended {
            let since = begun.remove(name).unwrap_or(now);
            let plugin = format!("{CSI}:{}", attachment.spec.attacher);
            let migrated = if is_migrated(attachment) { "true" } else { "false" };
            self.took
                .with_label_values(&[&*plugin, operation, status, migrated])
                .observe(now.duration_since(since).as_secs_f64().max(0.0));
        }
        if begins {
            begun.entry(name.clone()).or_insert(now);
        }
    }
}

type Ended = (&'static str, &'static str);

/// Returns the operation that an attachment's change ends, with its result, and whether the change starts an
/// operation.
fn operations_of_change(event: &CacheEvent<VolumeAttachment>) -> (Option<Ended>, bool) {
    let (old, new) = match event {
        CacheEvent::Added { object, .. } => {
            return (None, !object.status.attached || object.meta.deleting());
        }
        CacheEvent::Deleted(_) => return (Some((DETACH, SUCCESS)), false),
        CacheEvent::Updated { old, new } => (old, new),
    };
    let (was, is) = (&old.status, &new.status);
    match (old.meta.deleting(), new.meta.deleting()) {
        (true, _) => {
            let failed = is.detach_error.is_some() && was.detach_error != is.detach_error;
            (failed.then_some((DETACH, FAIL_UNKNOWN)), failed)
        }
        (false, true) => ((!was.attached).then_some((ATTACH, FAIL_UNKNOWN)), true),
        (false, false) if is.attached => ((!was.attached).then_some((ATTACH, SUCCESS)), false),
        (false, false) => {
            let failed = is.attach_error.is_some() && was.attach_error != is.attach_error;
            (failed.then_some((ATTACH, FAIL_UNKNOWN)), failed)
        }
    }
}

const CSI: &str = "kubernetes.io/csi";

/// Returns the plugin that a unique volume name begins with.
fn plugin_of_name(name: &str) -> String {
    match attach::split_attached_name(name) {
        Some((driver, _)) => format!("{CSI}:{driver}"),
        None => name.splitn(3, '/').take(2).collect::<Vec<_>>().join("/"),
    }
}

/// Returns the plugin that attaches a PersistentVolume, if any.
fn plugin_of_volume(volume: &PersistentVolume) -> Option<String> {
    match csi_translation::driver_and_handle(volume) {
        Some((driver, _)) => Some(format!("{CSI}:{driver}")),
        None => iscsi_fc::unique_volume_name(volume).as_deref().map(plugin_of_name),
    }
}

/// Returns the plugin that attaches a pod's inline volume, if any.
fn plugin_of_inline(source: &VolumeSource) -> Option<String> {
    match &source.csi {
        Some(csi) => Some(format!("{CSI}:{}", csi.driver)),
        None => {
            let driver =
                csi_translation::plugin_of_inline(source).and_then(csi_translation::driver_of);
            let driven = driver.map(|driver| format!("{CSI}:{driver}"));
            driven.or_else(|| {
                iscsi_fc::unique_volume_name_of_inline(source).as_deref().map(plugin_of_name)
            })
        }
    }
}

/// Registers gauges of volumes in the actual and the desired state of world.
pub(super) fn count(registry: &Registry, state_of_world: &Arc<StateOfWorld>) {
    if let Err(error) = registry.register(Box::new(Counts::new(state_of_world))) {
        tracing::debug!(%error, "attached volumes are counted already");
    }
}

/// Collector that counts the volumes in both states of world when metrics are scraped.
struct Counts {
    state_of_world: Weak<StateOfWorld>,
    total: IntGaugeVec,
    in_use: IntGaugeVec,
    /// Lock held while a scrape fills the gauges.
    filling: Mutex<()>,
}

impl Counts {
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
            filling: Mutex::new(()),
        }
    }

    fn fill(&self, state_of_world: &StateOfWorld) {
        let desired = "desired_state_of_world";
        let actual = "actual_state_of_world";
        let add = |plugin: &str, state| self.total.with_label_values(&[plugin, state]).inc();
        for node in state_of_world.nodes.list() {
            if plan::is_managed(&node) {
                for one in state_of_world.desired_volumes(&node.meta.name) {
                    add(&plugin_of_name(&one.name), desired);
                }
            }
            let reported_attached = node.status.volumes_attached.iter().map(|one| &*one.name);
            reported_attached.filter(|name| iscsi_fc::is_iscsi_or_fc(name)).for_each(|name| {
                add(&plugin_of_name(name), actual);
            });
        }
        for attachment in state_of_world.attachments.list() {
            if attachment.status.attached && attachment.spec.source.persistent_volume_name.is_some()
            {
                add(&format!("{CSI}:{}", attachment.spec.attacher), actual);
            }
        }
        for pod in state_of_world.pods.list() {
            let node = &*pod.spec.node_name;
            if node.is_empty() {
                continue;
            }
            let claimed = claims::of_pod(&pod)
                .filter_map(|used| plugin_of_volume(&*state_of_world.bound(&pod, &used)?));
            let inline = pod.spec.volumes.iter().filter_map(|one| plugin_of_inline(&one.source));
            for plugin in claimed.chain(inline) {
                self.in_use.with_label_values(&[node, &*plugin]).inc();
            }
        }
    }
}

impl Collector for Counts {
    fn desc(&self) -> Vec<&Desc> {
        [&self.total, &self.in_use].into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(state_of_world) = self.state_of_world.upgrade() else { return Vec::new() };
        let _one = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let all = [&self.total, &self.in_use];
        all.into_iter().for_each(IntGaugeVec::reset);
        self.fill(&state_of_world);
        all.into_iter().flat_map(Collector::collect).collect()
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
        for (what, event, want) in [
            ("created", new(&requested), (None, true)),
            ("created as attached", new(&attached), (None, false)),
            ("attached", change(&requested, &attached), (Some((ATTACH, SUCCESS)), false)),
            ("unchanged", change(&attached, &attached), (None, false)),
            ("attach error", change(&requested, &refused), (Some((ATTACH, FAIL_UNKNOWN)), true)),
            ("same attach error", change(&refused, &refused), (None, false)),
            ("deletion requested", change(&attached, &terminating), (None, true)),
            (
                "deletion requested before attached",
                change(&requested, &given_up),
                (Some((ATTACH, FAIL_UNKNOWN)), true),
            ),
            ("detach error", change(&terminating, &stuck), (Some((DETACH, FAIL_UNKNOWN)), true)),
            ("detached", CacheEvent::Deleted(terminating), (Some((DETACH, SUCCESS)), false)),
        ] {
            assert_eq!(operations_of_change(&event), want, "{what}");
        }
    }
}
