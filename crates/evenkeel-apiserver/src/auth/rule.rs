//! Rules of roles, and the attributes of requests that the rules match.

use evenkeel_api::selector::{FieldSelector, FieldTerm};
use serde::Deserialize;
use serde_json::Value;

/// Attributes of a request for authorization: verb and resource, or verb and path.
///
/// Upstream: `AttributesRecord`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attributes<'a> {
    /// `get`, `list`, …; for a non-resource request the lower-case HTTP method.
    pub(crate) verb: &'a str,
    /// API group of the resource; empty for the core group.
    pub(crate) group: &'a str,
    /// Version of the API group; `*` for any, empty if it is unknown. Only webhooks read it.
    pub(crate) version: &'a str,
    /// Plural name of the resource, such as `pods`.
    pub(crate) resource: &'a str,
    /// Subresource, such as `log`; empty for the resource itself.
    pub(crate) subresource: &'a str,
    /// Namespace of the request; empty for cluster-scoped resources and for all namespaces.
    pub(crate) namespace: &'a str,
    /// Name of the object; empty for lists and creations.
    pub(crate) name: &'a str,
    /// URL path of a non-resource request; `None` for a resource request.
    pub(crate) path: Option<&'a str>,
    /// Field selector of a list, watch or deletecollection request.
    pub(crate) field_selector: FieldRequirements<'a>,
    /// Label selector of such a request. Only webhooks read it.
    pub(crate) label_selector: LabelRequirements<'a>,
}

/// Label selector of a request: a string, or the list of requirements of an access review.
///
/// Upstream: `GetLabelSelector`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LabelRequirements<'a> {
    /// Selector in the syntax of the query parameter. An invalid selector has no requirements.
    Raw(&'a str),
    /// Requirements with `key`, `operator` and `values`.
    Listed(&'a [Value]),
}

impl Default for LabelRequirements<'_> {
    fn default() -> Self {
        Self::Raw("")
    }
}

/// Field selector of a request: a string, or parsed.
///
/// Upstream: `GetFieldSelector`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FieldRequirements<'a> {
    /// Selector in the syntax of the query parameter. An invalid selector has no requirements.
    Raw(&'a str),
    Terms(&'a [FieldTerm]),
}

impl Default for FieldRequirements<'_> {
    fn default() -> Self {
        Self::Raw("")
    }
}

impl FieldRequirements<'_> {
    /// Returns whether the selector requires that the field equals the value.
    pub(super) fn requires_equal(&self, field: &str, value: &str) -> bool {
        let any_term_requires = |terms: &[FieldTerm]| {
            terms.iter().any(|term| term.equal && *term.field == *field && *term.value == *value)
        };
        match self {
            Self::Raw(text) => {
                FieldSelector::parse(text).is_ok_and(|selector| any_term_requires(selector.terms()))
            }
            Self::Terms(terms) => any_term_requires(terms),
        }
    }
}

/// Rule of a Role or a ClusterRole.
///
/// Upstream: `PolicyRule`.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PolicyRule {
    pub(crate) verbs: Vec<Box<str>>,
    pub(crate) api_groups: Vec<Box<str>>,
    pub(crate) resources: Vec<Box<str>>,
    pub(crate) resource_names: Vec<Box<str>>,
    #[serde(rename = "nonResourceURLs")]
    pub(crate) non_resource_urls: Vec<Box<str>>,
}

impl PolicyRule {
    /// Returns whether the rule matches the request: by verb, group, resource and name, or by verb and URL.
    ///
    /// Upstream: `RuleAllows`.
    pub(super) fn rule_allows(&self, attributes: &Attributes<'_>) -> bool {
        let has = |list: &[Box<str>], value: &str| {
            list.iter().any(|listed| **listed == *"*" || **listed == *value)
        };
        if !has(&self.verbs, attributes.verb) {
            return false;
        }
        if let Some(path) = attributes.path {
            return self.non_resource_urls.iter().any(|url| non_resource_url_matches(url, path));
        }
        has(&self.api_groups, attributes.group)
            && self.resources.iter().any(|resource| resource_matches(resource, attributes))
            && (self.resource_names.is_empty()
                || self.resource_names.iter().any(|name| **name == *attributes.name))
    }
}

/// Returns whether a rule's URL equals the path, or ends in `*` and is a prefix of the path.
///
/// Upstream: `NonResourceURLMatches`.
pub(crate) fn non_resource_url_matches(rule: &str, path: &str) -> bool {
    rule == path || rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*'))
}

/// Returns whether a rule's resource matches the request's resource and subresource. A resource may contain slashes,
/// because the audience of a token request is authorized as a resource.
///
/// Upstream: `ResourceMatches`.
fn resource_matches(rule: &str, attributes: &Attributes<'_>) -> bool {
    if rule == "*" {
        return true;
    }
    if attributes.subresource.is_empty() {
        return rule == attributes.resource;
    }
    match rule.strip_suffix(attributes.subresource).and_then(|rest| rest.strip_suffix('/')) {
        Some(resource) => resource == "*" || resource == attributes.resource,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(json: serde_json::Value) -> PolicyRule {
        serde_json::from_value(json).expect("a rule")
    }

    #[test]
    fn a_rule_allows_only_the_requests_that_it_lists() {
        let get = |group, resource, subresource, name| Attributes {
            verb: "get",
            group,
            resource,
            subresource,
            name,
            ..Attributes::default()
        };
        let pods = rule(
            serde_json::json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "*/scale"]}),
        );
        assert!(pods.rule_allows(&get("", "pods", "", "p")));
        assert!(!pods.rule_allows(&get("", "pods", "log", "p")));
        assert!(pods.rule_allows(&get("", "replicationcontrollers", "scale", "p")));
        assert!(!pods.rule_allows(&get("apps", "pods", "", "p")));
        for nothing in ["*/", "pods/", "/"] {
            let rule = rule(
                serde_json::json!({"verbs": ["*"], "apiGroups": ["*"], "resources": [nothing]}),
            );
            assert!(!rule.rule_allows(&get("", "pods", "", "p")), "{nothing}");
            assert!(!rule.rule_allows(&get("", "pods", "log", "p")), "{nothing}");
        }
        let audience = rule(
            serde_json::json!({"verbs": ["get"], "apiGroups": [""], "resources": ["https://a/b"]}),
        );
        assert!(audience.rule_allows(&get("", "https://a/b", "", "p")));
        let one = rule(
            serde_json::json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["a"]}),
        );
        assert!(
            one.rule_allows(&get("x", "y", "z", "a")) && !one.rule_allows(&get("x", "y", "z", "b"))
        );
        let url =
            rule(serde_json::json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/api/*"]}));
        let get_path = |path| Attributes { verb: "get", path: Some(path), ..Attributes::default() };
        assert!(
            url.rule_allows(&get_path("/healthz"))
                && url.rule_allows(&get_path("/api/v1"))
                && !url.rule_allows(&get_path("/apis"))
        );
    }
}
