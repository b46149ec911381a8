//! Fields of feature gates that are off by default in v1.37. A write drops the fields of a gate unless the stored
//! object already has one of them.
//!
//! Upstream: `dropDisabledFields` and `DropDisabledFields`, which the strategies of the kinds call.

use evenkeel_apimachinery::value::{get, get_mut};
use serde_json::Value;

/// Field paths of one feature gate. `*` matches any item of a list and any value of a map.
type GateFields = &'static [&'static str];

/// Fields of a pod's spec. A path that begins with `containers` also applies to init and ephemeral containers.
const POD_SPEC: &[GateFields] = &[
    // AtomicWriteVolumeUserFields
    &[
        "volumes.*.configMap.defaultUser",
        "volumes.*.configMap.items.*.user",
        "volumes.*.downwardAPI.defaultUser",
        "volumes.*.downwardAPI.items.*.user",
        "volumes.*.projected.defaultUser",
        "volumes.*.projected.sources.*.clusterTrustBundle.user",
        "volumes.*.projected.sources.*.configMap.items.*.user",
        "volumes.*.projected.sources.*.downwardAPI.items.*.user",
        "volumes.*.projected.sources.*.podCertificate.user",
        "volumes.*.projected.sources.*.secret.items.*.user",
        "volumes.*.projected.sources.*.serviceAccountToken.user",
        "volumes.*.secret.defaultUser",
        "volumes.*.secret.items.*.user",
    ],
    // EmptyDirVolumeMode
    &["volumes.*.emptyDir.mode"],
    // EvictionRequestAPI
    &["evictionResponders"],
    // GenericWorkload
    &["schedulingGroup"],
    // GRPCContainerProbeTLS
    &[
        "containers.*.livenessProbe.grpc.mode",
        "containers.*.readinessProbe.grpc.mode",
        "containers.*.startupProbe.grpc.mode",
    ],
    // H2CContainerProbe
    &[
        "containers.*.lifecycle.postStart.httpGet.protocol",
        "containers.*.lifecycle.preStop.httpGet.protocol",
        "containers.*.livenessProbe.httpGet.protocol",
        "containers.*.readinessProbe.httpGet.protocol",
        "containers.*.startupProbe.httpGet.protocol",
    ],
    // VolumeBindMountOptions
    &["containers.*.volumeMounts.*.bindMountOptions"],
    // ContainerStopSignals
    &["containers.*.lifecycle.stopSignal"],
];

/// Fields of a pod's status.
const POD_STATUS: &[GateFields] = &[
    // CSIVolumeHealth
    &["volumeHealth"],
    // DRANodeAllocatableResources
    &["nodeAllocatableResourceClaimStatuses"],
    // ImageVolumeWithDigest
    &[
        "containerStatuses.*.volumeMounts.*.volumeStatus",
        "ephemeralContainerStatuses.*.volumeMounts.*.volumeStatus",
        "initContainerStatuses.*.volumeMounts.*.volumeStatus",
    ],
];

/// Fields of a JobSpec, of the gate WorkloadWithJob.
const JOB_SPEC: &[GateFields] = &[&["scheduling"]];

/// Fields of a NodeSpec.
const NODE_SPEC: &[GateFields] = &[
    // DynamicKubeletConfig, removed in an earlier release
    &["configSource"],
    // InPlacePodVerticalScalingSchedulerPreemption
    &["podPreemptionPolicy"],
];

/// Fields of a NodeStatus, of the removed gate DynamicKubeletConfig.
const NODE_STATUS: &[GateFields] = &[&["config"]];

/// Fields of a LeaseSpec, of the gate CoordinatedLeaderElection. Each is dropped separately.
const LEASE_SPEC: &[GateFields] = &[&["strategy"], &["preferredHolder"]];

/// Fields of a CSINode's status, of the gate CSIVolumeHealth.
const CSI_NODE_STATUS: &[GateFields] = &[&["storageHealth"]];

/// Fields of a ResourceClaim's spec, of the gate DRADerivedAttributes.
const CLAIM_SPEC: &[GateFields] = &[&[
    "devices.requests.*.exactly.derivedAttributes",
    "devices.requests.*.firstAvailable.*.derivedAttributes",
]];

