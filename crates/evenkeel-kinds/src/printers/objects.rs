//! Printers of all groups except core, apps, batch and autoscaling.

use super::cells::{
    Cells, NONE, UNSET, age, count, created_at, join, name, name_age, scalar_text, selector_text,
    since, text_or,
};
use super::core::{first_three, load_balancer};
use super::duration::human;
use super::{PrintedObject, Printer};
use evenkeel_apimachinery::value::{at, flag, int, list, object, text};
use serde_json::{Value, json};

pub(crate) fn printer(group: &str, kind: &str) -> Option<Printer> {
    let printer: Printer = match (group, kind) {
        ("apiregistration.k8s.io", "APIService") => api_service,
        ("certificates.k8s.io", "CertificateSigningRequest") => signing_request,
        ("certificates.k8s.io", "ClusterTrustBundle") => {
            |o| vec![json!(name(o)), json!(text(o, "spec.signerName"))]
        }
        ("certificates.k8s.io", "PodCertificateRequest") => certificate_request,
        ("networking.k8s.io", "IngressClass") => ingress_class,
        ("networking.k8s.io", "Ingress") => ingress,
        ("networking.k8s.io", "IPAddress") => ip_address,
        ("networking.k8s.io", "NetworkPolicy") => {
            |o| vec![json!(name(o)), json!(selector_text(o, "spec.podSelector")), json!(age(o))]
        }
        ("networking.k8s.io", "ServiceCIDR") => {
            |o| vec![json!(name(o)), json!(join(o, "spec.cidrs", ",")), json!(age(o))]
        }
        ("policy", "PodDisruptionBudget") => disruption_budget,
        ("rbac.authorization.k8s.io", "ClusterRoleBinding" | "RoleBinding") => role_binding,
        ("storage.k8s.io", "CSIDriver") => csi_driver,
        ("storage.k8s.io", "CSINode") => {
            |o| vec![json!(name(o)), json!(list(o, "spec.drivers").len()), json!(age(o))]
        }
        ("storage.k8s.io", "StorageClass") => storage_class,
        ("storage.k8s.io", "VolumeAttachment") => attachment,
        ("storage.k8s.io", "VolumeAttributesClass") => {
            |o| vec![json!(name(o)), json!(text(o, "driverName")), json!(age(o))]
        }
        ("admissionregistration.k8s.io", _) => return admission(kind),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition,
        ("scheduling.k8s.io", "PriorityClass") => priority_class,
        ("coordination.k8s.io", "Lease") => {
            |o| vec![json!(name(o)), json!(text(o, "spec.holderIdentity")), json!(age(o))]
        }
        ("node.k8s.io", "RuntimeClass") => {
            |o| vec![json!(name(o)), json!(text(o, "handler")), json!(age(o))]
        }
        ("discovery.k8s.io", "EndpointSlice") => endpoint_slice,
        ("resource.k8s.io", "DeviceClass" | "ResourceClaimTemplate") => name_age,
        ("resource.k8s.io", "DeviceTaintRule") => taint_rule,
        ("resource.k8s.io", "ResourceClaim") => resource_claim,
        ("resource.k8s.io", "ResourceSlice") => resource_slice,
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => flow_schema,
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => priority_level,
        ("storagemigration.k8s.io", "StorageVersionMigration") => migration,
        ("rbac.authorization.k8s.io", _) | ("storage.k8s.io", "CSIStorageCapacity") => created_at,
        _ => return None,
    };
    Some(printer)
}

fn admission(kind: &str) -> Option<Printer> {
    Some(match kind {
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            |o| vec![json!(name(o)), json!(list(o, "webhooks").len()), json!(age(o))]
        }
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => admission_policy,
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => policy_binding,
        _ => return None,
    })
}

/// Upstream: `printValidatingAdmissionPolicy`, `printMutatingAdmissionPolicy`.
fn admission_policy(o: &PrintedObject<'_>) -> Cells {
    let rules = list(o, "spec.validations").len() + list(o, "spec.mutations").len();
    let kind = at(o, "spec.paramKind").map_or_else(
        || UNSET.to_owned(),
        |kind| format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind")),
    );
    vec![json!(name(o)), json!(rules), json!(kind), json!(age(o))]
}

