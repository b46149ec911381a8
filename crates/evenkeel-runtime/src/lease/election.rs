//! The rules of the election: plain data that is told what was read and what the time is.

use evenkeel_api::time::Timestamp;
use std::time::Duration;
use tokio::time::Instant;

/// The part of a Lease's spec that the election is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// Empty when nobody holds it.
    pub(super) holder: String,
    pub(super) lease_seconds: i32,
    pub(super) acquired: Option<Timestamp>,
    pub(super) renewed: Option<Timestamp>,
    pub(super) transitions: i32,
    /// Who is to lead next, in a coordinated election; empty when the leader stays.
    pub(super) preferred: String,
}

/// How an attempt begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum First {
    /// Write this without reading first.
    Update(Record),
    /// Read the lease.
    Read,
}

/// How an attempt goes on once the lease was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// There is none: make it.
    Create(Record),
    /// Write this over what was read.
    Update {
        /// What to write.
        record: Record,
        /// It was this process that held it.
        renewal: bool,
    },
    /// Somebody else leads, or is to.
    Held,
}

/// When something was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) at: Instant,
    pub(super) wall: Timestamp,
}

/// What one contender knows.
#[derive(Debug)]
pub(super) struct Election {
    identity: String,
    lease_seconds: i32,
    observed: Record,
    observed_at: Option<Instant>,
    /// When the last write that is known to stand was sent, on the monotonic and on the wall clock. Others see it later,
    /// and count from then.
    renewed: Option<Sent>,
    /// It is giving the lease back.
    leaving: bool,
    /// A write that takes the lease was sent since the last one that is known to stand there: no answer came, or a refusal,
    /// which may be due to an earlier write without an answer.
    claimed: bool,
    /// As last read, to notice a change by another process.
    read: Option<Record>,
}

impl Election {
    pub(super) fn new(identity: &str, lease_duration: Duration) -> Self {
        Self {
            identity: identity.to_owned(),
            lease_seconds: i32::try_from(lease_duration.as_secs()).unwrap_or(i32::MAX),
            observed: Record::default(),
            observed_at: None,
            renewed: None,
            leaving: false,
            claimed: false,
            read: None,
        }
    }

    pub(super) fn first(&self, wall: Timestamp, now: Instant) -> First {
        if self.is_leader() && self.valid(now) {
            First::Update(self.renewal(&self.observed, wall))
        } else {
            First::Read
        }
    }

    pub(super) fn found(&mut self, found: Option<Record>, wall: Timestamp, now: Instant) -> Then {
        let Some(found) = found else {
            return Then::Create(self.fresh(wall, 0));
        };
        self.observe(&found, now);
        if !found.holder.is_empty() && self.valid(now) && !self.is_leader() {
            return Then::Held;
        }
        if self.is_leader() {
            return Then::Update { record: self.renewal(&found, wall), renewal: true };
        }
        Then::Update {
            record: self.fresh(wall, found.transitions.saturating_add(1)),
            renewal: false,
        }
    }

    /// As [`Election::found`] where the server says who leads: the lease is renewed by whom it names, and taken by nobody.
    pub(super) fn assigned(
        &mut self,
        found: Option<Record>,
        wall: Timestamp,
        now: Instant,
    ) -> Then {
        let Some(found) = found else { return Then::Held };
        self.observe(&found, now);
        if !self.is_leader() || !self.valid(now) || self.is_to_go() {
            return Then::Held;
        }
        Then::Update { record: self.renewal(&found, wall), renewal: true }
    }

    fn observe(&mut self, found: &Record, now: Instant) {
        if self.read.as_ref() != Some(found) {
            self.observed = found.clone();
            self.observed_at = Some(now);
            self.read = Some(found.clone());
        }
    }

    /// Whether somebody else is known to lead, or this process is told to make room: nothing is left to try.
    pub(super) fn is_over(&self) -> bool {
        (!self.observed.holder.is_empty() && !self.is_leader()) || self.is_to_go()
    }

    fn is_to_go(&self) -> bool {
        self.is_leader() && !self.observed.preferred.is_empty()
    }

    /// It contends (again).
    pub(super) fn enter(&mut self) {
        self.leaving = false;
    }

    /// The lease is about to be given back: from now on nothing is written under it.
    pub(super) fn leave(&mut self) {
        self.leaving = true;
    }

