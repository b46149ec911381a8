//! Strategies of the built-in kinds as data, one entry per resource.

use crate::names::{
    ValidateName, dns_label, dns_subdomain, ip_address, path_segment, path_segment_or_prefix,
};

/// Selectable field: its name in field selectors, its path, and the value that selectors match if the field is absent.
pub(crate) type SelectableField = (&'static str, &'static str, &'static str);

/// Strategy of one kind. Kinds without special rules have [`DEFAULT_STRATEGY`].
///
/// Upstream: `RESTCreateStrategy`, `RESTUpdateStrategy`, and the fields of `Store` in `genericregistry`.
#[derive(Clone, Copy)]
pub struct KindStrategy {
    /// API group. It is empty for the core group.
    pub group: &'static str,
    /// Kind in CamelCase, such as `Pod`.
    pub kind: &'static str,
    /// Whether a change of the spec increments `metadata.generation`.
    pub has_generation: bool,
    /// Validates a name, or a prefix of a name, of this kind.
    pub validate_name: ValidateName,
    /// Whether the rule for names also applies to `generateName`. Otherwise, `generateName` may be any path segment.
    ///
    /// Upstream: `ValidateObjectMeta` rather than `ValidateObjectMetaWithOpts`.
    pub validates_generate_name: bool,
    /// Fields that field selectors support.
    pub selectable_fields: &'static [SelectableField],
    /// `status` of a new object, as JSON. It is empty if a client may set the status or the kind has none.
    pub initial_status: &'static str,
    /// Whether a new object keeps the `status` of the body. A kubelet registers its Node with a status.
    pub creates_with_status: bool,
    /// Whether a PUT without resourceVersion is accepted.
    ///
    /// Upstream: `AllowUnconditionalUpdate`.
    pub allow_unconditional_update: bool,
    /// Whether a PUT creates an object that does not exist.
    ///
    /// Upstream: `AllowCreateOnUpdate`.
    pub allow_create_on_update: bool,
    /// Whether a DELETE returns the deleted object.
    ///
    /// Upstream: `ReturnDeletedObject`.
    pub return_deleted_object: bool,
}

impl KindStrategy {
    /// Validates a name, or a `generateName` if `is_prefix` is true, in a request to this API group. The rule may
    /// depend on the group: the name of an Event that is sent to `events.k8s.io` must be a DNS subdomain.
    pub fn validate_name(&self, request_group: &str, name: &str, is_prefix: bool) -> Vec<String> {
        if is_prefix && !self.validates_generate_name {
            return path_segment_or_prefix(name, is_prefix);
        }
        if request_group == "events.k8s.io" {
            return dns_subdomain(name, is_prefix);
        }
        (self.validate_name)(name, is_prefix)
    }
}

const DEFAULT_STRATEGY: KindStrategy = KindStrategy {
    group: "",
    kind: "",
    has_generation: false,
    validate_name: dns_subdomain,
    validates_generate_name: true,
    selectable_fields: &[],
    initial_status: "",
    creates_with_status: false,
    allow_unconditional_update: true,
    allow_create_on_update: false,
    return_deleted_object: false,
};

/// Returns the strategy of a kind in the core group without special rules.
const fn core(kind: &'static str) -> KindStrategy {
    KindStrategy { kind, ..DEFAULT_STRATEGY }
}

/// Returns the strategy of a kind in another group without special rules.
const fn in_group(group: &'static str, kind: &'static str) -> KindStrategy {
    KindStrategy { group, kind, ..DEFAULT_STRATEGY }
}

/// Returns the strategy of a kind with `metadata.generation` and this initial status.
const fn with_generation(
    group: &'static str,
    kind: &'static str,
    status: &'static str,
) -> KindStrategy {
    KindStrategy { group, kind, has_generation: true, initial_status: status, ..DEFAULT_STRATEGY }
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
    // Upstream accepts the label, and gives no pod a value for it.
    ("status.podIPs", "", ""),
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
    ("type", "type", ""),
    ("source", "source.component", ""),
];

/// Strategies by the plural name of the resource.
pub const STRATEGIES: &[(&str, KindStrategy)] = &[
    ("configmaps", core("ConfigMap")),
    ("endpoints", KindStrategy { allow_create_on_update: true, ..core("Endpoints") }),
    (
        "events",
        KindStrategy {
            allow_create_on_update: true,
            selectable_fields: EVENT_FIELDS,
            validate_name: path_segment_or_prefix,
            ..core("Event")
        },
    ),
    ("limitranges", KindStrategy { allow_create_on_update: true, ..core("LimitRange") }),
    (
        "namespaces",
        KindStrategy {
            validate_name: dns_label,
            selectable_fields: &[("status.phase", "status.phase", "")],
            initial_status: r#"{"phase":"Active"}"#,
            return_deleted_object: true,
            ..core("Namespace")
        },
    ),
    (
        "nodes",
        KindStrategy {
            selectable_fields: &[("spec.unschedulable", "spec.unschedulable", "false")],
            creates_with_status: true,
            ..core("Node")
        },
    ),
    (
        "persistentvolumeclaims",
        KindStrategy {
            initial_status: r#"{"phase":"Pending"}"#,
            return_deleted_object: true,
            ..core("PersistentVolumeClaim")
        },
    ),
    (
        "persistentvolumes",
        KindStrategy {
            initial_status: r#"{"phase":"Pending"}"#,
            return_deleted_object: true,
            ..core("PersistentVolume")
        },
    ),
    (
        "pods",
        KindStrategy {
            has_generation: true,
            selectable_fields: POD_FIELDS,
            return_deleted_object: true,
            ..core("Pod")
        },
    ),
    (
        "podtemplates",
        KindStrategy { has_generation: true, return_deleted_object: true, ..core("PodTemplate") },
    ),
    (
        "replicationcontrollers",
        KindStrategy {
            validates_generate_name: false,
            selectable_fields: &[("status.replicas", "status.replicas", "0")],
            ..with_generation("", "ReplicationController", r#"{"replicas":0}"#)
        },
    ),
    (
        "resourcequotas",
        KindStrategy { initial_status: "{}", return_deleted_object: true, ..core("ResourceQuota") },
    ),
    ("secrets", KindStrategy { selectable_fields: &[("type", "type", "")], ..core("Secret") }),
    ("serviceaccounts", KindStrategy { return_deleted_object: true, ..core("ServiceAccount") }),
    (
        "services",
        KindStrategy {
            validate_name: dns_label,
            selectable_fields: &[
                ("spec.clusterIP", "spec.clusterIP", ""),
                ("spec.type", "spec.type", ""),
            ],
            initial_status: r#"{"loadBalancer":{}}"#,
            allow_create_on_update: true,
            return_deleted_object: true,
            ..core("Service")
        },
    ),
    ("controllerrevisions", in_group("apps", "ControllerRevision")),
    (
        "daemonsets",
        with_generation(
            "apps",
            "DaemonSet",
            r#"{"currentNumberScheduled":0,"desiredNumberScheduled":0,"numberMisscheduled":0,"numberReady":0}"#,
        ),
    ),
    ("deployments", with_generation("apps", "Deployment", "{}")),
    ("replicasets", with_generation("apps", "ReplicaSet", r#"{"replicas":0}"#)),
    (
        "statefulsets",
        KindStrategy {
            validate_name: dns_label,
            ..with_generation("apps", "StatefulSet", r#"{"availableReplicas":0,"replicas":0}"#)
        },
    ),
    ("cronjobs", with_generation("batch", "CronJob", "{}")),
    (
        "jobs",
        KindStrategy {
            selectable_fields: &[("status.successful", "status.succeeded", "0")],
            ..with_generation("batch", "Job", "{}")
        },
    ),
    (
        "horizontalpodautoscalers",
        with_generation(
            "autoscaling",
            "HorizontalPodAutoscaler",
            r#"{"currentMetrics":null,"desiredReplicas":0}"#,
        ),
    ),
    (
        "poddisruptionbudgets",
        KindStrategy {
            validate_name: path_segment_or_prefix,
            allow_unconditional_update: false,
            ..with_generation(
                "policy",
                "PodDisruptionBudget",
                r#"{"currentHealthy":0,"desiredHealthy":0,"disruptionsAllowed":0,"expectedPods":0}"#,
            )
        },
    ),
    ("ingresses", with_generation("networking.k8s.io", "Ingress", r#"{"loadBalancer":{}}"#)),
    ("ingressclasses", with_generation("networking.k8s.io", "IngressClass", "")),
    ("networkpolicies", with_generation("networking.k8s.io", "NetworkPolicy", "")),
    (
        "ipaddresses",
        KindStrategy { validate_name: ip_address, ..in_group("networking.k8s.io", "IPAddress") },
    ),
    (
        "servicecidrs",
        KindStrategy { initial_status: "{}", ..in_group("networking.k8s.io", "ServiceCIDR") },
    ),
    ("endpointslices", with_generation("discovery.k8s.io", "EndpointSlice", "")),
    (
        "roles",
        KindStrategy {
            validate_name: path_segment,
            allow_create_on_update: true,
            ..in_group(RBAC, "Role")
        },
    ),
    (
        "rolebindings",
        KindStrategy {
            validate_name: path_segment,
            allow_create_on_update: true,
            ..in_group(RBAC, "RoleBinding")
        },
    ),
    (
        "clusterroles",
        KindStrategy {
            validate_name: path_segment,
            allow_create_on_update: true,
            ..in_group(RBAC, "ClusterRole")
        },
    ),
    (
        "clusterrolebindings",
        KindStrategy {
            validate_name: path_segment,
            allow_create_on_update: true,
            ..in_group(RBAC, "ClusterRoleBinding")
        },
    ),
    (
        "leases",
        KindStrategy {
            allow_unconditional_update: false,
            allow_create_on_update: true,
            ..in_group("coordination.k8s.io", "Lease")
        },
    ),
    ("priorityclasses", with_generation("scheduling.k8s.io", "PriorityClass", "")),
    (
        "storageclasses",
        KindStrategy { return_deleted_object: true, ..in_group(STORAGE, "StorageClass") },
    ),
    (
        "csidrivers",
        KindStrategy {
            allow_unconditional_update: false,
            return_deleted_object: true,
            ..in_group(STORAGE, "CSIDriver")
        },
    ),
    (
        "csinodes",
        KindStrategy {
            allow_unconditional_update: false,
            return_deleted_object: true,
            ..in_group(STORAGE, "CSINode")
        },
    ),
    (
        "csistoragecapacities",
        KindStrategy {
            allow_unconditional_update: false,
            return_deleted_object: true,
            ..in_group(STORAGE, "CSIStorageCapacity")
        },
    ),
    (
        "volumeattachments",
        KindStrategy {
            allow_unconditional_update: false,
            initial_status: r#"{"attached":false}"#,
            return_deleted_object: true,
            ..in_group(STORAGE, "VolumeAttachment")
        },
    ),
    (
        "volumeattributesclasses",
        KindStrategy { return_deleted_object: true, ..in_group(STORAGE, "VolumeAttributesClass") },
    ),
    (
        "certificatesigningrequests",
        KindStrategy {
            validate_name: path_segment_or_prefix,
            initial_status: "{}",
            selectable_fields: &[("spec.signerName", "spec.signerName", "")],
            ..in_group("certificates.k8s.io", "CertificateSigningRequest")
        },
    ),
    (
        "clustertrustbundles",
        KindStrategy {
            validate_name: path_segment_or_prefix,
            selectable_fields: &[("spec.signerName", "spec.signerName", "")],
            ..in_group("certificates.k8s.io", "ClusterTrustBundle")
        },
    ),
    (
        "podcertificaterequests",
        KindStrategy {
            initial_status: "{}",
            selectable_fields: &[
                ("spec.signerName", "spec.signerName", ""),
                ("spec.nodeName", "spec.nodeName", ""),
            ],
            ..in_group("certificates.k8s.io", "PodCertificateRequest")
        },
    ),
    ("flowschemas", with_generation(FLOW, "FlowSchema", "{}")),
    ("prioritylevelconfigurations", with_generation(FLOW, "PriorityLevelConfiguration", "{}")),
    (
        "validatingwebhookconfigurations",
        KindStrategy {
            allow_unconditional_update: false,
            ..with_generation(ADMISSION, "ValidatingWebhookConfiguration", "")
        },
    ),
    (
        "mutatingwebhookconfigurations",
        KindStrategy {
            allow_unconditional_update: false,
            ..with_generation(ADMISSION, "MutatingWebhookConfiguration", "")
        },
    ),
    (
        "validatingadmissionpolicies",
        KindStrategy {
            allow_unconditional_update: false,
            ..with_generation(ADMISSION, "ValidatingAdmissionPolicy", "{}")
        },
    ),
    (
        "validatingadmissionpolicybindings",
        KindStrategy {
            allow_unconditional_update: false,
            ..with_generation(ADMISSION, "ValidatingAdmissionPolicyBinding", "")
        },
    ),
    (
        "mutatingadmissionpolicies",
        KindStrategy {
            allow_unconditional_update: false,
            ..with_generation(ADMISSION, "MutatingAdmissionPolicy", "")
        },
    ),
    (
        "mutatingadmissionpolicybindings",
        KindStrategy {
            allow_unconditional_update: false,
            ..with_generation(ADMISSION, "MutatingAdmissionPolicyBinding", "")
        },
    ),
    (
        "runtimeclasses",
        KindStrategy {
            allow_unconditional_update: false,
            allow_create_on_update: true,
            ..in_group("node.k8s.io", "RuntimeClass")
        },
    ),
    (
        "resourceclaims",
        KindStrategy {
            initial_status: "{}",
            return_deleted_object: true,
            ..in_group(RESOURCE, "ResourceClaim")
        },
    ),
    (
        "resourceclaimtemplates",
        KindStrategy { return_deleted_object: true, ..in_group(RESOURCE, "ResourceClaimTemplate") },
    ),
    (
        "resourceslices",
        KindStrategy {
            return_deleted_object: true,
            selectable_fields: &[
                ("spec.nodeName", "spec.nodeName", ""),
                ("spec.driver", "spec.driver", ""),
                ("spec.pool.name", "spec.pool.name", ""),
            ],
            ..with_generation(RESOURCE, "ResourceSlice", "")
        },
    ),
    (
        "deviceclasses",
        KindStrategy {
            validates_generate_name: false,
            return_deleted_object: true,
            ..with_generation(RESOURCE, "DeviceClass", "")
        },
    ),
    (
        "devicetaintrules",
        KindStrategy {
            allow_unconditional_update: false,
            return_deleted_object: true,
            ..with_generation(RESOURCE, "DeviceTaintRule", "{}")
        },
    ),
    (
        "apiservices",
        KindStrategy {
            validate_name: path_segment,
            allow_unconditional_update: false,
            initial_status: "{}",
            ..in_group("apiregistration.k8s.io", "APIService")
        },
    ),
];

/// Returns the strategy of a resource, or `None` if it is not built in. Events of both API groups have the same
/// strategy.
pub fn strategy(group: &str, resource: &str) -> Option<&'static KindStrategy> {
    let group = if group == "events.k8s.io" { "" } else { group };
    STRATEGIES
        .iter()
        .find(|(name, strategy)| *name == resource && strategy.group == group)
        .map(|(_, strategy)| strategy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_for_names_of_events_depends_on_the_group_of_the_request() {
        let events = strategy("events.k8s.io", "events").expect("events are served");
        assert!(events.validate_name("", "Not_A_Subdomain", false).is_empty());
        assert!(!events.validate_name("events.k8s.io", "Not_A_Subdomain", false).is_empty());
        assert!(!events.validate_name("", "a/b", false).is_empty());
    }

    #[test]
    fn names_of_ip_addresses_are_canonical_addresses() {
        for (name, message) in [
            ("10.0.0.1", ""),
            ("fd00::1", ""),
            ("1.5", "must be a valid IP address"),
            ("10.0.0.01", "must not have leading 0s"),
            ("FD00::1", "must be in canonical form (\"fd00::1\")"),
            ("::ffff:10.0.0.1", "must not be an IPv4-mapped IPv6 address"),
        ] {
            let messages = strategy("networking.k8s.io", "ipaddresses")
                .expect("served")
                .validate_name("", name, false);
            assert_eq!(messages.is_empty(), message.is_empty(), "{name}: {messages:?}");
            assert!(messages.first().is_none_or(|text| text.starts_with(message)), "{messages:?}");
        }
    }
}
