//! Tests of the rules of several kinds, with objects that have defaults.

use super::{Errors, ValidationTarget, create, update};
use crate::defaults;
use serde_json::{Value, json};

/// Returns a valid pod template that uses volumes, probes, variables and resources.
fn template() -> Value {
    json!({"metadata": {"labels": {"app": "x"}}, "spec": {
        "containers": [{"name": "c", "image": "img:1", "ports": [{"containerPort": 80, "name": "http"}],
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}},
            "readinessProbe": {"httpGet": {"port": "http"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "volumes": [{"name": "v", "configMap": {"name": "c"}}],
        "tolerations": [{"key": "a", "operator": "Exists"}]}})
}

/// Returns a valid pod template for a Job.
fn finite_template() -> Value {
    let mut template = template();
    template["spec"]["restartPolicy"] = json!("Never");
    template
}

/// Returns valid objects of many kinds: group, version, kind, and the object without metadata.
fn objects() -> Vec<(&'static str, &'static str, &'static str, Value)> {
    let selector = json!({"matchLabels": {"app": "x"}});
    let workload = || json!({"spec": {"selector": selector, "template": template()}});
    let rbac = "rbac.authorization.k8s.io";
    vec![
        ("", "v1", "Pod", json!({"spec": template()["spec"]})),
        ("", "v1", "ReplicationController", json!({"spec": {"template": template()}})),
        ("", "v1", "Service", json!({"spec": {"ports": [{"port": 80}], "selector": {"app": "x"}}})),
        ("", "v1", "ConfigMap", json!({"data": {"k": "v"}})),
        ("", "v1", "Secret", json!({"stringData": {"k": "v"}})),
        (
            "",
            "v1",
            "Node",
            json!({"spec": {"podCIDRs": ["10.0.0.0/24"], "taints": [{"key": "a", "effect": "NoExecute"}]}}),
        ),
        (
            "",
            "v1",
            "PersistentVolumeClaim",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        (
            "",
            "v1",
            "ResourceQuota",
            json!({"spec": {"hard": {"pods": "1", "count/deployments.apps": "2"}}}),
        ),
        ("apps", "v1", "Deployment", workload()),
        ("apps", "v1", "ReplicaSet", workload()),
        ("apps", "v1", "DaemonSet", workload()),
        ("apps", "v1", "StatefulSet", workload()),
        (
            "batch",
            "v1",
            "CronJob",
            json!({"spec": {"schedule": "@hourly", "jobTemplate": {"spec": {"template": finite_template()}}}}),
        ),
        (
            "autoscaling",
            "v2",
            "HorizontalPodAutoscaler",
            json!({"spec": {"maxReplicas": 3,
            "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}}),
        ),
        (
            "policy",
            "v1",
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": "50%", "selector": selector}}),
        ),
        (
            "networking.k8s.io",
            "v1",
            "Ingress",
            json!({"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}}),
        ),
        (
            "networking.k8s.io",
            "v1",
            "NetworkPolicy",
            json!({"spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}}),
        ),
        (
            "discovery.k8s.io",
            "v1",
            "EndpointSlice",
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.1.1"]}]}),
        ),
        (
            rbac,
            "v1",
            "RoleBinding",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]}),
        ),
        ("storage.k8s.io", "v1", "StorageClass", json!({"provisioner": "example.com/p"})),
        ("scheduling.k8s.io", "v1", "PriorityClass", json!({"value": 5})),
        ("coordination.k8s.io", "v1", "Lease", json!({"spec": {"leaseDurationSeconds": 15}})),
    ]
}

#[test]
fn valid_objects_and_updates_without_changes_are_accepted() {
    for (group, version, kind, mut object) in objects() {
        object["metadata"] = json!({"name": "x", "namespace": "n", "uid": "u"});
        defaults::apply(group, version, kind, &mut object);
        let mut errors = Errors::default();
        create(
            ValidationTarget { group, request_group: group, kind, subresource: "" },
            &object,
            &mut errors,
        );
        assert!(errors.is_empty(), "{group} {kind}: {:?}", errors.into_vec());
        for subresource in ["", "status"] {
            let mut errors = Errors::default();
            update(
                ValidationTarget { group, request_group: group, kind, subresource },
                &object,
                &object,
                &mut errors,
            );
            assert!(errors.is_empty(), "{group} {kind} {subresource}: {:?}", errors.into_vec());
        }
    }
}

#[test]
fn each_invalid_field_has_an_error() {
    let check = |kind: &str, object: Value, fields: &[&str]| {
        let mut errors = Errors::default();
        create(
            ValidationTarget { group: "", request_group: "", kind, subresource: "" },
            &object,
            &mut errors,
        );
        let found: Vec<String> = errors.into_vec().into_iter().map(|error| error.field).collect();
        assert_eq!(found, fields);
    };
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "A", "image": " i"}, {"name": "b", "image": "i",
        "volumeMounts": [{"name": "none", "mountPath": "/"}]}]}});
    defaults::apply("", "v1", "Pod", &mut pod);
    check(
        "Pod",
        pod,
        &[
            "spec.containers[0].name",
            "spec.containers[1].volumeMounts[0].name",
            "spec.containers[0].image",
        ],
    );
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"hostNetwork": true, "setHostnameAsFQDN": true,
        "hostnameOverride": "A".repeat(65), "containers": [{"name": "a", "image": "i"}]}});
    defaults::apply("", "v1", "Pod", &mut pod);
    check("Pod", pod, &["spec.hostnameOverride"; 4]);
    let mut service = json!({"spec": {"ports": [{"port": 0}], "type": "Nope"}});
    defaults::apply("", "v1", "Service", &mut service);
    check("Service", service, &["spec.ports[0].port", "spec.ports[0].targetPort", "spec.type"]);
}

#[test]
fn stateful_sets_may_mount_claim_templates_and_scaling_ignores_old_errors() {
    let claim = |size: &str| {
        json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}}}})
    };
    let set = |claims: Value, mount: &str| {
        let mut template = template();
        template["spec"]["volumes"] = json!([]);
        template["spec"]["containers"][0]["volumeMounts"][0]["name"] = json!(mount);
        let mut set = json!({"metadata": {"name": "x", "namespace": "n", "uid": "u"}, "spec": {
            "selector": {"matchLabels": {"app": "x"}}, "template": template, "volumeClaimTemplates": claims}});
        defaults::apply("apps", "v1", "StatefulSet", &mut set);
        set
    };
    let target = || ValidationTarget {
        group: "apps",
        request_group: "apps",
        kind: "StatefulSet",
        subresource: "",
    };
    let fields = |errors: Errors| -> Vec<String> {
        errors.into_vec().into_iter().map(|error| error.field).collect()
    };
    let (mount_field, size_field) = (
        "spec.template.spec.containers[0].volumeMounts[0].name",
        "spec.volumeClaimTemplates[0].spec.resources[storage]",
    );
    let table: [(Value, &str, &[&str]); 3] = [
        (json!([claim("1Gi")]), "v", &[]),
        (json!([claim("1Gi")]), "w", &[mount_field]),
        (json!([claim("0")]), "v", &[size_field]),
    ];
    for (claims, mount, expected) in table {
        let mut errors = Errors::default();
        create(target(), &set(claims, mount), &mut errors);
        assert_eq!(fields(errors), expected);
    }
    let (old, mut new) = (set(json!([]), "w"), set(json!([]), "w"));
    new["spec"]["replicas"] = json!(3);
    let mut errors = Errors::default();
    update(target(), &new, &old, &mut errors);
    assert_eq!(fields(errors), Vec::<String>::new());
}
