//! Role-based authorization: rules compiled from the stored roles and bindings, again whenever those changed. What nodes
//! may besides is said by `nodes`.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde::Deserialize;

use super::{User, nodes};
use crate::store::Store;

const RESOURCE_PREFIXES: [&str; 4] = [
    "rbac.authorization.k8s.io/clusterroles",
    "rbac.authorization.k8s.io/roles",
    "rbac.authorization.k8s.io/clusterrolebindings",
    "rbac.authorization.k8s.io/rolebindings",
];

/// What a request would do.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attributes<'a> {
    /// `get`, `list`, …; the lower-case method of a path that is no resource.
    pub(crate) verb: &'a str,
    /// Group of the resource.
    pub(crate) group: &'a str,
    /// Resource.
    pub(crate) resource: &'a str,
    /// Sub-resource.
    pub(crate) subresource: &'a str,
    /// Namespace.
    pub(crate) namespace: &'a str,
    /// Name.
    pub(crate) name: &'a str,
    /// The path, of a request that is for no resource.
    pub(crate) path: Option<&'a str>,
    /// The field selector of a list, watch or deletecollection, as the query has it.
    pub(crate) field_selector: &'a str,
}

/// Decides by the stored roles.
#[derive(Default)]
pub(crate) struct Rules {
    compiled: RwLock<Option<Arc<Compiled>>>,
}

#[derive(Default)]
struct Compiled {
    version: [u64; 4],
    /// Subject to what it is granted: namespace (none: everywhere) and the rules of a role.
    users: HashMap<Box<str>, Vec<Grant>>,
    groups: HashMap<Box<str>, Vec<Grant>>,
    /// What nodes may.
    node: Option<Arc<[Rule]>>,
}

struct Grant {
    namespace: Option<Box<str>>,
    /// The role's rules; the name of the role that is not there in upstream's words.
    rules: Result<Arc<[Rule]>, Arc<str>>,
    /// Which binding of which role.
    by: Arc<str>,
}

impl Grant {
    /// The role's rules, none where there is no such role.
    fn rules(&self) -> &[Rule] {
        self.rules.as_deref().unwrap_or_default()
    }
}

/// The rules that apply to a user in one namespace (and everywhere).
#[derive(Default)]
pub(crate) struct Resolved {
    pub(crate) rules: Vec<Rule>,
    /// Why the list may be incomplete: the roles that bindings of the user name and that are not there.
    pub(crate) errors: Vec<Arc<str>>,
}

/// A rule of a Role or a ClusterRole.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Rule {
    pub(crate) verbs: Vec<Box<str>>,
    pub(crate) api_groups: Vec<Box<str>>,
    pub(crate) resources: Vec<Box<str>>,
    pub(crate) resource_names: Vec<Box<str>>,
    #[serde(rename = "nonResourceURLs")]
    pub(crate) non_resource_urls: Vec<Box<str>>,
}

/// A Role or a ClusterRole, as far as it grants.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Role {
    #[serde(default)]
    pub(crate) rules: Option<Vec<Rule>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Binding {
    role_ref: RoleRef,
    #[serde(default)]
    subjects: Option<Vec<Subject>>,
}

/// The role that a binding grants.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RoleRef {
    #[serde(default)]
    pub(crate) api_group: Box<str>,
    pub(crate) kind: Box<str>,
    pub(crate) name: Box<str>,
}

#[derive(Deserialize)]
struct Subject {
    kind: Box<str>,
    name: Box<str>,
    #[serde(default)]
    namespace: Box<str>,
}

impl Rules {
    /// Whether `user` may.
    pub(crate) fn allow(&self, store: &Store, user: &User, attributes: &Attributes<'_>) -> bool {
        if user.is_in("system:masters") {
            return true;
        }
        let compiled = self.compiled(store);
        compiled.is_its_nodes(store, user, attributes)
            || compiled
                .grants(user, attributes.namespace)
                .any(|(_, grant)| grant.rules().iter().any(|rule| rule.covers(attributes)))
    }

