//! What the garbage collector tells of itself, and of one object: its owners and dependents as the graph has them.

use super::{
    DESCRIPTOR, GarbageCollector,
    graph::{FOREGROUND, Graph, Node, ORPHAN, Place, Uid},
    plan::{OwnerState, Step, plan},
};
use crate::words;
use evenkeel_api::{Meta, OwnerReference, time::Timestamp};
use evenkeel_runtime::{
    introspect::{ControllerReport, Description, Inspect, ObjectReport, QueueState, Subject},
    queue::Queue,
};
use std::time::Duration;
use tokio::time::Instant;

/// Dependents that are named one by one.
const NAMED: usize = 20;

impl Inspect for GarbageCollector {
    fn name(&self) -> &str {
        DESCRIPTOR.name
    }

    fn report(&self) -> ControllerReport {
        let (delete, orphan) = (self.0.delete.look(0), self.0.orphan.look(0));
        let mut told = Description::new();
        {
            let graph = self.graph();
            let (known, only_named) = graph.counts();
            told.fact("objects", known);
            told.fact("owners known from references only", only_named);
        }
        told.fact("to be orphaned", orphan.ready + orphan.running + orphan.delayed);
        ControllerReport {
            name: DESCRIPTOR.name.to_owned(),
            workers: self.0.workers,
            queue: QueueState {
                ready: delete.ready + orphan.ready,
                in_flight: delete.running + orphan.running,
                delayed: delete.delayed + orphan.delayed,
                backing_off: delete.failing + orphan.failing,
                ..QueueState::default()
            },
            errors: self.0.history.errors(),
            facts: told.facts,
            ..ControllerReport::default()
        }
    }

    fn object(&self, subject: &Subject) -> Option<ObjectReport> {
        let (uid, mut told) = report(&self.graph(), subject, self.0.env.clock.now())?;
        for (queue, what) in [(&self.0.delete, "deleted"), (&self.0.orphan, "orphaned")] {
            if let Some(why) = queued(queue, &uid) {
                told.waits.push(format!("{why} to see whether it has to be {what}"));
            }
        }
        told.last = self.0.history.last(&subject.key());
        Some(told)
    }
}

/// What a graph has to say of an object, and its uid.
pub(super) fn report(
    graph: &Graph,
    subject: &Subject,
    now: Timestamp,
) -> Option<(Uid, ObjectReport)> {
    let (uid, node) = graph.find(|place| is_at(place, subject))?;
    let told = describe(graph, uid, node);
    let report = ObjectReport {
        controller: DESCRIPTOR.name.to_owned(),
        object: subject_of(&node.place),
        exists: !node.is_virtual,
        sees: told.facts,
        would: next(graph, uid, node, now),
        waits: told.waits,
        children: told.children,
        ..ObjectReport::default()
    };
    Some((uid.clone(), report))
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Whether a place is the one that is asked about.
pub(super) fn is_at(place: &Place, subject: &Subject) -> bool {
    let kind = subject.kind.is_empty()
        || (*place.kind == *subject.kind && group(&place.api_version) == subject.group);
    kind && *place.namespace == *subject.namespace && *place.name == *subject.name
}

fn subject_of(place: &Place) -> Subject {
    Subject::new(group(&place.api_version), &place.kind, &place.namespace, &place.name)
}

fn describe(graph: &Graph, uid: &Uid, node: &Node) -> Description {
    let mut told = Description::new();
    for owner in &node.owners {
        let state = match graph.node(&owner.uid) {
            None => "is in no watch's sight",
            Some(owner) if owner.is_virtual => "is known from references only",
            Some(owner) if owner.deleting_dependents => "waits for its dependents to be deleted",
            Some(owner) if owner.deleting => "is being deleted",
            Some(_) => "exists",
        };
        let blocks = if owner.block_owner_deletion { ", whose deletion it blocks" } else { "" };
        told.fact("owner", format!("{} {} {state}{blocks}", owner.kind, owner.name));
    }
    let n_dependents = node.dependents.len();
    if n_dependents > 0 {
        told.fact("dependents", n_dependents);
    }
    for (_, dependent) in graph.dependents(uid).take(NAMED) {
        told.children.push(subject_of(&dependent.place));
    }
    if node.deleting_dependents {
        let blocking = graph.blocking(uid).count();
        let blocking = words::count(words::signed(blocking), "dependent");
        told.waits(format!("its deletion waits for {blocking} (foreground)"));
    } else if node.orphaning {
        told.waits("its deletion waits until its dependents have let go of it (orphan)");
    } else if node.deleting {
        told.waits("it is being deleted; others' finalizers or a grace period hold it");
    }
    told
}

/// What a visit would come to if live reads said what the graph says.
fn next(graph: &Graph, uid: &Uid, node: &Node, now: Timestamp) -> Vec<String> {
    let state = |owner: &OwnerReference| match graph.node(&owner.uid) {
        Some(owner) if owner.is_virtual => None,
        Some(owner) if owner.deleting_dependents => Some(OwnerState::WaitingForDependents),
        Some(_) => Some(OwnerState::Solid),
        None => Some(OwnerState::Absent),
    };
    let owners: Option<Vec<_>> =
        node.owners.iter().map(|owner| Some((owner.clone(), state(owner)?))).collect();
    let Some(owners) = owners else {
        return vec!["read live whether the owners exist that no watch has shown".to_owned()];
    };
    let finalizer = |on: bool, name: &str| on.then(|| name.into());
    let finalizers =
        [finalizer(node.deleting_dependents, FOREGROUND), finalizer(node.orphaning, ORPHAN)];
    let live = Meta {
        deletion: node.deleting.then_some(now),
        finalizers: finalizers.into_iter().flatten().collect(),
        owners: node.owners.clone(),
        ..Meta::default()
    };
    let Place { kind, name, .. } = &node.place;
    match plan(graph, uid, &live, &owners) {
        Step::Leave => Vec::new(),
        Step::Visit(first) => {
            let objects = words::count(words::signed(first.len()), "dependent");
            vec![format!("look at {objects} of {kind} {name} first")]
        }
        Step::FinishForeground => {
            vec![format!("take the finalizer {FOREGROUND} off {kind} {name}")]
        }
        Step::RemoveOwners(gone) => {
            let references = words::count(words::signed(gone.len()), "reference");
            vec![format!("take {references} to owners that do not exist off {kind} {name}")]
        }
        Step::Delete { .. } => {
            vec![format!("delete {kind} {name}: none of its owners exists (after live reads)")]
        }
    }
}

/// Where the object is in a queue, if it is in it.
fn queued(queue: &Queue<Uid>, uid: &Uid) -> Option<String> {
    let place = queue.place(uid);
    let failures = queue.num_requeues(uid);
    let now = Instant::now();
    if place.running.is_some() {
        Some("is being looked at".to_owned())
    } else if place.ready.is_some() {
        Some("is to be looked at".to_owned())
    } else {
        let left: Duration = place.due?.saturating_duration_since(now);
        let left = words::time(left);
        Some(format!("back-off: is looked at again in {left}, after {failures} failures,"))
    }
}
