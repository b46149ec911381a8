//! Decision of one member from a list of all Leases: which shards to acquire, to release and to prepare. It is a pure function.
//!
//! Members of different layouts (a rollout changes the number of shards) never work at the same time. A shard's Lease has the
//! layout of its last holder. A member acquires shards only if all their Leases have its layout. It writes its layout only to
//! free Leases, and only while no living member holds a shard of another layout.

use super::{assign::assign, terms::Terms};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;

/// Lease of a member or of a shard, from a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    /// `metadata.resourceVersion`, with which a write must agree.
    pub(super) version: String,
    /// Identity of the holder, empty for none.
    pub(super) holder: String,
    pub(super) layout: String,
    /// Lease duration, which only counts for members.
    pub(super) duration: Duration,
}

/// One list of all Leases.
#[derive(Debug)]
pub(super) struct Observed {
    /// Leases of members, by name.
    pub(super) members: BTreeMap<String, Listed>,
    /// Leases of shards, by number.
    pub(super) shards: BTreeMap<u32, Listed>,
    /// Time at which the list request was sent. The server may have executed it at any later time.
    pub(super) sent: Instant,
    /// Time at which the list was received. All changes that it shows happened before.
    pub(super) received: Instant,
}

/// A member's memory of the other members: the resource version of each Lease, and the time when that version was first
/// observed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Memory(BTreeMap<String, (String, Instant)>);

/// This member, as it decides.
pub(super) struct Me<'a> {
    pub(super) identity: &'a str,
    /// Name of its own Lease.
    pub(super) lease: &'a str,
    pub(super) layout: &'a str,
    pub(super) shards: u32,
    pub(super) terms: &'a Terms,
}

/// Action of a member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    /// Writes this member into a shard's Lease.
    Acquire(u32),
    /// Waits for the end of a shard's passes, to release the shard.
    Leave(u32),
    /// Clears the holder of a shard without a term.
    Release(u32),
    /// Ends the term for a shard that another member holds.
    End(u32),
    /// Creates a shard's Lease, or writes the layout of this member into it.
    Prepare(u32),
    /// Deletes the Lease of a dead member.
    Collect(String),
}

/// Actions of a member, and the time of its next list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) actions: Vec<Action>,
    /// Whether every shard is held by the member that it is assigned to.
    pub(super) is_settled: bool,
    /// Time at which the next living member counts as dead, unless it renews its Lease.
    pub(super) next_death: Option<Instant>,
}

/// Members of a list, classified by liveness and layout.
struct Members<'a> {
    /// Identities of all living members.
    living: BTreeSet<&'a str>,
    /// Identities of the living members with the same layout as this member.
    mine: BTreeSet<&'a str>,
    /// Names of the Leases of dead members. A member that starts later would count them as living, and would wait for
    /// acquisitions that never happen.
    dead: Vec<&'a String>,
    next_death: Option<Instant>,
}

/// Decides the next actions from a list of Leases. Also returns the new memory.
pub(super) fn decide(me: &Me<'_>, observed: &Observed, memory: &Memory) -> (Decision, Memory) {
    let memory = remember(observed, memory);
    let members = classify(me, observed, &memory);
    let mut actions: Vec<Action> =
        members.dead.iter().map(|name| Action::Collect((*name).clone())).collect();
    // Once for each shard of this layout, or of another layout that has more shards.
    let n_listed = observed.shards.keys().next_back().map_or(0, |last| last.saturating_add(1));
    let foreign: Vec<u32> = (0..me.shards.max(n_listed))
        .filter(|shard| match observed.shards.get(shard) {
            Some(lease) => lease.layout != me.layout,
            None => *shard < me.shards,
        })
        .collect();
    let held: Vec<Option<&str>> = (0..me.shards)
        .map(|shard| {
            let lease = observed.shards.get(&shard).filter(|lease| lease.layout == me.layout)?;
            Some(&*lease.holder).filter(|holder| members.living.contains(holder))
        })
        .collect();
    let mine: Vec<&str> = members.mine.iter().copied().collect();
    let wanted = assign(&mine, &held);
    for (shard, (holder, wanted)) in (0..me.shards).zip(held.iter().zip(&wanted)) {
        let is_wanted = *wanted == Some(me.identity);
        let term = me.terms.by_shard().get(&shard);
        let listed = observed.shards.get(&shard);
        match (term, *holder) {
            (Some(term), _)
                if term.is_shown_by(observed.sent)
                    && listed.is_none_or(|lease| lease.version != term.version) =>
            {
                actions.push(Action::End(shard));
            }
            (Some(term), _)
                if !is_wanted && !term.is_leaving() && term.is_shown_by(observed.sent) =>
            {
                actions.push(Action::Leave(shard));
            }
            (Some(_), _) => {}
            (None, Some(holder)) if holder == me.identity && !is_wanted => {
                actions.push(Action::Release(shard));
            }
            (None, holder)
                if is_wanted
                    && foreign.is_empty()
                    && holder.is_none_or(|holder| holder == me.identity) =>
            {
                actions.push(Action::Acquire(shard));
            }
            (None, _) => {}
        }
    }
    let is_held = |shard: &u32| {
        observed.shards.get(shard).is_some_and(|lease| members.living.contains(&*lease.holder))
    };
    // Otherwise, members of two layouts that start together could wait for each other.
    let is_begun = held.iter().any(Option::is_some);
    let first = if is_begun { mine.first() } else { members.living.first() };
    if first == Some(&me.identity) && !me.terms.is_retiring() && !foreign.iter().any(is_held) {
        actions.extend(foreign.iter().copied().map(Action::Prepare));
    }
    let is_settled = foreign.is_empty() && held == wanted;
    (Decision { actions, is_settled, next_death: members.next_death }, memory)
}

