//! DeviceTaintRules: taints of the devices that they select.

use crate::needs::Resource;
use evenkeel_runtime::cache::Full;
use k8s_openapi::api::resource::v1::DeviceTaintRule;

/// A DeviceTaintRule with its status.
pub(crate) type Rule = Full<DeviceTaintRule>;

/// DeviceTaintRules, which a server before v1.37 has in older versions only.
pub(crate) const RULES: Resource =
    Resource { group: "resource.k8s.io", version: "v1", plural: "devicetaintrules" };

/// Returns whether the rule selects a device. A rule without a selector selects none. Upstream: `ruleMatchesDevice`.
pub(crate) fn selects(rule: &Rule, driver: &str, pool: &str, device: &str) -> bool {
    let Some(selector) = &rule.spec.device_selector else { return false };
    let matches = |field: &Option<String>, value: &str| {
        field.as_deref().is_none_or(|selected| selected == value)
    };
    matches(&selector.driver, driver)
        && matches(&selector.pool, pool)
        && matches(&selector.device, device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::object;
    use serde_json::{Value, json};

    #[test]
    fn rules_select_by_all_their_fields() {
        let table = [
            (Value::Null, false),
            (json!({}), true),
            (json!({"driver": "gpu.test"}), true),
            (json!({"driver": "gpu.test", "pool": "node", "device": "d"}), true),
            (json!({"driver": "other"}), false),
            (json!({"driver": "gpu.test", "pool": "other"}), false),
            (json!({"device": "e"}), false),
        ];
        for (selector, want) in table {
            let rule: Rule = object(&json!({
                "metadata": {"name": "r"},
                "spec": {"deviceSelector": selector, "taint": {"key": "k", "effect": "NoExecute"}},
            }));
            assert_eq!(selects(&rule, "gpu.test", "node", "d"), want, "{selector}");
        }
    }
}