    /// Why `user` may; `None`: he may not. Empty for who may everything.
    pub(crate) fn reason(
        &self,
        store: &Store,
        user: &User,
        attributes: &Attributes<'_>,
    ) -> Option<String> {
        if user.is_in("system:masters") {
            return Some(String::new());
        }
        let compiled = self.compiled(store);
        if compiled.is_its_nodes(store, user, attributes) {
            return Some(String::new());
        }
        compiled
            .grants(user, attributes.namespace)
            .find(|(_, g)| g.rules().iter().any(|rule| rule.covers(attributes)))
            .map(|(subject, grant)| {
                let to = match subject
                    .strip_prefix("system:serviceaccount:")
                    .and_then(|s| s.split_once(':'))
                {
                    Some((namespace, name)) => format!("ServiceAccount \"{name}/{namespace}\""),
                    None if *subject == *user.name => format!("User \"{subject}\""),
                    None => format!("Group \"{subject}\""),
                };
                format!("RBAC: allowed by {} to {to}", grant.by)
            })
    }

    /// Every rule that bindings give a user in a namespace (and everywhere).
    ///
    /// Upstream: `DefaultRuleResolver.RulesFor`
    pub(crate) fn rules_for(&self, store: &Store, user: &User, namespace: &str) -> Resolved {
        let compiled = self.compiled(store);
        let mut resolved = Resolved::default();
        for (_, grant) in compiled.grants(user, namespace) {
            match &grant.rules {
                Ok(rules) => resolved.rules.extend(rules.iter().cloned()),
                Err(error) if resolved.errors.contains(error) => {}
                Err(error) => resolved.errors.push(error.clone()),
            }
        }
        resolved
    }

    fn compiled(&self, store: &Store) -> Arc<Compiled> {
        let version = RESOURCE_PREFIXES.map(|resource_prefix| store.touched(resource_prefix));
        if let Some(compiled) = &*self.compiled.read().unwrap_or_else(PoisonError::into_inner)
            && compiled.version == version
        {
            return compiled.clone();
        }
        let compiled = Arc::new(compile(store, version));
        *self.compiled.write().unwrap_or_else(PoisonError::into_inner) = Some(compiled.clone());
        compiled
    }
}

impl Compiled {
    /// Whether the user is a node that may.
    fn is_its_nodes(&self, store: &Store, user: &User, attributes: &Attributes<'_>) -> bool {
        let (Some(node), Some(rules)) = (nodes::node_of(user), &self.node) else { return false };
        !node.is_empty() && nodes::allow(store, node, rules, attributes)
    }

    /// What a user has in a namespace, each with the name by which he has it.
    fn grants<'a>(
        &'a self,
        user: &'a User,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Grant)> {
        let named =
            self.users.get(&user.name).into_iter().flatten().map(|grant| (&*user.name, grant));
        let grouped = user
            .groups
            .iter()
            .filter_map(|group| Some((group, self.groups.get(group)?)))
            .flat_map(|(group, grants)| grants.iter().map(move |grant| (&**group, grant)));
        named.chain(grouped).filter(move |(_, grant)| {
            grant.namespace.as_ref().is_none_or(|n| !namespace.is_empty() && **n == *namespace)
        })
    }
}

fn compile(store: &Store, version: [u64; 4]) -> Compiled {
    let mut compiled = Compiled { version, ..Compiled::default() };
    let mut roles: HashMap<(bool, Box<str>), Arc<[Rule]>> = HashMap::new();
    for (cluster, resource_prefix) in [(true, RESOURCE_PREFIXES[0]), (false, RESOURCE_PREFIXES[1])]
    {
        for entry in store.all(resource_prefix) {
            match serde_json::from_slice::<Role>(entry.json()) {
                Ok(role) => {
                    roles.insert(
                        (cluster, (*entry.key).into()),
                        role.rules.unwrap_or_default().into(),
                    );
                }
                Err(error) => tracing::error!(role = %entry.key, %error, "a role cannot be read"),
            }
        }
    }
    compiled.node = roles.get(&(true, "system:node".into())).cloned();
    for (cluster, resource_prefix) in [(true, RESOURCE_PREFIXES[2]), (false, RESOURCE_PREFIXES[3])]
    {
        for entry in store.all(resource_prefix) {
            let binding = match serde_json::from_slice::<Binding>(entry.json()) {
                Ok(binding) => binding,
                Err(error) => {
                    tracing::error!(binding = %entry.key, %error, "a role binding cannot be read");
                    continue;
                }
            };
            let namespace =
                if cluster { None } else { entry.key.split_once('/').map(|(ns, _)| Box::from(ns)) };
            let of_cluster = &*binding.role_ref.kind == "ClusterRole";
            let key = match (&namespace, of_cluster) {
                (Some(namespace), false) => format!("{namespace}/{}", binding.role_ref.name).into(),
                _ => binding.role_ref.name.clone(),
            };
            let rules = roles.get(&(of_cluster, key)).cloned();
            let rules = rules.ok_or_else(|| missing(&binding.role_ref));
            let by: Arc<str> = describe(&entry.key, cluster, &binding.role_ref).into();
            for subject in binding.subjects.unwrap_or_default() {
                let grant =
                    Grant { namespace: namespace.clone(), rules: rules.clone(), by: by.clone() };
                match &*subject.kind {
                    "User" => compiled.users.entry(subject.name).or_default().push(grant),
                    "Group" => compiled.groups.entry(subject.name).or_default().push(grant),
                    "ServiceAccount" => {
                        let home = if subject.namespace.is_empty() {
                            namespace.as_deref().unwrap_or_default()
                        } else {
                            &subject.namespace
                        };
                        let name = format!("system:serviceaccount:{home}:{}", subject.name);
                        compiled.users.entry(name.into()).or_default().push(grant);
                    }
                    _ => {}
                }
            }
        }
    }
    compiled
}

