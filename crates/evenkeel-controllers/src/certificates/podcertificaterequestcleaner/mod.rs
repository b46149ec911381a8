//! PodCertificateRequest cleaner: deletes old PodCertificateRequests. Upstream:
//! `pkg/controller/certificates/cleaner/pcrcleaner.go`.

mod plan;

use crate::{
    needs::Resource,
    sweep::Sweep,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use std::time::Duration;

/// Interval between two runs.
const POLLING_INTERVAL: Duration = Duration::from_secs(300);

/// Descriptor of the PodCertificateRequest cleaner.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "podcertificaterequest-cleaner-controller",
    client: "podcertificaterequestcleaner",
    gates: &["PodCertificateRequest"],
    resources: &[Resource {
        group: "certificates.k8s.io",
        version: "v1",
        plural: "podcertificaterequests",
    }],
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    Sweep::start(context, &DESCRIPTOR, POLLING_INTERVAL, plan::expiration_reason);
    Ok(Started::Yes)
}