/// Upstream: `printValidatingAdmissionPolicyBinding`, `printMutatingAdmissionPolicyBinding`.
fn policy_binding(o: &PrintedObject<'_>) -> Cells {
    let param = match at(o, "spec.paramRef") {
        Some(param) if !text(param, "name").is_empty() => {
            format!("{}/{}", text_or(param, "namespace", "*"), text(param, "name"))
        }
        _ => UNSET.to_owned(),
    };
    vec![json!(name(o)), json!(text(o, "spec.policyName")), json!(param), json!(age(o))]
}

fn condition<'a>(o: &'a Value, kind: &str) -> Option<&'a Value> {
    list(o, "status.conditions").iter().find(|condition| text(condition, "type") == kind)
}

fn api_service(o: &PrintedObject<'_>) -> Cells {
    let service = at(o, "spec.service").map_or_else(
        || "Local".to_owned(),
        |service| format!("{}/{}", text(service, "namespace"), text(service, "name")),
    );
    let available = match condition(o, "Available") {
        Some(found) if text(found, "status") == "True" => "True".to_owned(),
        Some(found) => format!("{} ({})", text(found, "status"), text(found, "reason")),
        None => "Unknown".to_owned(),
    };
    vec![json!(name(o)), json!(service), json!(available), json!(age(o))]
}

/// Upstream: `printCertificateSigningRequest`.
fn signing_request(o: &PrintedObject<'_>) -> Cells {
    let mut status = if condition(o, "Denied").is_some() {
        "Denied".to_owned()
    } else if condition(o, "Approved").is_some() {
        "Approved".to_owned()
    } else {
        "Pending".to_owned()
    };
    if condition(o, "Failed").is_some() {
        status.push_str(",Failed");
    }
    if !text(o, "status.certificate").is_empty() {
        status.push_str(",Issued");
    }
    let duration = int(o, "spec.expirationSeconds").map_or_else(|| NONE.to_owned(), human);
    vec![
        json!(name(o)),
        json!(age(o)),
        json!(text_or(o, "spec.signerName", NONE)),
        json!(text(o, "spec.username")),
        json!(duration),
        json!(status),
    ]
}

/// Upstream: `printPodCertificateRequest`.
fn certificate_request(o: &PrintedObject<'_>) -> Cells {
    let state = ["Denied", "Failed", "Issued"]
        .into_iter()
        .find(|kind| condition(o, kind).is_some())
        .unwrap_or("Pending");
    let annotations = object(o, "spec.unverifiedUserAnnotations").map_or(0, serde_json::Map::len);
    vec![
        json!(name(o)),
        json!(text(o, "spec.podName")),
        json!(text(o, "spec.serviceAccountName")),
        json!(text(o, "spec.nodeName")),
        json!(text(o, "spec.signerName")),
        json!(state),
        json!(annotations),
    ]
}

/// Upstream: `printIngressClass`.
fn ingress_class(o: &PrintedObject<'_>) -> Cells {
    let mut shown = name(o).to_owned();
    let key = "ingressclass.kubernetes.io/is-default-class";
    if object(o, "metadata.annotations")
        .and_then(|all| all.get(key))
        .is_some_and(|value| value == "true")
    {
        shown.push_str(" (default)");
    }
    let parameters = at(o, "spec.parameters").map_or_else(
        || NONE.to_owned(),
        |parameters| {
            let group = text(parameters, "apiGroup");
            let dot = if at(parameters, "apiGroup").is_some() { "." } else { "" };
            format!("{}{dot}{group}/{}", text(parameters, "kind"), text(parameters, "name"))
        },
    );
    vec![json!(shown), json!(text(o, "spec.controller")), json!(parameters), json!(age(o))]
}

/// Upstream: `printIngress`.
fn ingress(o: &PrintedObject<'_>) -> Cells {
    let rules = list(o, "spec.rules");
    let all: Vec<&str> =
        rules.iter().map(|rule| text(rule, "host")).filter(|host| !host.is_empty()).collect();
    let hosts = match all.len() {
        0 => "*".to_owned(),
        1..=3 => all.join(","),
        _ => format!("{} + {} more...", all[..3].join(","), rules.len() - 3),
    };
    vec![
        json!(name(o)),
        json!(text_or(o, "spec.ingressClassName", NONE)),
        json!(hosts),
        json!(load_balancer(o)),
        json!(if list(o, "spec.tls").is_empty() { "80" } else { "80, 443" }),
        json!(age(o)),
    ]
}

