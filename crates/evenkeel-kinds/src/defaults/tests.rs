//! Tests that defaulting of every kind is idempotent, and that it sets upstream's defaults.

use super::apply;
use proptest::prelude::*;
use serde_json::{Value, json};

const KINDS: &[(&str, &str, &str)] = &[
    ("", "v1", "Pod"),
    ("", "v1", "PodTemplate"),
    ("", "v1", "Service"),
    ("", "v1", "ReplicationController"),
    ("", "v1", "Namespace"),
    ("", "v1", "Secret"),
    ("", "v1", "PersistentVolume"),
    ("", "v1", "PersistentVolumeClaim"),
    ("", "v1", "Endpoints"),
    ("", "v1", "Node"),
    ("", "v1", "LimitRange"),
    ("apps", "v1", "Deployment"),
    ("apps", "v1", "ReplicaSet"),
    ("apps", "v1", "DaemonSet"),
    ("apps", "v1", "StatefulSet"),
    ("batch", "v1", "Job"),
    ("batch", "v1", "CronJob"),
    ("autoscaling", "v1", "HorizontalPodAutoscaler"),
    ("autoscaling", "v2", "HorizontalPodAutoscaler"),
    ("networking.k8s.io", "v1", "NetworkPolicy"),
    ("networking.k8s.io", "v1", "IngressClass"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
    ("storage.k8s.io", "v1", "StorageClass"),
    ("storage.k8s.io", "v1", "CSIDriver"),
    ("discovery.k8s.io", "v1", "EndpointSlice"),
    ("scheduling.k8s.io", "v1", "PriorityClass"),
    ("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io", "v1", "PriorityLevelConfiguration"),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"),
    ("resource.k8s.io", "v1", "ResourceClaim"),
];

/// Generates pod specs that differ in image, host network, volume and grace period.
fn pod_spec() -> impl Strategy<Value = Value> {
    let image =
        prop_oneof![Just("img"), Just("img:1"), Just("r:5000/img"), Just("img@sha256:0"), Just("")];
    let volume = prop_oneof![
        Just(json!({"name": "v"})),
        Just(json!({"name": "v", "secret": {"secretName": "s"}})),
        Just(json!({"name": "v", "hostPath": {"path": "/"}})),
        Just(
            json!({"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}})
        ),
    ];
    (image, any::<bool>(), proptest::option::of(volume), proptest::option::of(0i64..3)).prop_map(
        |(image, host, volume, grace)| {
            json!({
                "containers": [{"name": "c", "image": image, "ports": [{"containerPort": 80}],
                    "readinessProbe": {"httpGet": {"port": 80}}, "resources": {"limits": {"cpu": "1"}}}],
                "hostNetwork": host, "volumes": volume.into_iter().collect::<Vec<_>>(),
                "terminationGracePeriodSeconds": grace, "serviceAccount": "a",
            })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn defaulting_is_idempotent(spec in pod_spec(), labels in any::<bool>()) {
        let metadata = if labels { json!({"labels": {"a": "b"}}) } else { json!({}) };
        for (group, version, kind) in KINDS {
            let template = json!({"metadata": metadata, "spec": spec});
            let mut object = match *kind {
                "Pod" => json!({"metadata": metadata, "spec": spec}),
                "CronJob" => json!({"metadata": {}, "spec": {"jobTemplate": {"spec": {"template": template}}}}),
                "PodTemplate" => json!({"metadata": {}, "template": template}),
                _ => json!({"metadata": {"name": "x"}, "spec": {"template": template, "ports": [{"port": 80}]}}),
            };
            apply(group, version, kind, &mut object);
            let once = object.clone();
            apply(group, version, kind, &mut object);
            prop_assert_eq!(&object, &once, "{} {}", group, kind);
        }
    }
}

#[test]
fn defaulting_of_an_empty_object_is_idempotent() {
    for (group, version, kind) in KINDS {
        let mut object = json!({"metadata": {}});
        apply(group, version, kind, &mut object);
        let once = object.clone();
        apply(group, version, kind, &mut object);
        assert_eq!(object, once, "{group} {kind}");
    }
}

#[test]
fn a_deployment_gets_upstreams_defaults() {
    let mut object = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "img:1"}]}}}});
    apply("apps", "v1", "Deployment", &mut object);
    assert_eq!(
        object["spec"],
        json!({
            "progressDeadlineSeconds": 600, "replicas": 1, "revisionHistoryLimit": 10,
            "selector": {"matchLabels": {"a": "b"}},
            "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}, "type": "RollingUpdate"},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                "containers": [{"image": "img:1", "imagePullPolicy": "IfNotPresent", "name": "c", "resources": {},
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
                "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
                "securityContext": {}, "terminationGracePeriodSeconds": 30}},
        })
    );
}

#[test]
fn pod_cidr_and_pod_cidrs_of_a_node_are_made_consistent() {
    for (spec, cidr, cidrs) in [
        (json!({"podCIDR": "a"}), json!("a"), json!(["a"])),
        (json!({"podCIDRs": ["a", "b"]}), json!("a"), json!(["a", "b"])),
        (json!({"podCIDR": "c", "podCIDRs": ["a", "b"]}), json!("c"), json!(["c"])),
        (json!({"podCIDR": "a", "podCIDRs": ["a", "b"]}), json!("a"), json!(["a", "b"])),
        (json!({}), json!(null), json!(null)),
    ] {
        let mut node = json!({ "spec": spec });
        apply("", "v1", "Node", &mut node);
        assert_eq!((&node["spec"]["podCIDR"], &node["spec"]["podCIDRs"]), (&cidr, &cidrs));
    }
}
