//! Queueing hint for changes of claims. It is pure.

use evenkeel_api::views::{Pod, ResourceClaim};
use std::sync::Arc;

use super::extended;
use crate::framework::{Delta, QueueingHint};

/// Returns `Queue` if a change of a claim may make the pod schedulable. `claims` returns the pod's claims.
///
/// Upstream: `isSchedulableAfterClaimChange`.
pub(super) fn after_claim_change(
    pod: &Pod,
    edit: &Delta<Arc<ResourceClaim>>,
    claims: impl FnOnce() -> Result<Vec<Arc<ResourceClaim>>, String>,
) -> QueueingHint {
    let was_allocated = edit.before().is_some_and(|claim| claim.status.allocation.is_some());
    let Some(current) = edit.after() else {
        let is_stale = |claim: &ResourceClaim| {
            extended::is_extended_resource_claim(claim)
                && claim.meta.is_controlled_by(&pod.meta.uid)
        };
        return QueueingHint::when(
            was_allocated || edit.before().is_some_and(|claim| is_stale(claim)),
        );
    };
    let Ok(claims) = claims() else { return QueueingHint::Skip };
    if was_allocated && current.status.allocation.is_none() {
        return QueueingHint::Queue;
    }
    let uses_claim = claims.iter().any(|claim| claim.meta.uid == current.meta.uid);
    QueueingHint::when(uses_claim && edit.before().is_none_or(|old| old.status != current.status))
}

#[cfg(test)]
mod tests {
    use super::super::tests::object;
    use super::*;
    use crate::fixtures::info;
    use serde_json::{Value, json};

    fn claim(name: &str, status: &Value) -> Arc<ResourceClaim> {
        object(name, &json!({ "status": status }))
    }

    #[test]
    fn a_deallocation_requeues_every_pod_and_other_changes_only_pods_that_use_the_claim() {
        let pod = info("web", &json!({}));
        let (none, allocated) = (json!({}), json!({ "allocation": {} }));
        let updated = |name: &str, old: &Value, new: &Value| Delta::Updated {
            old: claim(name, old),
            new: claim(name, new),
        };
        for (edit, expected) in [
            (Delta::Added(claim("c", &none)), QueueingHint::Queue),
            (Delta::Added(claim("other", &none)), QueueingHint::Skip),
            (updated("c", &none, &allocated), QueueingHint::Queue),
            (updated("c", &none, &none), QueueingHint::Skip),
            (updated("other", &none, &allocated), QueueingHint::Skip),
            (updated("other", &allocated, &none), QueueingHint::Queue),
            (Delta::Deleted(claim("other", &allocated)), QueueingHint::Queue),
            (Delta::Deleted(claim("other", &none)), QueueingHint::Skip),
        ] {
            let claims = || Ok(vec![claim("c", &none)]);
            assert_eq!(after_claim_change(&pod.pod, &edit, claims), expected, "{edit:?}");
        }
        let missing = || Err("not found".to_owned());
        let edit = updated("other", &allocated, &none);
        assert_eq!(after_claim_change(&pod.pod, &edit, missing), QueueingHint::Skip);
    }
}
