//! Decision about one object: delete it, remove references to absent owners, unblock its owners, or nothing.
//!
//! The decision uses live reads of the object and of its owners, not watch caches. `absent_owner_cache` keeps the
//! uids of owners that a live read did not find, so that their other dependents need no read. Upstream:
//! `attemptToDeleteItem`, `processDeletingDependentsItem` and `classifyReferences` in
//! `pkg/controller/garbagecollector/garbagecollector.go`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `ownerReferences`: an object is deleted when all its owners are absent | `plan`, `act::classify_references` |
//! | an owner is dangling: no object with its `uid` is at its coordinates (apiVersion, kind, namespace, name) | `classify`, `absent_owner_cache::AbsentOwnerCache` |
//! | `propagationPolicy`: `Background` | `plan` |
//! | `propagationPolicy`: `Foreground`, finalizer `foregroundDeletion` | `plan`, `act::execute` |
//! | `propagationPolicy`: `Orphan`, finalizer `orphan` | `act::orphan_dependents` |
//! | `blockOwnerDeletion` | `graph::blocking_dependents` |
//! | owners in another namespace: `OwnerRefInvalidNamespace` | `graph::requeue_mismatched_dependents`, `graph::add_dependent` |
//! | an owner is known from references only (virtual node) | `graph::process_virtual_delete`, `graph::alternate_owner_coordinates` |
//! | the API server adds these finalizers | `../../../../evenkeel-apiserver/src/verbs/delete_options.rs` |

use super::graph::{FOREGROUND, Graph, ORPHAN, Uid};
use evenkeel_api::{Meta, OwnerReference, Text};
use evenkeel_runtime::plan::Propagation;

/// Class of an owner reference, by a live read. Upstream: `classifyReferences`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnerClass {
    /// The owner exists and stays. Upstream: `solid`.
    Solid,
    /// The owner exists, and its foreground deletion waits for dependents. Upstream: `waitingForDependentsDeletion`.
    WaitingForDependents,
    /// No object with the referenced uid is at the referenced coordinates: apiVersion, kind, namespace and name.
    /// Upstream: `dangling`, `isDangling`.
    Dangling,
}

impl OwnerClass {
    /// Classifies an owner. `live` is the object at the owner's coordinates; `None` if it is absent or has another uid.
    ///
    /// Upstream: `isDangling`.
    pub(crate) fn classify(live: Option<&Meta>) -> Self {
        match live {
            Some(meta) if meta.deleting() && has_finalizer(meta, FOREGROUND) => {
                Self::WaitingForDependents
            }
            Some(_) => Self::Solid,
            None => Self::Dangling,
        }
    }
}

/// Decision about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Leave the object as it is.
    Nothing,
    /// Enqueue these dependents, which block the object's foreground deletion.
    AttemptToDelete(Vec<Uid>),
    /// Remove the finalizer `foregroundDeletion`, because no dependent blocks.
    RemoveForegroundFinalizer,
    /// Remove the owner references with these uids.
    RemoveOwnerReferences(Vec<Text>),
    /// Delete the object.
    Delete {
        /// Propagation policy of the deletion, which decides about the object's own dependents.
        propagation: Propagation,
        /// Whether the object's references stop blocking its owners first, which breaks a cycle of foreground
        /// deletions. Upstream: `unblockOwnerReferencesStrategicMergePatch`.
        unblock_owner_references: bool,
    },
}

/// Decides about the object `uid` from a live read of it and the class of each of its owners.
pub(crate) fn plan(
    graph: &Graph,
    uid: &str,
    live: &Meta,
    owners: &[(OwnerReference, OwnerClass)],
) -> Decision {
    if graph.node(uid).is_some_and(|node| node.deleting_dependents) {
        return process_deleting_dependents(graph, uid);
    }
    if live.deleting() || owners.is_empty() {
        return Decision::Nothing;
    }
    let any_owner_is =
        |class: OwnerClass| owners.iter().any(|(_, owner_class)| *owner_class == class);
    if any_owner_is(OwnerClass::Solid) {
        let removable: Vec<Text> = owners
            .iter()
            .filter(|(_, class)| *class != OwnerClass::Solid)
            .map(|(owner, _)| owner.uid.clone())
            .collect();
        return if removable.is_empty() {
            Decision::Nothing
        } else {
            Decision::RemoveOwnerReferences(removable)
        };
    }
    let has_dependents = graph.dependents(uid).next().is_some();
    if any_owner_is(OwnerClass::WaitingForDependents) && has_dependents {
        let unblock_owner_references =
            graph.dependents(uid).any(|(_, node)| node.deleting_dependents);
        return Decision::Delete { propagation: Propagation::Foreground, unblock_owner_references };
    }
    let propagation = if has_finalizer(live, ORPHAN) {
        Propagation::Orphan
    } else if has_finalizer(live, FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    Decision::Delete { propagation, unblock_owner_references: false }
}

/// Decides about an object whose foreground deletion waits for its dependents. Upstream:
/// `processDeletingDependentsItem`.
fn process_deleting_dependents(graph: &Graph, uid: &str) -> Decision {
    if graph.blocking_dependents(uid).next().is_none() {
        return Decision::RemoveForegroundFinalizer;
    }
    let to_enqueue = graph
        .blocking_dependents(uid)
        .filter(|(_, node)| !node.deleting_dependents)
        .map(|(uid, _)| uid.clone());
    Decision::AttemptToDelete(to_enqueue.collect())
}

/// Returns whether the object has this finalizer.
fn has_finalizer(meta: &Meta, finalizer: &str) -> bool {
    meta.finalizers.iter().any(|name| **name == *finalizer)
}
