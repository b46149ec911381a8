//! Validation of a container's restart policy and its rules.

use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, list, text};
use serde_json::Value;

const POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
/// Maximum number of restart rules of a container.
const MAX_RULES: usize = 20;
/// Maximum number of exit codes of a rule.
const MAX_EXIT_CODES: usize = 255;

/// Validates `restartPolicy` and `restartPolicyRules` of a container that is not an init container.
///
/// Upstream: `validateContainerRestartPolicy`.
pub(super) fn container_restart_policy(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rules = list(container, "restartPolicyRules");
    let policy_path = path.field("restartPolicy");
    match get(container, "restartPolicy").and_then(Value::as_str) {
        None if rules.is_empty() => return,
        None => {
            errors.required(&policy_path, "must specify restartPolicy when restart rules are used");
        }
        Some(policy) => errors.one_of(&policy_path, policy, &POLICIES),
    }
    let restart_policy_rules_path = path.field("restartPolicyRules");
    if rules.len() > MAX_RULES {
        errors.too_many(&restart_policy_rules_path, rules.len(), MAX_RULES);
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = restart_policy_rules_path.index(index);
        let actions = ["Restart", "RestartAllContainers"];
        errors.one_of(&path.field("action"), text(rule, "action"), &actions);
        let path = path.field("exitCodes");
        let Some(codes) = get(rule, "exitCodes") else {
            errors.required(&path, "must be specified");
            continue;
        };
        errors.one_of(&path.field("operator"), text(codes, "operator"), &["In", "NotIn"]);
        let values = list(codes, "values").len();
        if values > MAX_EXIT_CODES {
            errors.too_many(&path.field("values"), values, MAX_EXIT_CODES);
        }
    }
}

/// Validates like [`container_restart_policy`], for an init container. Without a policy, upstream does not validate the
/// rules.
///
/// Upstream: `validateInitContainerRestartPolicy`.
pub(super) fn init_container_restart_policy(
    container: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if get(container, "restartPolicy").is_some() {
        container_restart_policy(container, path, errors);
    } else if !list(container, "restartPolicyRules").is_empty() {
        let detail = "must specify restartPolicy when restart rules are used";
        errors.required(&path.field("restartPolicy"), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn restart_rules_need_a_policy_and_exit_codes() {
        let codes = json!({"operator": "In", "values": [1]});
        let rule = json!([{"action": "Restart", "exitCodes": codes}]);
        for (container, expected) in [
            (json!({}), vec![]),
            (json!({"restartPolicy": "Never", "restartPolicyRules": rule}), vec![]),
            (json!({"restartPolicyRules": rule}), vec!["c.restartPolicy"]),
            (json!({"restartPolicy": "x"}), vec!["c.restartPolicy"]),
            (
                json!({"restartPolicy": "Never", "restartPolicyRules": [{"action": "x"}, {"action": "Restart", "exitCodes": {}}]}),
                vec![
                    "c.restartPolicyRules[0].action",
                    "c.restartPolicyRules[0].exitCodes",
                    "c.restartPolicyRules[1].exitCodes.operator",
                ],
            ),
        ] {
            let mut errors = Errors::default();
            container_restart_policy(&container, &Path::new("c"), &mut errors);
            let fields: Vec<String> =
                errors.into_vec().into_iter().map(|error| error.field).collect();
            assert_eq!(fields, expected, "{container}");
        }
        let mut errors = Errors::default();
        let container = json!({"restartPolicyRules": [{"action": "x"}]});
        init_container_restart_policy(&container, &Path::new("c"), &mut errors);
        let fields: Vec<String> = errors.into_vec().into_iter().map(|error| error.field).collect();
        assert_eq!(fields, ["c.restartPolicy"]);
    }
}
