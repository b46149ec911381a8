//! Rules of an aggregated ClusterRole. Upstream: `syncClusterRole`.

use crate::wire;
use evenkeel_api::{
    Text,
    views::{AggregationRule, ClusterRole, PolicyRule},
};
use evenkeel_runtime::plan::{Patch, PatchType, Plan};
use serde::Serialize;
use std::sync::Arc;

/// Field manager of the rules.
const FIELD_MANAGER: &str = "clusterrole-aggregation-controller";

/// A ClusterRole, and all ClusterRoles from which it may aggregate rules.
pub(super) struct Observed {
    pub(super) role: Arc<ClusterRole>,
    /// All ClusterRoles, sorted by name.
    pub(super) roles: Vec<Arc<ClusterRole>>,
}

/// Replaces the rules of an aggregated ClusterRole if they differ.
pub(super) fn plan(observed: &Observed) -> Plan {
    let role = &*observed.role;
    let Some(aggregation) = role.aggregation_rule.as_deref() else { return Plan::nothing() };
    let Some(rules) = aggregated_rules(aggregation, observed) else { return Plan::nothing() };
    if rules.iter().copied().eq(&role.rules) {
        return Plan::nothing();
    }
    let body = apply_configuration(&role.meta.name, &rules);
    Plan::one(Patch::new(wire::target(role), PatchType::Apply(FIELD_MANAGER), body))
}

/// Returns the names of the ClusterRoles whose rules the role aggregates, each once.
pub(super) fn selected_names(observed: &Observed) -> Vec<&str> {
    let Some(aggregation) = observed.role.aggregation_rule.as_deref() else { return Vec::new() };
    let selected = selected_roles(aggregation, observed);
    let mut names: Vec<&str> = selected.map(|role| &*role.meta.name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the aggregated rules, each once, ordered by selector and then by role name. Returns `None` for an invalid
/// selector, because the rules would be incomplete.
fn aggregated_rules<'a>(
    aggregation: &'a AggregationRule,
    observed: &'a Observed,
) -> Option<Vec<&'a PolicyRule>> {
    if aggregation.cluster_role_selectors.iter().any(|selector| selector.error().is_some()) {
        return None;
    }
    let mut rules: Vec<&PolicyRule> = Vec::new();
    for rule in selected_roles(aggregation, observed).flat_map(|role| &role.rules) {
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    Some(rules)
}

/// Returns the ClusterRoles that the selectors select, in the order of the selectors, except the aggregated ClusterRole
/// itself.
fn selected_roles<'a>(
    aggregation: &'a AggregationRule,
    observed: &'a Observed,
) -> impl Iterator<Item = &'a Arc<ClusterRole>> {
    aggregation.cluster_role_selectors.iter().flat_map(move |selector| {
        let others =
            observed.roles.iter().filter(|other| other.meta.name != observed.role.meta.name);
        others.filter(move |other| selector.matches(&other.meta.labels))
    })
}

/// Returns the apply configuration with the rules. Without rules, the field is absent.
fn apply_configuration(name: &str, rules: &[&PolicyRule]) -> bytes::Bytes {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Body<'a> {
        api_version: &'a str,
        kind: &'a str,
        metadata: Metadata<'a>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        rules: Vec<Rule<'a>>,
    }
    #[derive(Serialize)]
    struct Metadata<'a> {
        name: &'a str,
    }
    wire::json(&Body {
        api_version: "rbac.authorization.k8s.io/v1",
        kind: "ClusterRole",
        metadata: Metadata { name },
        rules: rules.iter().map(|rule| Rule::of(rule)).collect(),
    })
}

/// Serialized form of a rule.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rule<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    api_groups: &'a [Text],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    resources: &'a [Text],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    resource_names: &'a [Text],
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "<[_]>::is_empty")]
    non_resource_urls: &'a [Text],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    verbs: &'a [Text],
}

