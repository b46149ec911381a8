//! Decides what a read of the configuration file leads to.
//!
//! Upstream: `BuiltInAuthenticationOptions.ApplyTo`.

use std::time::Duration;

/// Time after which an unchanged file is considered again, because a failure may be a passing one.
const RETRY_PERIOD: Duration = Duration::from_secs(60);

/// Known contents of the configuration file. Times are those since the server's start.
pub(super) struct Tracker {
    /// Content that no attempt can improve on: it applies, or it is invalid and so never will.
    settled: Vec<u8>,
    /// Result of the last read.
    seen: Result<Vec<u8>, String>,
    /// Time of the last attempt.
    attempted: Duration,
}

/// Next step after a read of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is nothing to do.
    Keep,
    /// The file cannot be read. The error has the reason.
    Fail(String),
    /// The content is new, and has to be checked and applied.
    Apply(Vec<u8>),
}

impl Tracker {
    /// Starts with the content that the server applies at its start.
    pub(super) fn new(content: Vec<u8>) -> Self {
        Self { settled: content.clone(), seen: Ok(content), attempted: Duration::ZERO }
    }

    /// Returns the step that follows from a read of the file. A change is due at once, everything else after
    /// [`RETRY_PERIOD`].
    ///
    /// Upstream: `WatchUntil`.
    pub(super) fn next(&mut self, read: Result<Vec<u8>, String>, now: Duration) -> Step {
        if read == self.seen && now.saturating_sub(self.attempted) < RETRY_PERIOD {
            return Step::Keep;
        }
        self.attempted = now;
        self.seen.clone_from(&read);
        match read {
            Err(error) => Step::Fail(error),
            Ok(content) if content == self.settled => Step::Keep,
            Ok(content) => Step::Apply(content),
        }
    }

    /// Records that a content applies, or that it is invalid.
    pub(super) fn settle(&mut self, content: Vec<u8>) {
        self.settled = content;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_due_at_once_and_failures_after_a_minute() {
        let content = |text: &str| Ok(text.as_bytes().to_vec());
        let apply = |text: &str| Step::Apply(text.as_bytes().to_vec());
        let missing = || Err("missing".to_owned());
        let mut now = Duration::ZERO;
        let mut tracker = Tracker::new(b"a".to_vec());
        assert_eq!(tracker.next(content("a"), now), Step::Keep);
        assert_eq!(tracker.next(missing(), now), Step::Fail("missing".to_owned()));
        assert_eq!(tracker.next(missing(), now), Step::Keep);
        // The same failure counts again after a minute, as an issuer may be reachable by then.
        now += RETRY_PERIOD;
        assert_eq!(tracker.next(missing(), now), Step::Fail("missing".to_owned()));
        assert_eq!(tracker.next(content("b"), now), apply("b"));
        assert_eq!(tracker.next(content("b"), now), Step::Keep);
        now += RETRY_PERIOD;
        assert_eq!(tracker.next(content("b"), now), apply("b"));
        // A settled content is not tried again, and a return to it is no change.
        tracker.settle(b"b".to_vec());
        now += RETRY_PERIOD;
        assert_eq!(tracker.next(content("b"), now), Step::Keep);
        assert_eq!(tracker.next(content("a"), now), apply("a"));
        assert_eq!(tracker.next(content("b"), now), Step::Keep);
    }
}
