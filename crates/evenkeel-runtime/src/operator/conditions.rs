//! Conditions of an object's status (`metav1.Condition`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::Resource;

/// Status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The controller cannot tell whether the condition holds.
    Unknown,
}

impl From<bool> for Status {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// Returns a condition of an object, for its current generation. `reason` is one word in CamelCase. [`set`] sets the
/// time of its last transition.
///
/// ```
/// use evenkeel_runtime::prelude::conditions;
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// let ready = conditions::of(&ConfigMap::default(), "Ready", true, "AllReplicasReady", "3 of 3 replicas are ready");
/// assert_eq!((ready.type_.as_str(), ready.status.as_str()), ("Ready", "True"));
/// ```
pub fn of(
    object: &impl Resource,
    type_: &str,
    status: impl Into<Status>,
    reason: &str,
    message: impl Into<String>,
) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: status.into().as_str().to_owned(),
        reason: reason.to_owned(),
        message: message.into(),
        observed_generation: object.meta().generation,
        last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
    }
}

/// Sets a condition: replaces the one of its type, or adds it. Its transition time becomes `now` if its status has changed, and
/// otherwise stays. Returns whether the conditions have changed.
///
/// Upstream: `meta.SetStatusCondition`.
#[doc(alias = "SetStatusCondition")]
pub fn set(
    conditions: &mut Vec<Condition>,
    mut condition: Condition,
    now: jiff::Timestamp,
) -> bool {
    // The API has whole seconds.
    let now = Time(jiff::Timestamp::from_second(now.as_second()).unwrap_or(now));
    let Some(current) = conditions.iter_mut().find(|current| current.type_ == condition.type_)
    else {
        condition.last_transition_time = now;
        conditions.push(condition);
        return true;
    };
    condition.last_transition_time =
        if current.status == condition.status { current.last_transition_time.clone() } else { now };
    let changed = *current != condition;
    if changed {
        *current = condition;
    }
    changed
}

/// Removes the condition of a type. Returns whether it existed.
///
/// Upstream: `meta.RemoveStatusCondition`.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.len() != before
}

/// Returns the condition of a type.
///
/// Upstream: `meta.FindStatusCondition`.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Returns whether the condition of a type exists and is `True`.
///
/// Upstream: `meta.IsStatusConditionTrue`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    #[test]
    fn the_transition_time_follows_the_status_alone() {
        let second = |n| jiff::Timestamp::from_second(n).unwrap();
        let ready = |status: Status, message: &str| {
            of(&ConfigMap::default(), "Ready", status, "Because", message)
        };
        let mut conditions = Vec::new();
        // condition, time, whether it changes, transition time
        let steps = [
            (ready(Status::False, "a"), 10, true, 10),
            (ready(Status::False, "a"), 20, false, 10),
            (ready(Status::False, "b"), 30, true, 10),
            (ready(Status::True, "b"), 40, true, 40),
            (ready(Status::Unknown, "b"), 50, true, 50),
        ];
        for (condition, at, changes, transition) in steps {
            assert_eq!(set(&mut conditions, condition, second(at)), changes, "at {at}");
            assert_eq!(conditions[0].last_transition_time.0, second(transition), "at {at}");
        }
        assert!(!is_true(&conditions, "Ready"));
        assert!(remove(&mut conditions, "Ready") && !remove(&mut conditions, "Ready"));
    }
}
