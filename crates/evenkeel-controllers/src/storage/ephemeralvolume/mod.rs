//! Makes the claims of pods' ephemeral volumes.
//!
//! Upstream: `pkg/controller/volume/ephemeral` (KEP-1698).

mod plan;

use crate::{
    options::Workers,
    wiring::descriptor::{ControllerContext, Descriptor, StartError},
};
use evenkeel_api::{
    storage,
    views::{PersistentVolumeClaim, Pod},
};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    controller::{Context, Error, Outcome},
    introspect::Description,
    metrics,
    plan::{Key, Note, Plan},
};
use plan::{Seen, Step};
use prometheus::IntCounter;
use std::sync::Arc;

/// How many pods are looked at at the same time; `--concurrent-ephemeralvolume-syncs`.
pub type Options = Workers<5>;

/// The flag that says so.
pub(crate) const WORKERS: &str = "concurrent-ephemeralvolume-syncs";

/// The controller of ephemeral volumes.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "ephemeral-volume-controller",
    aliases: &["ephemeral-volume"],
    queue: "ephemeral_volume",
    client: "ephemeral-volume-controller",
    start,
    ..Descriptor::ORDINARY
};

/// The component that events are from.
const SOURCE: &str = "ephemeral_volume";

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let caches = &context.env.caches;
    let (pods, claims) = (caches.of::<Pod>(), caches.of::<PersistentVolumeClaim>());
    let users = pods.index("claim", storage::claim_keys);
    let counter = |name: &str, help: &str| {
        let counter = IntCounter::new(name, help).expect("the name is a valid literal");
        metrics::register(&context.registry, counter)
    };
    let volumes = Arc::new(Volumes {
        pods: pods.clone(),
        claims: claims.clone(),
        made: counter(
            "ephemeral_volume_controller_create_total",
            "Number of PersistentVolumeClaim creation requests",
        ),
        failed: counter(
            "ephemeral_volume_controller_create_failures_total",
            "Number of PersistentVolumeClaim creation requests",
        ),
    });
    let told = volumes.clone();
    let builder = context
        .builder_watching(&DESCRIPTOR, &pods, |event, enqueue| {
            // What a pod's volumes are never changes.
            if let CacheEvent::Added { object: pod, .. } = event
                && plan::concerns(pod)
            {
                enqueue.add(Key::of(&pod.meta));
            }
        })
        .event_source(SOURCE)
        .workers(context.options.ephemeralvolume.concurrent_syncs)
        .watches(&claims, move |event, enqueue| {
            if let CacheEvent::Deleted(claim) = event {
                let pods = users.get(&storage::claim_key(&claim.meta.namespace, &claim.meta.name));
                let concerned = pods.iter().filter(|pod| plan::concerns(pod));
                concerned.for_each(|pod| enqueue.add(Key::of(&pod.meta)));
            }
        })
        .explains(move |key, _| told.explain(key));
    context.run(builder.reconcile(move |request, context| {
        let volumes = volumes.clone();
        async move { volumes.pass(&request.key, &context).await }
    }));
    Ok(())
}

struct Volumes {
    pods: Cache<Pod>,
    claims: Cache<PersistentVolumeClaim>,
    made: IntCounter,
    failed: IntCounter,
}

impl Volumes {
    fn seen(&self, key: &Key) -> Option<Seen> {
        let pod = self.pods.get(&key.namespace, &key.name)?;
        Some(Seen::new(pod, |name| self.claims.get(&key.namespace, name)))
    }

    /// One volume after the other; the first that cannot be made ends the pass.
    async fn pass(&self, key: &Key, context: &Context) -> Result<Outcome, Error> {
        let Some(seen) = self.seen(key) else { return Ok(Outcome::Settled) };
        for step in plan::steps(&seen) {
            match step {
                Step::Make(create) => {
                    self.made.inc();
                    let plan = Plan::one(*create);
                    if let Err(failure) = context.act(key, &plan).await {
                        self.failed.inc();
                        return Err(failure.into());
                    }
                }
                Step::Refuse(note) => return Err(refuse(&note, context)),
            }
        }
        Ok(Outcome::Settled)
    }

    fn explain(&self, key: &Key) -> Option<(Description, Vec<String>)> {
        let seen = self.seen(key)?;
        let mut description = Description::new();
        let mut would = Vec::new();
        for step in plan::steps(&seen) {
            match step {
                Step::Make(_) => would.push("create a claim for an ephemeral volume".to_owned()),
                Step::Refuse(note) => description.waits(note.message),
            }
        }
        Some((description, would))
    }
}

fn refuse(note: &Note, context: &Context) -> Error {
    context.events.record(note);
    Error::message(note.message.clone())
}
