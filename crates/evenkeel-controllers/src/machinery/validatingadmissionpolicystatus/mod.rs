//! ValidatingAdmissionPolicy status controller: checks the types of a policy's expressions, and writes warnings to its
//! status.
//!
//! A pass discovers the kinds that the policy matches, reads their OpenAPI documents, and checks each expression with
//! each kind. Upstream: `pkg/controller/validatingadmissionpolicystatus` (KEP-3488).

mod expressions;
mod kinds;
mod plan;
mod schema;

use crate::{
    needs::Resource,
    options::Workers,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use evenkeel_api::{View as _, time::Timestamp};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Full},
    introspect::Description,
    plan::{Key, Outcomes, Plan, Planner},
};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use std::sync::Arc;

/// A policy with all fields: its expressions may be anything.
type Policy = Full<ValidatingAdmissionPolicy>;

/// Number of policies that are checked concurrently. Flag `--concurrent-validating-admission-policy-status-syncs`.
/// Default: 5.
pub type Options = Workers<5>;

/// Name of the flag with the number of workers.
pub(crate) const WORKERS: &str = "concurrent-validating-admission-policy-status-syncs";

/// Descriptor of the ValidatingAdmissionPolicy status controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "validatingadmissionpolicy-status-controller",
    queue: "validatingadmissionpolicy-status",
    client: "validatingadmissionpolicy-status-controller",
    resources: &[Resource {
        group: "admissionregistration.k8s.io",
        version: "v1",
        plural: "validatingadmissionpolicies",
    }],
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let policies = context.env.caches.of::<Policy>();
    let builder = context
        .builder_watching(&DESCRIPTOR, &policies, |event, enqueue| {
            let policy = event.object();
            if !matches!(event, CacheEvent::Deleted(_)) && plan::is_unchecked(policy) {
                enqueue.add(Key::of(policy.meta()));
            }
        })
        .workers(context.options.validatingadmissionpolicystatus.concurrent_syncs);
    context.run(builder.planned(Policies(policies)));
    Ok(Started::Yes)
}

/// Type-checks the expressions of a policy, and decides its status.
struct Policies(Cache<Policy>);

impl Planner for Policies {
    type Observed = Arc<Policy>;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Arc<Policy>> {
        self.0.get("", &key.name)
    }

    fn plan(&self, policy: &Arc<Policy>, (): &(), now: Timestamp) -> (Plan, ()) {
        (self.first_step(policy, &(), now), ())
    }

    fn next(
        &self,
        policy: &Arc<Policy>,
        (): &(),
        outcomes: &Outcomes,
        now: Timestamp,
    ) -> Option<Plan> {
        plan::check(policy, outcomes, now)
    }

    fn describe(&self, policy: &Arc<Policy>, _: Timestamp) -> Description {
        plan::describe(policy)
    }
}
