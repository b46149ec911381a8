//! VAC protection controller: keeps VolumeAttributesClasses that a volume or a claim names from being deleted.
//!
//! Upstream: `pkg/controller/volume/vacprotection` (KEP-3751).

mod plan;

use super::finalizers;
use crate::{
    needs::Resource,
    wiring::descriptor::{ControllerContext, Descriptor, StartError},
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
    ..Descriptor::ORDINARY
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let caches = &context.env.caches;
    let classes = caches.of::<VolumeAttributesClass>();
    let (volumes, claims) = (caches.of::<PersistentVolume>(), caches.of::<PersistentVolumeClaim>());
    let planner = Classes {
        classes: classes.clone(),
        volumes: volumes.index("attributes-class", |volume, key| {
            plan::named_by_volume(volume).for_each(key);
        }),
        claims: claims.index("attributes-class", |claim, key| {
            plan::named_by_claim(claim).for_each(key);
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
                plan::named_by_volume(volume).collect()
            });
        })
        .watches(&claims, |event, enqueue| {
            enqueue_released_classes(event, enqueue, |claim| plan::named_by_claim(claim).collect());
        });
    context.run(builder.planned(planner));
    Ok(())
}

/// Enqueues the classes that the object named before the event and no longer names.
fn enqueue_released_classes<V: View>(
    event: &CacheEvent<V>,
    enqueue: &Enqueue,
    named: impl Fn(&V) -> Vec<&str>,
) {
    let (before, now) = match event {
        CacheEvent::Added { .. } => return,
        CacheEvent::Updated { old, new } => (named(old), named(new)),
        CacheEvent::Deleted(object) => (named(object), Vec::new()),
    };
    for class in before.iter().filter(|class| !now.contains(class)) {
        enqueue.add(Key::new("", class));
    }
}

struct Classes {
    classes: Cache<VolumeAttributesClass>,
    volumes: Index<PersistentVolume>,
    claims: Index<PersistentVolumeClaim>,
}

impl Planner for Classes {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let class = self.classes.get("", &key.name)?;
        let used = self.volumes.count(&key.name) > 0 || self.claims.count(&key.name) > 0;
        Some(Observed { class, used })
    }

    fn plan(&self, observed: &Observed, (): &(), _: Timestamp) -> (Plan, ()) {
        (plan::plan(observed), ())
    }
}
