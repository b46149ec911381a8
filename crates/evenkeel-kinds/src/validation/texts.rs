//! Error messages when one field of a valid object changes. The expected messages are from kube-apiserver v1.37.

use super::{Errors, ValidationTarget, create, update};
use crate::defaults;
use serde_json::{Value, json};

/// Group, kind, object, pointer to the field that changes, the field's new value, and the expected errors.
type Case<'a> = (&'static str, &'static str, Value, &'a str, Value, &'a [&'a str]);

fn target(group: &'static str, kind: &'static str) -> ValidationTarget<'static> {
    ValidationTarget { group, request_group: group, kind, subresource: "" }
}

fn shown(errors: Errors) -> Vec<String> {
    errors.into_vec().iter().map(ToString::to_string).collect()
}

/// Returns the object with the value at a JSON pointer replaced, and with defaults. An empty pointer replaces
/// nothing.
fn with(group: &str, kind: &str, object: &Value, pointer: &str, value: Value) -> Value {
    let mut object = object.clone();
    object["metadata"] = json!({"name": "x", "namespace": "n", "uid": "u"});
    if let Some((parent, name)) = pointer.rsplit_once('/') {
        let parent = object.pointer_mut(parent).expect("a place");
        match parent {
            Value::Object(fields) => drop(fields.insert(name.to_owned(), value)),
            Value::Array(items) => items[name.parse::<usize>().expect("an index")] = value,
            other => panic!("no place in {other}"),
        }
    }
    defaults::apply(group, "v1", kind, &mut object);
    object
}

/// Returns a spec that is valid for each of the workloads in group `apps`.
fn workload() -> Value {
    json!({"spec": {"selector": {"matchLabels": {"app": "x"}}, "strategy": {}, "updateStrategy": {"rollingUpdate": {}},
        "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"securityContext": {},
            "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]}}}})
}

fn job() -> Value {
    json!({"spec": {"selector": {"matchLabels": {"app": "x"}}, "manualSelector": true,
        "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i"}]}}}})
}