impl<'a> Rule<'a> {
    fn of(rule: &'a PolicyRule) -> Self {
        Self {
            api_groups: &rule.api_groups,
            resources: &rule.resources,
            resource_names: &rule.resource_names,
            non_resource_urls: &rule.non_resource_urls,
            verbs: &rule.verbs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::object;
    use evenkeel_runtime::plan::Action;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// Returns a ClusterRole with one rule for each verb.
    fn role(name: &str, labels: &Value, verbs: &[&str]) -> Value {
        let rules: Vec<Value> = verbs.iter().map(|verb| json!({"verbs": [verb]})).collect();
        json!({"metadata": {"name": name, "labels": labels}, "rules": rules})
    }

    /// Returns the ClusterRole `m` with these aggregation selectors and rules for these verbs.
    fn aggregated(selectors: &Value, verbs: &[&str]) -> Value {
        let mut role = role("m", &json!({"part": "1"}), verbs);
        role["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
        role
    }

    fn observed(role: &Value, others: &[Value]) -> Observed {
        let role = Arc::new(object::<ClusterRole>(role));
        let mut roles: Vec<_> =
            others.iter().map(|other| Arc::new(object::<ClusterRole>(other))).collect();
        roles.push(role.clone());
        roles.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
        Observed { role, roles }
    }

    /// Returns the verbs that the role should have, or `None` if it stays unchanged.
    fn verbs(observed: &Observed) -> Option<Vec<String>> {
        let plan = plan(observed);
        let [Action::Patch(patch)] = &*plan.actions else {
            assert!(plan.is_nothing(), "{plan:?}");
            return None;
        };
        assert_eq!(patch.form, PatchType::Apply(FIELD_MANAGER));
        let body: Value = serde_json::from_slice(&patch.body).unwrap();
        let rules = body["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
        Some(rules.iter().map(|rule| rule["verbs"][0].as_str().unwrap().to_owned()).collect())
    }

    #[test]
    fn rules_are_ordered_and_deduplicated() {
        let parts = json!([{"matchLabels": {"late": "1"}}, {"matchLabels": {"part": "1"}}]);
        let z = role("z", &json!({"part": "1"}), &["get", "watch"]);
        let b = role("b", &json!({"part": "1", "late": "1"}), &["list", "get"]);
        let other = role("a", &json!({"part": "2"}), &["delete"]);
        let all = [z, b, other];
        let table: [(Value, Option<&[&str]>); 5] = [
            (aggregated(&parts, &[]), Some(&["list", "get", "watch"])),
            (aggregated(&parts, &["list", "get", "watch"]), None),
            (aggregated(&parts, &["get", "list", "watch"]), Some(&["list", "get", "watch"])),
            (aggregated(&json!([{"matchLabels": {"none": "1"}}]), &["forged"]), Some(&[])),
            // An empty selector selects all roles.
            (aggregated(&json!([{}]), &[]), Some(&["delete", "list", "get", "watch"])),
        ];
        for (whole, want) in table {
            let want = want.map(|verbs| verbs.iter().map(|verb| (*verb).to_owned()).collect());
            assert_eq!(verbs(&observed(&whole, &all)), want, "{whole}");
        }
        let observed = observed(&aggregated(&parts, &[]), &all);
        assert_eq!(selected_names(&observed), ["b", "z"]);
    }

    #[test]
    fn plain_roles_and_invalid_selectors_are_unchanged() {
        let plain = role("m", &json!({}), &["get"]);
        assert_eq!(verbs(&observed(&plain, &[role("a", &json!({}), &["list"])])), None);
        let bad = json!([{"matchExpressions": [{"key": "a", "operator": "Like"}]}]);
        assert_eq!(verbs(&observed(&aggregated(&bad, &["get"]), &[])), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn one_plan_converges(
            parts in proptest::collection::vec((any::<bool>(), proptest::collection::vec(0u8..4, 0..4)), 0..6),
        ) {
            let others: Vec<Value> = parts.iter().enumerate().map(|(n, (part, verbs))| {
                let labels = if *part { json!({"part": "1"}) } else { json!({}) };
                let verbs: Vec<String> = verbs.iter().map(ToString::to_string).collect();
                role(&format!("r{n}"), &labels, &verbs.iter().map(|verb| &**verb).collect::<Vec<_>>())
            }).collect();
            let selectors = json!([{"matchLabels": {"part": "1"}}]);
            let first = verbs(&observed(&aggregated(&selectors, &["forged"]), &others)).unwrap_or_default();
            let written: Vec<&str> = first.iter().map(|verb| &**verb).collect();
            prop_assert_eq!(verbs(&observed(&aggregated(&selectors, &written), &others)), None);
        }
    }
}
