//! PV protection controller: protects volumes from being deleted while they are bound to a claim.
//!
//! Upstream: `pkg/controller/volume/pvprotection`.

mod plan;

use crate::{
    finalizers,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use evenkeel_api::{time::Timestamp, views::PersistentVolume};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    plan::{Key, Plan, Planner},
};
use std::sync::Arc;

/// Descriptor of the PV protection controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "persistentvolume-protection-controller",
    aliases: &["pv-protection"],
    queue: "pvprotection",
    client: "pv-protection-controller",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let volumes = context.env.caches.of::<PersistentVolume>();
    let builder = context.builder_watching(&DESCRIPTOR, &volumes, |event, enqueue| {
        let meta = &event.object().meta;
        if !matches!(event, CacheEvent::Deleted(_)) && finalizers::may_change(meta, plan::FINALIZER)
        {
            enqueue.add(Key::of(meta));
        }
    });
    context.run(builder.planned(Volumes(volumes)));
    Ok(Started::Yes)
}

/// Decides whether a PersistentVolume needs the protection finalizer.
struct Volumes(Cache<PersistentVolume>);

impl Planner for Volumes {
    type Observed = Arc<PersistentVolume>;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Arc<PersistentVolume>> {
        self.0.get("", &key.name)
    }

    fn plan(&self, volume: &Arc<PersistentVolume>, (): &(), _: Timestamp) -> (Plan, ()) {
        (plan::plan(volume), ())
    }
}
