//! Volume expander: records an event when an external controller must expand a volume.
//!
//! This controller does not expand volumes itself, because CSI drivers have replaced all in-tree plugins that supported
//! expansion.
//! Upstream: `pkg/controller/volume/expand`.

mod plan;

use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use evenkeel_api::{
    time::Timestamp,
    views::{PersistentVolume, PersistentVolumeClaim},
};
use evenkeel_component_helpers::storage::volume;
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    introspect::Description,
    plan::{Key, Plan, Planner},
};
use plan::Observed;

/// Number of workers. No flag changes it, as in upstream.
const WORKERS: usize = 10;

/// Descriptor of the volume expander.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "persistentvolume-expander-controller",
    aliases: &["persistentvolume-expander"],
    queue: "volume_expand",
    client: "expand-controller",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let caches = &context.env.caches;
    let claims = caches.of::<PersistentVolumeClaim>();
    let volumes = caches.of::<PersistentVolume>();
    let builder = context
        .builder_watching(&DESCRIPTOR, &claims, |event, enqueue| {
            let claim = event.object();
            let may_need_expansion = match event {
                CacheEvent::Updated { old, new } => plan::has_grown(old, new),
                _ => true,
            };
            if may_need_expansion && &*claim.status.phase == "Bound" {
                enqueue.add(Key::of(&claim.meta));
            }
        })
        .event_source("volume_expand")
        .workers(WORKERS)
        .reads(&volumes);
    context.run(builder.planned(Expander { claims, volumes }));
    Ok(Started::Yes)
}

/// Decides the events about a PersistentVolumeClaim that needs an expansion.
struct Expander {
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
}

impl Planner for Expander {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let claim = self.claims.get(&key.namespace, &key.name)?;
        let volume = self.volumes.get("", &claim.spec.volume_name);
        Some(Observed { claim, volume })
    }

    fn plan(&self, observed: &Observed, (): &(), _: Timestamp) -> (Plan, ()) {
        (plan::plan(observed), ())
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        let mut description = Description::new();
        if let Some(capacity) = observed.claim.status.capacity.get("storage") {
            description.fact("has", capacity);
        }
        description.fact("asks for", volume::requested_storage(&observed.claim));
        if plan::needs_expansion(observed) {
            description.waits("its driver is to make the volume bigger");
        }
        description
    }
}
