//! RBAC: resolves the stored Roles, ClusterRoles and their bindings to rules by user and group, and authorizes requests
//! by these rules. [`super::rbac_authorizer`] resolves the rules again after each change.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | Permissions add up, without deny rules: one rule that allows the request is enough | `authorize` |
//! | A member of `system:masters` may do everything, regardless of the roles | `authorizer::decide` |
//! | A RoleBinding grants in its namespace, a ClusterRoleBinding in all namespaces and on cluster-scoped resources | `grants_of` |
//! | A RoleBinding may refer to a ClusterRole, and grants its rules in the binding's namespace only | `resolve` |
//! | A subject is a user, a group or a service account (`system:serviceaccount:NAMESPACE:NAME`) | `resolve` |
//! | A binding to a role that does not exist grants nothing | `MissingRole` |
//! | A rule allows a request that matches its verbs, API groups, resources and resource names; `*` matches all | `rule::rule_allows` |
//! | `pods/log` names a subresource, `*/scale` the subresource of all resources; `pods` does not include `pods/log` | `rule::resource_matches` |
//! | A non-resource URL may end in `*`, which matches any suffix | `rule::non_resource_url_matches` |
//! | SelfSubjectRulesReview lists the rules of a user in a namespace | `rules_for` |
//! | A kubelet may only read objects that pods on its node refer to | `nodes::authorize` |
//! | Users may only grant permissions that they hold | `escalation::confirm_no_escalation` |

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;

use super::authorization::decision::Decision;
use super::rule::{Attributes, PolicyRule};
use super::{User, nodes};
use crate::store::Store;
use evenkeel_apimachinery::status::quote;

/// Resource prefix of ClusterRoles.
pub(super) const CLUSTER_ROLES: &str = "rbac.authorization.k8s.io/clusterroles";
const ROLES: &str = "rbac.authorization.k8s.io/roles";
const CLUSTER_ROLE_BINDINGS: &str = "rbac.authorization.k8s.io/clusterrolebindings";
const ROLE_BINDINGS: &str = "rbac.authorization.k8s.io/rolebindings";

/// Resource prefixes of the resources that [`resolve`] reads.
pub(super) const RBAC_RESOURCES: [&str; 4] =
    [CLUSTER_ROLES, ROLES, CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS];

/// Rules that the stored bindings grant.
///
/// Upstream: `DefaultRuleResolver`.
#[derive(Default)]
pub(super) struct RuleResolver {
    /// Revision of the last change of each resource in [`RBAC_RESOURCES`] that the rules were resolved from.
    pub(super) version: [u64; 4],
    /// Errors of roles and bindings that cannot be decoded. Such objects grant nothing.
    pub(super) unreadable: Vec<String>,
    /// Grants by user name, including the user names of service accounts.
    users: HashMap<Box<str>, Vec<Grant>>,
    /// Grants by group name.
    groups: HashMap<Box<str>, Vec<Grant>>,
    /// Rules of the ClusterRole `system:node`, which the Node authorizer applies to kubelets.
    node: Option<Arc<[PolicyRule]>>,
}

/// Grant of one role's rules by one binding to one subject.
struct Grant {
    /// Namespace of the RoleBinding; `None` for a ClusterRoleBinding, whose rules apply in the whole cluster.
    namespace: Option<Box<str>>,
    /// Rules of the role, if it exists.
    rules: Result<Arc<[PolicyRule]>, Arc<MissingRole>>,
    /// Description of the binding and the role, for the reason of a decision.
    description: Arc<str>,
}

impl Grant {
    /// Returns the role's rules; none if the role does not exist.
    fn rules(&self) -> &[PolicyRule] {
        self.rules.as_deref().unwrap_or_default()
    }
}

/// Rules that apply to a user in one namespace, including those of ClusterRoleBindings. The rules of a role appear
/// once, however many bindings grant it.
#[derive(Default)]
pub(crate) struct ResolvedRules {
    pub(crate) rules: Vec<Arc<[PolicyRule]>>,
    /// Missing roles that the user's bindings refer to, those of ClusterRoleBindings first.
    pub(crate) missing: Vec<Arc<MissingRole>>,
}

/// Role that does not exist, although a binding refers to it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MissingRole {
    /// Singular name of the role's resource.
    resource: &'static str,
    name: Box<str>,
}

impl MissingRole {
    pub(crate) fn new(kind: &str, name: &str) -> Self {
        let resource = if kind == "ClusterRole" { "clusterrole" } else { "role" };
        Self { resource, name: name.into() }
    }

    /// Returns the error in the form of upstream's registry: `clusterroles.rbac.authorization.k8s.io "role" not found`.
    pub(crate) fn not_stored(&self) -> String {
        let name = quote(&self.name);
        format!("{}s.rbac.authorization.k8s.io {name} not found", self.resource)
    }

    /// Returns the error in the form of upstream's listers, which upstream's authorizers read. The resource is in the
    /// singular: `clusterrole.rbac.authorization.k8s.io "role" not found`.
    pub(crate) fn not_cached(&self) -> String {
        format!("{}.rbac.authorization.k8s.io {} not found", self.resource, quote(&self.name))
    }
}

