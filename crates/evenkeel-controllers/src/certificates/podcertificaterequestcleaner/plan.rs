//! Lifetime of a PodCertificateRequest.

pub(super) use crate::newer_kinds::PodCertificateRequest as PodRequest;
use evenkeel_api::{
    View as _,
    time::{SignedDuration, Timestamp},
};
use evenkeel_runtime::cache::Full;

/// Lifetime of each request. No kubelet waits longer for its certificate.
const LIFETIME: SignedDuration = SignedDuration::from_mins(15);

/// Returns the reason to delete a request, or `None` if it is not expired.
pub(super) fn expiration_reason(
    request: &Full<PodRequest>,
    now: Timestamp,
) -> Option<&'static str> {
    let created = request.meta().creation?;
    (now.duration_since(created) >= LIFETIME).then_some("nobody waits for it any more")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{at, object};
    use evenkeel_api::time::seconds;
    use serde_json::json;

    #[test]
    fn request_is_deleted_after_15_minutes() {
        let request: Full<PodRequest> = object(&json!({
            "metadata": {"name": "a", "namespace": "ns", "creationTimestamp": seconds(at(0))},
            "spec": {"signerName": "x", "podName": "p", "podUID": "p", "nodeName": "n", "nodeUID": "n", "serviceAccountName": "s",
                "serviceAccountUID": "s", "proofOfPossession": "", "pkixPublicKey": "", "stubPKCS10Request": ""},
        }));
        assert_eq!(expiration_reason(&request, at(899)), None);
        assert!(expiration_reason(&request, at(900)).is_some());
    }
}
