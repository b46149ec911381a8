//! ResourcePoolStatusRequest controller: reports the devices of a driver's pools on request (KEP-5677). Upstream:
//! `pkg/controller/resourcepoolstatusrequest`.

mod metrics;
mod plan;
mod pool;
mod views;

use crate::{
    resource::{
        podclaims::{Claim, allocated_devices},
        rules::{RULES, Rule},
    },
    sweep::Sweep,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use evenkeel_api::{View as _, time::Timestamp};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    introspect::Description,
    plan::{Key, Plan, Planner},
};
use metrics::Metrics;
use plan::{Observed, Request, Slice};
use std::time::Duration;

/// Number of retries of a request before the next event. Upstream: `maxRetries`.
const MAX_RETRIES: u32 = 5;
/// Interval between two deletions of expired requests. Upstream: `cleanupPollingInterval`.
const CLEANUP_POLLING_INTERVAL: Duration = Duration::from_mins(10);

/// The ResourcePoolStatusRequest controller. Upstream's queue has no name and no metrics. As upstream, it starts even if
/// the API is not served, and waits for its caches. Upstream: `newResourcePoolStatusRequestControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "resourcepoolstatusrequest-controller",
    queue: "resourcepoolstatusrequest-controller",
    client: "resourcepoolstatusrequest-controller",
    gates: &["DRAResourcePoolStatus"],
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let caches = &context.env.caches;
    let has_rules = context.gates.enabled("DRADeviceTaintRules") && context.resources.has(&RULES);
    let planner = Requests {
        requests: caches.of(),
        slices: caches.of(),
        claims: caches.of(),
        rules: has_rules.then(|| caches.of()),
    };
    let mut builder = context
        .builder_watching(&DESCRIPTOR, &planner.requests, |event, enqueue| {
            let request = event.object();
            if !matches!(event, CacheEvent::Deleted(_)) && request.status.is_none() {
                enqueue.add(Key::of(request.meta()));
            }
        })
        .max_retries(MAX_RETRIES)
        .reads(&planner.slices)
        .reads(&planner.claims);
    if let Some(rules) = &planner.rules {
        builder = builder.reads(rules);
    }
    context.run(builder.planned_with(planner, Metrics::new(&context.registry)));
    let cleanup = Descriptor { name: "resourcepoolstatusrequest-cleanup", ..DESCRIPTOR };
    Sweep::start(context, &cleanup, CLEANUP_POLLING_INTERVAL, plan::expiration_reason);
    Ok(Started::Yes)
}

/// Decides the status of a ResourcePoolStatusRequest, and deletes old requests.
struct Requests {
    requests: Cache<Request>,
    slices: Cache<Slice>,
    claims: Cache<Claim>,
    /// Absent without the gate `DRADeviceTaintRules`.
    rules: Option<Cache<Rule>>,
}

impl Planner for Requests {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let request = self.requests.get("", &key.name)?;
        if request.status.is_some() {
            let (slices, claims, rules) = Default::default();
            return Some(Observed { request, slices, claims, rules });
        }
        let mut slices = self.slices.list();
        slices.retain(|slice| slice.spec.driver == request.spec.driver);
        let mut claims = self.claims.list();
        claims.retain(|claim| {
            allocated_devices(claim).iter().any(|device| device.driver == request.spec.driver)
        });
        let rules = self.rules.as_ref().map(Cache::list).unwrap_or_default();
        Some(Observed { request, slices, claims, rules })
    }

    fn plan(&self, observed: &Observed, (): &(), now: Timestamp) -> (Plan, ()) {
        (plan::plan(observed, now), ())
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        plan::describe(observed)
    }
}
