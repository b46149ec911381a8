//! Conditions in the status of any kind.

use crate::time::Timestamp;

/// Status `True` of a condition.
pub const TRUE: &str = "True";
/// Status `False` of a condition.
pub const FALSE: &str = "False";
/// Status `Unknown` of a condition.
pub const UNKNOWN: &str = "Unknown";

/// Common fields of conditions of all kinds.
pub trait Condition {
    /// Type of the condition.
    fn type_(&self) -> &str;
    /// `True`, `False` or `Unknown`.
    fn status(&self) -> &str;
    /// Reason in CamelCase.
    fn reason(&self) -> &str;
    /// Returns the message, which is for people.
    fn message(&self) -> &str;
    /// When the status last changed.
    fn last_transition_time(&self) -> Option<Timestamp>;
    /// Sets when the status last changed.
    fn set_last_transition_time(&mut self, time: Option<Timestamp>);
}

/// Returns the condition of a type.
pub fn find<'a, C: Condition>(conditions: &'a [C], type_: &str) -> Option<&'a C> {
    conditions.iter().find(|condition| condition.type_() == type_)
}

/// Whether the condition of a type exists and is `True`.
pub fn is_true<C: Condition>(conditions: &[C], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status() == TRUE)
}

/// The conditions with this one in place of the one of its type, or at the end; the time of the last transition is kept
/// where the status stays. `None` when that would change neither status nor reason (upstream's controllers leave such
/// a condition alone, message and times included).
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
    let mut all = without(conditions, new.type_());
    all.push(new);
    Some(all)
}

/// Returns the conditions without the one of a type.
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