#[test]
fn errors_of_a_new_object_have_upstreams_texts() {
    let binding = json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}, "subjects": [{"kind": "x"}]});
    let service = json!({"spec": {"type": "ClusterIP", "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 80}]}});
    let endpoints = json!({"subsets": [{"addresses": [{"ip": "10.1.1.1"}]}]});
    let config = json!({"data": {"a": "1"}});
    let budget = json!({"spec": {"selector": {}, "minAvailable": 1}});
    let percent = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
    let rolling_update = "spec.updateStrategy.rollingUpdate";
    let table: [Case<'_>; 19] = [
        (
            "apps",
            "Deployment",
            workload(),
            "/spec/strategy/type",
            json!("a"),
            &[
                r#"spec.strategy: Unsupported value: {"Type":"a","RollingUpdate":null}: supported values: "Recreate", "RollingUpdate""#,
            ],
        ),
        (
            "apps",
            "DaemonSet",
            workload(),
            "/spec/updateStrategy/type",
            json!("a"),
            &[
                r#"spec.updateStrategy: Unsupported value: {"Type":"a","RollingUpdate":{"MaxUnavailable":0,"MaxSurge":0}}: supported values: "RollingUpdate", "OnDelete""#,
            ],
        ),
        (
            "apps",
            "DaemonSet",
            workload(),
            "/spec/updateStrategy/rollingUpdate/maxUnavailable",
            json!("http"),
            &[
                &format!("{rolling_update}.maxUnavailable: Invalid value: \"http\": {percent}"),
                &format!(
                    "{rolling_update}.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"
                ),
            ],
        ),
        (
            "apps",
            "DaemonSet",
            workload(),
            "/spec/updateStrategy/rollingUpdate/maxUnavailable",
            json!("1"),
            &[&format!("{rolling_update}.maxUnavailable: Invalid value: \"1\": {percent}")],
        ),
        // If the selector is invalid, the template's labels are not compared with it.
        (
            "apps",
            "ReplicaSet",
            workload(),
            "/spec/selector",
            json!({"matchExpressions": [{"key": "a", "operator": "x"}]}),
            &[
                r#"spec.selector.matchExpressions[0].operator: Invalid value: "x": not a valid selector operator"#,
                r#"spec.selector: Invalid value: {"matchExpressions":[{"key":"a","operator":"x"}]}: invalid label selector"#,
            ],
        ),
        (
            "apps",
            "ReplicaSet",
            workload(),
            "/spec/template/spec/overhead",
            json!({"a": "1"}),
            &[
                r#"spec.template.spec.overhead.limits[a]: Invalid value: "a": must be a standard resource type or fully qualified"#,
                r#"spec.template.spec.overhead.limits[a]: Invalid value: "a": must be a standard resource for containers"#,
            ],
        ),
        (
            "apps",
            "ReplicaSet",
            workload(),
            "/spec/template/spec/securityContext/sysctls",
            json!([{}, {"name": "net.a"}, {"name": "net.a"}, {"name": "A"}]),
            &[
                "spec.template.spec.securityContext.sysctls[0].name: Required value",
                r#"spec.template.spec.securityContext.sysctls[2].name: Duplicate value: "net.a""#,
                r#"spec.template.spec.securityContext.sysctls[3].name: Invalid value: "A": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"#,
            ],
        ),
        // Upstream does not validate the fields of the next three rows.
        (
            "apps",
            "ReplicaSet",
            workload(),
            "/spec/template/spec/containers/0/ports/0/hostIP",
            json!("-a"),
            &[],
        ),
        (
            "apps",
            "ReplicaSet",
            workload(),
            "/spec/template/spec/imagePullSecrets",
            json!([{"name": "a/b"}]),
            &[],
        ),
        (
            "apps",
            "ReplicaSet",
            workload(),
            "/spec/template/spec/terminationGracePeriodSeconds",
            json!(-1),
            &[],
        ),
        (
            "apps",
            "ReplicaSet",
            workload(),
            "/spec/template/spec/volumes",
            json!([{"name": "v", "nfs": {"server": "s", "path": "/"}, "downwardAPI": {}, "cephfs": {}}]),
            &[
                "spec.template.spec.volumes[0].cephFS: Forbidden: may not specify more than 1 volume type",
                "spec.template.spec.volumes[0].downwarAPI: Forbidden: may not specify more than 1 volume type",
            ],
        ),
        (
            "apps",
            "ReplicaSet",
            workload(),
            "/spec/template/spec/containers/0/env",
            json!([{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"}}}]),
            &[
                r#"spec.template.spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": only divisor's values 1m and 1 are supported with the cpu resource"#,
            ],
        ),
        (
            "rbac.authorization.k8s.io",
            "RoleBinding",
            binding.clone(),
            "/roleRef/kind",
            json!("x"),
            &[
                r#"roleRef.kind: Unsupported value: "x": supported values: "Role", "ClusterRole""#,
                r#"subjects[0].kind: Unsupported value: "x": supported values: "ServiceAccount", "User", "Group""#,
                "subjects[0].name: Required value",
            ],
        ),
        (
            "",
            "Service",
            service,
            "/spec/selector",
            json!({}),
            &[
                r#"spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}"#,
            ],
        ),
        (
            "",
            "Endpoints",
            endpoints,
            "/subsets/0/addresses/0/ip",
            json!("a"),
            &[
                r#"subsets[0].addresses[0].ip: Invalid value: "a": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
                r#"subsets[0].addresses[0].ip: Invalid value: "a": must be a valid IP address"#,
            ],
        ),
        (
            "",
            "ConfigMap",
            config,
            "/binaryData",
            json!({"a": "YQ=="}),
            &[r#"data[a]: Invalid value: "a": duplicate of key present in binaryData"#],
        ),
        (
            "policy",
            "PodDisruptionBudget",
            budget,
            "/spec/maxUnavailable",
            json!(1),
            &[
                r#"spec: Invalid value: {"MinAvailable":1,"Selector":{},"MaxUnavailable":1,"UnhealthyPodEvictionPolicy":null}: minAvailable and maxUnavailable cannot be both set"#,
            ],
        ),
        (
            "networking.k8s.io",
            "NetworkPolicy",
            json!({"spec": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}}),
            "/spec/ingress/0/from/0/ipBlock/except",
            json!(["10.1.0.0/16", "10.0.0.0/8"]),
            &[
                r#"spec.ingress[0].from[0].ipBlock.except[1]: Invalid value: "10.0.0.0/8": must be a strict subset of `cidr`"#,
            ],
        ),
        (
            "scheduling.k8s.io",
            "PriorityClass",
            json!({"value": 1}),
            "/preemptionPolicy",
            json!("a"),
            &[
                r#"preemptionPolicy: Unsupported value: "a": supported values: "PreemptLowerPriority", "Never""#,
            ],
        ),
    ];
    for (group, kind, object, pointer, value, want) in table {
        let object = with(group, kind, &object, pointer, value);
        let mut errors = Errors::default();
        create(target(group, kind), &object, &mut errors);
        assert_eq!(shown(errors), want, "{pointer}");
    }
}

#[test]
fn errors_of_an_update_have_upstreams_texts() {
    let binding =
        json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}});
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let event = json!({"reportingComponent": "c", "involvedObject": {"namespace": "n"}, "eventTime": "2026-01-01T00:00:00Z", "reportingInstance": "i",
        "action": "a", "reason": "r", "type": "Normal"});
    let table: [Case<'_>; 9] = [
        (
            "rbac.authorization.k8s.io",
            "RoleBinding",
            binding,
            "/roleRef/name",
            json!("s"),
            &[
                r#"roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"s"}: field is immutable"#,
            ],
        ),
        (
            "apps",
            "DaemonSet",
            workload(),
            "/spec/selector/matchLabels/app",
            json!("y"),
            &[
                r#"spec.selector: Invalid value: {"matchLabels":{"app":"y"}}: field is immutable"#,
                r#"spec.template.metadata.labels: Invalid value: {"app":"x"}: `selector` does not match template `labels`"#,
            ],
        ),
        (
            "batch",
            "Job",
            job(),
            "/spec/successPolicy",
            json!({"rules": [{"succeededCount": 1}]}),
            &[
                r#"spec.successPolicy: Invalid value: {"Rules":[{"SucceededIndexes":null,"SucceededCount":1}]}: requires indexed completion mode"#,
                r#"spec.successPolicy: Invalid value: {"Rules":[{"SucceededIndexes":null,"SucceededCount":1}]}: field is immutable"#,
            ],
        ),
        // Upstream's field is a pointer: an empty string differs from an unset field.
        (
            "batch",
            "Job",
            job(),
            "/spec/managedBy",
            json!(""),
            &[
                "spec.managedBy: Required value",
                r#"spec.managedBy: Invalid value: "": field is immutable"#,
            ],
        ),
        (
            "",
            "PersistentVolumeClaim",
            claim,
            "/spec/volumeMode",
            json!("Block"),
            &[
                "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n@@ -11,7 +11,7 @@\n  },\n  \"VolumeName\": \"\",\n  \"StorageClassName\": null,\n- \"VolumeMode\": \"Filesystem\",\n+ \"VolumeMode\": \"Block\",\n  \"DataSource\": null,\n  \"DataSourceRef\": null,\n  \"VolumeAttributesClassName\": null\n",
                r#"volumeMode: Invalid value: "Block": field is immutable"#,
            ],
        ),
        (
            "node.k8s.io",
            "RuntimeClass",
            json!({"handler": "a"}),
            "/handler",
            json!("b"),
            &["handler: Invalid value: null: field is immutable"],
        ),
        (
            "discovery.k8s.io",
            "EndpointSlice",
            json!({"addressType": "IPv4"}),
            "/addressType",
            json!("IPv6"),
            &["addressType: Invalid value: null: field is immutable"],
        ),
        (
            "networking.k8s.io",
            "IngressClass",
            json!({"spec": {"controller": "a.example.com/b"}}),
            "/spec/controller",
            json!("a"),
            &[
                r#"spec.controller: Invalid value: "a": field is immutable"#,
                r#"spec.controller: Invalid value: "a": must be a domain-prefixed path (such as "acme.io/foo")"#,
            ],
        ),
        (
            "",
            "Event",
            event,
            "/related",
            json!({}),
            &[
                r#"related: Invalid value: {"Kind":"","Namespace":"","Name":"","UID":"","APIVersion":"","ResourceVersion":"","FieldPath":""}: field is immutable"#,
            ],
        ),
    ];
    for (group, kind, object, pointer, value, want) in table {
        let old = with(group, kind, &object, "", Value::Null);
        let new = with(group, kind, &object, pointer, value);
        let mut target = target(group, kind);
        if kind == "Event" {
            target.request_group = "events.k8s.io";
        }
        let mut errors = Errors::default();
        update(target, &new, &old, &mut errors);
        assert_eq!(shown(errors), want, "{pointer}");
    }
}
