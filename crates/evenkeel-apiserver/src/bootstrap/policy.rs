//! The bootstrap policy: permissions of upstream's components, by the roles and bindings of every new server.
//!
//! Upstream: `plugin/pkg/auth/authorizer/rbac/bootstrappolicy`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::recorded;
use evenkeel_apimachinery::status::StatusError;

/// API group of roles and bindings.
const GROUP: &str = "rbac.authorization.k8s.io";

/// Rule of a role (`PolicyRule` of rbac.authorization.k8s.io/v1). In each list, `*` matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct BootstrapRule {
    /// Verbs that the rule allows.
    pub verbs: Vec<String>,
    /// API groups of the resources. The core group is the empty string.
    pub api_groups: Vec<String>,
    /// Resources, or `RESOURCE/SUBRESOURCE`.
    pub resources: Vec<String>,
    /// Names of the objects. Empty for all objects.
    pub resource_names: Vec<String>,
    /// Paths of non-resource requests.
    #[serde(rename = "nonResourceURLs")]
    pub non_resource_urls: Vec<String>,
}

/// Rule that a binding of the bootstrap policy grants to a user.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BootstrapGrant {
    /// Name of the role.
    pub role: String,
    /// Namespace of the binding. Empty for a ClusterRoleBinding, which grants the rule in all namespaces.
    pub namespace: String,
    /// Rule that the role grants to the user.
    pub rule: BootstrapRule,
}

#[derive(Deserialize)]
struct Role {
    metadata: Metadata,
    /// Absent in roles that others are aggregated into.
    rules: Option<Vec<BootstrapRule>>,
}

#[derive(Deserialize)]
struct Binding {
    metadata: Metadata,
    #[serde(rename = "roleRef")]
    role: RoleRef,
    #[serde(default)]
    subjects: Vec<Subject>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Deserialize)]
struct RoleRef {
    kind: String,
    name: String,
}

#[derive(Deserialize)]
struct Subject {
    kind: String,
    name: String,
    #[serde(default)]
    namespace: String,
}

impl Subject {
    /// Returns the user's name; `None` for a group.
    fn user(&self) -> Option<String> {
        match &*self.kind {
            "User" => Some(self.name.clone()),
            "ServiceAccount" => {
                Some(format!("system:serviceaccount:{}:{}", self.namespace, self.name))
            }
            _ => None,
        }
    }
}

/// Returns the rules that the bootstrap policy grants to a user by name, such as `system:kube-scheduler` or
/// `system:serviceaccount:kube-system:job-controller`. The result does not include the rules of the user's groups.
///
/// # Errors
/// Never fails: the policy is part of the program.
pub fn bootstrap_grants(user: &str) -> Result<Vec<BootstrapGrant>, StatusError> {
    // Roles by kind, namespace and name.
    let mut roles = BTreeMap::new();
    for (kind, resource) in [("ClusterRole", "clusterroles"), ("Role", "roles")] {
        for role in recorded::parsed::<Role>(GROUP, resource)? {
            let Metadata { name, namespace } = role.metadata;
            roles.insert((kind, namespace, name), role.rules.unwrap_or_default());
        }
    }
    let mut grants = Vec::new();
    for resource in ["clusterrolebindings", "rolebindings"] {
        for binding in recorded::parsed::<Binding>(GROUP, resource)? {
            if !binding.subjects.iter().any(|subject| subject.user().as_deref() == Some(user)) {
                continue;
            }
            let Binding {
                metadata: Metadata { namespace, .. }, role: RoleRef { kind, name }, ..
            } = binding;
            let of_role = if kind == "Role" { namespace.clone() } else { String::new() };
            for rule in roles.get(&(&*kind, of_role, name.clone())).into_iter().flatten() {
                let (role, namespace, rule) = (name.clone(), namespace.clone(), rule.clone());
                grants.push(BootstrapGrant { role, namespace, rule });
            }
        }
    }
    Ok(grants)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(user: &str) -> Vec<BootstrapGrant> {
        bootstrap_grants(user).expect("the policy")
    }

    #[test]
    fn users_and_service_accounts_have_the_rules_of_all_their_bindings() {
        let of_scheduler = grants("system:kube-scheduler");
        let roles: std::collections::BTreeSet<(&str, &str)> =
            of_scheduler.iter().map(|grant| (&*grant.namespace, &*grant.role)).collect();
        let want = [
            ("", "system:kube-scheduler"),
            ("", "system:volume-scheduler"),
            ("kube-system", "extension-apiserver-authentication-reader"),
            ("kube-system", "system::leader-locking-kube-scheduler"),
        ];
        assert_eq!(roles, want.into_iter().collect());
        let reads_authentication = |grant: &&BootstrapGrant| {
            grant.rule.resource_names == ["extension-apiserver-authentication"]
        };
        let grant = of_scheduler.iter().find(reads_authentication).expect("a grant");
        assert_eq!(grant.rule.verbs, ["get", "list", "watch"]);

        let of_jobs = grants("system:serviceaccount:kube-system:job-controller");
        let creates_pods = |grant: &BootstrapGrant| {
            grant.rule.resources == ["pods"] && grant.rule.verbs.iter().any(|verb| verb == "create")
        };
        assert!(of_jobs.iter().any(creates_pods), "{of_jobs:?}");
        assert_eq!(grants("system:serviceaccount:default:job-controller"), []);
        assert_eq!(grants("system:masters"), [], "a group is not a user");
    }
}
