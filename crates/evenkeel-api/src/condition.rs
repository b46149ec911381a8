//! Conditions in the status of objects of any kind.

use crate::time::Timestamp;

/// Status `True` of a condition.
pub const TRUE: &str = "True";
/// Status `False` of a condition.
pub const FALSE: &str = "False";
/// Status `Unknown` of a condition.
pub const UNKNOWN: &str = "Unknown";

/// Common fields of conditions of all kinds.
pub trait Condition {
    /// Returns the type of the condition.
    fn type_(&self) -> &str;
    /// Returns `True`, `False` or `Unknown`.
    fn status(&self) -> &str;
    /// Returns the reason in CamelCase.
    fn reason(&self) -> &str;
    /// Returns the message for people.
    fn message(&self) -> &str;
    /// Returns the time of the last change of the status.
    fn last_transition_time(&self) -> Option<Timestamp>;
    /// Sets the time of the last change of the status.
    fn set_last_transition_time(&mut self, time: Option<Timestamp>);
}

/// Returns the condition of this type.
pub fn find<'a, C: Condition>(conditions: &'a [C], type_: &str) -> Option<&'a C> {
    conditions.iter().find(|condition| condition.type_() == type_)
}

/// Returns whether the condition of this type exists and is `True`.
pub fn is_true<C: Condition>(conditions: &[C], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status() == TRUE)
}

/// Returns the conditions with `new` at the end instead of any condition of the same type. Keeps the transition time if
/// the status does not change.
///
/// Returns `None` if neither the status nor the reason changes. Like upstream's controllers, the caller then leaves
/// the condition unchanged, including its message and times.
pub fn with<C: Condition + Clone>(conditions: &[C], mut new: C) -> Option<Vec<C>> {
    let old = find(conditions, new.type_());
    if let Some(old) = old {
        if old.status() == new.status() && old.reason() == new.reason() {
            return None;
        }
        if old.status() == new.status() {
            new.set_last_transition_time(old.last_transition_time());
        }
    }
    let mut updated = without(conditions, new.type_());
    updated.push(new);
    Some(updated)
}

/// Returns the conditions except the one of this type.
pub fn without<C: Condition + Clone>(conditions: &[C], type_: &str) -> Vec<C> {
    conditions.iter().filter(|condition| condition.type_() != type_).cloned().collect()
}

macro_rules! condition {
    ($($name:ident),*) => {$(
        impl Condition for crate::views::$name {
            fn type_(&self) -> &str {
                &self.type_
            }

            fn status(&self) -> &str {
                &self.status
            }

            fn reason(&self) -> &str {
                &self.reason
            }

            fn message(&self) -> &str {
                &self.message
            }

            fn last_transition_time(&self) -> Option<Timestamp> {
                self.last_transition_time
            }

            fn set_last_transition_time(&mut self, time: Option<Timestamp>) {
                self.last_transition_time = time;
            }
        }
    )*};
}

condition!(
    PodCondition,
    NodeCondition,
    ReplicaSetCondition,
    ReplicationControllerCondition,
    DeploymentCondition,
    NamespaceCondition,
    MetaCondition,
    HorizontalPodAutoscalerCondition
);