    /// Until when this process may write under the lease: `patience` after it sent the last renewal that is known to stand,
    /// by whichever clock says more has passed. A machine that slept may have stopped the monotonic one.
    pub(super) fn may_write_until(
        &self,
        patience: Duration,
        wall: Timestamp,
        now: Instant,
    ) -> Option<Instant> {
        let Sent { at, wall: then } = self.renewed.filter(|_| self.is_leader() && !self.leaving)?;
        let passed = Duration::try_from(wall.duration_since(then)).unwrap_or_default();
        Some(at + patience).filter(|until| *until > now && passed < patience)
    }

    /// A record that names this process is about to be sent.
    pub(super) fn claim(&mut self) {
        self.claimed = true;
    }

    /// `record` now stands in the lease.
    pub(super) fn written(&mut self, record: Record, sent: Sent, now: Instant) {
        self.claimed = false;
        self.renewed = Some(sent);
        self.observed = record;
        self.observed_at = Some(now);
    }

    /// What to write to give the lease back; `None` when it is not this process's to give.
    pub(super) fn released(&self, found: &Record, wall: Timestamp) -> Option<Record> {
        // By what stands there as well as by what was observed: a lease lost meanwhile is left alone.
        (self.may_lead() && found.holder == self.identity).then(|| Record {
            holder: String::new(),
            lease_seconds: 1,
            acquired: Some(wall),
            renewed: Some(wall),
            transitions: found.transitions,
            preferred: String::new(),
        })
    }

    pub(super) fn is_leader(&self) -> bool {
        self.observed.holder == self.identity
    }

    /// Whether this process leads or, for all it knows, could.
    pub(super) fn may_lead(&self) -> bool {
        self.is_leader() || self.claimed
    }

    pub(super) fn leader(&self) -> &str {
        &self.observed.holder
    }

    /// Whether this process leads but has observed nothing for longer than `limit`.
    pub(super) fn overdue(&self, limit: Duration, now: Instant) -> bool {
        let since = self.observed_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.is_leader() && since > limit
    }

    fn valid(&self, now: Instant) -> bool {
        let duration = Duration::from_secs(u64::try_from(self.observed.lease_seconds).unwrap_or(0));
        self.observed_at.is_some_and(|at| at + duration > now)
    }

    fn fresh(&self, wall: Timestamp, transitions: i32) -> Record {
        Record {
            holder: self.identity.clone(),
            lease_seconds: self.lease_seconds,
            acquired: Some(wall),
            renewed: Some(wall),
            transitions,
            preferred: String::new(),
        }
    }

