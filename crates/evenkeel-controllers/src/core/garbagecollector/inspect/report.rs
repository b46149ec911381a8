//! Report about an object from the graph: its owners and dependents, and the collector's next actions. No I/O.

use super::super::{
    DESCRIPTOR,
    graph::{Coordinates, FOREGROUND, Graph, Node, ORPHAN, Uid},
    plan::{Decision, OwnerClass, plan},
};
use crate::words;
use evenkeel_api::{Meta, OwnerReference, time::Timestamp};
use evenkeel_runtime::introspect::{Description, ObjectReport, Subject};

/// Maximum number of dependents listed by name.
const MAX_LISTED_DEPENDENTS: usize = 20;

/// Returns the uid of an object and the report about it, or `None` if the graph does not contain the object.
pub(in super::super) fn report(
    graph: &Graph,
    subject: &Subject,
    now: Timestamp,
) -> Option<(Uid, ObjectReport)> {
    let (uid, node) = graph.find(|coordinates| matches_subject(coordinates, subject))?;
    let description = describe(graph, uid, node);
    let report = ObjectReport {
        controller: DESCRIPTOR.name.to_owned(),
        object: subject_of(&node.coordinates),
        exists: !node.is_virtual,
        sees: description.facts,
        would: next_actions(graph, uid, node, now),
        waits: description.waits,
        children: description.children,
        ..ObjectReport::default()
    };
    Some((uid.clone(), report))
}

/// Returns the group of an `apiVersion`. The core group is empty.
fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Returns whether the coordinates match `subject`. A subject without a kind matches objects of any kind.
pub(in super::super) fn matches_subject(coordinates: &Coordinates, subject: &Subject) -> bool {
    let kind_matches = subject.kind.is_empty()
        || (*coordinates.kind == *subject.kind && group(&coordinates.api_version) == subject.group);
    kind_matches
        && *coordinates.namespace == *subject.namespace
        && *coordinates.name == *subject.name
}

/// Returns the subject with these coordinates.
fn subject_of(coordinates: &Coordinates) -> Subject {
    Subject::new(
        group(&coordinates.api_version),
        &coordinates.kind,
        &coordinates.namespace,
        &coordinates.name,
    )
}

/// Describes the object's owners and dependents, and its progress of deletion.
fn describe(graph: &Graph, uid: &Uid, node: &Node) -> Description {
    let mut description = Description::new();
    for owner in &node.owners {
        let state = match graph.node(&owner.uid) {
            None => "is not known from any watch",
            Some(owner) if owner.is_virtual => "is known from references only",
            Some(owner) if owner.deleting_dependents => "waits for its dependents to be deleted",
            Some(owner) if owner.deleting => "is being deleted",
            Some(_) => "exists",
        };
        let blocks = if owner.block_owner_deletion { ", whose deletion it blocks" } else { "" };
        description.fact("owner", format!("{} {} {state}{blocks}", owner.kind, owner.name));
    }
    let dependent_count = node.dependents.len();
    if dependent_count > 0 {
        description.fact("dependents", dependent_count);
    }
    for (_, dependent) in graph.dependents(uid).take(MAX_LISTED_DEPENDENTS) {
        description.children.push(subject_of(&dependent.coordinates));
    }
    if node.deleting_dependents {
        let blocking_count = graph.blocking_dependents(uid).count();
        let blocking = words::count(words::signed(blocking_count), "dependent");
        description.waits(format!("its deletion waits for {blocking} (foreground)"));
    } else if node.orphaning {
        description.waits("its deletion waits until its dependents are orphans (orphan)");
    } else if node.deleting {
        description.waits("it is being deleted; others' finalizers or a grace period hold it");
    }
    description
}

/// Returns the next actions, assuming that live reads agree with the graph.
fn next_actions(graph: &Graph, uid: &Uid, node: &Node, now: Timestamp) -> Vec<String> {
    // Returns `None` if only a live read can classify the owner.
    let classify = |owner: &OwnerReference| match graph.node(&owner.uid) {
        Some(owner) if owner.is_virtual => None,
        Some(owner) if owner.deleting_dependents => Some(OwnerClass::WaitingForDependents),
        Some(_) => Some(OwnerClass::Solid),
        None => Some(OwnerClass::Dangling),
    };
    let classified = node.owners.iter().map(|owner| Some((owner.clone(), classify(owner)?)));
    let owners: Option<Vec<_>> = classified.collect();
    let Some(owners) = owners else {
        return vec!["read live whether the owners exist that no watch has shown".to_owned()];
    };
    let finalizers = [
        node.deleting_dependents.then(|| FOREGROUND.into()),
        node.orphaning.then(|| ORPHAN.into()),
    ];
    let presumed_live = Meta {
        deletion: node.deleting.then_some(now),
        finalizers: finalizers.into_iter().flatten().collect(),
        owners: node.owners.clone(),
        ..Meta::default()
    };
    let Coordinates { kind, name, .. } = &node.coordinates;
    match plan(graph, uid, &presumed_live, &owners) {
        Decision::Nothing => Vec::new(),
        Decision::AttemptToDelete(dependents) => {
            let dependents = words::count(words::signed(dependents.len()), "dependent");
            vec![format!("look at {dependents} of {kind} {name} first")]
        }
        Decision::RemoveForegroundFinalizer => {
            vec![format!("remove the finalizer {FOREGROUND} from {kind} {name}")]
        }
        Decision::RemoveOwnerReferences(deleted) => {
            let references = words::count(words::signed(deleted.len()), "reference");
            vec![format!("take {references} to owners that do not exist off {kind} {name}")]
        }
        Decision::Delete { .. } => {
            vec![format!("delete {kind} {name}: none of its owners exists (after live reads)")]
        }
    }
}
