//! The condition `Valid` of a Behavior or Stage.

use evenkeel_api::time::{Timestamp, seconds};
use serde_json::{Value, json};

/// Type of the condition.
const VALID: &str = "Valid";

/// Returns the merge patch of the status of an object with these errors; `None` if the status already has them.
pub(crate) fn patch(
    status: &Value,
    errors: &[String],
    generation: i64,
    now: Timestamp,
) -> Option<String> {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let old = conditions.find(|condition| condition["type"] == VALID).unwrap_or(&Value::Null);
    let (state, reason) =
        if errors.is_empty() { ("True", "Valid") } else { ("False", "InvalidFields") };
    let message = errors.join("; ");
    if old["status"] == state
        && old["message"] == *message
        && old["observedGeneration"] == generation
    {
        return None;
    }
    let since = match old["lastTransitionTime"].as_str().filter(|_| old["status"] == state) {
        Some(since) => since.to_owned(),
        None => seconds(now),
    };
    let condition = json!({
        "type": VALID, "status": state, "reason": reason, "message": message,
        "lastTransitionTime": since, "observedGeneration": generation,
    });
    Some(json!({ "status": { "conditions": [condition] } }).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the status after a write.
    fn written(status: &Value, errors: &[&str], generation: i64, second: i64) -> Option<Value> {
        let errors: Vec<String> = errors.iter().map(|error| (*error).to_owned()).collect();
        let patch = patch(status, &errors, generation, Timestamp::from_second(second).unwrap())?;
        let patch: Value = serde_json::from_str(&patch).unwrap();
        Some(patch["status"].clone())
    }

    #[test]
    fn the_condition_is_written_when_it_changes() {
        let valid = written(&Value::Null, &[], 1, 0).expect("a write");
        assert_eq!(valid["conditions"][0]["status"], "True");
        assert_eq!(written(&valid, &[], 1, 5), None);
        let newer = written(&valid, &[], 2, 5).expect("another generation");
        assert_eq!(newer["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
        let invalid = written(&newer, &["a", "b"], 3, 9).expect("a write");
        let condition = &invalid["conditions"][0];
        assert_eq!(
            (&condition["status"], &condition["message"]),
            (&json!("False"), &json!("a; b"))
        );
        assert_eq!(condition["lastTransitionTime"], "1970-01-01T00:00:09Z");
        assert_eq!(written(&invalid, &["a", "b"], 3, 10), None);
    }
}