/// Rules of a Role or a ClusterRole, without its metadata and aggregation rule.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Role {
    #[serde(default)]
    pub(crate) rules: Option<Vec<PolicyRule>>,
}

/// RoleBinding or ClusterRoleBinding.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Binding {
    role_ref: RoleRef,
    #[serde(default)]
    subjects: Option<Vec<Subject>>,
}

/// Reference of a binding to the Role or ClusterRole that it grants.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RoleRef {
    #[serde(default)]
    pub(crate) api_group: Box<str>,
    pub(crate) kind: Box<str>,
    pub(crate) name: Box<str>,
}

/// User, group or service account to which a binding grants a role.
#[derive(Deserialize)]
struct Subject {
    kind: Box<str>,
    name: Box<str>,
    #[serde(default)]
    namespace: Box<str>,
}

impl RuleResolver {
    /// Returns whether a rule that one of the user's bindings grants allows the request.
    ///
    /// Upstream: `RBACAuthorizer.Authorize`.
    pub(super) fn authorize(&self, user: &User, attributes: &Attributes<'_>) -> bool {
        self.grants_of(user, attributes.namespace)
            .any(|(_, grant)| grant.rules().iter().any(|rule| rule.rule_allows(attributes)))
    }

    /// Decides like [`authorize`](Self::authorize), with a reason. If a grant allows the request, the reason names its
    /// binding, role and subject. Otherwise, the reason names the missing roles of the user's bindings, or is empty.
    ///
    /// Upstream: `RBACAuthorizer.Authorize`, `describeSubject`.
    pub(super) fn authorize_with_reason(
        &self,
        user: &User,
        attributes: &Attributes<'_>,
    ) -> Decision {
        let allowing = self
            .grants_of(user, attributes.namespace)
            .find(|(_, grant)| grant.rules().iter().any(|rule| rule.rule_allows(attributes)));
        let Some((subject, grant)) = allowing else {
            let missing = self.rules_for(user, attributes.namespace).missing;
            let errors = aggregate(missing.iter().map(|role| role.not_cached()));
            let reason = errors.map_or_else(String::new, |errors| format!("RBAC: {errors}"));
            return Decision::no_opinion(reason);
        };
        let account = subject.strip_prefix("system:serviceaccount:");
        let grantee = match account.and_then(|account| account.split_once(':')) {
            Some((namespace, name)) => format!("ServiceAccount \"{name}/{namespace}\""),
            None if *subject == *user.name => format!("User \"{subject}\""),
            None => format!("Group \"{subject}\""),
        };
        Decision::allowed(format!("RBAC: allowed by {} to {grantee}", grant.description))
    }

    /// Decides with the Node authorizer. Returns `None` for a user that is not a kubelet.
    ///
    /// Upstream: `NodeAuthorizer.Authorize`.
    pub(super) fn authorize_node(
        &self,
        store: &Store,
        user: &User,
        attributes: &Attributes<'_>,
    ) -> Option<nodes::Decision> {
        let node = nodes::node_of(user)?;
        if node.is_empty() {
            return Some(Err(format!("unknown node for user {}", quote(&user.name)).into()));
        }
        let rules = self.node.as_deref().unwrap_or_default();
        Some(nodes::authorize(store, node, rules, attributes))
    }

    /// Returns all rules that bindings grant to a user in a namespace, including those of ClusterRoleBindings.
    ///
    /// Upstream: `DefaultRuleResolver.RulesFor`.
    pub(super) fn rules_for(&self, user: &User, namespace: &str) -> ResolvedRules {
        let mut resolved = ResolvedRules::default();
        // Addresses of the rules that are in the result, so that each role is listed once.
        let mut seen_rules = HashSet::new();
        let mut missing_in_namespace = Vec::new();
        for (_, grant) in self.grants_of(user, namespace) {
            match (&grant.rules, &grant.namespace) {
                (Ok(rules), _) if seen_rules.insert(Arc::as_ptr(rules).cast::<PolicyRule>()) => {
                    resolved.rules.push(rules.clone());
                }
                (Ok(_), _) => {}
                (Err(role), None) => resolved.missing.push(role.clone()),
                (Err(role), Some(_)) => missing_in_namespace.push(role.clone()),
            }
        }
        resolved.missing.append(&mut missing_in_namespace);
        resolved
    }

    /// Returns the grants that apply to a user in a namespace, each with the matching user or group name. An empty
    /// namespace selects only the grants of ClusterRoleBindings.
    ///
    /// Upstream: `VisitRulesFor`.
    fn grants_of<'a>(
        &'a self,
        user: &'a User,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Grant)> {
        let by_user =
            self.users.get(&user.name).into_iter().flatten().map(|grant| (&*user.name, grant));
        let by_group = user
            .groups
            .iter()
            .filter_map(|group| Some((group, self.groups.get(group)?)))
            .flat_map(|(group, grants)| grants.iter().map(move |grant| (&**group, grant)));
        by_user.chain(by_group).filter(move |(_, grant)| match &grant.namespace {
            None => true,
            Some(granted) => !namespace.is_empty() && **granted == *namespace,
        })
    }
}

