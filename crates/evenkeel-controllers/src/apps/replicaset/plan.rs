//! Which pods a set makes or deletes.
//!
//! The pods that are its own are counted; too few are made up for in bursts, of too many the least useful go first.

use super::set::Set;
use crate::{apps::TERMINATING, claim::Claims, needs::Gates, pods, victims, wire};
use evenkeel_api::{View, time::Timestamp, views::Pod};
use evenkeel_runtime::plan::{Action, Create, Delete, Note, Plan, Target};
use std::{cmp::Ordering, sync::Arc};

/// The most pods made or deleted in one pass (upstream's `BurstReplicas`).
pub(crate) const BURST: usize = 500;

/// What feature gates say of the decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Whether the status counts pods being deleted, where its kind has room for that.
    pub(crate) counts_terminating: bool,
    /// Whether pods that their owners call cheap go first.
    pub(crate) costs: bool,
}

impl Rules {
    /// As these gates have it.
    pub(crate) fn of(gates: &Gates) -> Self {
        Self {
            counts_terminating: gates.enabled(TERMINATING),
            costs: gates.enabled("PodDeletionCost"),
        }
    }
}

/// What a set's decision looks at.
#[derive(Debug)]
pub(crate) struct Seen<S> {
    /// The set.
    pub(crate) set: Arc<S>,
    /// Active pods, and whose they are.
    pub(crate) pods: Claims<Pod>,
    /// How many of its pods are being deleted.
    pub(crate) n_terminating: usize,
    /// Pods of all sets that have the set's own controller: the more of them on a node, the rather a pod there goes.
    pub(crate) related: Vec<Arc<Pod>>,
    /// What feature gates say.
    pub(crate) rules: Rules,
}

impl<S: Set> Seen<S> {
    /// Sorts what caches hold: pods that the set controls or nobody does, in any order. `related` is asked for only where
    /// pods must be chosen among.
    pub(crate) fn new(
        set: Arc<S>,
        candidates: impl IntoIterator<Item = Arc<Pod>>,
        related: impl FnOnce() -> Vec<Arc<Pod>>,
        rules: Rules,
    ) -> Self {
        if !set.selects() {
            let (pods, related) = (Claims::default(), Vec::new());
            return Self { set, pods, n_terminating: 0, related, rules };
        }
        let mut n_terminating = 0;
        let active = candidates.into_iter().filter(|pod| {
            let own = || pod.meta.controlled_by(&set.meta().uid) && set.matches(&pod.meta.labels);
            n_terminating += usize::from(pods::is_terminating(pod) && own());
            pods::is_active(pod)
        });
        let pods = Claims::by_labels(set.meta(), active, |labels| set.matches(labels));
        let have = pods.owned.len();
        let surplus = have.saturating_sub(wanted(&*set)).min(BURST);
        let must_choose = surplus > 0 && surplus < have;
        let related = if must_choose { related() } else { Vec::new() };
        Self { set, pods, n_terminating, related, rules }
    }
}

/// Pods that the set asks for.
fn wanted<S: Set>(set: &S) -> usize {
    usize::try_from(set.replicas()).unwrap_or(0)
}

/// Too few (`Less`), as many as wanted, or too many.
pub(crate) fn balance<S: Set>(seen: &Seen<S>) -> Ordering {
    seen.pods.owned.len().cmp(&wanted(&*seen.set))
}

/// What to do: claims first, then pods made or deleted.
pub(crate) fn plan<S: Set>(seen: &Seen<S>, now: Timestamp) -> Plan {
    let set = &*seen.set;
    if !set.selects() {
        return Plan::nothing();
    }
    let target = wire::target(set);
    let mut plan = Plan { actions: seen.pods.actions(&target).collect(), requeue: None };
    if set.meta().deleting() {
        return plan;
    }
    let (have, want) = (seen.pods.owned.len(), wanted(set));
    match balance(seen) {
        Ordering::Less if unusable(set).is_some() => {}
        Ordering::Less => plan.push(create(set, &target, (want - have).min(BURST))),
        Ordering::Equal => {}
        Ordering::Greater => {
            plan.actions.extend(delete(seen, &target, (have - want).min(BURST), now));
        }
    }
    plan
}

/// Why no pods can be made from the set's template, if so: they would not be its own, and it would make them for ever. The
/// API server admits no such set.
pub(crate) fn unusable<S: Set>(set: &S) -> Option<&'static str> {
    let labels = &set.template().labels;
    if labels.is_empty() {
        Some("unable to create pods, no labels")
    } else if !set.matches(labels) {
        Some("unable to create pods, the selector does not match the template's labels")
    } else {
        None
    }
}

fn create<S: Set>(set: &S, target: &Target, count: usize) -> Create {
    Create {
        count: u32::try_from(count).unwrap_or(u32::MAX),
        done: Some(Note::normal(target.clone(), "SuccessfulCreate", "Created pod: {name}")),
        failed: Some(Note::warning(target.clone(), "FailedCreate", "Error creating: {error}")),
        ..Create::new(Pod::kind(), &set.meta().namespace, pod(set, target))
    }
}

fn pod<S: Set>(set: &S, target: &Target) -> String {
    let meta = set.meta();
    let owner = wire::controller_reference(target);
    set.template().pod_json(&format!("{}-", meta.name), &meta.namespace, &owner)
}

/// Pods that are only just being adopted are left for the next pass: one plan does not both take and delete a pod.
fn delete<S: Set>(
    seen: &Seen<S>,
    target: &Target,
    count: usize,
    now: Timestamp,
) -> impl Iterator<Item = Action> {
    let owned = &seen.pods.owned;
    let adopted = &owned[owned.len() - seen.pods.adopt..];
    let victims = victims::choose(owned, &seen.related, count, seen.rules.costs, now);
    let kept = |pod: &Arc<Pod>| !adopted.iter().any(|new| Arc::ptr_eq(new, pod));
    victims.into_iter().filter(kept).map(|pod| {
        let done = format!("Deleted pod: {}", pod.meta.name);
        Action::Delete(Delete {
            done: Some(Note::normal(target.clone(), "SuccessfulDelete", done)),
            failed: Some(Note::warning(target.clone(), "FailedDelete", "Error deleting: {error}")),
            ..Delete::new(wire::target(&*pod))
        })
    })
}