/// Upstream: `printIPAddress`.
fn ip_address(o: &PrintedObject<'_>) -> Cells {
    let parent = at(o, "spec.parentRef").map_or_else(
        || NONE.to_owned(),
        |parent| {
            let group = text(parent, "group");
            let mut path = text(parent, "resource").to_owned();
            if !group.is_empty() {
                path = format!("{path}.{group}");
            }
            for part in [text(parent, "namespace"), text(parent, "name")] {
                if !part.is_empty() {
                    path = format!("{path}/{part}");
                }
            }
            path.to_lowercase()
        },
    );
    vec![json!(name(o)), json!(parent)]
}

/// Upstream: `printPodDisruptionBudget`.
fn disruption_budget(o: &PrintedObject<'_>) -> Cells {
    vec![
        json!(name(o)),
        json!(scalar_text(at(o, "spec.minAvailable"), "N/A")),
        json!(scalar_text(at(o, "spec.maxUnavailable"), "N/A")),
        json!(count(o, "status.disruptionsAllowed")),
        json!(age(o)),
    ]
}

/// Upstream: `printRoleBinding`, `printClusterRoleBinding`.
fn role_binding(o: &PrintedObject<'_>) -> Cells {
    let subjects = |kind: &str| {
        list(o, "subjects")
            .iter()
            .filter(|subject| text(subject, "kind") == kind)
            .map(|subject| match kind {
                "ServiceAccount" => {
                    format!("{}/{}", text(subject, "namespace"), text(subject, "name"))
                }
                _ => text(subject, "name").to_owned(),
            })
            .collect::<Vec<_>>()
            .join(", ")
    };
    vec![
        json!(name(o)),
        json!(format!("{}/{}", text(o, "roleRef.kind"), text(o, "roleRef.name"))),
        json!(age(o)),
        json!(subjects("User")),
        json!(subjects("Group")),
        json!(subjects("ServiceAccount")),
    ]
}

/// Upstream: `printCSIDriver`.
fn csi_driver(o: &PrintedObject<'_>) -> Cells {
    let tokens = at(o, "spec.tokenRequests").and_then(Value::as_array).map_or_else(
        || UNSET.to_owned(),
        |requests| {
            requests.iter().map(|request| text(request, "audience")).collect::<Vec<_>>().join(",")
        },
    );
    let modes = join(o, "spec.volumeLifecycleModes", ",");
    vec![
        json!(name(o)),
        json!(at(o, "spec.attachRequired").and_then(Value::as_bool).unwrap_or(true)),
        json!(flag(o, "spec.podInfoOnMount")),
        json!(flag(o, "spec.storageCapacity")),
        json!(tokens),
        json!(flag(o, "spec.requiresRepublish")),
        json!(if modes.is_empty() { NONE.to_owned() } else { modes }),
        json!(age(o)),
    ]
}

/// Upstream: `printStorageClass`.
fn storage_class(o: &PrintedObject<'_>) -> Cells {
    let mut shown = name(o).to_owned();
    let key = "storageclass.kubernetes.io/is-default-class";
    if object(o, "metadata.annotations")
        .and_then(|all| all.get(key))
        .is_some_and(|value| value == "true")
    {
        shown.push_str(" (default)");
    }
    vec![
        json!(shown),
        json!(text(o, "provisioner")),
        json!(text_or(o, "reclaimPolicy", "Delete")),
        json!(text_or(o, "volumeBindingMode", "Immediate")),
        json!(flag(o, "allowVolumeExpansion")),
        json!(age(o)),
    ]
}

/// Upstream: `printVolumeAttachment`.
fn attachment(o: &PrintedObject<'_>) -> Cells {
    vec![
        json!(name(o)),
        json!(text(o, "spec.attacher")),
        json!(text(o, "spec.source.persistentVolumeName")),
        json!(text(o, "spec.nodeName")),
        json!(flag(o, "status.attached")),
        json!(age(o)),
    ]
}

fn definition(o: &PrintedObject<'_>) -> Cells {
    let versions: Vec<&str> =
        list(o, "spec.versions").iter().map(|version| text(version, "name")).collect();
    let established = condition(o, "Established").map_or("", |condition| text(condition, "status"));
    vec![
        json!(name(o)),
        json!(text(o, "spec.scope")),
        json!(versions.join(",")),
        json!(text(o, "metadata.creationTimestamp")),
        json!(text(o, "spec.group")),
        json!(text(o, "spec.names.kind")),
        json!(join(o, "spec.names.shortNames", ",")),
        json!(established),
    ]
}

