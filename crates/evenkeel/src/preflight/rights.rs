//! Rights that the programs need. Upstream's bootstrap roles have all of them.

use super::Program;
use super::flags::LeaseName;

/// A request that a user must be allowed to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Right {
    /// User that needs it. `None` is the program's.
    pub(super) account: Option<&'static str>,
    pub(super) verb: &'static str,
    pub(super) group: &'static str,
    /// Resource, or `RESOURCE/SUBRESOURCE`.
    pub(super) resource: &'static str,
    /// Namespace and name, if the right is restricted to them.
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
}

impl Right {
    /// Returns the right as text, such as `create pods/binding`.
    pub(super) fn text(&self) -> String {
        let Self { verb, group, resource, .. } = self;
        let dot = if group.is_empty() { "" } else { "." };
        let mut text = format!("{verb} {resource}{dot}{group}");
        if let Some(name) = &self.name {
            text.push_str(&format!(" {name}"));
        }
        if let Some(namespace) = &self.namespace {
            text.push_str(&format!(" in {namespace}"));
        }
        text
    }
}

/// Rows of the tables: verbs, API group, resources.
type Row = (&'static [&'static str], &'static str, &'static [&'static str]);

const READ: &[&str] = &["list", "watch"];

/// Both programs: events, and reviews of who reads the secure port.
const COMMON: &[Row] = &[
    (&["create", "patch"], "", &["events"]),
    (&["create", "patch"], "events.k8s.io", &["events"]),
    (&["create"], "authentication.k8s.io", &["tokenreviews"]),
    (&["create"], "authorization.k8s.io", &["subjectaccessreviews"]),
];

/// Upstream: `kubeSchedulerRules` and `system:volume-scheduler`.
const SCHEDULER: &[Row] = &[
    (READ, "", &["nodes", "pods", "namespaces", "persistentvolumes", "persistentvolumeclaims"]),
    (READ, "", &["services", "replicationcontrollers"]),
    (READ, "apps", &["replicasets", "statefulsets"]),
    (READ, "policy", &["poddisruptionbudgets"]),
    (READ, "storage.k8s.io", &["csinodes", "csidrivers", "storageclasses", "volumeattachments"]),
    (READ, "resource.k8s.io", &["resourceclaims", "resourceslices", "deviceclasses"]),
    (&["create"], "", &["pods/binding"]),
    (&["patch"], "", &["pods/status"]),
    (&["delete"], "", &["pods"]),
    (&["update"], "", &["persistentvolumes", "persistentvolumeclaims"]),
    (&["update"], "resource.k8s.io", &["resourceclaims/status"]),
];

/// Upstream: `system:kube-controller-manager`.
const CONTROLLER_MANAGER: &[Row] = &[
    (READ, "", &["pods", "nodes", "services", "secrets", "configmaps", "namespaces"]),
    (READ, "apps", &["deployments", "replicasets", "statefulsets", "daemonsets"]),
    (READ, "batch", &["jobs", "cronjobs"]),
    (&["create"], "", &["serviceaccounts", "serviceaccounts/token", "secrets"]),
    (&["get"], "", &["serviceaccounts", "namespaces", "secrets", "configmaps"]),
];

/// What controllers write: their service account in `kube-system`, verb, API group, resource.
///
/// Upstream: `buildControllerRoles`.
const CONTROLLERS: &[(&str, &str, &str, &str)] = &[
    ("deployment-controller", "create", "apps", "replicasets"),
    ("replicaset-controller", "create", "", "pods"),
    ("statefulset-controller", "create", "", "pods"),
    ("daemon-set-controller", "create", "", "pods"),
    ("job-controller", "create", "", "pods"),
    ("cronjob-controller", "create", "batch", "jobs"),
    ("endpointslice-controller", "create", "discovery.k8s.io", "endpointslices"),
    ("generic-garbage-collector", "delete", "", "pods"),
    ("namespace-controller", "delete", "", "namespaces"),
    ("node-controller", "patch", "", "nodes/status"),
    ("pod-garbage-collector", "delete", "", "pods"),
    ("persistent-volume-binder", "update", "", "persistentvolumes"),
    ("attachdetach-controller", "create", "storage.k8s.io", "volumeattachments"),
    ("resourcequota-controller", "update", "", "resourcequotas/status"),
    ("service-account-controller", "create", "", "serviceaccounts"),
    (
        "certificate-controller",
        "update",
        "certificates.k8s.io",
        "certificatesigningrequests/status",
    ),
];

/// Returns the rights that a program needs. With `uses_service_accounts`, controllers have users of their own; otherwise the
/// program's user needs what they need.
pub(super) fn needed(
    program: Program,
    lease: Option<&LeaseName>,
    uses_service_accounts: bool,
) -> Vec<Right> {
    let own = match program {
        Program::KubeScheduler => SCHEDULER,
        Program::KubeControllerManager => CONTROLLER_MANAGER,
    };
    let rows = COMMON.iter().chain(own);
    let mut rights: Vec<Right> = rows.flat_map(|row| rights_of(*row)).collect();
    rights.push(Right {
        namespace: Some("kube-system".to_owned()),
        name: Some("extension-apiserver-authentication".to_owned()),
        ..right(None, "get", "", "configmaps")
    });
    if let Some(lease) = lease {
        let on_lease = |verb: &'static str, name: Option<String>| Right {
            namespace: Some(lease.namespace.clone()),
            name,
            ..right(None, verb, "coordination.k8s.io", "leases")
        };
        rights.push(on_lease("create", None));
        rights.push(on_lease("get", Some(lease.name.clone())));
        rights.push(on_lease("update", Some(lease.name.clone())));
    }
    if program == Program::KubeControllerManager {
        rights.extend(CONTROLLERS.iter().map(|(account, verb, group, resource)| {
            right(uses_service_accounts.then_some(*account), verb, group, resource)
        }));
    }
    rights
}

fn rights_of((verbs, group, resources): Row) -> impl Iterator<Item = Right> {
    verbs.iter().flat_map(move |verb| {
        resources.iter().map(move |resource| right(None, verb, group, resource))
    })
}

fn right(
    account: Option<&'static str>,
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
) -> Right {
    Right { account, verb, group, resource, namespace: None, name: None }
}
