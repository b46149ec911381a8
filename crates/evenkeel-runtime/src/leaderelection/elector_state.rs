//! State and decisions of one elector: pure functions of the Lease and the time.

use evenkeel_api::time::Timestamp;
use std::time::Duration;
use tokio::time::Instant;

/// Fields of a Lease's spec that leader election uses.
///
/// Upstream: `LeaderElectionRecord`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LeaderElectionRecord {
    /// Identity of the holder. Empty if the lease is free.
    pub(super) holder_identity: String,
    pub(super) lease_duration_seconds: i32,
    pub(super) acquire_time: Option<Timestamp>,
    pub(super) renew_time: Option<Timestamp>,
    pub(super) leader_transitions: i32,
    /// The elector that coordinated election chose as the next leader. Empty while the leader stays.
    pub(super) preferred_holder: String,
}

/// First step of an attempt to acquire or renew.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FastPath {
    /// The leader writes this record without reading the lease first.
    Update(LeaderElectionRecord),
    /// Read the lease.
    Read,
}

/// Second step of an attempt, after reading the lease.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SlowPath {
    /// The lease does not exist: create it.
    Create(LeaderElectionRecord),
    /// Update the lease that was read.
    Update {
        /// The record to write.
        record: LeaderElectionRecord,
        /// Whether this process already held the lease.
        renewal: bool,
    },
    /// Another process holds the lease, or the server prefers another one.
    Held,
}

/// Time at which a write was sent, on the monotonic and on the wall clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendTime {
    pub(super) at: Instant,
    pub(super) wall: Timestamp,
}

/// State of an elector: the observed lease record, and the times that limit this process's term.
#[derive(Debug)]
pub(super) struct ElectorState {
    identity: String,
    lease_duration_seconds: i32,
    /// The last record that was read or written.
    observed_record: LeaderElectionRecord,
    /// Time when the record was observed, from which other processes' leases last.
    observed_time: Option<Instant>,
    /// Time when the last confirmed write was sent. For other electors, the lease's duration starts later, when they
    /// observe the write.
    last_renewal: Option<SendTime>,
    /// Whether the lease is being released, so that no write may be sent under it.
    releasing: bool,
    /// The `leaderTransitions` of the term that is being renewed. `None` while the elector contends.
    term: Option<i32>,
    /// Whether the renewed term was found to have ended.
    term_ended: bool,
    /// Whether a write was sent after the last confirmed one. Its response is missing, or the server refused it,
    /// perhaps because of an earlier write without a response.
    unconfirmed_acquire: bool,
    /// The last record that was read, to detect changes by other processes.
    last_read: Option<LeaderElectionRecord>,
}

impl ElectorState {
    pub(super) fn new(identity: &str, lease_duration: Duration) -> Self {
        Self {
            identity: identity.to_owned(),
            lease_duration_seconds: i32::try_from(lease_duration.as_secs()).unwrap_or(i32::MAX),
            observed_record: LeaderElectionRecord::default(),
            observed_time: None,
            last_renewal: None,
            releasing: false,
            term: None,
            term_ended: false,
            unconfirmed_acquire: false,
            last_read: None,
        }
    }

    /// Decides the first step: a leader with a valid lease renews it without reading it.
    ///
    /// Upstream: `tryAcquireOrRenew`.
    pub(super) fn fast_path(&self, wall: Timestamp, now: Instant) -> FastPath {
        if self.is_leader() && self.is_lease_valid(now) {
            FastPath::Update(self.renew_record(&self.observed_record, wall))
        } else {
            FastPath::Read
        }
    }

    /// Decides the second step from the lease that was read. Waits while another process holds a valid lease,
    /// and otherwise acquires or renews it.
    ///
    /// Upstream: `tryAcquireOrRenew`.
    pub(super) fn slow_path(
        &mut self,
        found: Option<LeaderElectionRecord>,
        wall: Timestamp,
        now: Instant,
    ) -> SlowPath {
        let Some(found) = found else {
            return SlowPath::Create(self.acquire_record(wall, 0));
        };
        self.set_observed_record(&found, now);
        if self.has_term_ended(&found) {
            self.term_ended = true;
            return SlowPath::Held;
        }
        if !found.holder_identity.is_empty() && self.is_lease_valid(now) && !self.is_leader() {
            return SlowPath::Held;
        }
        if self.is_leader() {
            return SlowPath::Update { record: self.renew_record(&found, wall), renewal: true };
        }
        SlowPath::Update {
            record: self.acquire_record(wall, found.leader_transitions.saturating_add(1)),
            renewal: false,
        }
    }

