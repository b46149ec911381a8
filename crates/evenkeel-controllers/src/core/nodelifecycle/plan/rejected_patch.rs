//! Backoff of nodes whose patches the API server rejects as invalid, from 10 s to 5 min. It ends early when the node
//! changes. Upstream has no such backoff.

use super::health::Moment;
use evenkeel_api::time::SignedDuration;

/// Delay after the first rejected patch.
const INITIAL_BACKOFF: SignedDuration = SignedDuration::from_secs(10);
/// Upper bound of the delay.
const MAX_BACKOFF: SignedDuration = SignedDuration::from_mins(5);

/// The last rejected patch of a node, and its backoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RejectedPatch {
    /// Resource version of the node whose patch was rejected.
    version: u64,
    backoff: SignedDuration,
    until: Moment,
}

impl RejectedPatch {
    /// Returns the backoff after another rejection: twice the last one if the node is unchanged.
    pub(crate) fn after(before: Option<Self>, version: u64, now: Moment) -> Self {
        let same_version = before.filter(|before| before.version == version);
        let backoff = same_version
            .map_or(INITIAL_BACKOFF, |before| before.backoff.saturating_add(before.backoff));
        let backoff = backoff.min(MAX_BACKOFF);
        Self { version, backoff, until: now.saturating_add(backoff) }
    }

    /// Returns whether a node of this resource version is still backed off.
    pub(crate) fn applies(self, version: u64, now: Moment) -> bool {
        self.version == version && now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_until_the_node_changes() {
        let at = SignedDuration::from_secs;
        let mut rejected = None;
        for (now, until) in
            [(0, 10), (10, 30), (30, 70), (70, 150), (150, 310), (310, 610), (610, 910)]
        {
            let next = RejectedPatch::after(rejected, 7, at(now));
            assert!(next.applies(7, at(until - 1)) && !next.applies(7, at(until)), "{now}");
            assert!(!next.applies(8, at(now)), "another resource version");
            rejected = Some(next);
        }
        assert!(
            !RejectedPatch::after(rejected, 8, at(910)).applies(8, at(920)),
            "another resource version resets the backoff"
        );
    }
}
