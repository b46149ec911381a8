//! Device binding conditions (KEP-5007): PreBind waits until the drivers report that the devices are ready. [`act`]
//! implements the wait.

mod act;
#[cfg(test)]
mod tests;

use evenkeel_api::{
    time::{Timestamp, saturating_add},
    views::ResourceClaim,
};
use std::{sync::Arc, time::Duration};

use super::claims::{self, Readiness};
use crate::metrics::DeviceWaitResult;

/// Reason why the wait failed.
#[derive(Debug, PartialEq, Eq)]
struct NotReady {
    result: DeviceWaitResult,
    message: String,
}

impl NotReady {
    /// Returns the result of a wait that timed out.
    fn timed_out(message: &str) -> Self {
        Self {
            result: DeviceWaitResult::TimedOut,
            message: format!("device binding timeout: {message}"),
        }
    }
}

/// Checks the pod's claims. Each is given in its latest version, or as the message that it was deleted. Returns `None` if all
/// are ready, otherwise the time of the next check. `deadline` ends the pod's wait.
///
/// # Errors
/// Fails if a device failed, a claim does not exist, or a deadline has passed.
///
/// Upstream: `isPodReadyForBinding`.
fn check_readiness(
    claims: Vec<Result<Arc<ResourceClaim>, String>>,
    binding_timeout: Duration,
    deadline: Timestamp,
    now: Timestamp,
) -> Result<Option<Timestamp>, NotReady> {
    for claim in claims {
        let claim =
            claim.map_err(|message| NotReady { result: DeviceWaitResult::Error, message })?;
        match claims::readiness(&claim) {
            Readiness::Ready => {}
            Readiness::Failed(message) => {
                return Err(NotReady { result: DeviceWaitResult::Failed, message });
            }
            Readiness::Waits if claims::is_overdue(&claim, binding_timeout, now) => {
                return Err(NotReady::timed_out(&format!("claim={}", claim.meta.name)));
            }
            Readiness::Waits if now >= deadline => {
                return Err(NotReady::timed_out("context deadline exceeded"));
            }
            Readiness::Waits => {
                let claim_deadline = claims::wait_deadline(&claim, binding_timeout);
                // A claim is overdue only after its deadline, not at it.
                let overdue = saturating_add(
                    claim_deadline.unwrap_or(Timestamp::MAX),
                    Duration::from_millis(1),
                );
                return Ok(Some(deadline.min(overdue)));
            }
        }
    }
    Ok(None)
}
