//! API Priority and Fairness: classifies a request to a FlowSchema and its priority level, and names both in the headers of
//! the response. Requests are not queued and not rejected.
//!
//! | documented | where |
//! |---|---|
//! | The FlowSchema with the lowest matchingPrecedence that matches applies; equal precedence is ordered by name | `compile` |
//! | A request that no other FlowSchema matches belongs to `catch-all` | `classify` |
//! | A FlowSchema whose priority level does not exist is ignored | `compile` |
//! | Long-running requests other than watches are exempt | `is_long_running` |
//! | A rule matches by one of its subjects and one of its resource or non-resource rules | `matches_policy_rule` |
//! | A resource rule matches verb, API group, resource and namespace, or clusterScope | `matches_resource_policy_rule` |

use std::sync::{Arc, PoisonError, RwLock};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::Value;

use crate::request::RequestInfo;
use crate::store::Store;
use evenkeel_apimachinery::user::User;
use evenkeel_apimachinery::value::{int, text};

/// Resource key of FlowSchemas.
const SCHEMAS: &str = "flowcontrol.apiserver.k8s.io/flowschemas";
/// Resource key of PriorityLevelConfigurations.
const LEVELS: &str = "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations";
/// FlowSchema of the requests that no other one matches.
const CATCH_ALL: &str = "catch-all";
/// Default of `matchingPrecedence`.
const PRECEDENCE: i64 = 1000;

const SCHEMA_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Classifies requests by the stored FlowSchemas.
#[derive(Default)]
pub(crate) struct Flows {
    compiled: RwLock<Option<Arc<Compiled>>>,
}

struct Compiled {
    version: [u64; 2],
    /// FlowSchemas by ascending matchingPrecedence, then by name.
    schemas: Vec<Schema>,
}

struct Schema {
    name: Box<str>,
    rules: Vec<Rule>,
    class: Class,
}

/// Classification of a request: the uids of its FlowSchema and priority level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Class {
    schema: HeaderValue,
    level: HeaderValue,
}

