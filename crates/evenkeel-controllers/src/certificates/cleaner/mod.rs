//! Deletes requests for certificates that have been decided upon, or that nobody decides upon.
//!
//! Upstream: `pkg/controller/certificates/cleaner`.

mod plan;

use super::{SigningRequest, sweep::Sweep};
use crate::descriptor::{ControllerContext, Descriptor, StartError};
use std::time::Duration;

/// How often all requests are looked at.
const ROUND: Duration = Duration::from_secs(3600);

/// The cleaner.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "certificatesigningrequest-cleaner-controller",
    aliases: &["csrcleaner"],
    client: "certificate-controller",
    start,
    ..Descriptor::ORDINARY
};

fn start(context: &ControllerContext) -> Result<(), StartError> {
    let sweep = Sweep {
        objects: context.env.caches.of::<SigningRequest>(),
        client: context.client(&DESCRIPTOR),
        clock: context.env.clock.clone(),
        period: ROUND,
        due: plan::due,
    };
    context.tasks.spawn_until_cancelled(DESCRIPTOR.name, sweep.run());
    Ok(())
}