    fn renewal(&self, of: &Record, wall: Timestamp) -> Record {
        Record { acquired: of.acquired, ..self.fresh(wall, of.transitions) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(n: i64) -> Timestamp {
        Timestamp::from_second(n).unwrap()
    }

    fn held_by(holder: &str, renewed: i64) -> Record {
        Record {
            holder: holder.into(),
            lease_seconds: 15,
            acquired: Some(second(0)),
            renewed: Some(second(renewed)),
            transitions: 3,
            preferred: String::new(),
        }
    }

    fn sent(at: Instant) -> Sent {
        Sent { at, wall: second(0) }
    }

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_held_from_when_its_change_was_observed_whatever_it_says() {
        let (mut me, start) = (Election::new("me", Duration::from_secs(15)), Instant::now());
        // Its holder's clock is an hour behind or ahead: that does not matter.
        let found = Some(held_by("other", -3600));
        assert_eq!(me.found(found.clone(), second(0), start), Then::Held);
        assert_eq!(me.found(found.clone(), second(14), after(start, 14)), Then::Held);
        assert_eq!(
            me.found(Some(held_by("other", 3600)), second(14), after(start, 14)),
            Then::Held
        );
        assert_eq!(
            me.found(Some(held_by("other", 3600)), second(28), after(start, 28)),
            Then::Held
        );
        let taken = me.found(Some(held_by("other", 3600)), second(29), after(start, 29));
        let Then::Update { record, renewal: false } = taken else { panic!("{taken:?}") };
        assert_eq!(
            (record.holder.as_str(), record.transitions, record.acquired),
            ("me", 4, Some(second(29)))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_leader_renews_without_reading_while_its_lease_is_valid() {
        let (mut me, start) = (Election::new("me", Duration::from_secs(15)), Instant::now());
        assert_eq!(me.first(second(0), start), First::Read);
        let Then::Create(record) = me.found(None, second(0), start) else { panic!() };
        assert_eq!((record.transitions, record.lease_seconds), (0, 15));
        me.written(record, sent(start), start);
        let First::Update(renewal) = me.first(second(14), after(start, 14)) else { panic!() };
        assert_eq!((renewal.acquired, renewal.renewed), (Some(second(0)), Some(second(14))));
        assert_eq!(me.first(second(15), after(start, 15)), First::Read, "it has run out");
        let mine = Some(held_by("me", 0));
        let Then::Update { record, renewal: true } = me.found(mine, second(15), after(start, 15))
        else {
            panic!()
        };
        assert_eq!(
            (record.transitions, record.acquired),
            (3, Some(second(0))),
            "still the same leadership"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_lease_is_free_at_once() {
        let (mut me, start) = (Election::new("me", Duration::from_secs(15)), Instant::now());
        let free = Record { holder: String::new(), lease_seconds: 1, ..held_by("", 0) };
        assert!(matches!(
            me.found(Some(free), second(0), start),
            Then::Update { renewal: false, .. }
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn only_its_own_lease_is_released() {
        let (mut me, start) = (Election::new("me", Duration::from_secs(15)), Instant::now());
        assert_eq!(me.released(&held_by("other", 0), second(1)), None);
        me.written(held_by("me", 0), sent(start), start);
        assert_eq!(me.released(&held_by("other", 0), second(1)), None, "lost meanwhile");
        let record = me.released(&held_by("me", 0), second(1)).unwrap();
        assert_eq!((record.holder.as_str(), record.lease_seconds, record.transitions), ("", 1, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_without_an_answer_is_released_if_it_was_carried_out() {
        let mut me = Election::new("me", Duration::from_secs(15));
        me.claim();
        assert!(me.may_lead() && !me.is_leader());
        assert_eq!(me.released(&held_by("other", 0), second(1)), None);
        let free = me.released(&held_by("me", 0), second(1)).unwrap();
        assert_eq!(free.holder, "");
        me.written(free, sent(Instant::now()), Instant::now());
        assert!(!me.may_lead());
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_does_not_renew_is_overdue() {
        let (mut me, start) = (Election::new("me", Duration::from_secs(15)), Instant::now());
        me.written(held_by("me", 0), sent(start), start);
        let limit = Duration::from_secs(35);
        assert!(!me.overdue(limit, after(start, 35)));
        assert!(me.overdue(limit, after(start, 36)));
        me.written(held_by("other", 0), sent(start), start);
        assert!(!me.overdue(limit, after(start, 36)), "a stand-by is never overdue");
    }

    #[tokio::test(start_paused = true)]
    async fn writes_end_before_anybody_else_can_lead_by_either_clock() {
        let (mut me, start) = (Election::new("me", Duration::from_secs(15)), Instant::now());
        let patience = Duration::from_secs(10);
        let may = |me: &Election, wall, passed| {
            me.may_write_until(patience, second(wall), after(start, passed)).is_some()
        };
        assert!(!may(&me, 0, 0), "it never led");
        // Its renewal was four seconds under way: they count.
        me.written(held_by("me", 0), sent(start), after(start, 4));
        assert!(may(&me, 9, 9) && !may(&me, 10, 10));
        assert!(may(&me, -3600, 9), "the wall clock was put back");
        assert!(!may(&me, 3600, 1), "the machine slept for an hour");
        let found = Some(held_by("other", 0));
        assert_eq!(me.found(found, second(1), after(start, 1)), Then::Held);
        assert!(!may(&me, 1, 1) && me.is_over(), "another leads");
        me.written(held_by("me", 0), sent(start), start);
        me.leave();
        assert!(!may(&me, 0, 0), "it is giving the lease back");
    }

    #[tokio::test(start_paused = true)]
    async fn where_the_server_says_who_leads_nobody_takes_the_lease() {
        let (mut me, start) = (Election::new("me", Duration::from_secs(15)), Instant::now());
        assert_eq!(me.assigned(None, second(0), start), Then::Held);
        let other = held_by("other", 0);
        assert_eq!(me.assigned(Some(other.clone()), second(0), start), Then::Held);
        assert_eq!(me.assigned(Some(other), second(60), after(start, 60)), Then::Held, "expired");
        let mine = held_by("me", 61);
        let then = me.assigned(Some(mine.clone()), second(61), after(start, 61));
        let Then::Update { record, renewal: true } = then else { panic!("{then:?}") };
        assert_eq!((record.holder.as_str(), record.transitions), ("me", 3));
        assert!(!me.is_over());
        let asked = Record { preferred: "better".into(), ..mine };
        assert_eq!(me.assigned(Some(asked), second(62), after(start, 62)), Then::Held);
        assert!(me.is_over(), "another is to lead");
    }
}
