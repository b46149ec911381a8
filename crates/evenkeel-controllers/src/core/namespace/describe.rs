//! Description of a namespace for `evenkeel explain`.

use super::plan::FINALIZER;
use crate::words;
use evenkeel_api::{time::Timestamp, views::Namespace};
use evenkeel_runtime::introspect::Description;
use std::time::Duration;

/// Describes a namespace. `grace` is the delay after the deletion timestamp.
pub(super) fn describe(
    namespace: &Namespace,
    grace: Duration,
    now: Timestamp,
) -> (Description, Vec<String>) {
    let (mut description, mut would) = (Description::new(), Vec::new());
    description.fact("phase", &namespace.status.phase);
    let finalizers = &namespace.spec.finalizers;
    if !finalizers.is_empty() {
        description.fact("finalizers", finalizers.join(", "));
    }
    let Some(deletion) = namespace.meta.deletion else { return (description, would) };
    let told_of = namespace.status.conditions.iter().filter(|c| &*c.status == "True");
    for condition in told_of {
        description.waits(format!("{}: {}", condition.type_, condition.message));
    }
    let passed = Duration::try_from(now.duration_since(deletion)).unwrap_or_default();
    let left = grace.saturating_sub(passed);
    let name = &namespace.meta.name;
    if !left.is_zero() {
        let left = words::time(left);
        description.waits(format!(
            "its content is left alone for another {left}: it may still be growing"
        ));
    } else if finalizers.iter().any(|finalizer| &**finalizer == FINALIZER) {
        would.push(format!("delete all that is in Namespace {name}"));
        would.push(format!("take the finalizer {FINALIZER} off it as soon as nothing is left"));
    } else {
        description.waits("finalizers of others hold it");
    }
    (description, would)
}
