//! Permissions that the programs need: those that upstream's bootstrap policy grants to their users.

use super::{Program, additions::added_in, flags::LeaseName};
use anyhow::Result;
use evenkeel_apiserver::{BootstrapGrant, bootstrap_grants};
use evenkeel_runtime::discovery::ServerResources;

/// Prefix of the users of service accounts.
pub(super) const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Group of leases. A program needs the lease that its flags name, and not upstream's default.
const COORDINATION: &str = "coordination.k8s.io";

/// Resource that no server serves: only rules about the signers of certificates name it.
const SIGNERS: &str = "signers";

/// A request that a user must be allowed to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Permission {
    /// Service account in `kube-system` that needs the permission. `None` for the program's user.
    pub(super) account: Option<&'static str>,
    pub(super) verb: String,
    pub(super) group: String,
    /// Resource, or `RESOURCE/SUBRESOURCE`.
    pub(super) resource: String,
    /// Namespace and name, if the permission is restricted to them.
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    /// Minor version whose bootstrap policy first granted it. `None` if every supported minor version grants it, and for the
    /// lease that the flags name.
    pub(super) added_in: Option<u32>,
}

impl Permission {
    /// Returns whether both permissions allow the same request of the same account.
    fn is_same(&self, other: &Self) -> bool {
        let Self { account, verb, group, resource, namespace, name, added_in: _ } = self;
        (account, verb, group, resource, namespace, name)
            == (
                &other.account,
                &other.verb,
                &other.group,
                &other.resource,
                &other.namespace,
                &other.name,
            )
    }

    /// Returns the resource of the permission, such as `pods/binding`.
    pub(super) fn object(&self) -> String {
        let Self { group, resource, .. } = self;
        let dot = if group.is_empty() { "" } else { "." };
        let mut text = format!("{resource}{dot}{group}");
        if let Some(name) = &self.name {
            text.push_str(&format!(" {name}"));
        }
        if let Some(namespace) = &self.namespace {
            text.push_str(&format!(" in {namespace}"));
        }
        text
    }

    /// Returns whether the server serves the resource. A permission for a resource that is not served has no effect.
    pub(super) fn is_served(&self, served: &ServerResources) -> bool {
        let resource = self.resource.split('/').next().unwrap_or_default();
        let is_unknown = served.failed.iter().any(|failed| *failed.group == *self.group);
        self.group == "*"
            || is_unknown
            || served.resources.iter().any(|known| {
                known.kind.group == *self.group
                    && (["*", SIGNERS].contains(&resource) || known.kind.plural == *resource)
            })
    }
}

/// Returns the permissions that a program needs. `controllers` are the service accounts of its controllers. With
/// `uses_service_accounts`, the accounts need the controllers' permissions; otherwise, the program's user needs them.
///
/// # Errors
/// Fails if the bootstrap policy cannot be read.
pub(super) fn needed(
    program: Program,
    lease: Option<&LeaseName>,
    controllers: &[&'static str],
    uses_service_accounts: bool,
) -> Result<Vec<Permission>> {
    let own = bootstrap_grants(program.user())?;
    let elects = |grant: &BootstrapGrant| grant.rule.api_groups.iter().any(|it| it == COORDINATION);
    let mut permissions: Vec<Permission> = own
        .iter()
        .filter(|grant| !elects(grant))
        .flat_map(|grant| permissions_of(None, grant))
        .collect();
    if let Some(lease) = lease {
        let on_lease = |verb: &str, name: Option<&String>| Permission {
            account: None,
            verb: verb.to_owned(),
            group: COORDINATION.to_owned(),
            resource: "leases".to_owned(),
            namespace: Some(lease.namespace.clone()),
            name: name.cloned(),
            added_in: None,
        };
        permissions.push(on_lease("create", None));
        permissions.push(on_lease("get", Some(&lease.name)));
        permissions.push(on_lease("update", Some(&lease.name)));
    }
    for account in controllers {
        let user = format!("{SERVICE_ACCOUNT}kube-system:{account}");
        let account = uses_service_accounts.then_some(*account);
        for grant in bootstrap_grants(&user)? {
            permissions.extend(permissions_of(account, &grant));
        }
    }
    // Roles overlap.
    let mut unique: Vec<Permission> = Vec::with_capacity(permissions.len());
    for permission in permissions {
        match unique.iter_mut().find(|known| known.is_same(&permission)) {
            // A role of an older version also grants it.
            Some(known) => known.added_in = known.added_in.min(permission.added_in),
            None => unique.push(permission),
        }
    }
    Ok(unique)
}

/// Returns the permissions of a rule, one for each of its verbs, groups, resources and names.
fn permissions_of(account: Option<&'static str>, grant: &BootstrapGrant) -> Vec<Permission> {
    let rule = &grant.rule;
    let namespace = Some(grant.namespace.clone()).filter(|namespace| !namespace.is_empty());
    let names: Vec<Option<&String>> = match &*rule.resource_names {
        [] => vec![None],
        names => names.iter().map(Some).collect(),
    };
    let mut permissions = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for name in &names {
                permissions.extend(rule.verbs.iter().map(|verb| Permission {
                    account,
                    verb: verb.clone(),
                    group: group.clone(),
                    resource: resource.clone(),
                    namespace: namespace.clone(),
                    name: name.cloned(),
                    added_in: added_in(grant, group, resource, verb),
                }));
            }
        }
    }
    permissions
}
