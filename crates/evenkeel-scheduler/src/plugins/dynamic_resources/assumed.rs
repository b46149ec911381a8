//! Claims of assumed pods: their devices are in use from Reserve on, and PreBind writes the claims. [`act`] implements
//! these extension points.
//!
//! Upstream: in-flight allocations in `dra_manager.go`.

mod act;

use evenkeel_api::views::ResourceClaim;
use std::sync::Arc;

use super::{claims, extended::ExtendedResourceClaim, result::Allocation};

/// Claims of an assumed pod.
#[derive(Debug, Clone, Default)]
pub(super) struct AssumedClaims {
    /// The pod's claims. Each unallocated one comes with the allocation to write.
    pub(super) claims: Vec<(Arc<ResourceClaim>, Option<Allocation>)>,
    /// The claim to create for the pod's extended resources.
    pub(super) extended_claim: Option<ExtendedClaimInCreation>,
}

/// A claim for extended resources that PreBind creates.
#[derive(Debug, Clone)]
pub(super) struct ExtendedClaimInCreation {
    /// The claim before its creation, with a placeholder as uid.
    pub(super) planned: Arc<ExtendedResourceClaim>,
    pub(super) allocation: Allocation,
    /// Latest written version, or `None` before PreBind has created the claim.
    pub(super) written: Option<Arc<ResourceClaim>>,
}

impl ExtendedClaimInCreation {
    /// Returns the uid under which the tracker has the allocation.
    fn tracked_uid(&self) -> &str {
        &self.written.as_ref().unwrap_or(&self.planned.claim).meta.uid
    }
}

impl AssumedClaims {
    /// Returns the allocations to write, each with the claim's uid.
    fn new_allocations(&self) -> impl Iterator<Item = (&str, &Allocation)> {
        let claims = self.claims.iter();
        let claims =
            claims.filter_map(|(claim, allocation)| Some((&*claim.meta.uid, allocation.as_ref()?)));
        claims.chain(
            self.extended_claim
                .as_ref()
                .map(|in_creation| (in_creation.tracked_uid(), &in_creation.allocation)),
        )
    }

    /// Returns the latest known version of each claim, or the message that it was deleted.
    pub(super) fn latest(
        &self,
        latest: impl Fn(&ResourceClaim) -> Option<Arc<ResourceClaim>>,
    ) -> Vec<Result<Arc<ResourceClaim>, String>> {
        let not_found = |claim: &ResourceClaim| {
            claims::not_found(&format!("{}/{}", claim.meta.namespace, claim.meta.name))
        };
        let claims = self.claims.iter();
        let existing = claims.map(|(claim, _)| latest(claim).ok_or_else(|| not_found(claim)));
        // The cache may not show a claim yet that was just created.
        let written =
            self.extended_claim.as_ref().and_then(|in_creation| in_creation.written.as_ref());
        let created =
            written.map(|written| Ok(latest(written).unwrap_or_else(|| Arc::clone(written))));
        existing.chain(created).collect()
    }
}

/// Returns whether the pod must wait for the claim's devices to become ready.
fn must_wait(claim: &ResourceClaim) -> bool {
    claim.status.allocation.as_deref().is_some_and(claims::has_binding_conditions)
}
