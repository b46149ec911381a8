//! Condition `Available` of APIServices.

use evenkeel_apiextensions::conditions::{is_true, set_condition};
use evenkeel_apimachinery::value::{list, text};
use serde_json::Value;

const AVAILABLE: &str = "Available";

/// Status, reason and message of the condition `Available`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) is_available: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Condition {
    /// Returns the condition of an API that is not available.
    pub(super) fn unavailable(reason: &'static str, message: String) -> Self {
        Self { is_available: false, reason, message }
    }

    /// Returns the condition of an API whose server responded to the probe.
    pub(super) fn passed() -> Self {
        let message = "all checks passed".to_owned();
        Self { is_available: true, reason: "Passed", message }
    }

    /// Returns the condition of an API that this server itself serves.
    ///
    /// Upstream: `NewLocalAvailableAPIServiceCondition`.
    pub(super) fn local() -> Self {
        let message = "Local APIServices are always available".to_owned();
        Self { is_available: true, reason: "Local", message }
    }

    fn status(&self) -> &'static str {
        if self.is_available { "True" } else { "False" }
    }
}

/// Returns the condition `Available` of an APIService; null if it has none.
fn current(object: &Value) -> &Value {
    let mut conditions = list(object, "status.conditions").iter();
    conditions.find(|condition| text(condition, "type") == AVAILABLE).unwrap_or(&Value::Null)
}

/// Returns whether an APIService is available.
///
/// Upstream: `IsAPIServiceConditionTrue`.
pub(super) fn is_available(object: &Value) -> bool {
    is_true(object, AVAILABLE)
}

/// Returns whether an APIService already has this condition.
pub(super) fn has(object: &Value, condition: &Condition) -> bool {
    let current = current(object);
    text(current, "status") == condition.status()
        && text(current, "reason") == condition.reason
        && text(current, "message") == condition.message
}

/// Sets the condition. `lastTransitionTime` becomes `now` only if the status changes.
///
/// Upstream: `SetAPIServiceCondition`.
pub(super) fn put(object: &mut Value, condition: &Condition, now: &str) {
    let state = [condition.status(), condition.reason, &condition.message];
    set_condition(object, AVAILABLE, state, now);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_time_of_the_transition_changes_with_the_status() {
        let other = json!({"type": "Other", "status": "False"});
        let mut object = json!({"status": {"conditions": [other]}});
        let missing = Condition::unavailable("ServiceNotFound", "a".to_owned());
        put(&mut object, &missing, "1");
        assert!(has(&object, &missing) && !is_available(&object));
        let failed = Condition::unavailable("FailedDiscoveryCheck", "b".to_owned());
        assert!(!has(&object, &failed));
        put(&mut object, &failed, "2");
        put(&mut object, &Condition::passed(), "3");
        assert!(has(&object, &Condition::passed()) && is_available(&object));
        let expected = json!([other, {"type": "Available", "status": "True", "reason": "Passed",
            "message": "all checks passed", "lastTransitionTime": "3"}]);
        assert_eq!(object["status"]["conditions"], expected);
        put(&mut object, &Condition::local(), "4");
        assert_eq!(object["status"]["conditions"][1]["lastTransitionTime"], "3");
        put(&mut object, &failed, "5");
        assert_eq!(object["status"]["conditions"][1]["lastTransitionTime"], "5");
    }
}
