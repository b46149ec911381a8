//! CSR cleaner: deletes old CertificateSigningRequests. Upstream: `pkg/controller/certificates/cleaner`.

mod plan;

use crate::{
    sweep::Sweep,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use std::time::Duration;

/// Interval between two runs. Upstream: `pollingInterval`.
const POLLING_INTERVAL: Duration = Duration::from_secs(3600);

/// The CSR cleaner. Upstream: `newCertificateSigningRequestCleanerControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "certificatesigningrequest-cleaner-controller",
    aliases: &["csrcleaner"],
    client: "certificate-controller",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    Sweep::start(context, &DESCRIPTOR, POLLING_INTERVAL, plan::expiration_reason);
    Ok(Started::Yes)
}
