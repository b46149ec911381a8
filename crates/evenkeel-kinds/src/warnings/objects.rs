//! Warnings about kinds that have few warnings.

use super::{
    DEPRECATED_LABELS, deprecation_of_label, network, warn_about_deprecated_label,
    warn_about_fractional_bytes,
};
use evenkeel_apimachinery::amount::Amount;
use evenkeel_apimachinery::value::{get, int, list, object, text};
use serde_json::Value;

/// Warns about the claims of a StatefulSet, and about a negative `revisionHistoryLimit`.
pub(super) fn stateful_set(set: &Value, is_update: bool, warnings: &mut Vec<String>) {
    // Upstream's path has this field in updates.
    let spec = if is_update { ".Spec" } else { "" };
    for (index, claim) in list(set, "spec.volumeClaimTemplates").iter().enumerate() {
        for field in ["requests", "limits"] {
            let path =
                format!("spec.volumeClaimTemplates[{index}]{spec}.resources.{field}[storage]");
            let amount = get(claim, &format!("spec.resources.{field}.storage"));
            warn_about_fractional_bytes(&path, amount, warnings);
        }
    }
    if int(set, "spec.revisionHistoryLimit").is_some_and(|limit| limit < 0) {
        warnings.push("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended".to_owned());
    }
}

/// Warns about the pod CIDRs and deprecated fields of a node.
///
/// Upstream: `nodeWarnings`.
pub(super) fn node(node: &Value, warnings: &mut Vec<String>) {
    if get(node, "spec.configSource").is_some() {
        warnings.push("spec.configSource: the feature is removed".to_owned());
    }
    if !text(node, "spec.externalID").is_empty() {
        warnings.push(
            "spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned(),
        );
    }
    for (index, range) in list(node, "spec.podCIDRs").iter().enumerate() {
        network::warn_about_cidr(&format!("spec.podCIDRs[{index}]"), range, warnings);
    }
}

/// Warns about a quota of requests that is larger than the quota of limits.
pub(super) fn resource_quota(quota: &Value, warnings: &mut Vec<String>) {
    let Some(hard) = object(quota, "spec.hard") else { return };
    for resource in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let may_be_bare = matches!(resource, "cpu" | "memory");
        let mut request = format!("requests.{resource}");
        if may_be_bare && !hard.contains_key(&request) {
            resource.clone_into(&mut request);
        }
        let limit = format!("limits.{resource}");
        let (Some(requested), Some(limited)) = (hard.get(&request), hard.get(&limit)) else {
            continue;
        };
        if Amount::of(requested) > Amount::of(limited) {
            let [requested, limited] = [requested, limited].map(|v| v.as_str().unwrap_or_default());
            warnings.push(format!(
                "ResourceQuota {request} ({requested}) should be less than {limit} ({limited})"
            ));
        }
    }
}

/// Warns about deprecated labels in the node selector of a RuntimeClass.
///
/// Upstream: `GetWarningsForRuntimeClass`.
pub(super) fn runtime_class(class: &Value, warnings: &mut Vec<String>) {
    let selector = object(class, "scheduling.nodeSelector");
    for (key, message) in DEPRECATED_LABELS {
        if selector.is_some_and(|selector| selector.contains_key(*key)) {
            warnings.push(format!("scheduling.nodeSelector: {message}"));
        }
    }
}

/// Warns about deprecated labels in the topologies of a StorageClass.
///
/// Upstream: `GetWarningsForStorageClass`.
pub(super) fn storage_class(class: &Value, warnings: &mut Vec<String>) {
    for (i, topology) in list(class, "allowedTopologies").iter().enumerate() {
        for (j, expression) in list(topology, "matchLabelExpressions").iter().enumerate() {
            if let Some(message) = deprecation_of_label(text(expression, "key")) {
                let path = format!("allowedTopologies[{i}].matchLabelExpressions[{j}].key");
                warnings.push(format!("{path}: {message}"));
            }
        }
    }
}

/// Warns about deprecated labels in the node selector of a CSIStorageCapacity.
///
/// Upstream: `GetWarningsForCSIStorageCapacity`.
pub(super) fn storage_capacity(capacity: &Value, warnings: &mut Vec<String>) {
    for (index, one) in list(capacity, "nodeTopology.matchExpressions").iter().enumerate() {
        let path = format!("nodeTopology.matchExpressions[{index}].key");
        warn_about_deprecated_label(&path, text(one, "key"), warnings);
    }
    let labels = object(capacity, "nodeTopology.matchLabels");
    for (key, message) in DEPRECATED_LABELS {
        if labels.is_some_and(|labels| labels.contains_key(*key)) {
            warnings.push(format!("nodeTopology.matchLabels.{key}: {message}"));
        }
    }
}

/// Reviews, which are never sent to webhooks: group and plural.
const REVIEWS: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// Returns whether requests for a resource are excluded from webhooks and policies.
///
/// Upstream: `Excluded` of `admission/exclusion`.
pub fn is_excluded_from_admission(group: &str, plural: &str) -> bool {
    REVIEWS.contains(&(group, plural))
}

/// Warns about rules that name reviews.
///
/// Upstream: `warningsForExcludedRules`.
pub(super) fn webhooks(configuration: &Value, warnings: &mut Vec<String>) {
    for (i, webhook) in list(configuration, "webhooks").iter().enumerate() {
        for (j, rule) in list(webhook, "rules").iter().enumerate() {
            let (groups, resources) = (list(rule, "apiGroups"), list(rule, "resources"));
            if groups.iter().chain(resources).any(|name| name == "*") {
                continue;
            }
            let mut seen = Vec::new();
            for named in groups.iter().flat_map(|g| resources.iter().map(move |r| (g, r))) {
                let review =
                    REVIEWS.iter().find(|review| named.0 == review.0 && named.1 == review.1);
                let Some(review) = review.filter(|review| !seen.contains(review)) else { continue };
                seen.push(review);
                let (group, plural) = review;
                warnings.push(format!(
                    "webhooks[{i}].rules[{j}]: {plural}.{group} is excluded from admission webhooks; this rule will have no effect"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::warnings::warnings;
    use serde_json::json;

    #[test]
    fn each_kind_warns_in_upstreams_words() {
        for (group, kind, object, expected) in [
            (
                "",
                "ResourceQuota",
                json!({"spec": {"hard": {"cpu": "2", "limits.cpu": "1", "requests.memory": "1Gi", "limits.memory": "2Gi"}}}),
                "ResourceQuota cpu (2) should be less than limits.cpu (1)",
            ),
            (
                "node.k8s.io",
                "RuntimeClass",
                json!({"scheduling": {"nodeSelector": {"node-role.kubernetes.io/master": ""}}}),
                "scheduling.nodeSelector: use \"node-role.kubernetes.io/control-plane\" instead",
            ),
            (
                "storage.k8s.io",
                "StorageClass",
                json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": "app.kubernetes.io/created-by"}]}]}),
                "allowedTopologies[0].matchLabelExpressions[0].key: deprecated since v1.9",
            ),
            (
                "admissionregistration.k8s.io",
                "ValidatingWebhookConfiguration",
                json!({"webhooks": [{"rules": [{"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews", "a"]}]}]}),
                "webhooks[0].rules[0]: tokenreviews.authentication.k8s.io is excluded from admission webhooks; this rule will have no effect",
            ),
            (
                "",
                "Node",
                json!({"spec": {"externalID": "a"}}),
                "spec.externalID: this field is deprecated, and is unused by Kubernetes",
            ),
        ] {
            assert_eq!(warnings(group, kind, &object, None), [expected], "{object}");
        }
    }
}
