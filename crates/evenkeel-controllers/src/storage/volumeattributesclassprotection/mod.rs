//! VAC protection controller: protects VolumeAttributesClasses from being deleted while a volume or a claim names them.
//!
//! Upstream: `pkg/controller/volume/vacprotection` (KEP-3751).

mod plan;

use crate::{
    finalizers,
    needs::Resource,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use evenkeel_api::{
    View,
    time::Timestamp,
    views::{PersistentVolume, PersistentVolumeClaim, VolumeAttributesClass},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Index},
    controller::Enqueue,
    plan::{Key, Plan, Planner},
};
use plan::Observed;

/// Descriptor of the VAC protection controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "volumeattributesclass-protection-controller",
    queue: "vacprotection",
    client: "volumeattributesclass-protection-controller",
    gates: &["VolumeAttributesClass"],
    resources: &[Resource {
        group: "storage.k8s.io",
        version: "v1",
        plural: "volumeattributesclasses",
    }],
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let caches = &context.env.caches;
    let classes = caches.of::<VolumeAttributesClass>();
    let volumes = caches.of::<PersistentVolume>();
    let claims = caches.of::<PersistentVolumeClaim>();
    let planner = Classes {
        classes: classes.clone(),
        volumes_by_class: volumes.index("attributes-class", |volume, key| {
            plan::class_of_volume(volume).for_each(key);
        }),
        claims_by_class: claims.index("attributes-class", |claim, key| {
            plan::classes_of_claim(claim).for_each(key);
        }),
    };
    let builder = context
        .builder_watching(&DESCRIPTOR, &classes, |event, enqueue| {
            let meta = &event.object().meta;
            let is_deleted = matches!(event, CacheEvent::Deleted(_));
            if !is_deleted && finalizers::may_change(meta, plan::FINALIZER) {
                enqueue.add(Key::of(meta));
            }
        })
        .watches(&volumes, |event, enqueue| {
            enqueue_released_classes(event, enqueue, |volume| {
                plan::class_of_volume(volume).collect()
            });
        })
        .watches(&claims, |event, enqueue| {
            enqueue_released_classes(event, enqueue, |claim| {
                plan::classes_of_claim(claim).collect()
            });
        });
    context.run(builder.planned(planner));
    Ok(Started::Yes)
}

/// Enqueues the classes that the object named before the event and no longer names.
fn enqueue_released_classes<V: View>(
    event: &CacheEvent<V>,
    enqueue: &Enqueue,
    classes_named_by: impl Fn(&V) -> Vec<&str>,
) {
    let (before, after) = match event {
        CacheEvent::Added { .. } => return,
        CacheEvent::Updated { old, new } => (classes_named_by(old), classes_named_by(new)),
        CacheEvent::Deleted(object) => (classes_named_by(object), Vec::new()),
    };
    for class in before.iter().filter(|class| !after.contains(class)) {
        enqueue.add(Key::new("", class));
    }
}

/// Decides whether a VolumeAttributesClass needs the protection finalizer.
struct Classes {
    classes: Cache<VolumeAttributesClass>,
    volumes_by_class: Index<PersistentVolume>,
    claims_by_class: Index<PersistentVolumeClaim>,
}

impl Planner for Classes {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let class = self.classes.get("", &key.name)?;
        let is_used =
            self.volumes_by_class.count(&key.name) > 0 || self.claims_by_class.count(&key.name) > 0;
        Some(Observed { class, is_used })
    }

    fn plan(&self, observed: &Observed, (): &(), _: Timestamp) -> (Plan, ()) {
        (plan::plan(observed), ())
    }
}
