//! Permissions that minor versions since the oldest supported one added to upstream's bootstrap policy. Servers of older
//! versions lack them.
//!
//! Upstream: `plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata` of the releases 1.35, 1.36 and 1.37, which has the
//! roles with the default feature gates.

use evenkeel_apiserver::BootstrapGrant;

/// Wildcard for the group, resource or verb of an [`Addition`]: the minor version added the whole role.
const ALL: &str = "*";

/// Permissions that a minor version of Kubernetes added to a role.
struct Addition {
    minor: u32,
    role: &'static str,
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
}

impl Addition {
    const fn new(
        minor: u32,
        role: &'static str,
        group: &'static str,
        resource: &'static str,
        verbs: &'static [&'static str],
    ) -> Self {
        Self { minor, role, group, resource, verbs }
    }

    /// Returns the addition of a whole role.
    const fn role(minor: u32, role: &'static str) -> Self {
        Self::new(minor, role, ALL, ALL, &[ALL])
    }

    fn has(&self, role: &str, group: &str, resource: &str, verb: &str) -> bool {
        let is = |own: &str, other: &str| own == ALL || own == other;
        self.role == role
            && is(self.group, group)
            && is(self.resource, resource)
            && self.verbs.iter().any(|own| is(own, verb))
    }
}

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["patch", "update"];
const DRA: &str = "resource.k8s.io";

/// Additions since the oldest supported minor version.
const ADDITIONS: &[Addition] = &[
    Addition::role(36, "system:controller:device-taint-eviction-controller"),
    Addition::new(
        36,
        "system:controller:pvc-protection-controller",
        "",
        "persistentvolumeclaims/status",
        &["update"],
    ),
    Addition::new(
        36,
        "system:controller:resource-claim-controller",
        DRA,
        "resourceclaims/binding",
        WRITE,
    ),
    Addition::new(36, "system:kube-scheduler", DRA, "resourceclaims", &["create", "delete"]),
    Addition::new(36, "system:kube-scheduler", DRA, "resourceclaims/binding", WRITE),
    Addition::new(
        37,
        "system:controller:device-taint-eviction-controller",
        DRA,
        "devicetaintrules",
        READ,
    ),
    Addition::new(
        37,
        "system:controller:device-taint-eviction-controller",
        DRA,
        "devicetaintrules/status",
        WRITE,
    ),
    Addition::role(37, "system:controller:kube-apiserver-serving-clustertrustbundle-publisher"),
    Addition::new(37, "system:controller:node-controller", "coordination.k8s.io", "leases", READ),
    Addition::role(37, "system:controller:podcertificaterequestcleaner"),
    Addition::role(37, "system:controller:storage-version-migrator-controller"),
    Addition::new(37, "system:kube-scheduler", DRA, "devicetaintrules", READ),
];

/// Returns the minor version whose bootstrap policy first granted this permission. `None` if all supported minor versions grant
/// it.
pub(super) fn added_in(
    grant: &BootstrapGrant,
    group: &str,
    resource: &str,
    verb: &str,
) -> Option<u32> {
    let additions =
        ADDITIONS.iter().filter(|addition| addition.has(&grant.role, group, resource, verb));
    additions.map(|addition| addition.minor).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_apiserver::bootstrap_grants;

    #[test]
    fn additions_are_of_roles_that_the_policy_has() {
        for addition in ADDITIONS {
            let user = match addition.role.strip_prefix("system:controller:") {
                Some(account) => format!("system:serviceaccount:kube-system:{account}"),
                None => addition.role.to_owned(),
            };
            let grants = bootstrap_grants(&user).expect("the policy");
            let is_granted = |verb: &&str| {
                let has =
                    |list: &[String], text: &str| text == ALL || list.iter().any(|it| it == text);
                grants.iter().any(|grant| {
                    grant.role == addition.role
                        && has(&grant.rule.api_groups, addition.group)
                        && has(&grant.rule.resources, addition.resource)
                        && has(&grant.rule.verbs, verb)
                })
            };
            let Addition { minor, role, resource, verbs, .. } = addition;
            assert!(verbs.iter().all(is_granted), "1.{minor}: {role} {verbs:?} {resource}");
        }
    }
}