/// Fields of a ResourceClaim's status, of the gate DRAOptionalNodeOperations.
const CLAIM_STATUS: &[GateFields] = &[&["allocation.devices.results.*.skipNodeOperations"]];

/// Fields of a ResourceSlice.
const RESOURCE_SLICE: &[GateFields] = &[
    // DRADeviceCompatibilityGroups
    &["devices.*.consumesCounters.*.compatibilityGroups"],
    // DRANodeAllocatableResources
    &["devices.*.nodeAllocatableResources"],
    // DRAListTypeAttributes
    &[
        "devices.*.attributes.*.bools",
        "devices.*.attributes.*.ints",
        "devices.*.attributes.*.strings",
        "devices.*.attributes.*.versions",
    ],
    // DRAPartitionableDevicesType
    &["partitionTypeAttribute"],
    // DRAOptionalNodeOperations
    &["skipNodeOperations"],
];

/// Returns the parts of a kind that have fields of disabled gates: the path of each part, and its gates.
fn parts_with_gates(group: &str, kind: &str) -> &'static [(&'static str, &'static [GateFields])] {
    match (group, kind) {
        ("", "Pod") => &[("spec", POD_SPEC), ("status", POD_STATUS)],
        ("", "Node") => &[("spec", NODE_SPEC), ("status", NODE_STATUS)],
        ("coordination.k8s.io", "Lease") => &[("spec", LEASE_SPEC)],
        ("", "PodTemplate") => &[("template.spec", POD_SPEC)],
        ("", "ReplicationController")
        | ("apps", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet") => {
            &[("spec.template.spec", POD_SPEC)]
        }
        ("batch", "Job") => &[("spec", JOB_SPEC), ("spec.template.spec", POD_SPEC)],
        ("batch", "CronJob") => &[
            ("spec.jobTemplate.spec", JOB_SPEC),
            ("spec.jobTemplate.spec.template.spec", POD_SPEC),
        ],
        ("storage.k8s.io", "CSINode") => &[("status", CSI_NODE_STATUS)],
        ("resource.k8s.io", "ResourceClaim") => &[("spec", CLAIM_SPEC), ("status", CLAIM_STATUS)],
        ("resource.k8s.io", "ResourceClaimTemplate") => &[("spec.spec", CLAIM_SPEC)],
        ("resource.k8s.io", "ResourceSlice") => &[("spec", RESOURCE_SLICE)],
        _ => &[],
    }
}

/// Drops the fields of disabled gates from an object that is written through `subresource`. `old` is the stored object of
/// an update.
pub(crate) fn drop_disabled_fields(
    group: &str,
    kind: &str,
    subresource: &str,
    new: &mut Value,
    old: Option<&Value>,
) {
    // A status update takes all other parts from the stored object.
    let is_written = |part: &str| subresource != "status" || part == "status";
    for (part, gates) in parts_with_gates(group, kind).iter().filter(|(part, _)| is_written(part)) {
        let old = old.and_then(|old| get(old, part));
        let Some(new) = get_mut(new, part) else { continue };
        for fields in *gates {
            let is_in_use = old.is_some_and(|old| fields.iter().any(|path| has_field(old, path)));
            if is_in_use {
                continue;
            }
            for path in *fields {
                drop_field(new, path);
            }
        }
    }
}

const CONTAINER_LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Returns the fields that a name in a path matches: `containers` matches all lists of containers.
fn matched_fields<'a>(name: &'a &'a str) -> &'a [&'a str] {
    if *name == "containers" { &CONTAINER_LISTS } else { std::slice::from_ref(name) }
}

/// Returns whether the object has a non-null value at `path`.
fn has_field(value: &Value, path: &str) -> bool {
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    if name == "*" {
        return match value {
            Value::Array(items) => items.iter().any(|item| has_field(item, rest)),
            Value::Object(fields) => fields.values().any(|item| has_field(item, rest)),
            _ => false,
        };
    }
    let mut found = matched_fields(&name).iter().filter_map(|name| value.get(name));
    found.any(|value| if rest.is_empty() { !value.is_null() } else { has_field(value, rest) })
}

