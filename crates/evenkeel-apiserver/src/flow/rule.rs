//! Rules of FlowSchemas: which requests they match.
//!
//! | documented | where |
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
    user: Option<Named>,
    group: Option<Named>,
    service_account: Option<Named>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: Box<str>,
    namespace: Box<str>,
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
    /// Upstream: `matchesSubject`.
    fn matches_subject(&self, user: &User) -> bool {
        match (&*self.kind, &self.user, &self.group, &self.service_account) {
            ("User", Some(named), _, _) => *named.name == *"*" || named.name == user.name,
            ("Group", _, Some(named), _) => *named.name == *"*" || user.is_in(&named.name),
            ("ServiceAccount", _, _, Some(named)) => {
                let account = user.name.strip_prefix("system:serviceaccount:");
                account.and_then(|account| account.split_once(':')).is_some_and(
                    |(namespace, name)| {
                        namespace == &*named.namespace
                            && (*named.name == *"*" || name == &*named.name)
                    },
                )
            }
            _ => false,
        }
    }
}

impl ResourceRule {
    /// Upstream: `matchesResourcePolicyRule`.
    fn matches_resource_policy_rule(&self, info: &RequestInfo<'_>) -> bool {
        let joined;
        let resource = if info.subresource.is_empty() {
            info.resource
        } else {
            joined = format!("{}/{}", info.resource, info.subresource);
            &joined
        };
        has(&self.verbs, info.verb)
            && has(&self.resources, resource)
            && has(&self.api_groups, info.group)
            && match info.namespace {
                "" => self.cluster_scope,
                namespace => has(&self.namespaces, namespace),
            }
    }
}

impl PathRule {
    /// Upstream: `matchesNonResourcePolicyRule`.
    fn matches_non_resource_policy_rule(&self, verb: &str, path: &str) -> bool {
        let is_below = |pattern: &str| {
            let prefix = pattern.trim_end_matches('*').trim_end_matches('/');
            path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
        };
        has(&self.verbs, verb)
            && self.paths.iter().any(|one| **one == *"*" || **one == *path || is_below(one))
    }
}

/// Returns whether a list contains a value. `*` as the only element matches all values.
///
/// Upstream: `containsString`.
fn has(list: &[Box<str>], value: &str) -> bool {
    matches!(list, [one] if **one == *"*") || list.iter().any(|one| **one == *value)
}
