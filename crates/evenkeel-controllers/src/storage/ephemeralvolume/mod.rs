//! Ephemeral volume controller: creates the claims of pods' ephemeral volumes.
//!
//! Upstream: `pkg/controller/volume/ephemeral` (KEP-1698).

mod plan;

use crate::{
    options::Workers,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use evenkeel_api::{
    time::Timestamp,
    views::{PersistentVolumeClaim, Pod},
};
use evenkeel_component_helpers::storage::claims;
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    introspect::Description,
    metrics,
    plan::{Key, Pass, PassHandler, Plan, Planner},
};
use plan::{CreateCounts, Observed};
use prometheus::IntCounter;

/// Number of pods that are reconciled concurrently. Flag `--concurrent-ephemeralvolume-syncs`. Default: 5.
pub type Options = Workers<5>;

/// Name of the flag with the number of workers.
pub(crate) const WORKERS: &str = "concurrent-ephemeralvolume-syncs";

/// Descriptor of the ephemeral volume controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "ephemeral-volume-controller",
    aliases: &["ephemeral-volume"],
    queue: "ephemeral_volume",
    client: "ephemeral-volume-controller",
    start,
    ..Descriptor::DEFAULTS
};

/// Reporting component of the controller's events.
const SOURCE: &str = "ephemeral_volume";

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let caches = &context.env.caches;
    let pods = caches.of::<Pod>();
    let claims = caches.of::<PersistentVolumeClaim>();
    let pods_by_claim = pods.index("claim", claims::keys_of_pod);
    let counter = |name: &str, help: &str| {
        let counter = IntCounter::new(name, help).expect("the name is a valid literal");
        metrics::register(&context.registry, counter)
    };
    let metrics = Metrics {
        creates: counter(
            "ephemeral_volume_controller_create_total",
            "Number of PersistentVolumeClaim creation requests",
        ),
        failures: counter(
            "ephemeral_volume_controller_create_failures_total",
            "Number of PersistentVolumeClaim creation requests",
        ),
    };
    let volumes = Volumes { pods: pods.clone(), claims: claims.clone() };
    let builder = context
        .builder_watching(&DESCRIPTOR, &pods, |event, enqueue| {
            // A pod's volumes are immutable, so an update of the pod cannot change its claims.
            if let CacheEvent::Added { object: pod, .. } = event
                && plan::needs_claims(pod)
            {
                enqueue.add(Key::of(&pod.meta));
            }
        })
        .event_source(SOURCE)
        .workers(context.options.ephemeralvolume.concurrent_syncs)
        .watches(&claims, move |event, enqueue| {
            if let CacheEvent::Deleted(claim) = event {
                let users =
                    pods_by_claim.get(&claims::key(&claim.meta.namespace, &claim.meta.name));
                for pod in users.iter().filter(|pod| plan::needs_claims(pod)) {
                    enqueue.add(Key::of(&pod.meta));
                }
            }
        });
    context.run(builder.planned_with(volumes, metrics));
    Ok(Started::Yes)
}

/// Decides which PersistentVolumeClaims to create for a pod's ephemeral volumes.
struct Volumes {
    pods: Cache<Pod>,
    claims: Cache<PersistentVolumeClaim>,
}

impl Planner for Volumes {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let pod = self.pods.get(&key.namespace, &key.name)?;
        Some(Observed::new(pod, |name| self.claims.get(&key.namespace, name)))
    }

    fn plan(&self, observed: &Observed, (): &(), _: Timestamp) -> (Plan, ()) {
        (plan::plan(observed), ())
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        plan::describe(observed)
    }
}

/// Counts the creation requests for claims.
struct Metrics {
    creates: IntCounter,
    failures: IntCounter,
}

impl PassHandler<Volumes> for Metrics {
    fn on_passed(&self, _: &Observed, pass: &Pass<'_>) {
        let CreateCounts { requests, failures } = plan::count_creates(pass.outcomes);
        self.creates.inc_by(requests);
        self.failures.inc_by(failures);
    }
}
