//! CSR approver: approves kubelets' client certificates if the requester has the permission. Upstream:
//! `pkg/controller/certificates/approver`.

mod act;
mod plan;

use super::SigningRequest;
use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError};
use act::Approver;
use std::sync::Arc;

/// The CSR approver. Upstream: `newCertificateSigningRequestApprovingControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "certificatesigningrequest-approving-controller",
    aliases: &["csrapproving"],
    queue: "certificate",
    client: "certificate-controller",
    start,
    ..Descriptor::ORDINARY
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let requests = context.env.caches.of::<SigningRequest>();
    let explained = requests.clone();
    let builder = super::builder(context, &DESCRIPTOR, &requests).explains(move |key, _| {
        explained.get("", &key.name).map(|request| plan::describe(&request))
    });
    let approver = Arc::new(Approver { requests });
    context.run(builder.reconcile(move |request, context| {
        let approver = Arc::clone(&approver);
        async move { approver.reconcile(&request.key, &context).await }
    }));
    Ok(())
}
