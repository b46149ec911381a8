//! One member's lease and its terms for shards. Contains no I/O; callers provide the time.
//!
//! A term is the time between the confirmed acquisition of a shard and its end: a release, or a lapse of the member's lease.
//! A term never begins again. A member that acquires shards after a lapse gets new terms.

use evenkeel_api::time::Timestamp;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time on the monotonic and on the wall clock. The monotonic clock may stop while a machine sleeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) at: Instant,
    pub(super) wall: Timestamp,
}

/// Term of this member at one shard.
#[derive(Debug)]
pub(super) struct Term {
    /// Number, unique in the process.
    pub(super) id: u64,
    /// Resource version of the shard's Lease.
    pub(super) version: String,
    /// Time at which the acquisition was confirmed. Older lists do not show the acquisition.
    since: Instant,
    /// End of the wait for the shard's passes, if the shard is being released.
    drain_until: Option<Instant>,
    passes: usize,
    /// Cancelled at the end of the term, which drops its passes.
    ended: CancellationToken,
}

impl Term {
    /// Returns whether the shard is being released, so that no pass may begin.
    pub(super) fn is_leaving(&self) -> bool {
        self.drain_until.is_some()
    }

    /// Returns whether a list that was sent at this time shows the acquisition.
    pub(super) fn is_shown_by(&self, sent: Instant) -> bool {
        self.since <= sent
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

/// Lease and terms of this member.
#[derive(Debug)]
pub(super) struct Terms {
    renew_deadline: Duration,
    /// Time at which the last confirmed renewal was sent. `None` before the first renewal.
    renewed: Option<Moment>,
    /// Number of lapses so far. An acquisition that a lapse interrupts is ignored.
    lapses: u64,
    /// Whether this member acquires no further shard, because it is about to leave.
    retiring: bool,
    /// Whether this member has left permanently.
    closed: bool,
    by_shard: BTreeMap<u32, Term>,
    next_id: u64,
}

impl Terms {
    pub(super) fn new(renew_deadline: Duration) -> Self {
        let (renewed, by_shard) = (None, BTreeMap::new());
        let (retiring, closed) = (false, false);
        Self { renew_deadline, renewed, lapses: 0, retiring, closed, by_shard, next_id: 1 }
    }

    /// Returns the time until which this member's lease cannot have expired for others: the renew deadline after it sent the
    /// last confirmed renewal. Checks both clocks.
    pub(super) fn member_until(&self, now: Moment) -> Option<Instant> {
        let renewed = self.renewed.filter(|_| !self.closed)?;
        let until = renewed.at + self.renew_deadline;
        let wall_elapsed =
            Duration::try_from(now.wall.duration_since(renewed.wall)).unwrap_or_default();
        (now.at < until && wall_elapsed < self.renew_deadline).then_some(until)
    }

    pub(super) fn is_retiring(&self) -> bool {
        self.retiring
    }

    pub(super) fn lapses(&self) -> u64 {
        self.lapses
    }

    pub(super) fn by_shard(&self) -> &BTreeMap<u32, Term> {
        &self.by_shard
    }

    /// Records a renewal that was sent at `sent` and confirmed now. If the lease has lapsed meanwhile, all terms end. Returns
    /// the number of terms that ended.
    pub(super) fn renewed(&mut self, sent: Moment, now: Moment) -> usize {
        let n_ended = self.end_if_lapsed(now);
        // Renewals are sent one after the other.
        self.renewed = Some(sent);
        n_ended
    }

    /// Ends all terms if the lease has lapsed. Returns the number of terms.
    pub(super) fn end_if_lapsed(&mut self, now: Moment) -> usize {
        if self.renewed.is_none() || self.member_until(now).is_some() { 0 } else { self.lapse() }
    }

    /// Ends all terms, because other members may take the shards. Returns the number of terms.
    pub(super) fn lapse(&mut self) -> usize {
        self.renewed = None;
        self.lapses += 1;
        std::mem::take(&mut self.by_shard).len()
    }

    /// Forgets the last renewal but keeps the terms: the defect that `TermsOutliveLapse` plants.
    pub(super) fn forget_lapse(&mut self, sent: Moment) {
        self.renewed = Some(sent);
    }

    /// Prevents further terms and passes from beginning. The shards are released as their passes end.
    pub(super) fn retire(&mut self, now: Moment) {
        self.retiring = true;
        let shards: Vec<u32> = self.by_shard.keys().copied().collect();
        shards.into_iter().for_each(|shard| self.leave(shard, now));
    }

    /// Ends all terms. No new term begins afterwards.
    pub(super) fn close(&mut self) -> usize {
        self.closed = true;
        self.lapse()
    }

    /// Records a confirmed acquisition that was sent after `lapses` lapses. Returns whether a term begins. It does not begin if
    /// the lease has lapsed since.
    pub(super) fn begin_term(
        &mut self,
        shard: u32,
        version: String,
        lapses: u64,
        now: Moment,
    ) -> bool {
        if lapses != self.lapses || self.retiring || self.member_until(now).is_none() {
            return false;
        }
        let id = self.next_id;
        self.next_id += 1;
        let (since, ended) = (now.at, CancellationToken::new());
        let term = Term { id, version, since, drain_until: None, passes: 0, ended };
        self.by_shard.insert(shard, term);
        true
    }

    /// Ends the term at a shard.
    pub(super) fn end(&mut self, shard: u32) {
        self.by_shard.remove(&shard);
    }

    /// Prevents further passes for a shard that will be released.
    pub(super) fn leave(&mut self, shard: u32, now: Moment) {
        if let Some(term) = self.by_shard.get_mut(&shard) {
            term.drain_until.get_or_insert(now.at + self.renew_deadline);
        }
    }

    /// Returns the shards to release: their passes have ended, or the wait for the passes has ended.
    pub(super) fn drained(&self, now: Moment) -> Vec<u32> {
        let is_drained =
            |term: &Term| term.drain_until.is_some_and(|until| term.passes == 0 || until <= now.at);
        let drained = self.by_shard.iter().filter(|(_, term)| is_drained(term));
        drained.map(|(shard, _)| *shard).collect()
    }

    /// Returns the time until which a term allows writes, or `None` if it has ended.
    pub(super) fn may_write_until(&self, shard: u32, id: u64, now: Moment) -> Option<Instant> {
        self.by_shard.get(&shard).filter(|term| term.id == id)?;
        self.member_until(now)
    }

    /// Admits a pass to a shard. Returns the term's number and the token of its end.
    pub(super) fn begin_pass(
        &mut self,
        shard: u32,
        now: Moment,
    ) -> Option<(u64, CancellationToken)> {
        self.member_until(now)?;
        let term = self.by_shard.get_mut(&shard).filter(|term| !term.is_leaving())?;
        term.passes += 1;
        Some((term.id, term.ended.clone()))
    }

    /// Records the end of a pass. Returns whether a shard that is being released waits for no further pass.
    pub(super) fn end_pass(&mut self, shard: u32, id: u64) -> bool {
        let Some(term) = self.by_shard.get_mut(&shard).filter(|term| term.id == id) else {
            return false;
        };
        term.passes = term.passes.saturating_sub(1);
        term.passes == 0 && term.is_leaving()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    struct Fixture {
        clock: Clock,
        start: Moment,
        terms: Terms,
    }

    impl Fixture {
        fn new() -> Self {
            let clock = Clock::starting_at(Timestamp::from_second(1_767_225_600).unwrap());
            let start = Moment { at: clock.instant(), wall: clock.now() };
            Self { clock, start, terms: Terms::new(Duration::from_secs(10)) }
        }

        fn at(&self, seconds: u64) -> Moment {
            let passed = Duration::from_secs(seconds);
            Moment { at: self.start.at + passed, wall: self.start.wall + passed }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_term_lasts_while_renewals_are_confirmed_in_time() {
        let mut fixture = Fixture::new();
        let at = |seconds| fixture.at(seconds);
        let [zero, one, nine, ten, twelve] = [0, 1, 9, 10, 12].map(at);
        let terms = &mut fixture.terms;
        assert!(!terms.begin_term(3, "7".into(), 0, zero), "no member yet");
        assert_eq!(terms.renewed(zero, one), 0);
        assert!(terms.begin_term(3, "7".into(), 0, one));
        let (id, ended) = terms.begin_pass(3, one).unwrap();
        assert!(terms.begin_pass(4, one).is_none());
        assert_eq!(terms.may_write_until(3, id, nine), Some(ten.at), "from the request");
        assert_eq!(terms.may_write_until(3, id, ten), None);
        assert_eq!(terms.renewed(one, nine), 0, "in time");
        assert!(terms.may_write_until(3, id, ten).is_some() && !ended.is_cancelled());
        assert_eq!(terms.renewed(ten, twelve), 1, "sent in time, but confirmed too late");
        assert!(ended.is_cancelled());
        assert_eq!(terms.may_write_until(3, id, twelve), None);
        assert!(!terms.begin_term(3, "8".into(), 0, twelve), "sent before the lapse");
        assert!(terms.begin_term(3, "8".into(), terms.lapses(), twelve));
        assert_eq!(terms.may_write_until(3, id, twelve), None, "another term");
        assert!(fixture.clock.now() == fixture.start.wall);
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_slept_has_lapsed() {
        let mut fixture = Fixture::new();
        let (zero, one) = (fixture.at(0), fixture.at(1));
        let slept = Moment { at: one.at, wall: fixture.at(10).wall };
        let terms = &mut fixture.terms;
        terms.renewed(zero, zero);
        terms.begin_term(0, "1".into(), 0, zero);
        assert_eq!((terms.end_if_lapsed(one), terms.end_if_lapsed(slept)), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_shard_is_released_when_its_passes_have_ended() {
        let mut fixture = Fixture::new();
        let [zero, two, eleven] = [0, 2, 11].map(|seconds| fixture.at(seconds));
        let terms = &mut fixture.terms;
        terms.renewed(zero, zero);
        for shard in [0, 1, 2] {
            terms.begin_term(shard, "1".into(), 0, zero);
        }
        let (first, _) = terms.begin_pass(0, zero).unwrap();
        let (second, _) = terms.begin_pass(1, zero).unwrap();
        assert!(!terms.end_pass(0, first), "it stays");
        let (first, _) = terms.begin_pass(0, zero).unwrap();
        (0..3).for_each(|shard| terms.leave(shard, zero));
        assert!(terms.begin_pass(0, zero).is_none());
        assert_eq!(terms.drained(zero), [2]);
        assert!(terms.end_pass(0, first));
        assert_eq!(terms.drained(two), [0, 2]);
        assert!(terms.may_write_until(1, second, two).is_some(), "while it drains");
        terms.leave(1, two);
        assert_eq!(terms.drained(eleven), [0, 1, 2], "the wait is not prolonged");
        terms.end(1);
        assert!(terms.may_write_until(1, second, two).is_none() && !terms.end_pass(1, second));
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_leaves_does_not_come_back() {
        let mut fixture = Fixture::new();
        let zero = fixture.at(0);
        let terms = &mut fixture.terms;
        terms.renewed(zero, zero);
        terms.begin_term(0, "1".into(), 0, zero);
        terms.retire(zero);
        assert!(!terms.begin_term(1, "1".into(), 0, zero));
        assert!(terms.member_until(zero).is_some() && terms.begin_pass(0, zero).is_none());
        assert_eq!((terms.drained(zero), terms.close()), (vec![0], 1));
        terms.renewed(zero, zero);
        assert!(terms.member_until(zero).is_none());
        assert!(!terms.begin_term(0, "2".into(), terms.lapses(), zero));
    }
}