    /// Like [`ElectorState::slow_path`] in a coordinated election, in which the server assigns the lease: its
    /// holder renews it, and no elector acquires it.
    ///
    /// Upstream: `tryCoordinatedRenew`.
    pub(super) fn coordinated_path(
        &mut self,
        found: Option<LeaderElectionRecord>,
        wall: Timestamp,
        now: Instant,
    ) -> SlowPath {
        let Some(found) = found else { return SlowPath::Held };
        self.set_observed_record(&found, now);
        if self.has_term_ended(&found) {
            self.term_ended = true;
            return SlowPath::Held;
        }
        if !self.is_leader() || !self.is_lease_valid(now) || self.must_yield() {
            return SlowPath::Held;
        }
        SlowPath::Update { record: self.renew_record(&found, wall), renewal: true }
    }

    /// Records a lease that was read. If it has changed, restarts its duration.
    ///
    /// Upstream: `setObservedRecord`.
    fn set_observed_record(&mut self, found: &LeaderElectionRecord, now: Instant) {
        if self.last_read.as_ref() != Some(found) {
            self.observed_record = found.clone();
            self.observed_time = Some(now);
            self.last_read = Some(found.clone());
        }
    }

    /// Returns whether the term that is being renewed has ended: the lease was released or acquired since. A leader
    /// that was paused must not acquire it again, because its work began before the intermediate leader's work.
    ///
    /// Upstream's `renew` acquires a lease that another process has held and released meanwhile.
    fn has_term_ended(&self, found: &LeaderElectionRecord) -> bool {
        self.term.is_some_and(|term| {
            found.holder_identity != self.identity || found.leader_transitions != term
        })
    }

    /// Returns whether the term has ended, or another process is known to lead or is preferred, so that a renewal cannot
    /// succeed.
    pub(super) fn is_lost(&self) -> bool {
        self.term_ended
            || (!self.observed_record.holder_identity.is_empty() && !self.is_leader())
            || self.must_yield()
    }

    /// Returns whether coordinated election chose another process, to which this leader must yield.
    fn must_yield(&self) -> bool {
        self.is_leader() && !self.observed_record.preferred_holder.is_empty()
    }

    /// Records that the elector starts to contend for the lease.
    pub(super) fn start_acquiring(&mut self) {
        self.releasing = false;
        self.term = None;
        self.term_ended = false;
    }

    /// Records that the elector only renews the lease from now on.
    pub(super) fn start_renewing(&mut self) {
        self.term = Some(self.observed_record.leader_transitions);
    }

    /// Records that the elector starts to release the lease, which closes the fence.
    pub(super) fn start_releasing(&mut self) {
        self.releasing = true;
    }

    /// Returns the time until which this process may write as the leader: `renew_deadline` after it sent the last
    /// confirmed renewal. Checks both clocks, because the monotonic clock may stop while a machine sleeps.
    pub(super) fn may_write_until(
        &self,
        renew_deadline: Duration,
        wall: Timestamp,
        now: Instant,
    ) -> Option<Instant> {
        if !self.is_leader() || self.releasing || self.term_ended {
            return None;
        }
        let last_renewal = self.last_renewal?;
        let until = last_renewal.at + renew_deadline;
        let wall_elapsed =
            Duration::try_from(wall.duration_since(last_renewal.wall)).unwrap_or_default();
        (now < until && wall_elapsed < renew_deadline).then_some(until)
    }

    /// Records that a record with this process as the holder is about to be sent.
    pub(super) fn record_sent(&mut self) {
        self.unconfirmed_acquire = true;
    }

