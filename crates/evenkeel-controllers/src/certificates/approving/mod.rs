//! CSR approver: approves kubelets' client certificates if the requester may create the sub-resource `selfnodeclient`
//! or `nodeclient` of the request. Upstream: `pkg/controller/certificates/approver`.

mod plan;

use super::SigningRequest;
use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::{
    cache::Cache,
    introspect::Description,
    plan::{Key, Outcomes, Plan, Planner},
};
use plan::Observed;

/// The CSR approver. Upstream: `newCertificateSigningRequestApprovingControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "certificatesigningrequest-approving-controller",
    aliases: &["csrapproving"],
    // Upstream's names of the work queue and of the service account.
    queue: "certificate",
    client: "certificate-controller",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let requests = context.env.caches.of::<SigningRequest>();
    let builder = super::controller_builder(context, &DESCRIPTOR, &requests);
    context.run(builder.planned(Approver { requests }));
    Ok(Started::Yes)
}

/// Decides whether a kubelet's CertificateSigningRequest is approved. The first plan reviews whether the requester has a
/// permission. The plan after a positive review approves the request. One pass does both, so the planner needs no memory
/// between passes.
struct Approver {
    requests: Cache<SigningRequest>,
}

impl Planner for Approver {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let cluster_scope = "";
        Some(Observed::new(self.requests.get(cluster_scope, &key.name)?))
    }

    fn plan(&self, observed: &Observed, (): &(), _: Timestamp) -> (Plan, ()) {
        (plan::plan(observed), ())
    }

    fn next(
        &self,
        observed: &Observed,
        (): &(),
        outcomes: &Outcomes,
        _: Timestamp,
    ) -> Option<Plan> {
        plan::next(observed, outcomes)
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        plan::describe(observed)
    }
}
