//! A node that the server refuses to have changed, for what is in it: it takes nobody's turn before something of it changes,
//! or a pause has passed that is longer each time.

use super::health::Moment;
use evenkeel_api::time::SignedDuration;

const FIRST: SignedDuration = SignedDuration::from_secs(10);
const LONGEST: SignedDuration = SignedDuration::from_mins(5);

/// What was refused last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The node's version then.
    version: u64,
    pause: SignedDuration,
    until: Moment,
}

impl Refusal {
    /// A node of this version was refused now, after what was refused before.
    pub(crate) fn after(before: Option<Self>, version: u64, now: Moment) -> Self {
        let again = before.filter(|before| before.version == version);
        let pause = again.map_or(FIRST, |before| before.pause.saturating_add(before.pause));
        let pause = pause.min(LONGEST);
        Self { version, pause, until: now.saturating_add(pause) }
    }

    /// Whether the node, of this version, is to be let alone.
    pub(crate) fn holds(self, version: u64, now: Moment) -> bool {
        self.version == version && now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_the_node_changes() {
        let at = SignedDuration::from_secs;
        let mut refused = None;
        for (now, until) in
            [(0, 10), (10, 30), (30, 70), (70, 150), (150, 310), (310, 610), (610, 910)]
        {
            let next = Refusal::after(refused, 7, at(now));
            assert!(next.holds(7, at(until - 1)) && !next.holds(7, at(until)), "{now}");
            assert!(!next.holds(8, at(now)), "another version may be better");
            refused = Some(next);
        }
        assert!(!Refusal::after(refused, 8, at(910)).holds(8, at(920)), "and begins anew");
    }
}
