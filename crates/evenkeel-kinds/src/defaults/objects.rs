//! Defaults of all API groups except core, apps and batch.

use super::Fill::{Flag, Int, Object, Optional, Positive, Text};
use super::{Table, fill};
use crate::resourceclaim::drop_empty_pools;
use evenkeel_apimachinery::value::{self, each, get, int, is_empty, list, text};
use serde_json::{Value, json};

const WEBHOOK: Table = &[
    ("webhooks.*.failurePolicy", Optional("Fail")),
    ("webhooks.*.matchPolicy", Optional("Equivalent")),
    ("webhooks.*.namespaceSelector", Object),
    ("webhooks.*.objectSelector", Object),
    ("webhooks.*.timeoutSeconds", Int(10)),
    ("webhooks.*.rules.*.scope", Optional("*")),
    ("webhooks.*.clientConfig.service?.port", Int(443)),
];
const MATCH_RESOURCES: Table = &[
    ("matchPolicy", Optional("Equivalent")),
    ("namespaceSelector", Object),
    ("objectSelector", Object),
    ("resourceRules.*.scope", Optional("*")),
    ("excludeResourceRules.*.scope", Optional("*")),
];
const CSI_DRIVER: Table = &[
    ("spec.attachRequired", Flag(true)),
    ("spec.podInfoOnMount", Flag(false)),
    ("spec.storageCapacity", Flag(false)),
    ("spec.fsGroupPolicy", Optional("ReadWriteOnceWithFSType")),
    ("spec.requiresRepublish", Flag(false)),
    ("spec.seLinuxMount", Flag(false)),
    ("spec.preventPodSchedulingIfMissing", Flag(false)),
];
const STORAGE_CLASS: Table =
    &[("reclaimPolicy", Optional("Delete")), ("volumeBindingMode", Optional("Immediate"))];
const NETWORK_POLICY: Table = &[
    ("spec.ingress.*.ports.*.protocol", Optional("TCP")),
    ("spec.egress.*.ports.*.protocol", Optional("TCP")),
];
const ENDPOINT_SLICE: Table =
    &[("ports.*.name", Optional("")), ("ports.*.protocol", Optional("TCP"))];
const LIMITED: Table = &[
    ("spec.limited?.nominalConcurrencyShares", Int(30)),
    ("spec.limited?.lendablePercent", Int(0)),
    ("spec.limited?.limitResponse.queuing?.handSize", Positive(8)),
    ("spec.limited?.limitResponse.queuing?.queues", Positive(64)),
    ("spec.limited?.limitResponse.queuing?.queueLengthLimit", Positive(50)),
    ("spec.exempt?.nominalConcurrencyShares", Int(0)),
    ("spec.exempt?.lendablePercent", Int(0)),
];
const RBAC: &str = "rbac.authorization.k8s.io";

pub(crate) fn apply(group: &str, version: &str, kind: &str, object: &mut Value) {
    match (group, kind) {
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaler(version, object),
        ("networking.k8s.io", "NetworkPolicy") => network_policy(object),
        ("networking.k8s.io", "IngressClass") => {
            fill(object, &[("spec.parameters?.scope", Optional("Cluster"))]);
        }
        (RBAC, "ClusterRoleBinding" | "RoleBinding") => role_binding(object),
        ("storage.k8s.io", "StorageClass") => fill(object, STORAGE_CLASS),
        ("apiregistration.k8s.io", "APIService") => {
            fill(object, &[("spec.service?.port", Int(443))]);
        }
        ("storage.k8s.io", "CSIDriver") => csi_driver(object),
        ("discovery.k8s.io", "EndpointSlice") => fill(object, ENDPOINT_SLICE),
        ("scheduling.k8s.io", "PriorityClass") => {
            fill(object, &[("preemptionPolicy", Optional("PreemptLowerPriority"))]);
        }
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => {
            fill(object, &[("spec.matchingPrecedence", Positive(1000))]);
        }
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => fill(object, LIMITED),
        ("admissionregistration.k8s.io", _) => admission(kind, object),
        ("resource.k8s.io", "ResourceClaim") => {
            each(object, "spec.devices?.requests.*", &mut device_request);
            fill(
                object,
                &[("status?.allocation?.devices?.results.*.tolerations.*.operator", Text("Equal"))],
            );
        }
        ("resource.k8s.io", "ResourceSlice") => drop_empty_pools(object),
        ("resource.k8s.io", "ResourceClaimTemplate") => {
            each(object, "spec.spec.devices?.requests.*", &mut device_request);
        }
        ("authentication.k8s.io", "TokenRequest") => {
            fill(object, &[("spec.expirationSeconds", Int(3600))]);
        }
        _ => {}
    }
}