impl Class {
    /// Sets the two uids in the response headers.
    pub(crate) fn mark(self, headers: &mut HeaderMap) {
        headers.insert(SCHEMA_HEADER, self.schema);
        headers.insert(LEVEL_HEADER, self.level);
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Rule {
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

/// Decodes a list that may be null.
fn listed<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::<Vec<T>>::deserialize(from).map(Option::unwrap_or_default)
}

impl Flows {
    /// Returns the first FlowSchema that matches a request, and its priority level; `None` for a long-running request that is
    /// not a watch.
    ///
    /// Upstream: `matchesFlowSchema`
    pub(crate) fn classify(
        &self,
        store: &Store,
        user: &User,
        info: &RequestInfo<'_>,
        path: &str,
    ) -> Option<Class> {
        if info.verb != "watch" && is_long_running(info, path) {
            return None;
        }
        let compiled = self.compiled(store);
        let of = |schema: &&Schema| {
            schema.rules.iter().any(|rule| rule.matches_policy_rule(user, info, path))
        };
        let last = |schema: &&Schema| &*schema.name == CATCH_ALL;
        let schemas = &compiled.schemas;
        let found = schemas.iter().find(of).or_else(|| schemas.iter().find(last))?;
        Some(found.class.clone())
    }

    fn compiled(&self, store: &Store) -> Arc<Compiled> {
        let version = [SCHEMAS, LEVELS].map(|resource_prefix| store.touched(resource_prefix));
        if let Some(compiled) = &*self.compiled.read().unwrap_or_else(PoisonError::into_inner)
            && compiled.version == version
        {
            return compiled.clone();
        }
        let read = |resource_prefix| {
            store.all(resource_prefix).into_iter().filter_map(|entry| entry.decode().ok())
        };
        let (schemas, levels): (Vec<Value>, Vec<Value>) =
            (read(SCHEMAS).collect(), read(LEVELS).collect());
        let compiled = Arc::new(Compiled { version, schemas: compile(schemas, &levels) });
        *self.compiled.write().unwrap_or_else(PoisonError::into_inner) = Some(compiled.clone());
        compiled
    }
}

/// Orders the FlowSchemas by precedence and drops those whose priority level does not exist.
///
/// Upstream: `FlowSchemaSequence`
fn compile(mut schemas: Vec<Value>, levels: &[Value]) -> Vec<Schema> {
    let precedence = |schema: &Value| int(schema, "spec.matchingPrecedence").unwrap_or(PRECEDENCE);
    schemas.sort_by(|a, b| {
        let name = |schema| text(schema, "metadata.name");
        precedence(a).cmp(&precedence(b)).then_with(|| name(a).cmp(name(b)))
    });
    let uid = |object: &Value| HeaderValue::from_str(text(object, "metadata.uid")).ok();
    let read = |schema: Value| {
        let level = text(&schema, "spec.priorityLevelConfiguration.name");
        let level = levels.iter().find(|l| text(l, "metadata.name") == level)?;
        let rules = schema.pointer("/spec/rules").cloned().filter(|rules| !rules.is_null());
        let rules = match rules.map(serde_json::from_value) {
            None => Vec::new(),
            Some(Ok(rules)) => rules,
            Some(Err(error)) => {
                let name = text(&schema, "metadata.name");
                tracing::error!(name, %error, "a flow schema cannot be read");
                return None;
            }
        };
        let class = Class { schema: uid(&schema)?, level: uid(level)? };
        Some(Schema { name: text(&schema, "metadata.name").into(), rules, class })
    };
    schemas.into_iter().filter_map(read).collect()
}

/// Returns whether upstream exempts a request from the request timeout: exec, attach, port-forward, logs, proxied requests.
///
/// Upstream: `BasicLongRunningRequestCheck`
fn is_long_running(info: &RequestInfo<'_>, path: &str) -> bool {
    let parts = ["attach", "exec", "proxy", "log", "portforward"];
    info.verb == "proxy"
        || info.is_resource && parts.contains(&info.subresource)
        || !info.is_resource && path.starts_with("/debug/pprof/")
}

impl Rule {
    /// Upstream: `matchesPolicyRule`
    fn matches_policy_rule(&self, user: &User, info: &RequestInfo<'_>, path: &str) -> bool {
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
    /// Upstream: `matchesSubject`
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
    /// Upstream: `matchesResourcePolicyRule`
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
    /// Upstream: `matchesNonResourcePolicyRule`
    fn matches_non_resource_policy_rule(&self, verb: &str, path: &str) -> bool {
        let below = |pattern: &str| {
            let folder = pattern.trim_end_matches('*').trim_end_matches('/');
            path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
        };
        has(&self.verbs, verb)
            && self.paths.iter().any(|one| **one == *"*" || **one == *path || below(one))
    }
}

/// Returns whether a list contains a value. `*` as the only element matches all values.
///
/// Upstream: `containsString`
fn has(list: &[Box<str>], value: &str) -> bool {
    matches!(list, [one] if **one == *"*") || list.iter().any(|one| **one == *value)
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::request::Query;

    fn schema(name: &str, precedence: i64, level: &str, rule: &Value) -> Value {
        json!({"metadata": {"name": name, "uid": format!("of-{name}")}, "spec": {"matchingPrecedence": precedence,
            "priorityLevelConfiguration": {"name": level}, "rules": [rule]}})
    }

    fn rule(subject: &Value, verbs: &[&str], resources: &[&str], namespaces: &[&str]) -> Value {
        json!({"subjects": [subject], "resourceRules": [{"verbs": verbs, "apiGroups": ["*"], "resources": resources,
            "clusterScope": namespaces.is_empty(), "namespaces": namespaces}]})
    }

    /// Name of the schema that takes a request.
    fn taken(user: &User, method: &str, path: &str) -> String {
        let user_of = |name: &str| json!({"kind": "User", "user": {"name": name}});
        let group_of = |name: &str| json!({"kind": "Group", "group": {"name": name}});
        let accounts =
            json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "a"}});
        let paths = json!({"subjects": [group_of("*")], "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/logs/*"]}]});
        let schemas = vec![
            schema("catch-all", 10_000, "low", &json!({})),
            schema("later", 200, "low", &rule(&user_of("ann"), &["*"], &["*"], &[])),
            schema(
                "leases",
                100,
                "high",
                &rule(&user_of("*"), &["get", "update"], &["leases"], &["a"]),
            ),
            schema(
                "approval",
                100,
                "high",
                &rule(&group_of("g"), &["*"], &["things/status"], &["*"]),
            ),
            schema("accounts", 300, "low", &rule(&accounts, &["*"], &["*"], &["*"])),
            schema("dangling", 1, "none", &rule(&user_of("*"), &["*"], &["*"], &["*"])),
            schema("paths", 50, "low", &paths),
        ];
        let level = |name: &str| json!({"metadata": {"name": name, "uid": name}});
        let schemas = compile(schemas, &[level("low"), level("high")]);
        let query = Query::parse(None);
        let method: Method = method.parse().expect("a method");
        let info = RequestInfo::new(&method, path, &query);
        let covers =
            |s: &&Schema| s.rules.iter().any(|rule| rule.matches_policy_rule(user, &info, path));
        schemas.iter().find(covers).map_or("", |schema| &schema.name).to_owned()
    }

    #[test]
    fn requests_go_where_the_first_schema_takes_them() {
        let ann = User::authenticated("ann", ["g"]);
        let account = |name: &str| User::authenticated(name, []);
        let web = account("system:serviceaccount:a:web");
        for (user, method, path, want) in [
            (&ann, "GET", "/apis/g/v1/namespaces/a/leases/x", "leases"),
            (&ann, "GET", "/apis/g/v1/namespaces/b/leases/x", ""),
            (&ann, "DELETE", "/apis/g/v1/namespaces/a/leases/x", ""),
            (&ann, "GET", "/api/v1/nodes/x", "later"),
            (&ann, "PUT", "/apis/g/v1/namespaces/b/things/x/status", "approval"),
            (&ann, "PUT", "/apis/g/v1/namespaces/b/things/x", ""),
            (&web, "PUT", "/apis/g/v1/namespaces/b/things/x", "accounts"),
            (&account("system:serviceaccount:ab:web"), "GET", "/api/v1/namespaces/b/pods/x", ""),
            (&ann, "GET", "/healthz", "paths"),
            (&ann, "GET", "/healthz/etcd", "paths"),
            (&ann, "GET", "/healthzz", ""),
            (&ann, "GET", "/logs/a/b", "paths"),
            (&ann, "POST", "/healthz", ""),
        ] {
            assert_eq!(taken(user, method, path), want, "{} {method} {path}", user.name);
        }
    }
}
