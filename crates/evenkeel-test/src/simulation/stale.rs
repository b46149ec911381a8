//! Reads that are stale after a restart, or that fail after a gap in the watches.

use std::collections::BTreeSet;
use tokio::time::Instant;

/// Treatment of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The server responds to it.
    Fresh,
    /// The server receives this request instead, which reads an older state.
    AsOf(String),
    /// The connection breaks.
    Fails,
    /// Its resource version has expired: 410.
    Expired,
}

/// State of a part's stale reads.
#[derive(Debug, Default)]
pub(super) struct StaleReads {
    /// Revision that lists of any state return, and the end of this period.
    stale: Option<(u64, Instant)>,
    /// Time until which no watch resumes.
    gap_until: Option<Instant>,
    /// Paths of watches that were restarted after the gap, or whose resource version has expired since.
    since_gap: BTreeSet<String>,
}

impl StaleReads {
    /// Makes lists of any state return this revision until the given time.
    pub(super) fn begin(&mut self, revision: u64, until: Instant) {
        self.stale = Some((revision, until));
    }

    /// Prevents watches from resuming until the given time, and expires their resource versions.
    pub(super) fn begin_gap(&mut self, until: Instant) {
        self.gap_until = Some(until);
        self.since_gap.clear();
    }

    /// Returns how to treat a read of this path and query now.
    pub(super) fn check(&mut self, target: &str, now: Instant) -> Read {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let has = |wanted: &str| query.split('&').any(|pair| pair == wanted);
        let is_watch = has("watch=true") || has("watch=1");
        if is_watch {
            let Some(until) = self.gap_until else { return Read::Fresh };
            if has("sendInitialEvents=true") {
                self.since_gap.insert(path.to_owned());
                return Read::Fresh;
            }
            if now < until {
                return Read::Fails;
            }
            let is_first = self.since_gap.insert(path.to_owned());
            return if is_first { Read::Expired } else { Read::Fresh };
        }
        match self.stale {
            Some((revision, until)) if now < until && has("resourceVersion=0") => {
                let exact = format!("resourceVersion={revision}&resourceVersionMatch=Exact");
                let others = query.split('&').filter(|pair| {
                    *pair != "resourceVersion=0" && !pair.starts_with("resourceVersionMatch=")
                });
                let others: String = others.map(|pair| format!("&{pair}")).collect();
                Read::AsOf(format!("{path}?{exact}{others}"))
            }
            _ => Read::Fresh,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn watches_fail_during_a_gap_and_expire_once_after_it() {
        let mut reads = StaleReads::default();
        let clock = evenkeel_runtime::clock::Clock::system();
        let (now, later) = (clock.instant(), clock.instant() + Duration::from_secs(10));
        let watch = "/api/v1/pods?resourceVersion=7&watch=true";
        assert_eq!(reads.check(watch, now), Read::Fresh);
        reads.begin_gap(later);
        assert_eq!(reads.check(watch, now), Read::Fails);
        assert_eq!(reads.check("/api/v1/pods", now), Read::Fresh, "lists are consistent");
        assert_eq!(reads.check(watch, later), Read::Expired);
        assert_eq!(reads.check(watch, later), Read::Fresh);
        let nodes = "/api/v1/nodes?watch=true&sendInitialEvents=true";
        assert_eq!(reads.check(nodes, later), Read::Fresh);
        assert_eq!(reads.check("/api/v1/nodes?watch=1&resourceVersion=9", later), Read::Fresh);
    }

    #[tokio::test(start_paused = true)]
    async fn lists_of_any_state_are_stale_for_a_while() {
        let mut reads = StaleReads::default();
        let clock = evenkeel_runtime::clock::Clock::system();
        let (now, later) = (clock.instant(), clock.instant() + Duration::from_secs(10));
        reads.begin(5, later);
        let list = "/api/v1/pods?limit=500&resourceVersion=0";
        let stale = "/api/v1/pods?resourceVersion=5&resourceVersionMatch=Exact&limit=500";
        assert_eq!(reads.check(list, now), Read::AsOf(stale.to_owned()));
        assert_eq!(reads.check("/api/v1/pods?limit=500", now), Read::Fresh);
        assert_eq!(reads.check(list, later), Read::Fresh);
    }
}