/// `clusterroles.rbac.authorization.k8s.io "role" not found`.
fn missing(role: &RoleRef) -> Arc<str> {
    let plural = if &*role.kind == "ClusterRole" { "clusterroles" } else { "roles" };
    format!("{plural}.rbac.authorization.k8s.io \"{}\" not found", role.name).into()
}

/// `RoleBinding "name/namespace" of Role "role"`.
fn describe(key: &str, cluster: bool, role: &RoleRef) -> String {
    let binding = match key.split_once('/') {
        Some((namespace, name)) if !cluster => format!("RoleBinding \"{name}/{namespace}\""),
        _ => format!("ClusterRoleBinding \"{key}\""),
    };
    format!("{binding} of {} \"{}\"", role.kind, role.name)
}

impl Rule {
    pub(super) fn covers(&self, attributes: &Attributes<'_>) -> bool {
        let has =
            |list: &[Box<str>], value: &str| list.iter().any(|v| **v == *"*" || **v == *value);
        if !has(&self.verbs, attributes.verb) {
            return false;
        }
        if let Some(path) = attributes.path {
            return self.non_resource_urls.iter().any(|url| covers_url(url, path));
        }
        has(&self.api_groups, attributes.group)
            && self.resources.iter().any(|r| covers_resource(r, attributes))
            && (self.resource_names.is_empty()
                || self.resource_names.iter().any(|n| **n == *attributes.name))
    }
}

/// Whether a rule's path is another one, or ends in stars and begins it.
///
/// Upstream: `NonResourceURLMatches`
pub(super) fn covers_url(rule: &str, path: &str) -> bool {
    rule == path || rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*'))
}

/// Whether a rule's resource is the request's. What a rule names need not be a resource: an audience has slashes, too.
///
/// Upstream: `ResourceMatches`
fn covers_resource(rule: &str, attributes: &Attributes<'_>) -> bool {
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

    fn rule(json: serde_json::Value) -> Rule {
        serde_json::from_value(json).expect("a rule")
    }

    #[test]
    fn rules_cover_what_they_say() {
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
        assert!(pods.covers(&get("", "pods", "", "p")));
        assert!(!pods.covers(&get("", "pods", "log", "p")));
        assert!(pods.covers(&get("", "replicationcontrollers", "scale", "p")));
        assert!(!pods.covers(&get("apps", "pods", "", "p")));
        for nothing in ["*/", "pods/", "/"] {
            let rule = rule(
                serde_json::json!({"verbs": ["*"], "apiGroups": ["*"], "resources": [nothing]}),
            );
            assert!(!rule.covers(&get("", "pods", "", "p")), "{nothing}");
            assert!(!rule.covers(&get("", "pods", "log", "p")), "{nothing}");
        }
        let audience = rule(
            serde_json::json!({"verbs": ["get"], "apiGroups": [""], "resources": ["https://a/b"]}),
        );
        assert!(audience.covers(&get("", "https://a/b", "", "p")));
        let one = rule(
            serde_json::json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["a"]}),
        );
        assert!(one.covers(&get("x", "y", "z", "a")) && !one.covers(&get("x", "y", "z", "b")));
        let url =
            rule(serde_json::json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/api/*"]}));
        let at = |path| Attributes { verb: "get", path: Some(path), ..Attributes::default() };
        assert!(
            url.covers(&at("/healthz")) && url.covers(&at("/api/v1")) && !url.covers(&at("/apis"))
        );
    }
}