/// Removes the field at `path`, in all items that the path matches.
fn drop_field(value: &mut Value, path: &str) {
    match path.split_once('.') {
        Some(("*", rest)) => match value {
            Value::Array(items) => items.iter_mut().for_each(|item| drop_field(item, rest)),
            Value::Object(fields) => fields.values_mut().for_each(|item| drop_field(item, rest)),
            _ => {}
        },
        Some(("lifecycle", "stopSignal")) => drop_stop_signal(value),
        Some((name, rest)) => {
            for name in matched_fields(&name) {
                if let Some(value) = value.get_mut(name) {
                    drop_field(value, rest);
                }
            }
        }
        None => {
            value.as_object_mut().map(|fields| fields.remove(path));
        }
    }
}

/// Drops a container's stop signal. Also drops the lifecycle if the stop signal was its only field.
///
/// Upstream: `dropContainerStopSignals`.
fn drop_stop_signal(container: &mut Value) {
    let Some(container) = container.as_object_mut() else { return };
    let Some(lifecycle) = container.get_mut("lifecycle").and_then(Value::as_object_mut) else {
        return;
    };
    if lifecycle.remove("stopSignal").is_some_and(|signal| !signal.is_null())
        && lifecycle.values().all(Value::is_null)
    {
        container.remove("lifecycle");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_of_disabled_gates_are_dropped_unless_stored() {
        let pod = json!({"spec": {
            "schedulingGroup": {"podGroupName": "g"},
            "volumes": [{"name": "a", "emptyDir": {"mode": 511, "medium": ""}}, {"name": "b", "secret": {"defaultUser": 1}}],
            "initContainers": [{"name": "i", "lifecycle": {"stopSignal": "SIGINT"}}],
            "containers": [{"name": "c", "lifecycle": {"stopSignal": "SIGINT", "preStop": {"sleep": {"seconds": 1}}}}],
        }});
        let mut new = pod.clone();
        drop_disabled_fields("", "Pod", "", &mut new, None);
        let expected = json!({"spec": {
            "volumes": [{"name": "a", "emptyDir": {"medium": ""}}, {"name": "b", "secret": {}}],
            "initContainers": [{"name": "i"}],
            "containers": [{"name": "c", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}],
        }});
        assert_eq!(new, expected);
        let mut kept = pod.clone();
        drop_disabled_fields("", "Pod", "", &mut kept, Some(&pod));
        assert_eq!(kept, pod);
        // Each gate is checked separately.
        let old = json!({"spec": {"volumes": [{"name": "z", "emptyDir": {"mode": 1}}]}});
        let mut new = pod.clone();
        drop_disabled_fields("", "Pod", "", &mut new, Some(&old));
        assert_eq!(new["spec"]["volumes"][0], pod["spec"]["volumes"][0]);
        assert_eq!(new["spec"]["volumes"][1], json!({"name": "b", "secret": {}}));
    }

    #[test]
    fn templates_and_other_kinds_are_covered() {
        let template =
            json!({"spec": {"evictionResponders": [{"name": "a"}], "restartPolicy": "Always"}});
        let dropped = json!({"spec": {"restartPolicy": "Always"}});
        for (group, kind, object, expected) in [
            (
                "apps",
                "DaemonSet",
                json!({"spec": {"template": template}}),
                json!({"spec": {"template": dropped}}),
            ),
            (
                "batch",
                "CronJob",
                json!({"spec": {"jobTemplate": {"spec": {"scheduling": {}, "template": template}}}}),
                json!({"spec": {"jobTemplate": {"spec": {"template": dropped}}}}),
            ),
            (
                "coordination.k8s.io",
                "Lease",
                json!({"spec": {"strategy": "a", "preferredHolder": "b", "holderIdentity": "c"}}),
                json!({"spec": {"holderIdentity": "c"}}),
            ),
            ("", "Node", json!({"spec": {"podPreemptionPolicy": "Never"}}), json!({"spec": {}})),
            (
                "resource.k8s.io",
                "ResourceSlice",
                json!({"spec": {"devices": [{"attributes": {"a": {"ints": [1], "int": 1}}}], "skipNodeOperations": ["*"]}}),
                json!({"spec": {"devices": [{"attributes": {"a": {"int": 1}}}]}}),
            ),
            (
                "",
                "ConfigMap",
                json!({"spec": {"schedulingGroup": 1}}),
                json!({"spec": {"schedulingGroup": 1}}),
            ),
        ] {
            let mut new = object;
            drop_disabled_fields(group, kind, "", &mut new, None);
            assert_eq!(new, expected, "{kind}");
        }
    }
}