/// Returns the memory after a list: a Lease that changed was renewed before the list was received.
fn remember(observed: &Observed, memory: &Memory) -> Memory {
    let entry = |(name, lease): (&String, &Listed)| {
        let known = memory.0.get(name).filter(|(version, _)| *version == lease.version);
        let since = known.map_or(observed.received, |(_, since)| *since);
        (name.clone(), (lease.version.clone(), since))
    };
    Memory(observed.members.iter().map(entry).collect())
}

/// Classifies members as living or dead. A member is dead if its Lease does not exist, or if a list that was sent a lease
/// duration after the last observed change shows no further change.
fn classify<'a>(me: &Me<'a>, observed: &'a Observed, memory: &Memory) -> Members<'a> {
    let mut members = Members {
        living: BTreeSet::from([me.identity]),
        mine: (!me.terms.is_retiring()).then_some(me.identity).into_iter().collect(),
        dead: Vec::new(),
        next_death: None,
    };
    for (name, lease) in observed.members.iter().filter(|(name, _)| *name != me.lease) {
        let since = memory.0.get(name).map_or(observed.received, |(_, since)| *since);
        let dies = since + lease.duration;
        if dies > observed.sent {
            members.living.insert(&lease.holder);
            if lease.layout == me.layout {
                members.mine.insert(&lease.holder);
            }
            members.next_death = Some(members.next_death.map_or(dies, |next| next.min(dies)));
        } else {
            members.dead.push(name);
        }
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::Clock, sharding::terms::Moment};

    const LEASE: Duration = Duration::from_secs(15);

    /// Leases of a test, with the member `b` as this one.
    struct World {
        start: Moment,
        members: BTreeMap<String, Listed>,
        shards: BTreeMap<u32, Listed>,
        terms: Terms,
        memory: Memory,
        n_shards: u32,
    }

    fn listed(holder: &str, version: &str, layout: &str) -> Listed {
        let (holder, version, layout) = (holder.into(), version.into(), layout.into());
        Listed { version, holder, layout, duration: LEASE }
    }

    impl World {
        /// Creates a case from the living members, the shards' holders, and the shards for which `b` has terms.
        fn new(members: &[&str], holders: &[&str], own: &[u32]) -> Self {
            let clock = Clock::system();
            let start = Moment { at: clock.instant(), wall: clock.now() };
            let mut terms = Terms::new(Duration::from_secs(10));
            terms.renewed(start, start);
            for shard in own {
                terms.begin_term(*shard, "1".into(), 0, start);
            }
            let members = members.iter().map(|name| ((*name).to_owned(), listed(name, "1", "l")));
            let shards =
                (0..).zip(holders).map(|(shard, holder)| (shard, listed(holder, "1", "l")));
            Self {
                start,
                members: members.collect(),
                shards: shards.collect(),
                terms,
                memory: Memory::default(),
                n_shards: u32::try_from(holders.len()).unwrap(),
            }
        }

        /// Decides from a list that is sent and received after this time.
        fn decide(&mut self, sent: u64, received: u64) -> Decision {
            let after = |seconds| self.start.at + Duration::from_secs(seconds);
            let (members, shards) = (self.members.clone(), self.shards.clone());
            let observed =
                Observed { members, shards, sent: after(sent), received: after(received) };
            let (identity, shards, terms) = ("b", self.n_shards, &self.terms);
            let me = Me { identity, lease: "b", layout: "l", shards, terms };
            let (decision, memory) = decide(&me, &observed, &self.memory);
            self.memory = memory;
            decision
        }

        fn actions(&mut self, at: u64) -> Vec<Action> {
            self.decide(at, at).actions
        }
    }

    #[tokio::test(start_paused = true)]
    async fn shards_move_to_a_new_member_after_their_release() {
        use Action::{Acquire, Leave};
        let mut old = World::new(&["b", "c"], &["b", "b", "b", "b"], &[0, 1, 2, 3]);
        assert_eq!(old.actions(1), [Leave(2), Leave(3)]);
        old.terms.leave(2, old.start);
        assert_eq!(old.actions(1), [Leave(3)], "it is leaving");
        let mut new = World::new(&["a", "b"], &["a", "a", "a", "a"], &[]);
        let decision = new.decide(1, 1);
        assert!(decision.actions.is_empty() && !decision.is_settled);
        new.shards.get_mut(&3).unwrap().holder.clear();
        assert_eq!(new.actions(1), [Acquire(3)]);
        let mut settled = World::new(&["a", "b"], &["b", "a"], &[0]);
        assert!(settled.decide(1, 1).is_settled);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_member_loses_its_shards() {
        let mut world = World::new(&["a", "b"], &["a", "b"], &[1]);
        let first = world.decide(1, 2);
        assert_eq!(first.next_death, Some(world.start.at + Duration::from_secs(17)));
        assert!(world.decide(16, 30).actions.is_empty(), "sent too early, whenever received");
        world.members.get_mut("a").unwrap().version = "2".into();
        assert!(world.decide(17, 18).actions.is_empty(), "renewed");
        assert!(world.decide(32, 32).actions.is_empty());
        let at_death = [Action::Collect("a".into()), Action::Acquire(0)];
        assert_eq!(world.actions(33), at_death, "15 s after it was received");
        let mut gone = World::new(&["b"], &["a", "b"], &[1]);
        assert_eq!(gone.actions(1), [Action::Acquire(0)], "its Lease is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_without_a_term_acquires_or_releases_what_has_its_name() {
        let mut world = World::new(&["a", "b"], &["b", "b", "b", "a"], &[]);
        let actions = world.actions(1);
        assert_eq!(actions, [Action::Acquire(0), Action::Acquire(1), Action::Release(2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_is_about_to_leave_gets_nothing() {
        let mut leaving = World::new(&["a", "b"], &["a", "b", "b"], &[1]);
        leaving.terms.retire(leaving.start);
        assert_eq!(leaving.actions(1), [Action::Release(2)], "the other one is leaving already");
        let mut staying = World::new(&["a", "b"], &["a", "", "b"], &[2]);
        staying.members.get_mut("a").unwrap().layout = super::super::leases::LEAVING.into();
        assert_eq!(staying.actions(1), [Action::Acquire(1)], "not what the other one still holds");
    }

    #[tokio::test(start_paused = true)]
    async fn a_term_ends_if_the_lease_was_changed() {
        let mut world = World::new(&["b"], &["b", "b"], &[0, 1]);
        world.shards.get_mut(&1).unwrap().version = "2".into();
        assert_eq!(world.actions(0), [Action::End(1)]);
        let (start, later) = (world.start, Duration::from_secs(5));
        world.terms.end(1);
        world.terms.begin_term(1, "3".into(), 0, Moment { at: start.at + later, ..start });
        assert!(world.actions(4).is_empty(), "the list is older than the term");
    }

    #[tokio::test(start_paused = true)]
    async fn leases_are_prepared_by_the_first_member() {
        use Action::Prepare;
        let mut alone = World::new(&["b", "c"], &["", ""], &[]);
        alone.shards.clear();
        assert_eq!(alone.actions(1), [Prepare(0), Prepare(1)]);
        let mut second = World::new(&["a", "b"], &["", ""], &[]);
        second.shards.clear();
        assert!(second.actions(1).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn layouts_take_turns() {
        use Action::{Acquire, Prepare};
        let mut world = World::new(&["b", "c"], &["c", ""], &[]);
        world.members.get_mut("c").unwrap().layout = "other".into();
        world.shards.get_mut(&0).unwrap().layout = "other".into();
        world.shards.insert(2, listed("", "1", "other"));
        assert!(world.actions(1).is_empty(), "c works");
        let collect = Action::Collect("c".into());
        assert_eq!(world.actions(30), [collect, Prepare(0), Prepare(2)], "c is dead");
        world.members.remove("c");
        world.shards.get_mut(&0).unwrap().layout = "l".into();
        assert_eq!(world.actions(31), [Prepare(2)], "none is acquired yet");
        world.shards.get_mut(&2).unwrap().layout = "l".into();
        assert_eq!(world.actions(32), [Acquire(0), Acquire(1)]);
    }
}
