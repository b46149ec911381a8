//! SELinux warning controller: warns about pods that may use the same volume with different SELinux labels (KEP-1710).
//! It is off by default, and writes events only. Upstream: `pkg/controller/volume/selinuxwarning`.

mod labels;
mod metrics;
mod plan;
mod volume_cache;

use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use evenkeel_api::{
    Text, View as _,
    time::Timestamp,
    views::{PersistentVolume, PersistentVolumeClaim, Pod},
};
use evenkeel_component_helpers::storage::claims;
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Full, Index},
    controller::Enqueue,
    introspect::Description,
    plan::{Key, Plan, Planner},
};
use k8s_openapi::api::storage::v1::CSIDriver;
use labels::PodLabels;
use metrics::SharedVolumeCache;
use plan::{Memory, Observed, ObservedClaim, OtherPod, Source};
use std::collections::BTreeMap;

/// A CSIDriver with its `seLinuxMount`.
type Driver = Full<CSIDriver>;

/// The SELinux warning controller. Upstream: `newSELinuxWarningControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "selinux-warning-controller",
    queue: "selinux_warning",
    client: "selinux-warning-controller",
    on_by_default: false,
    gates: &["SELinuxChangePolicy"],
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let caches = &context.env.caches;
    let pods = caches.of::<Pod>();
    let planner = SelinuxPods {
        pods_by_claim: pods.index("claim", claims::keys_of_pod),
        pods,
        labels: caches.of(),
        claims: caches.of(),
        volumes: caches.of(),
        drivers: caches.of(),
        cache: SharedVolumeCache::default(),
    };
    planner.cache.register(&context.registry);
    let (of_claims, of_volumes) = (planner.pods_by_claim.clone(), planner.pods_by_claim.clone());
    let (cache, handler) = (planner.cache.clone(), planner.cache.clone());
    let builder = context
        .builder_watching(&DESCRIPTOR, &planner.pods, enqueue_pod)
        .event_source("selinux_warning")
        .plans_in_turn()
        .watches(&planner.labels, |event, enqueue| {
            if matches!(event, CacheEvent::Added { .. }) {
                enqueue.add(Key::of(event.object().meta()));
            }
        })
        .watches(&planner.claims, move |event, enqueue| on_claim(&of_claims, event, enqueue))
        .watches(&planner.volumes, move |event, enqueue| on_volume(&of_volumes, event, enqueue))
        .watches(&planner.drivers, move |event, enqueue| on_driver(&cache, event, enqueue));
    context.run(builder.planned_with(planner, handler));
    Ok(Started::Yes)
}

/// Enqueues new, deleted and finished pods. Other updates do not change labels. Upstream: `updatePod`.
fn enqueue_pod(event: &CacheEvent<Pod>, enqueue: &Enqueue) {
    let pod = event.object();
    if let CacheEvent::Updated { old, new } = event
        && old.meta.uid == new.meta.uid
        && (old.status.phase == new.status.phase || !crate::pods::is_terminal(new))
    {
        return;
    }
    enqueue.add(Key::of(&pod.meta));
}

/// Enqueues the pods of a claim that is bound. Upstream: `addPVC`, `updatePVC`.
fn on_claim(
    pods_by_claim: &Index<Pod>,
    event: &CacheEvent<PersistentVolumeClaim>,
    enqueue: &Enqueue,
) {
    let is_bound = match event {
        CacheEvent::Added { object, .. } => !object.spec.volume_name.is_empty(),
        CacheEvent::Updated { old, new } => {
            old.spec.volume_name != new.spec.volume_name || old.status.phase != new.status.phase
        }
        CacheEvent::Deleted(_) => false,
    };
    if is_bound {
        let meta = &event.object().meta;
        enqueue_pods_of_claim(pods_by_claim, &meta.namespace, &meta.name, enqueue);
    }
}

/// Enqueues the pods of the claim to which a volume is bound. Upstream: `addPV`, `updatePV`.
fn on_volume(pods_by_claim: &Index<Pod>, event: &CacheEvent<PersistentVolume>, enqueue: &Enqueue) {
    let Some(claim) = event.object().spec.claim_ref.as_deref() else { return };
    let is_bound = match event {
        CacheEvent::Added { .. } => true,
        CacheEvent::Updated { old, .. } => {
            old.spec.claim_ref.as_deref().is_none_or(|old| old.uid != claim.uid)
        }
        CacheEvent::Deleted(_) => false,
    };
    if is_bound && !claim.uid.is_empty() {
        enqueue_pods_of_claim(pods_by_claim, &claim.namespace, &claim.name, enqueue);
    }
}

