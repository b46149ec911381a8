//! Finalizers that keep objects in use from being deleted.

use crate::wire;
use evenkeel_api::{Meta, View};
use evenkeel_runtime::plan::{PatchType, Plan, Rewrite};
use serde_json::json;

/// Returns whether this finalizer keeps the object from being deleted now.
pub(crate) fn blocks_deletion(meta: &Meta, finalizer: &str) -> bool {
    meta.deleting() && has(meta, finalizer)
}

/// Returns whether the object needs this finalizer: it lacks the finalizer, and is not terminating.
pub(crate) fn is_missing(meta: &Meta, finalizer: &str) -> bool {
    !meta.deleting() && !has(meta, finalizer)
}

/// Returns whether the finalizer may have to be added, or removed.
pub(crate) fn may_change(meta: &Meta, finalizer: &str) -> bool {
    blocks_deletion(meta, finalizer) || is_missing(meta, finalizer)
}

/// Returns whether the object has this finalizer.
pub(crate) fn has(meta: &Meta, finalizer: &str) -> bool {
    meta.finalizers.iter().any(|present| **present == *finalizer)
}

/// Adds the finalizer to an object that is not terminating, and removes it from a terminating object that is unused.
pub(crate) fn protect<V: View>(object: &V, finalizer: &str, is_used: bool) -> Plan {
    let meta = object.meta();
    if is_missing(meta, finalizer) {
        Plan::one(add(object, finalizer))
    } else if blocks_deletion(meta, finalizer) && !is_used {
        Plan::one(remove(object, finalizer))
    } else {
        Plan::nothing()
    }
}

/// Returns the change that adds a finalizer.
fn add<V: View>(object: &V, finalizer: &str) -> Rewrite {
    let present = object.meta().finalizers.iter().map(|present| &**present);
    replace(object, &present.chain([finalizer]).collect::<Vec<_>>())
}

/// Removes the finalizer from the object.
pub(crate) fn remove<V: View>(object: &V, finalizer: &str) -> Rewrite {
    let present = object.meta().finalizers.iter().map(|present| &**present);
    replace(object, &present.filter(|other| *other != finalizer).collect::<Vec<_>>())
}

/// Returns the change that replaces all finalizers. It requires the observed resource version.
fn replace<V: View>(object: &V, finalizers: &[&str]) -> Rewrite {
    let body = json!({"metadata": {"finalizers": finalizers}}).to_string();
    Rewrite::new(wire::target(object), &object.meta().resource_version, PatchType::Merge, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, meta};
    use evenkeel_api::views::PersistentVolume;
    use evenkeel_runtime::plan::Action;

    #[test]
    fn finalizer_is_removed_only_from_terminating_unused_objects() {
        let volume = |deleting: bool, finalizers: &[&str]| {
            let mut volume = PersistentVolume { meta: meta("v"), ..PersistentVolume::default() };
            volume.meta.deletion = deleting.then_some(T0);
            volume.meta.finalizers = finalizers.iter().map(|f| (*f).into()).collect();
            volume
        };
        for (deleting, finalizers, used, want) in [
            (false, &["x"][..], false, Some(r#"{"metadata":{"finalizers":["x","f"]}}"#)),
            (false, &["f"], false, None),
            (true, &["f", "x"], true, None),
            (true, &["f", "x"], false, Some(r#"{"metadata":{"finalizers":["x"]}}"#)),
            (true, &["x"], false, None),
        ] {
            let plan = protect(&volume(deleting, finalizers), "f", used);
            let body = plan.actions.first().map(|action| match action {
                Action::Rewrite(rewrite) => std::str::from_utf8(&rewrite.body).unwrap().to_owned(),
                other => panic!("{other:?}"),
            });
            assert_eq!(body.as_deref(), want, "{deleting} {finalizers:?} {used}");
        }
    }
}
