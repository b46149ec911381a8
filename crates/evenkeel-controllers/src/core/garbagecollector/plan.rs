//! What becomes of one object: deleted, freed of owners that are gone, unblocked, or left alone.
//!
//! Decided from what live reads say of the object and of its owners, never from caches: nothing is deleted on partial or
//! old knowledge. Upstream: `attemptToDeleteItem` in `pkg/controller/garbagecollector/garbagecollector.go`.
//!
//! | documented | where |
//! |---|---|
//! | `ownerReferences`: gone when all owners are gone, without those that are | `plan` |
//! | `propagationPolicy`: `Background` | `plan` |
//! | `propagationPolicy`: `Foreground`, finalizer `foregroundDeletion` | `plan`, `act::carry_out` |
//! | `propagationPolicy`: `Orphan`, finalizer `orphan` | `act::orphan` |
//! | `blockOwnerDeletion` | `graph::blocking` |
//! | owners in another namespace: `OwnerRefInvalidNamespace` | `graph::check_dependents`, `graph::link` |
//! | owners that nobody has seen, and a `uid` that is no more | `of`, `graph::not_found`, `absent::AbsentOwners` |
//! | how objects get these finalizers | `../../../../evenkeel-apiserver/src/verbs/delete_options.rs` |

use super::graph::{FOREGROUND, Graph, ORPHAN, Uid};
use evenkeel_api::{Meta, OwnerReference, Text};
use evenkeel_runtime::plan::Propagation;

/// What a live read says of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnerState {
    /// It exists.
    Solid,
    /// It exists, and its deletion waits for its dependents.
    WaitingForDependents,
    /// It does not exist.
    Absent,
}

impl OwnerState {
    /// The state of an owner from a live read; `None` when there is no such object.
    pub(crate) fn of(live: Option<&Meta>, uid: &str) -> Self {
        match live {
            Some(meta) if *meta.uid == *uid => {
                if meta.deleting() && has(meta, FOREGROUND) {
                    Self::WaitingForDependents
                } else {
                    Self::Solid
                }
            }
            _ => Self::Absent,
        }
    }
}

/// What to do with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    Leave,
    /// Look at these objects first.
    Visit(Vec<Uid>),
    /// Take the foreground finalizer off: nothing blocks any more.
    FinishForeground,
    /// Take these owners (by uid) off.
    RemoveOwners(Vec<Text>),
    /// Delete it, first unblocking its owners if a cycle of waits has to be broken.
    Delete {
        /// What becomes of its own dependents.
        propagation: Propagation,
        /// Whether its own references must stop blocking first.
        unblock: bool,
    },
}

/// Decides about the object `uid`, of which a live read gave `live`, with the state of each of its owners.
pub(crate) fn plan(
    graph: &Graph,
    uid: &str,
    live: &Meta,
    owners: &[(OwnerReference, OwnerState)],
) -> Step {
    let waits = graph.node(uid).is_some_and(|node| node.deleting_dependents);
    if live.deleting() && !waits {
        return Step::Leave;
    }
    if waits {
        let blocking: Vec<Uid> = graph
            .blocking(uid)
            .filter(|(_, node)| !node.deleting_dependents)
            .map(|(uid, _)| uid.clone())
            .collect();
        let any = graph.blocking(uid).next().is_some();
        return if any { Step::Visit(blocking) } else { Step::FinishForeground };
    }
    if owners.is_empty() {
        return Step::Leave;
    }
    let of = |state: OwnerState| owners.iter().filter(move |(_, s)| *s == state);
    if of(OwnerState::Solid).next().is_some() {
        let removable: Vec<Text> = owners
            .iter()
            .filter(|(_, state)| *state != OwnerState::Solid)
            .map(|(owner, _)| owner.uid.clone())
            .collect();
        return if removable.is_empty() { Step::Leave } else { Step::RemoveOwners(removable) };
    }
    let has_dependents = graph.dependents(uid).next().is_some();
    if of(OwnerState::WaitingForDependents).next().is_some() && has_dependents {
        let unblock = graph.dependents(uid).any(|(_, node)| node.deleting_dependents);
        return Step::Delete { propagation: Propagation::Foreground, unblock };
    }
    let propagation = if has(live, ORPHAN) {
        Propagation::Orphan
    } else if has(live, FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    Step::Delete { propagation, unblock: false }
}

fn has(meta: &Meta, finalizer: &str) -> bool {
    meta.finalizers.iter().any(|name| **name == *finalizer)
}
