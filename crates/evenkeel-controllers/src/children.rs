//! Maps events of a child to the owners to enqueue.

use crate::owned::resolve_controller_ref;
use evenkeel_api::{Meta, View};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent},
    plan::Key,
};

/// Enqueues the owner that controls the child. If an update changed the controller, enqueues the old one as well. For
/// an orphan, enqueues the owners that pass `may_adopt`. An update that changes neither controller nor labels enqueues
/// the owner only if `affects_owner` returns true for the old and the new child.
///
/// Upstream: `addPod`, `updatePod`, `deletePod` of each controller.
pub(crate) fn on_child<O: View, C: View>(
    owners: &Cache<O>,
    event: &CacheEvent<C>,
    may_adopt: impl Fn(&O, &C) -> bool,
    affects_owner: impl Fn(&C, &C) -> bool,
    mut enqueue: impl FnMut(Key),
) {
    match event {
        CacheEvent::Added { object: child, .. } => {
            if !enqueue_owner(owners, child.meta(), &mut enqueue) {
                enqueue_adopters(owners, &**child, may_adopt, enqueue);
            }
        }
        CacheEvent::Updated { old, new } => {
            let before = old.meta();
            let after = new.meta();
            if before.resource_version == after.resource_version {
                return;
            }
            let controller_changed = before.controller() != after.controller();
            if controller_changed {
                enqueue_owner(owners, before, &mut enqueue);
            }
            let labels_changed = before.labels != after.labels;
            if after.controller().is_some() {
                if controller_changed || labels_changed || affects_owner(old, new) {
                    enqueue_owner(owners, after, &mut enqueue);
                }
            } else if controller_changed || labels_changed {
                enqueue_adopters(owners, &**new, may_adopt, enqueue);
            }
        }
        // The deletion of an orphan affects no owner.
        CacheEvent::Deleted(child) => {
            enqueue_owner(owners, child.meta(), &mut enqueue);
        }
    }
}

/// Enqueues the child's controller if `owners` has it. Returns whether the child has a controller of any kind.
fn enqueue_owner<O: View>(owners: &Cache<O>, child: &Meta, enqueue: &mut impl FnMut(Key)) -> bool {
    let Some(controller) = child.controller() else { return false };
    if let Some(owner) = resolve_controller_ref(owners, &child.namespace, controller) {
        enqueue(Key::of(owner.meta()));
    }
    true
}

/// Enqueues the owners that may adopt an orphan. No owner adopts an orphan without labels, or one that is being
/// deleted.
fn enqueue_adopters<O: View, C: View>(
    owners: &Cache<O>,
    child: &C,
    may_adopt: impl Fn(&O, &C) -> bool,
    mut enqueue: impl FnMut(Key),
) {
    let meta = child.meta();
    if meta.labels.is_empty() || meta.deleting() {
        return;
    }
    let candidates = owners.namespace(&meta.namespace);
    candidates
        .iter()
        .filter(|owner| may_adopt(owner, child))
        .for_each(|owner| enqueue(Key::of(owner.meta())));
}
