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
    why: String,
}

impl NotReady {
    fn timed_out(why: &str) -> Self {
        Self { result: DeviceWaitResult::TimedOut, why: format!("device binding timeout: {why}") }
    }
}

/// Checks the pod's claims: the latest version of each, or the message that it was deleted. Returns `None` if all are
/// ready, else the time of the next check. `end` is the deadline of the pod's wait.
///
/// # Errors
/// If a device failed, a claim does not exist, or a deadline has passed.
///
/// Upstream: `isPodReadyForBinding`.
fn check(
    claims: Vec<Result<Arc<ResourceClaim>, String>>,
    binding_timeout: Duration,
    end: Timestamp,
    now: Timestamp,
) -> Result<Option<Timestamp>, NotReady> {
    for claim in claims {
        let claim = claim.map_err(|why| NotReady { result: DeviceWaitResult::Error, why })?;
        match claims::readiness(&claim) {
            Readiness::Ready => {}
            Readiness::Failed(why) => {
                return Err(NotReady { result: DeviceWaitResult::Failed, why });
            }
            Readiness::Waits if claims::is_overdue(&claim, binding_timeout, now) => {
                return Err(NotReady::timed_out(&format!("claim={}", claim.meta.name)));
            }
            Readiness::Waits if now >= end => {
                return Err(NotReady::timed_out("context deadline exceeded"));
            }
            Readiness::Waits => {
                let limit = claims::limit(&claim, binding_timeout).unwrap_or(Timestamp::MAX);
                // A claim is overdue only after its deadline, not at it.
                return Ok(Some(end.min(saturating_add(limit, Duration::from_millis(1)))));
            }
        }
    }
    Ok(None)
}