/// Upstream: `printPriorityClass`.
fn priority_class(o: &PrintedObject<'_>) -> Cells {
    vec![
        json!(name(o)),
        json!(count(o, "value")),
        json!(flag(o, "globalDefault")),
        json!(age(o)),
        json!(text(o, "preemptionPolicy")),
    ]
}

/// Upstream: `printEndpointSlice`.
fn endpoint_slice(o: &PrintedObject<'_>) -> Cells {
    let ports: Vec<String> = list(o, "ports")
        .iter()
        .map(|port| match int(port, "port") {
            Some(number) => number.to_string(),
            None => text_or(port, "name", "*").to_owned(),
        })
        .collect();
    let addresses: Vec<String> = list(o, "endpoints")
        .iter()
        .flat_map(|endpoint| list(endpoint, "addresses"))
        .filter_map(|address| address.as_str().map(str::to_owned))
        .collect();
    let shown = |all: &[String]| if all.is_empty() { UNSET.to_owned() } else { first_three(all) };
    vec![
        json!(name(o)),
        json!(text(o, "addressType")),
        json!(shown(&ports)),
        json!(shown(&addresses)),
        json!(age(o)),
    ]
}

/// Upstream: `printDeviceTaint`.
fn taint_rule(o: &PrintedObject<'_>) -> Cells {
    vec![
        json!(name(o)),
        json!(text(o, "spec.taint.key")),
        json!(text(o, "spec.taint.value")),
        json!(text(o, "spec.taint.effect")),
        json!(since(o, "spec.taint.timeAdded")),
        json!(age(o)),
    ]
}

/// Upstream: `printResourceClaim`.
fn resource_claim(o: &PrintedObject<'_>) -> Cells {
    let mut states = Vec::new();
    let deleted = at(o, "metadata.deletionTimestamp").is_some();
    if deleted {
        states.push("deleted");
    }
    if at(o, "status.allocation").is_some() {
        states.push("allocated");
        if !list(o, "status.reservedFor").is_empty() {
            states.push("reserved");
        }
    } else if !deleted {
        states.push("pending");
    }
    vec![json!(name(o)), json!(states.join(",")), json!(age(o))]
}

/// Upstream: `printResourceSlice`.
fn resource_slice(o: &PrintedObject<'_>) -> Cells {
    vec![
        json!(name(o)),
        json!(text(o, "spec.nodeName")),
        json!(text(o, "spec.driver")),
        json!(text(o, "spec.pool.name")),
        json!(age(o)),
    ]
}

/// Upstream: `printFlowSchema`.
fn flow_schema(o: &PrintedObject<'_>) -> Cells {
    let dangling = condition(o, "Dangling").map_or("?", |condition| text(condition, "status"));
    vec![
        json!(name(o)),
        json!(text(o, "spec.priorityLevelConfiguration.name")),
        json!(count(o, "spec.matchingPrecedence")),
        json!(text_or(o, "spec.distinguisherMethod.type", NONE)),
        json!(age(o)),
        json!(dangling),
    ]
}

/// Upstream: `printPriorityLevelConfiguration`.
fn priority_level(o: &PrintedObject<'_>) -> Cells {
    let number = |path: &str| at(o, path).cloned().unwrap_or_else(|| json!(NONE));
    vec![
        json!(name(o)),
        json!(text(o, "spec.type")),
        number("spec.limited.nominalConcurrencyShares"),
        number("spec.limited.limitResponse.queuing.queues"),
        number("spec.limited.limitResponse.queuing.handSize"),
        number("spec.limited.limitResponse.queuing.queueLengthLimit"),
        json!(age(o)),
    ]
}

/// Upstream: `printStorageVersionMigration`.
fn migration(o: &PrintedObject<'_>) -> Cells {
    let group = text(o, "spec.resource.group");
    let resource = text(o, "spec.resource.resource");
    let shown = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
    let status = ["Failed", "Succeeded", "Running"].into_iter().find(|kind| {
        condition(o, kind).is_some_and(|condition| text(condition, "status") == "True")
    });
    vec![json!(name(o)), json!(shown), json!(status.unwrap_or_default())]
}
