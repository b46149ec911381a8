//! Rules of FlowSchemas: which requests they match.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | A rule matches by one of its subjects, and by one of its resource or non-resource rules | `matches_policy_rule` |
//! | A resource rule matches verb, API group, resource and namespace, or clusterScope | `matches_resource_policy_rule` |

use serde::Deserialize;

use crate::decode::listed;
use crate::request::RequestInfo;
use evenkeel_apimachinery::user::User;

/// Rule of a FlowSchema.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Rule {
    #[serde(deserialize_with = "listed")]
    subjects: Vec<Subject>,
    #[serde(deserialize_with = "listed")]
    resource_rules: Vec<ResourceRule>,
    #[serde(rename = "nonResourceRules", deserialize_with = "listed")]
    path_rules: Vec<PathRule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Subject {
    kind: Box<str>,
    user: Option<SubjectName>,
    group: Option<SubjectName>,
    service_account: Option<SubjectName>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SubjectName {
    /// Name; `*` matches all.
    name: Box<str>,
    /// Namespace of a ServiceAccount; otherwise empty.
    namespace: Box<str>,
}

impl SubjectName {
    fn matches_name(&self, name: &str) -> bool {
        *self.name == *"*" || *self.name == *name
    }

    /// Returns whether a user is a ServiceAccount with this namespace and name.
    fn matches_service_account(&self, user: &User) -> bool {
        let account = user.name.strip_prefix("system:serviceaccount:");
        let Some((namespace, name)) = account.and_then(|account| account.split_once(':')) else {
            return false;
        };
        namespace == &*self.namespace && self.matches_name(name)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ResourceRule {
    #[serde(deserialize_with = "listed")]
    verbs: Vec<Box<str>>,
    #[serde(deserialize_with = "listed")]
    api_groups: Vec<Box<str>>,
    #[serde(deserialize_with = "listed")]
    resources: Vec<Box<str>>,
    cluster_scope: bool,
    #[serde(deserialize_with = "listed")]
    namespaces: Vec<Box<str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PathRule {
    #[serde(deserialize_with = "listed")]
    verbs: Vec<Box<str>>,
    #[serde(rename = "nonResourceURLs", deserialize_with = "listed")]
    paths: Vec<Box<str>>,
}

impl Rule {
    /// Returns whether a subject of the rule sent the request, and one of its resource or non-resource rules matches
    /// it.
    ///
    /// Upstream: `matchesPolicyRule`.
    pub(super) fn matches_policy_rule(
        &self,
        user: &User,
        info: &RequestInfo<'_>,
        path: &str,
    ) -> bool {
        if !self.subjects.iter().any(|subject| subject.matches_subject(user)) {
            return false;
        }
        if info.is_resource {
            self.resource_rules.iter().any(|rule| rule.matches_resource_policy_rule(info))
        } else {
            self.path_rules
                .iter()
                .any(|rule| rule.matches_non_resource_policy_rule(info.verb, path))
        }
    }
}

impl Subject {
    /// Returns whether the user, one of its groups or its service account is the subject. `*` matches all names.
    ///
    /// Upstream: `matchesSubject`.
    fn matches_subject(&self, user: &User) -> bool {
        match (&*self.kind, &self.user, &self.group, &self.service_account) {
            ("User", Some(subject), _, _) => subject.matches_name(&user.name),
            ("Group", _, Some(subject), _) => *subject.name == *"*" || user.is_in(&subject.name),
            ("ServiceAccount", _, _, Some(subject)) => subject.matches_service_account(user),
            _ => false,
        }
    }
}

impl ResourceRule {
    /// Returns whether the rule lists the verb, group, resource and namespace of a request for a resource.
    ///
    /// Upstream: `matchesResourcePolicyRule`.
    fn matches_resource_policy_rule(&self, info: &RequestInfo<'_>) -> bool {
        let joined;
        let resource = if info.subresource.is_empty() {
            info.resource
        } else {
            joined = format!("{}/{}", info.resource, info.subresource);
            &joined
        };
        contains_value(&self.verbs, info.verb)
            && contains_value(&self.resources, resource)
            && contains_value(&self.api_groups, info.group)
            && match info.namespace {
                "" => self.cluster_scope,
                namespace => contains_value(&self.namespaces, namespace),
            }
    }
}

impl PathRule {
    /// Returns whether the rule lists the verb and path of a request for a non-resource URL.
    ///
    /// Upstream: `matchesNonResourcePolicyRule`.
    fn matches_non_resource_policy_rule(&self, verb: &str, path: &str) -> bool {
        // A pattern such as `/healthz/*` matches all paths below `/healthz/`.
        let is_below = |pattern: &str| {
            let prefix = pattern.trim_end_matches('*').trim_end_matches('/');
            path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
        };
        let matches_path = |pattern: &str| pattern == "*" || pattern == path || is_below(pattern);
        contains_value(&self.verbs, verb) && self.paths.iter().any(|pattern| matches_path(pattern))
    }
}

/// Returns whether a list contains a value. `*` as the only element matches all values.
///
/// Upstream: `containsString`.
fn contains_value(list: &[Box<str>], value: &str) -> bool {
    matches!(list, [only] if **only == *"*") || list.iter().any(|element| **element == *value)
}
