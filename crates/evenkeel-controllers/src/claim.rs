//! Adoption and release of children by selector and controller reference. Upstream: `controller_ref_manager.go`.

use crate::wire;
use evenkeel_api::{Meta, StrMap, View};
use evenkeel_runtime::plan::{Action, OnError, Patch, PatchType, Target};
use std::sync::Arc;

/// Status codes of a release patch that count as success. The API server responds with 422 if the child lacks the owner
/// reference, or if an object with another uid has its name.
const NOTHING_TO_RELEASE: &[u16] = &[422];

/// Children of an owner: those that it controls, those to adopt, and those to release.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Claims<C> {
    /// Children that the owner controls once the patches are written. Adopted ones are last.
    pub(crate) owned: Vec<Arc<C>>,
    /// Number of children at the end of `owned` that are still to be adopted.
    pub(crate) n_to_adopt: usize,
    /// Children that the owner controls and its selector no longer matches.
    pub(crate) release: Vec<Arc<C>>,
}

/// Returns the predicate with its last result cached. That is enough, because most pods of an owner share one
/// allocation of their labels.
pub(crate) fn cached_for_last_labels(
    predicate: impl Fn(&StrMap) -> bool,
) -> impl FnMut(&StrMap) -> bool {
    let mut last: Option<(StrMap, bool)> = None;
    move |labels| match &last {
        Some((last_labels, result)) if last_labels.is_same(labels) => *result,
        _ => last.insert((labels.clone(), predicate(labels))).1,
    }
}

impl<C> Default for Claims<C> {
    fn default() -> Self {
        Self { owned: Vec::new(), n_to_adopt: 0, release: Vec::new() }
    }
}

impl<C: View> Claims<C> {
    /// Classifies candidates as [`Self::new`] does, for an owner that selects by labels only.
    pub(crate) fn by_labels(
        owner: &Meta,
        candidates: impl IntoIterator<Item = Arc<C>>,
        selects: impl Fn(&StrMap) -> bool,
    ) -> Self {
        let mut selects = cached_for_last_labels(selects);
        Self::new(owner, candidates, |child| selects(&child.meta().labels))
    }

    /// Classifies candidates as owned, to adopt, or to release. An owner that is being deleted neither adopts nor
    /// releases. Upstream: `ClaimObject`.
    pub(crate) fn new(
        owner: &Meta,
        candidates: impl IntoIterator<Item = Arc<C>>,
        mut matches: impl FnMut(&C) -> bool,
    ) -> Self {
        let mut owned = Vec::new();
        let mut adopt = Vec::new();
        let mut release = Vec::new();
        for child in candidates {
            let meta = child.meta();
            match meta.controller() {
                Some(controller) if controller.uid != owner.uid => {}
                Some(_) if matches(&child) => owned.push(child),
                Some(_) if !owner.deleting() => release.push(child),
                None if !owner.deleting()
                    && !meta.deleting()
                    && meta.namespace == owner.namespace
                    && matches(&child) =>
                {
                    adopt.push(child);
                }
                Some(_) | None => {}
            }
        }
        adopt.sort_unstable_by(|a, b| a.meta().name.cmp(&b.meta().name));
        release.sort_unstable_by(|a, b| a.meta().name.cmp(&b.meta().name));
        let n_to_adopt = adopt.len();
        owned.append(&mut adopt);
        Self { owned, n_to_adopt, release }
    }

    /// Returns the number of actions in [`Self::actions`].
    pub(crate) fn n_actions(&self) -> usize {
        self.n_to_adopt + self.release.len()
    }

    /// Returns the patches: adoptions, each after a live read of the owner, then releases. Upstream: `AdoptPod`,
    /// `ReleasePod`.
    pub(crate) fn actions(&self, owner: &Target) -> impl Iterator<Item = Action> {
        self.patches(owner, String::new())
    }

    /// Returns [`Self::actions`], in which adoptions also add a finalizer.
    pub(crate) fn actions_with_finalizer(
        &self,
        owner: &Target,
        finalizer: &str,
    ) -> impl Iterator<Item = Action> {
        self.patches(owner, format!(r#","finalizers":["{finalizer}"]"#))
    }

    /// Returns the patches of the children to adopt and to release. `extra_metadata` is added to the metadata of an
    /// adopted child.
    fn patches(&self, owner: &Target, extra_metadata: String) -> impl Iterator<Item = Action> {
        let to_adopt = self.owned[self.owned.len() - self.n_to_adopt..].iter();
        let adoptions = to_adopt.map(move |child| adoption(owner, &**child, &extra_metadata));
        let releases = self.release.iter().map(|child| release(owner, &**child));
        adoptions.chain(releases)
    }
}

/// Returns the patch that adds the owner reference to a child, provided that the owner still exists.
fn adoption<C: View>(owner: &Target, child: &C, extra_metadata: &str) -> Action {
    let uid = &child.meta().uid;
    let reference = wire::controller_reference(owner).to_json();
    let body = format!(
        r#"{{"metadata":{{"uid":"{uid}","ownerReferences":[{reference}]{extra_metadata}}}}}"#
    );
    Action::Patch(Patch { if_live: Some(owner.clone()), ..patch(child, body) })
}

/// Returns the patch that removes the owner reference from a child.
fn release<C: View>(owner: &Target, child: &C) -> Action {
    let uid = &child.meta().uid;
    let owner = &owner.uid;
    let body = format!(
        r#"{{"metadata":{{"uid":"{uid}","ownerReferences":[{{"$patch":"delete","uid":"{owner}"}}]}}}}"#
    );
    Action::Patch(Patch { tolerates: NOTHING_TO_RELEASE, ..patch(child, body) })
}

/// Returns a strategic merge patch of a child. If it fails, the reconciliation ends.
fn patch<C: View>(child: &C, body: String) -> Patch {
    Patch {
        on_error: OnError::Abort,
        ..Patch::new(wire::target(child), PatchType::Strategic, body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn shared_labels_are_evaluated_once() {
        let labels = |value: &str| StrMap::default().with("app", value);
        let (web, equal, other) = (labels("web"), labels("web"), labels("db"));
        let evaluations = Cell::new(0);
        let mut selects = cached_for_last_labels(|labels| {
            evaluations.set(evaluations.get() + 1);
            labels.get("app") == Some("web")
        });
        let order = [&web, &web, &web.clone(), &equal, &other, &other, &web];
        assert_eq!(order.map(&mut selects), [true, true, true, true, false, false, true]);
        drop(selects);
        assert_eq!(evaluations.get(), 4, "web, equal, other and web again");
    }
}
