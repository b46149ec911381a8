//! What is particular about each built-in kind, as data: one row a kind.

pub use crate::validate::{dns_1035_label, dns_label, dns_subdomain, path_segment};

/// A field that field selectors may use: its label, its path, and what an absent one reads as.
pub(crate) type SelectableField = (&'static str, &'static str, &'static str);

/// Particulars of one kind. [`PLAIN`] is a kind without any.
#[derive(Clone, Copy)]
pub struct Row {
    /// Group, empty for core.
    pub group: &'static str,
    /// Kind in CamelCase, such as `Pod`.
    pub kind: &'static str,
    /// Whether changes of what is asked for are counted in `metadata.generation`.
    pub counted: bool,
    /// The form of its names.
    pub name: fn(&str) -> Vec<String>,
    /// Fields for field selectors.
    pub fields: &'static [SelectableField],
    /// `status` of a new object, as JSON; empty where a client may set it (or there is none).
    pub status: &'static str,
    /// Whether PUT without resourceVersion overwrites.
    pub unconditional: bool,
    /// Whether PUT to a free name makes the object.
    pub put_creates: bool,
    /// Whether a deletion answers the object.
    pub answers_deleted: bool,
}

const fn any_name(_: &str) -> Vec<String> {
    Vec::new()
}

const PLAIN: Row = Row {
    group: "",
    kind: "",
    counted: false,
    name: dns_subdomain,
    fields: &[],
    status: "",
    unconditional: true,
    put_creates: false,
    answers_deleted: false,
};

/// A kind of the core group.
const fn core(kind: &'static str) -> Row {
    Row { kind, ..PLAIN }
}

/// A kind of another group.
const fn of(group: &'static str, kind: &'static str) -> Row {
    Row { group, kind, ..PLAIN }
}

/// A kind whose generations are counted, with the status of a new object.
const fn counted(group: &'static str, kind: &'static str, status: &'static str) -> Row {
    Row { group, kind, counted: true, status, ..PLAIN }
}

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const FLOW: &str = "flowcontrol.apiserver.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const RESOURCE: &str = "resource.k8s.io";

const POD_FIELDS: &[SelectableField] = &[
    ("spec.nodeName", "spec.nodeName", ""),
    ("spec.restartPolicy", "spec.restartPolicy", ""),
    ("spec.schedulerName", "spec.schedulerName", ""),
    ("spec.serviceAccountName", "spec.serviceAccountName", ""),
    ("spec.hostNetwork", "spec.hostNetwork", "false"),
    ("status.phase", "status.phase", ""),
    ("status.podIP", "status.podIP", ""),
    ("status.nominatedNodeName", "status.nominatedNodeName", ""),
];
const EVENT_FIELDS: &[SelectableField] = &[
    ("involvedObject.kind", "involvedObject.kind", ""),
    ("involvedObject.namespace", "involvedObject.namespace", ""),
    ("involvedObject.name", "involvedObject.name", ""),
    ("involvedObject.uid", "involvedObject.uid", ""),
    ("involvedObject.apiVersion", "involvedObject.apiVersion", ""),
    ("involvedObject.resourceVersion", "involvedObject.resourceVersion", ""),
    ("involvedObject.fieldPath", "involvedObject.fieldPath", ""),
    ("reason", "reason", ""),
    ("reportingComponent", "reportingComponent", ""),
    ("source", "source.component", ""),
    ("type", "type", ""),
];

/// Every kind with particulars, by its plural name.
pub const ROWS: &[(&str, Row)] = &[
    ("configmaps", core("ConfigMap")),
    ("endpoints", Row { put_creates: true, ..core("Endpoints") }),
    ("events", Row { put_creates: true, fields: EVENT_FIELDS, ..core("Event") }),
    ("limitranges", Row { put_creates: true, ..core("LimitRange") }),
    (
        "namespaces",
        Row {
            name: dns_label,
            fields: &[("status.phase", "status.phase", ""), ("name", "metadata.name", "")],
            status: r#"{"phase":"Active"}"#,
            answers_deleted: true,
            ..core("Namespace")
        },
    ),
    (
        "nodes",
        Row { fields: &[("spec.unschedulable", "spec.unschedulable", "false")], ..core("Node") },
    ),
    (
        "persistentvolumeclaims",
        Row {
            status: r#"{"phase":"Pending"}"#,
            fields: &[("name", "metadata.name", "")],
            answers_deleted: true,
            ..core("PersistentVolumeClaim")
        },
    ),
    (
        "persistentvolumes",
        Row {
            status: r#"{"phase":"Pending"}"#,
            fields: &[("name", "metadata.name", "")],
            answers_deleted: true,
            ..core("PersistentVolume")
        },
    ),
    ("pods", Row { counted: true, fields: POD_FIELDS, answers_deleted: true, ..core("Pod") }),
    ("podtemplates", Row { counted: true, answers_deleted: true, ..core("PodTemplate") }),
    (
        "replicationcontrollers",
        Row {
            fields: &[("status.replicas", "status.replicas", "0")],
            ..counted("", "ReplicationController", r#"{"replicas":0}"#)
        },
    ),
    ("resourcequotas", Row { status: "{}", answers_deleted: true, ..core("ResourceQuota") }),
    ("secrets", Row { fields: &[("type", "type", "")], ..core("Secret") }),
    ("serviceaccounts", Row { answers_deleted: true, ..core("ServiceAccount") }),
    (
        "services",
        Row {
            name: dns_1035_label,
            fields: &[("spec.clusterIP", "spec.clusterIP", ""), ("spec.type", "spec.type", "")],
            status: r#"{"loadBalancer":{}}"#,
            put_creates: true,
            answers_deleted: true,
            ..core("Service")
        },
    ),
    ("controllerrevisions", of("apps", "ControllerRevision")),
    (
        "daemonsets",
        counted(
            "apps",
            "DaemonSet",
            r#"{"currentNumberScheduled":0,"desiredNumberScheduled":0,"numberMisscheduled":0,"numberReady":0}"#,
        ),
    ),
    ("deployments", counted("apps", "Deployment", "{}")),
    (
        "replicasets",
        Row {
            fields: &[("status.replicas", "status.replicas", "0")],
            ..counted("apps", "ReplicaSet", r#"{"replicas":0}"#)
        },
    ),
    (
        "statefulsets",
        Row {
            name: dns_label,
            ..counted("apps", "StatefulSet", r#"{"availableReplicas":0,"replicas":0}"#)
        },
    ),
    ("cronjobs", counted("batch", "CronJob", "{}")),
    (
        "jobs",
        Row {
            fields: &[("status.successful", "status.succeeded", "0")],
            ..counted("batch", "Job", "{}")
        },
    ),
    (
        "horizontalpodautoscalers",
        counted(
            "autoscaling",
            "HorizontalPodAutoscaler",
            r#"{"currentMetrics":null,"desiredReplicas":0}"#,
        ),
    ),
    (
        "poddisruptionbudgets",
        Row {
            unconditional: false,
            ..counted(
                "policy",
                "PodDisruptionBudget",
                r#"{"currentHealthy":0,"desiredHealthy":0,"disruptionsAllowed":0,"expectedPods":0}"#,
            )
        },
    ),
    ("ingresses", counted("networking.k8s.io", "Ingress", r#"{"loadBalancer":{}}"#)),
    ("ingressclasses", counted("networking.k8s.io", "IngressClass", "")),
    ("networkpolicies", counted("networking.k8s.io", "NetworkPolicy", "")),
    ("ipaddresses", Row { name: any_name, ..of("networking.k8s.io", "IPAddress") }),
    ("servicecidrs", Row { status: "{}", ..of("networking.k8s.io", "ServiceCIDR") }),
    ("endpointslices", counted("discovery.k8s.io", "EndpointSlice", "")),
    ("roles", Row { name: path_segment, put_creates: true, ..of(RBAC, "Role") }),
    ("rolebindings", Row { name: path_segment, put_creates: true, ..of(RBAC, "RoleBinding") }),
    ("clusterroles", Row { name: path_segment, put_creates: true, ..of(RBAC, "ClusterRole") }),
    (
        "clusterrolebindings",
        Row { name: path_segment, put_creates: true, ..of(RBAC, "ClusterRoleBinding") },
    ),
    (
        "leases",
        Row { unconditional: false, put_creates: true, ..of("coordination.k8s.io", "Lease") },
    ),
    ("priorityclasses", counted("scheduling.k8s.io", "PriorityClass", "")),
    ("storageclasses", Row { answers_deleted: true, ..of(STORAGE, "StorageClass") }),
    ("csidrivers", Row { unconditional: false, answers_deleted: true, ..of(STORAGE, "CSIDriver") }),
    ("csinodes", Row { unconditional: false, answers_deleted: true, ..of(STORAGE, "CSINode") }),
    (
        "csistoragecapacities",
        Row { unconditional: false, answers_deleted: true, ..of(STORAGE, "CSIStorageCapacity") },
    ),
    (
        "volumeattachments",
        Row {
            unconditional: false,
            status: r#"{"attached":false}"#,
            answers_deleted: true,
            ..of(STORAGE, "VolumeAttachment")
        },
    ),
    (
        "volumeattributesclasses",
        Row { answers_deleted: true, ..of(STORAGE, "VolumeAttributesClass") },
    ),
    (
        "certificatesigningrequests",
        Row {
            name: any_name,
            status: "{}",
            fields: &[("spec.signerName", "spec.signerName", "")],
            ..of("certificates.k8s.io", "CertificateSigningRequest")
        },
    ),
    (
        "clustertrustbundles",
        Row {
            name: any_name,
            fields: &[("spec.signerName", "spec.signerName", "")],
            ..of("certificates.k8s.io", "ClusterTrustBundle")
        },
    ),
    (
        "podcertificaterequests",
        Row {
            status: "{}",
            fields: &[
                ("spec.signerName", "spec.signerName", ""),
                ("spec.nodeName", "spec.nodeName", ""),
            ],
            ..of("certificates.k8s.io", "PodCertificateRequest")
        },
    ),
    ("flowschemas", counted(FLOW, "FlowSchema", "{}")),
    ("prioritylevelconfigurations", counted(FLOW, "PriorityLevelConfiguration", "{}")),
    (
        "validatingwebhookconfigurations",
        Row { unconditional: false, ..counted(ADMISSION, "ValidatingWebhookConfiguration", "") },
    ),
    (
        "mutatingwebhookconfigurations",
        Row { unconditional: false, ..counted(ADMISSION, "MutatingWebhookConfiguration", "") },
    ),
    (
        "validatingadmissionpolicies",
        Row { unconditional: false, ..counted(ADMISSION, "ValidatingAdmissionPolicy", "{}") },
    ),
    (
        "validatingadmissionpolicybindings",
        Row { unconditional: false, ..counted(ADMISSION, "ValidatingAdmissionPolicyBinding", "") },
    ),
    (
        "mutatingadmissionpolicies",
        Row { unconditional: false, ..counted(ADMISSION, "MutatingAdmissionPolicy", "") },
    ),
    (
        "mutatingadmissionpolicybindings",
        Row { unconditional: false, ..counted(ADMISSION, "MutatingAdmissionPolicyBinding", "") },
    ),
    (
        "runtimeclasses",
        Row { unconditional: false, put_creates: true, ..of("node.k8s.io", "RuntimeClass") },
    ),
    (
        "resourceclaims",
        Row { status: "{}", answers_deleted: true, ..of(RESOURCE, "ResourceClaim") },
    ),
    (
        "resourceclaimtemplates",
        Row { answers_deleted: true, ..of(RESOURCE, "ResourceClaimTemplate") },
    ),
    (
        "resourceslices",
        Row {
            answers_deleted: true,
            fields: &[("spec.nodeName", "spec.nodeName", ""), ("spec.driver", "spec.driver", "")],
            ..counted(RESOURCE, "ResourceSlice", "")
        },
    ),
    ("deviceclasses", Row { answers_deleted: true, ..counted(RESOURCE, "DeviceClass", "") }),
    (
        "apiservices",
        Row { name: path_segment, status: "{}", ..of("apiregistration.k8s.io", "APIService") },
    ),
];

/// The row of a resource. Events of both groups are one kind.
pub fn row(group: &str, resource: &str) -> Option<&'static Row> {
    let group = if group == "events.k8s.io" { "" } else { group };
    ROWS.iter().find(|(name, row)| *name == resource && row.group == group).map(|(_, row)| row)
}