    /// Records that the server confirmed `record`.
    pub(super) fn record_written(
        &mut self,
        record: LeaderElectionRecord,
        sent: SendTime,
        now: Instant,
    ) {
        self.unconfirmed_acquire = false;
        self.last_renewal = Some(sent);
        self.observed_record = record;
        self.observed_time = Some(now);
    }

    /// Returns the record that releases the lease, or `None` if this process does not hold it.
    ///
    /// Upstream: `release`.
    pub(super) fn release_record(
        &self,
        found: &LeaderElectionRecord,
        wall: Timestamp,
    ) -> Option<LeaderElectionRecord> {
        // Check the observed and the live record, so that a lost lease is not changed.
        if !self.may_lead() || found.holder_identity != self.identity {
            return None;
        }
        Some(LeaderElectionRecord {
            holder_identity: String::new(),
            // The shortest duration, so that other processes do not wait.
            lease_duration_seconds: 1,
            acquire_time: Some(wall),
            renew_time: Some(wall),
            leader_transitions: found.leader_transitions,
            preferred_holder: String::new(),
        })
    }

    pub(super) fn is_leader(&self) -> bool {
        self.observed_record.holder_identity == self.identity
    }

    /// Returns whether this process leads, or may lead because of a write whose response is missing.
    pub(super) fn may_lead(&self) -> bool {
        self.is_leader() || self.unconfirmed_acquire
    }

    pub(super) fn leader(&self) -> &str {
        &self.observed_record.holder_identity
    }

    /// Returns whether this process leads but has observed no renewal for longer than `limit`.
    pub(super) fn is_renewal_overdue(&self, limit: Duration, now: Instant) -> bool {
        let since =
            self.observed_time.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.is_leader() && since > limit
    }

    /// Returns whether the last observed record of the lease has not expired.
    ///
    /// Upstream: `isLeaseValid`.
    fn is_lease_valid(&self, now: Instant) -> bool {
        let duration = Duration::from_secs(
            u64::try_from(self.observed_record.lease_duration_seconds).unwrap_or(0),
        );
        self.observed_time.is_some_and(|at| at + duration > now)
    }

    /// Returns a record with this process as the holder since `wall`.
    fn acquire_record(&self, wall: Timestamp, transitions: i32) -> LeaderElectionRecord {
        LeaderElectionRecord {
            holder_identity: self.identity.clone(),
            lease_duration_seconds: self.lease_duration_seconds,
            acquire_time: Some(wall),
            renew_time: Some(wall),
            leader_transitions: transitions,
            preferred_holder: String::new(),
        }
    }

