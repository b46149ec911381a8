//! Validation of coordination.k8s.io.

use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::int;
use serde_json::Value;

pub(super) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    if kind == "Lease" {
        lease(new, errors);
    }
}

/// Validates a Lease: a positive duration, and a count of transitions that is not negative.
///
/// Upstream: `ValidateLeaseSpec`.
fn lease(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    if let Some(seconds) = int(new, "spec.leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        errors.invalid(&path.field("leaseDurationSeconds"), seconds, "must be greater than 0");
    }
    errors.non_negative(&path.field("leaseTransitions"), int(new, "spec.leaseTransitions"));
    // An empty holder is valid, because a leader that releases the lease empties it.
}
