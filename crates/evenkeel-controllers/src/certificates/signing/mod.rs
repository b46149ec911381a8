//! Signs approved requests for certificates, each signer by its rules and with its own key.
//!
//! Upstream: `pkg/controller/certificates/signer`, `…/authority`.

mod act;
mod authority;
mod certificate;
mod options;
mod plan;
mod usage;

pub use options::{Options, Pair};

use super::SigningRequest;
use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError};
use act::Signing;
use authority::Authority;
use plan::Signer;
use std::sync::Arc;

/// The controller that signs.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "certificatesigningrequest-signing-controller",
    aliases: &["csrsigning"],
    queue: "certificate",
    client: "certificate-controller",
    start,
    ..Descriptor::ORDINARY
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let options = &context.options.signing;
    let failed = |reason: String| StartError { controller: DESCRIPTOR.name, reason };
    let pairs = options.signers().map_err(|reason| failed(reason.to_owned()))?;
    if pairs.is_empty() {
        tracing::info!(controller = DESCRIPTOR.name, "No cert and key to sign with were given");
        return Ok(());
    }
    let mut authorities = Vec::new();
    for (signer, pair) in pairs {
        let authority = Authority::open(pair)
            .map_err(|error| failed(format!("{}, {pair:?}: {error}", signer.name())))?;
        authorities.push((signer, authority));
    }
    let requests = context.env.caches.of::<SigningRequest>();
    let signers: Vec<Signer> = authorities.iter().map(|(signer, _)| *signer).collect();
    let (explained, known) = (requests.clone(), signers.clone());
    let builder = super::builder(context, &DESCRIPTOR, &requests).explains(move |key, _| {
        explained.get("", &key.name).map(|request| plan::describe(&request, &known))
    });
    let signing = Arc::new(Signing { requests, signers, authorities, longest: options.duration });
    context.run(builder.reconcile(move |request, context| {
        let signing = Arc::clone(&signing);
        async move { signing.reconcile(&request.key, &context).await }
    }));
    Ok(())
}