fn enqueue_pods_of_claim(index: &Index<Pod>, namespace: &str, name: &str, enqueue: &Enqueue) {
    let pods = index.get(&claims::key(namespace, name));
    pods.iter().for_each(|pod| enqueue.add(Key::of(&pod.meta)));
}

/// Enqueues the pods with volumes of a driver whose support of labelled mounts may have changed. Upstream:
/// `addCSIDriver`, `updateCSIDriver`, `deleteCSIDriver`.
fn on_driver(cache: &SharedVolumeCache, event: &CacheEvent<Driver>, enqueue: &Enqueue) {
    let may_change = match event {
        CacheEvent::Added { .. } => true,
        CacheEvent::Updated { old, new } => mounts_with_label(old) != mounts_with_label(new),
        CacheEvent::Deleted(driver) => mounts_with_label(driver),
    };
    if may_change {
        let pods = cache.lock().pods_of_driver(&event.object().meta().name);
        pods.into_iter().for_each(|pod| enqueue.add(pod));
    }
}

/// Returns whether the driver mounts volumes with a label.
fn mounts_with_label(driver: &Driver) -> bool {
    driver.spec.se_linux_mount == Some(true)
}

/// Decides the warnings about pods with conflicting SELinux labels on a volume.
struct SelinuxPods {
    pods: Cache<Pod>,
    pods_by_claim: Index<Pod>,
    labels: Cache<PodLabels>,
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
    drivers: Cache<Driver>,
    cache: SharedVolumeCache,
}

impl SelinuxPods {
    /// Returns the sources of a pod's volumes.
    fn sources(&self, pod: &Pod) -> BTreeMap<Text, Result<Source, String>> {
        let claimed = claims::of_pod(pod).map(|used| {
            let name = used.claim_name(pod);
            let claim = self.claims.get(&pod.meta.namespace, &name);
            let volume = claim.as_ref().and_then(|c| self.volumes.get("", &c.spec.volume_name));
            let is_ephemeral = used.is_ephemeral;
            let observed = ObservedClaim { name: &name, is_ephemeral, claim, volume };
            (used.volume.name.clone(), plan::source_of_claim(pod, &observed))
        });
        let inline = pod
            .spec
            .volumes
            .iter()
            .map(|volume| (volume.name.clone(), Ok(plan::source_of_inline(&volume.source))));
        // Volumes with a claim replace their entries as inline volumes.
        inline.chain(claimed).collect()
    }

    /// Returns the other pods with a volume.
    fn others(&self, volume: &str, key: &Key) -> Vec<OtherPod> {
        let others = self.cache.lock().others(volume, key);
        let other_pod = |(key, volume_use): (Key, _)| {
            let pod = self.pods.get(&key.namespace, &key.name);
            OtherPod { key, volume_use, pod }
        };
        others.into_iter().map(other_pod).collect()
    }
}

impl Planner for SelinuxPods {
    type Observed = Observed;
    type Memory = Memory;

    fn observe(&self, key: &Key, _: &Memory) -> Option<Observed> {
        let pod = self.pods.get(&key.namespace, &key.name)?;
        let labels = self.labels.get(&key.namespace, &key.name)?;
        let volumes = self.sources(&pod);
        let names = volumes.values().filter_map(|source| source.as_ref().ok()?.unique_name());
        let others = names.map(|name| (name.clone(), self.others(name, key))).collect();
        let drivers =
            volumes.values().filter_map(|source| Some(source.as_ref().ok()?.csi_driver()));
        let mounting = drivers.filter(|name| {
            self.drivers.get("", name).is_some_and(|driver| mounts_with_label(&driver))
        });
        let mounting_drivers = mounting.map(Text::from).collect();
        Some(Observed { pod, labels, volumes, others, mounting_drivers })
    }

    fn plan(&self, observed: &Observed, memory: &Memory, _: Timestamp) -> (Plan, Memory) {
        plan::plan(observed, memory)
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        plan::describe(observed)
    }
}