    /// Returns a record with this process as the holder since the time in `current`.
    fn renew_record(
        &self,
        current: &LeaderElectionRecord,
        wall: Timestamp,
    ) -> LeaderElectionRecord {
        LeaderElectionRecord {
            acquire_time: current.acquire_time,
            ..self.acquire_record(wall, current.leader_transitions)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    fn second(n: i64) -> Timestamp {
        Timestamp::from_second(n).unwrap()
    }

    /// Returns a lease of 15 seconds that its holder renewed at this second.
    fn held_by(holder_identity: &str, renewed: i64) -> LeaderElectionRecord {
        LeaderElectionRecord {
            holder_identity: holder_identity.into(),
            lease_duration_seconds: 15,
            acquire_time: Some(second(0)),
            renew_time: Some(second(renewed)),
            leader_transitions: 3,
            preferred_holder: String::new(),
        }
    }

    fn sent(at: Instant) -> SendTime {
        SendTime { at, wall: second(0) }
    }

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn the_duration_of_a_lease_starts_at_its_observed_change() {
        let (mut me, start) =
            (ElectorState::new("me", Duration::from_secs(15)), Clock::system().instant());
        // The holder's clock is an hour behind or ahead, which has no effect.
        let found = Some(held_by("other", -3600));
        assert_eq!(me.slow_path(found.clone(), second(0), start), SlowPath::Held);
        assert_eq!(me.slow_path(found.clone(), second(14), after(start, 14)), SlowPath::Held);
        assert_eq!(
            me.slow_path(Some(held_by("other", 3600)), second(14), after(start, 14)),
            SlowPath::Held
        );
        assert_eq!(
            me.slow_path(Some(held_by("other", 3600)), second(28), after(start, 28)),
            SlowPath::Held
        );
        let taken = me.slow_path(Some(held_by("other", 3600)), second(29), after(start, 29));
        let SlowPath::Update { record, renewal: false } = taken else { panic!("{taken:?}") };
        assert_eq!(
            (record.holder_identity.as_str(), record.leader_transitions, record.acquire_time),
            ("me", 4, Some(second(29)))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_leader_renews_without_reading_while_its_lease_is_valid() {
        let (mut me, start) =
            (ElectorState::new("me", Duration::from_secs(15)), Clock::system().instant());
        assert_eq!(me.fast_path(second(0), start), FastPath::Read);
        let SlowPath::Create(record) = me.slow_path(None, second(0), start) else { panic!() };
        assert_eq!((record.leader_transitions, record.lease_duration_seconds), (0, 15));
        me.record_written(record, sent(start), start);
        let FastPath::Update(renewal) = me.fast_path(second(14), after(start, 14)) else {
            panic!()
        };
        assert_eq!((renewal.acquire_time, renewal.renew_time), (Some(second(0)), Some(second(14))));
        assert_eq!(
            me.fast_path(second(15), after(start, 15)),
            FastPath::Read,
            "the lease has expired"
        );
        let mine = Some(held_by("me", 0));
        let SlowPath::Update { record, renewal: true } =
            me.slow_path(mine, second(15), after(start, 15))
        else {
            panic!()
        };
        assert_eq!(
            (record.leader_transitions, record.acquire_time),
            (3, Some(second(0))),
            "still the same leadership"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_lease_is_acquired_immediately() {
        let (mut me, start) =
            (ElectorState::new("me", Duration::from_secs(15)), Clock::system().instant());
        let free = LeaderElectionRecord {
            holder_identity: String::new(),
            lease_duration_seconds: 1,
            ..held_by("", 0)
        };
        assert!(matches!(
            me.slow_path(Some(free), second(0), start),
            SlowPath::Update { renewal: false, .. }
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_was_paused_does_not_acquire_its_lease_again() {
        let start = Clock::system().instant();
        let released = LeaderElectionRecord { lease_duration_seconds: 1, ..held_by("", 20) };
        let acquired = LeaderElectionRecord { leader_transitions: 5, ..held_by("me", 20) };
        for (found, ended) in [
            (released, true),
            (acquired, true),
            (held_by("other", 0), true),
            (held_by("me", 0), false),
        ] {
            let mut me = ElectorState::new("me", Duration::from_secs(15));
            me.start_acquiring();
            me.record_written(held_by("me", 0), sent(start), start);
            me.start_renewing();
            let path = me.slow_path(Some(found), second(60), after(start, 60));
            assert_eq!(path == SlowPath::Held, ended);
            assert_eq!(me.is_lost(), ended);
            let may = me.may_write_until(Duration::from_secs(100), second(60), after(start, 60));
            assert_eq!(may.is_none(), ended, "its fence stays closed");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_releases_only_its_own_lease() {
        let (mut me, start) =
            (ElectorState::new("me", Duration::from_secs(15)), Clock::system().instant());
        assert_eq!(me.release_record(&held_by("other", 0), second(1)), None);
        me.record_written(held_by("me", 0), sent(start), start);
        assert_eq!(
            me.release_record(&held_by("other", 0), second(1)),
            None,
            "another process holds it"
        );
        let record = me.release_record(&held_by("me", 0), second(1)).unwrap();
        assert_eq!(
            (
                record.holder_identity.as_str(),
                record.lease_duration_seconds,
                record.leader_transitions
            ),
            ("", 1, 3)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_acquired_without_a_response_is_released() {
        let mut me = ElectorState::new("me", Duration::from_secs(15));
        me.record_sent();
        assert!(me.may_lead() && !me.is_leader());
        assert_eq!(me.release_record(&held_by("other", 0), second(1)), None);
        let free = me.release_record(&held_by("me", 0), second(1)).unwrap();
        assert_eq!(free.holder_identity, "");
        me.record_written(free, sent(Clock::system().instant()), Clock::system().instant());
        assert!(!me.may_lead());
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_does_not_renew_is_overdue() {
        let (mut me, start) =
            (ElectorState::new("me", Duration::from_secs(15)), Clock::system().instant());
        me.record_written(held_by("me", 0), sent(start), start);
        let limit = Duration::from_secs(35);
        assert!(!me.is_renewal_overdue(limit, after(start, 35)));
        assert!(me.is_renewal_overdue(limit, after(start, 36)));
        me.record_written(held_by("other", 0), sent(start), start);
        assert!(!me.is_renewal_overdue(limit, after(start, 36)), "a stand-by is never overdue");
    }

    #[tokio::test(start_paused = true)]
    async fn either_clock_closes_the_fence_before_another_process_can_lead() {
        let (mut me, start) =
            (ElectorState::new("me", Duration::from_secs(15)), Clock::system().instant());
        let renew_deadline = Duration::from_secs(10);
        let may = |me: &ElectorState, wall, passed| {
            me.may_write_until(renew_deadline, second(wall), after(start, passed)).is_some()
        };
        assert!(!may(&me, 0, 0), "it never led");
        // The renewal took four seconds, which count.
        me.record_written(held_by("me", 0), sent(start), after(start, 4));
        assert!(may(&me, 9, 9) && !may(&me, 10, 10));
        assert!(may(&me, -3600, 9), "the wall clock was put back");
        assert!(!may(&me, 3600, 1), "the machine slept for an hour");
        let found = Some(held_by("other", 0));
        assert_eq!(me.slow_path(found, second(1), after(start, 1)), SlowPath::Held);
        assert!(!may(&me, 1, 1) && me.is_lost(), "another leads");
        me.record_written(held_by("me", 0), sent(start), start);
        me.start_releasing();
        assert!(!may(&me, 0, 0), "it releases the lease");
    }

    #[tokio::test(start_paused = true)]
    async fn electors_of_a_coordinated_election_only_renew_the_lease() {
        let (mut me, start) =
            (ElectorState::new("me", Duration::from_secs(15)), Clock::system().instant());
        assert_eq!(me.coordinated_path(None, second(0), start), SlowPath::Held);
        let other = held_by("other", 0);
        assert_eq!(me.coordinated_path(Some(other.clone()), second(0), start), SlowPath::Held);
        assert_eq!(
            me.coordinated_path(Some(other), second(60), after(start, 60)),
            SlowPath::Held,
            "expired"
        );
        let mine = held_by("me", 61);
        let then = me.coordinated_path(Some(mine.clone()), second(61), after(start, 61));
        let SlowPath::Update { record, renewal: true } = then else { panic!("{then:?}") };
        assert_eq!((record.holder_identity.as_str(), record.leader_transitions), ("me", 3));
        assert!(!me.is_lost());
        let replaced = LeaderElectionRecord { preferred_holder: "better".into(), ..mine };
        assert_eq!(
            me.coordinated_path(Some(replaced), second(62), after(start, 62)),
            SlowPath::Held
        );
        assert!(me.is_lost(), "the server prefers another elector");
    }

    #[tokio::test(start_paused = true)]
    async fn a_coordinated_leader_does_not_continue_a_later_term() {
        let start = Clock::system().instant();
        let assigned_again = LeaderElectionRecord { leader_transitions: 5, ..held_by("me", 60) };
        for (found, ended) in
            [(assigned_again, true), (held_by("other", 60), true), (held_by("me", 60), false)]
        {
            let mut me = ElectorState::new("me", Duration::from_secs(15));
            me.start_acquiring();
            me.record_written(held_by("me", 0), sent(start), start);
            me.start_renewing();
            let path = me.coordinated_path(Some(found), second(60), after(start, 60));
            assert_eq!(path == SlowPath::Held, ended);
            assert_eq!(me.is_lost(), ended);
            let may = me.may_write_until(Duration::from_secs(100), second(60), after(start, 60));
            assert_eq!(may.is_none(), ended, "its fence stays closed");
        }
    }
}