/// Copies the labels of the pod template to an object without labels.
pub(crate) fn labels_from_template(object: &mut Value) {
    let labels = get(object, "spec.template.metadata.labels")
        .filter(|labels| !value::is_blank(labels))
        .cloned();
    if let Some(labels) = labels.filter(|_| is_empty(object, "metadata.labels")) {
        value::set(object, "metadata.labels", labels);
    }
}

/// Sets the defaults of a HorizontalPodAutoscaler in this version.
///
/// Upstream: `SetDefaults_HorizontalPodAutoscaler`.
fn autoscaler(version: &str, hpa: &mut Value) {
    fill(hpa, &[("spec.minReplicas", Int(1))]);
    if version == "v1" {
        return;
    }
    // Upstream converts the object to the internal version before it stores it. That conversion drops the annotations.
    crate::autoscaling::drop_annotations(hpa);
    if is_empty(hpa, "spec.metrics") {
        let cpu = json!({"type": "Resource", "resource": {
            "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}});
        value::set(hpa, "spec.metrics", json!([cpu]));
    }
    each(hpa, "spec.behavior?", &mut |behavior| {
        scaling_rules(
            behavior,
            "scaleUp",
            &json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]}),
        );
        scaling_rules(
            behavior,
            "scaleDown",
            &json!({"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}),
        );
    });
}

/// Adds the default fields to the rules with this name, `scaleUp` or `scaleDown`.
///
/// Upstream: `GenerateHPAScaleUpRules`, `GenerateHPAScaleDownRules`.
fn scaling_rules(behavior: &mut Value, name: &str, defaults: &Value) {
    let (Some(rules), Some(defaults)) = (value::object_mut(behavior, name), defaults.as_object())
    else {
        return;
    };
    for (field, default) in defaults {
        if rules.get(field).is_none_or(Value::is_null) {
            rules.insert(field.clone(), default.clone());
        }
    }
}

/// Sets the defaults of a NetworkPolicy. The policy types follow from its rules.
///
/// Upstream: `SetDefaults_NetworkPolicy`.
fn network_policy(policy: &mut Value) {
    fill(policy, NETWORK_POLICY);
    if is_empty(policy, "spec.policyTypes") {
        let has_egress_rules = !list(policy, "spec.egress").is_empty();
        let types: &[&str] = if has_egress_rules { &["Ingress", "Egress"] } else { &["Ingress"] };
        value::set(policy, "spec.policyTypes", json!(types));
    }
}

/// Sets the API group of the role and of users and groups.
///
/// Upstream: `SetDefaults_RoleBinding`.
fn role_binding(binding: &mut Value) {
    fill(binding, &[("roleRef.apiGroup", Text(RBAC))]);
    each(binding, "subjects.*", &mut |subject| {
        if matches!(text(subject, "kind"), "User" | "Group") {
            fill(subject, &[("apiGroup", Text(RBAC))]);
        }
    });
}

/// Sets the defaults of a CSIDriver. The lifecycle mode defaults to `Persistent`.
///
/// Upstream: `SetDefaults_CSIDriver`.
fn csi_driver(driver: &mut Value) {
    fill(driver, CSI_DRIVER);
    if is_empty(driver, "spec.volumeLifecycleModes") {
        value::set(driver, "spec.volumeLifecycleModes", json!(["Persistent"]));
    }
}

fn admission(kind: &str, object: &mut Value) {
    match kind {
        "ValidatingWebhookConfiguration" => fill(object, WEBHOOK),
        "MutatingWebhookConfiguration" => {
            fill(object, WEBHOOK);
            fill(object, &[("webhooks.*.reinvocationPolicy", Optional("Never"))]);
        }
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => {
            fill(object, &[("spec.failurePolicy", Optional("Fail"))]);
            each(object, "spec.matchConstraints?", &mut |resources| {
                fill(resources, MATCH_RESOURCES);
            });
        }
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => {
            each(object, "spec.matchResources?", &mut |resources| fill(resources, MATCH_RESOURCES));
        }
        _ => {}
    }
}

/// Sets the allocation mode of an exact request and of each alternative to `ExactCount`, and its device count to
/// one.
///
/// Upstream: `SetDefaults_ExactDeviceRequest`, `SetDefaults_DeviceSubRequest`.
fn device_request(request: &mut Value) {
    for path in ["exactly?", "firstAvailable.*"] {
        each(request, path, &mut |device| {
            fill(
                device,
                &[
                    ("allocationMode", Text("ExactCount")),
                    ("tolerations.*.operator", Text("Equal")),
                ],
            );
            if text(device, "allocationMode") == "ExactCount"
                && int(device, "count").unwrap_or_default() == 0
            {
                value::set(device, "count", 1);
            }
        });
    }
}
