//! Description of a namespace for `evenkeel explain`.

use super::{delete::grace_left, plan::FINALIZER};
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
    let Some(deletion) = namespace.meta.deletion else { return description };
    let true_conditions = namespace.status.conditions.iter().filter(|c| &*c.status == "True");
    for condition in true_conditions {
        description.waits(format!("{}: {}", condition.type_, condition.message));
    }
    let remaining = grace_left(deletion, now);
    if !remaining.is_zero() {
        let remaining = words::go_duration(remaining);
        description.waits(format!(
            "its content is left alone for another {remaining}: it may still be growing"
        ));
    } else if finalizers.iter().any(|finalizer| &**finalizer == FINALIZER) {
        let to_do = "deletes all that is in it, and removes the finalizer when nothing is left";
        description.fact(FINALIZER, to_do);
    } else {
        description.waits("finalizers of others hold it");
    }
    description
}
