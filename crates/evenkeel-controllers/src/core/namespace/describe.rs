//! Description of a namespace for `evenkeel explain`.

use super::{delete::remaining_grace, plan::FINALIZER};
use crate::words;
use evenkeel_api::{time::Timestamp, views::Namespace};
use evenkeel_runtime::introspect::Description;

/// Describes a namespace.
pub(super) fn describe(namespace: &Namespace, now: Timestamp) -> Description {
    let mut description = Description::new();
    description.fact("phase", &namespace.status.phase);
    let finalizers = &namespace.spec.finalizers;
    if !finalizers.is_empty() {
        description.fact("finalizers", finalizers.join(", "));
    }
    let Some(deleted_at) = namespace.meta.deletion else { return description };
    let true_conditions =
        namespace.status.conditions.iter().filter(|condition| &*condition.status == "True");
    for condition in true_conditions {
        description.waits(format!("{}: {}", condition.type_, condition.message));
    }
    let remaining = remaining_grace(deleted_at, now);
    if !remaining.is_zero() {
        let remaining = words::go_duration(remaining);
        description.waits(format!(
            "its content is left alone for another {remaining}: it may still be growing"
        ));
    } else if finalizers.iter().any(|finalizer| &**finalizer == FINALIZER) {
        let next = "deletes all that is in it, and removes the finalizer when nothing is left";
        description.fact(FINALIZER, next);
    } else {
        description.waits("finalizers of others hold it");
    }
    description
}
