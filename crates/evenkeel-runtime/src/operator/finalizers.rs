//! Finalizers: the steps of a pass (one call of the reconcile function) before that call, and in its place while the object is
//! being deleted.

use crate::client::ApiError;
use evenkeel_api::Meta;
use serde_json::{Value, json};

/// Error of adding or removing a finalizer.
#[derive(Debug, thiserror::Error)]
#[error("finalizer {finalizer}")]
pub struct FinalizerError {
    /// Name of the finalizer.
    pub finalizer: String,
    /// Error of the write.
    #[source]
    pub source: ApiError,
}

/// Next step of a pass.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Add these missing finalizers, then reconcile.
    Add(Vec<&'static str>),
    /// Run the cleanup of this finalizer, then remove it.
    CleanUp(&'static str),
    /// Reconcile: all finalizers are present.
    Reconcile,
    /// Do nothing: the object is being deleted, and no finalizer of the controller is left.
    Leave,
}

/// Returns the next step for an object and the controller's finalizers. Their cleanups run in the reverse order of their
/// declaration.
///
/// An object that is being deleted gets no finalizer: the server would refuse it, and nothing was created for it.
///
/// Upstream: `controllerutil.AddFinalizer`, and the pattern of `DeletionTimestamp` in controller-runtime's book.
pub(super) fn next_step(meta: &Meta, own: &[&'static str]) -> Step {
    let has =
        |finalizer: &&&'static str| meta.finalizers.iter().any(|present| **present == ***finalizer);
    if own.is_empty() {
        return Step::Reconcile;
    }
    if meta.deleting() {
        return own
            .iter()
            .rev()
            .find(has)
            .map_or(Step::Leave, |finalizer| Step::CleanUp(finalizer));
    }
    let missing: Vec<_> = own.iter().filter(|finalizer| !has(finalizer)).copied().collect();
    if missing.is_empty() { Step::Reconcile } else { Step::Add(missing) }
}

/// Returns the merge patch that adds and removes finalizers. It keeps other clients' finalizers, and applies only to the
/// version of the object from which it was computed.
pub(super) fn patch(meta: &Meta, add: &[&'static str], remove: Option<&str>) -> Value {
    let present = meta.finalizers.iter().map(|name| &**name);
    let finalizers: Vec<&str> =
        present.chain(add.iter().copied()).filter(|name| Some(*name) != remove).collect();
    json!({"metadata": {
        "uid": &*meta.uid,
        "resourceVersion": &*meta.resource_version,
        "finalizers": finalizers,
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(finalizers: &[&str], deleting: bool) -> Meta {
        Meta {
            uid: "u".into(),
            resource_version: "7".into(),
            finalizers: finalizers.iter().map(|name| (*name).into()).collect(),
            deletion: deleting.then_some(jiff::Timestamp::UNIX_EPOCH),
            ..Meta::default()
        }
    }

    #[test]
    fn finalizers_are_added_first_and_cleaned_up_in_reverse() {
        let table: [(&[&str], bool, &[&'static str], Step); 8] = [
            (&[], false, &[], Step::Reconcile),
            (&[], true, &[], Step::Reconcile),
            (&[], false, &["a", "b"], Step::Add(vec!["a", "b"])),
            (&["a", "x"], false, &["a", "b"], Step::Add(vec!["b"])),
            (&["a", "b"], false, &["a", "b"], Step::Reconcile),
            (&["a", "b", "x"], true, &["a", "b"], Step::CleanUp("b")),
            (&["a", "x"], true, &["a", "b"], Step::CleanUp("a")),
            (&["x"], true, &["a", "b"], Step::Leave),
        ];
        for (present, deleting, own, wanted) in table {
            assert_eq!(next_step(&meta(present, deleting), own), wanted, "{present:?} {deleting}");
        }
    }

    #[test]
    fn a_patch_keeps_the_finalizers_of_others() {
        let added = patch(&meta(&["x"], false), &["a", "b"], None);
        assert_eq!(
            added,
            json!({"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": ["x", "a", "b"]}})
        );
        let removed = patch(&meta(&["x", "a"], true), &[], Some("a"));
        assert_eq!(removed["metadata"]["finalizers"], json!(["x"]));
    }
}
