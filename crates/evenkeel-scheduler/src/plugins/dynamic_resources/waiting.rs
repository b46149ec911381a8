//! Device binding conditions (KEP-5007): PreBind waits until drivers report the devices ready. [`act`] waits.

mod act;
#[cfg(test)]
mod tests;

use evenkeel_api::{
    time::{Timestamp, saturating_add},
    views::ResourceClaim,
};
use std::{sync::Arc, time::Duration};

use super::claims::{self, Readiness};
use crate::metrics::Awaited;

/// Why the wait failed.
#[derive(Debug, PartialEq, Eq)]
struct NotReady {
    how: Awaited,
    why: String,
}

impl NotReady {
    fn late(why: &str) -> Self {
        Self { how: Awaited::TimedOut, why: format!("device binding timeout: {why}") }
    }
}

/// Checks the pod's claims, each in its newest version or why it has none: returns `None` if all are ready, or the time of the
/// next check. `end` is the time when the pod's wait ends.
///
/// # Errors
/// If a device failed, a claim is missing, or the time is up.
///
/// Upstream: `isPodReadyForBinding`.
fn check(
    claims: Vec<Result<Arc<ResourceClaim>, String>>,
    binding_timeout: Duration,
    end: Timestamp,
    now: Timestamp,
) -> Result<Option<Timestamp>, NotReady> {
    for claim in claims {
        let claim = claim.map_err(|why| NotReady { how: Awaited::Error, why })?;
        match claims::readiness(&claim) {
            Readiness::Ready => {}
            Readiness::Failed(why) => return Err(NotReady { how: Awaited::Failed, why }),
            Readiness::Waits if claims::is_overdue(&claim, binding_timeout, now) => {
                return Err(NotReady::late(&format!("claim={}", claim.meta.name)));
            }
            Readiness::Waits if now >= end => {
                return Err(NotReady::late("context deadline exceeded"));
            }
            Readiness::Waits => {
                let limit = claims::limit(&claim, binding_timeout).unwrap_or(Timestamp::MAX);
                // Overdue strictly after the deadline.
                return Ok(Some(end.min(saturating_add(limit, Duration::from_millis(1)))));
            }
        }
    }
    Ok(None)
}