/// Rules of each role. The key is whether the role is a ClusterRole, and its key in the store.
type Roles = HashMap<(bool, Box<str>), Arc<[PolicyRule]>>;

/// Resolves each binding to the rules of its role, and indexes the grants by user and group.
///
/// Upstream: `VisitRulesFor`, `GetRoleReferenceRules`.
pub(super) fn resolve(store: &Store, version: [u64; 4]) -> RuleResolver {
    let mut resolver = RuleResolver { version, ..RuleResolver::default() };
    let roles = read_roles(store, &mut resolver.unreadable);
    resolver.node = roles.get(&(true, "system:node".into())).cloned();
    for (is_cluster_binding, resource_prefix) in
        [(true, CLUSTER_ROLE_BINDINGS), (false, ROLE_BINDINGS)]
    {
        for entry in store.all(resource_prefix) {
            match serde_json::from_slice::<Binding>(entry.json()) {
                Ok(binding) => {
                    resolver.add_binding(&entry.key, is_cluster_binding, binding, &roles);
                }
                Err(error) => {
                    resolver.unreadable.push(format!("role binding {}: {error}", entry.key));
                }
            }
        }
    }
    resolver
}

/// Reads the rules of all roles. Adds those that cannot be decoded to `unreadable`.
fn read_roles(store: &Store, unreadable: &mut Vec<String>) -> Roles {
    let mut roles = Roles::new();
    for (is_cluster_role, resource_prefix) in [(true, CLUSTER_ROLES), (false, ROLES)] {
        for entry in store.all(resource_prefix) {
            match serde_json::from_slice::<Role>(entry.json()) {
                Ok(role) => {
                    let rules = role.rules.unwrap_or_default().into();
                    roles.insert((is_cluster_role, (*entry.key).into()), rules);
                }
                Err(error) => unreadable.push(format!("role {}: {error}", entry.key)),
            }
        }
    }
    roles
}

impl RuleResolver {
    /// Adds the grants of a binding, whose key in the store this is, to its subjects.
    fn add_binding(
        &mut self,
        key: &str,
        is_cluster_binding: bool,
        binding: Binding,
        roles: &Roles,
    ) {
        let Binding { role_ref, subjects } = binding;
        let namespace = match key.split_once('/') {
            Some((namespace, _)) if !is_cluster_binding => Some(Box::from(namespace)),
            _ => None,
        };
        let is_cluster_role = &*role_ref.kind == "ClusterRole";
        let role_key = match (&namespace, is_cluster_role) {
            (Some(namespace), false) => format!("{namespace}/{}", role_ref.name).into(),
            _ => role_ref.name.clone(),
        };
        let rules = roles.get(&(is_cluster_role, role_key)).cloned();
        let rules = rules.ok_or_else(|| Arc::new(MissingRole::new(&role_ref.kind, &role_ref.name)));
        let description: Arc<str> = describe_binding(key, is_cluster_binding, &role_ref).into();
        for subject in subjects.unwrap_or_default() {
            let grant = Grant {
                namespace: namespace.clone(),
                rules: rules.clone(),
                description: description.clone(),
            };
            match &*subject.kind {
                "User" => self.users.entry(subject.name).or_default().push(grant),
                "Group" => self.groups.entry(subject.name).or_default().push(grant),
                "ServiceAccount" => {
                    let account_namespace = match &*subject.namespace {
                        "" => namespace.as_deref().unwrap_or_default(),
                        account_namespace => account_namespace,
                    };
                    let name =
                        format!("system:serviceaccount:{account_namespace}:{}", subject.name);
                    self.users.entry(name.into()).or_default().push(grant);
                }
                _ => {}
            }
        }
    }
}

/// Joins the distinct errors into one message. Returns `None` without errors.
///
/// Upstream: `utilerrors.NewAggregate`.
pub(crate) fn aggregate(errors: impl Iterator<Item = String>) -> Option<String> {
    let mut distinct: Vec<String> = Vec::new();
    for error in errors {
        if !distinct.contains(&error) {
            distinct.push(error);
        }
    }
    match distinct.as_slice() {
        [] => None,
        [_] => distinct.pop(),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

/// Formats a binding and its role for a reason: `RoleBinding "name/namespace" of Role "role"`.
///
/// Upstream: `roleBindingDescriber`, `clusterRoleBindingDescriber`.
fn describe_binding(key: &str, is_cluster_binding: bool, role: &RoleRef) -> String {
    let binding = match key.split_once('/') {
        Some((namespace, name)) if !is_cluster_binding => {
            format!("RoleBinding \"{name}/{namespace}\"")
        }
        _ => format!("ClusterRoleBinding \"{key}\""),
    };
    format!("{binding} of {} \"{}\"", role.kind, role.name)
}
