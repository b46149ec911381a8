//! Measures the time to decode a realistic pod into its lean view, and the size of the view:
//! `cargo run --release -p evenkeel-api --example decode_speed`.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a program that measures and prints"
)]

use std::hint::black_box;
use std::time::Instant;

use evenkeel_api::{Encoding, View, protobuf::Transcoder, views::Pod};
use serde_json::json;

const ROUNDS: u32 = 20_000;

fn main() {
    let pod = pod();
    let text = pod.to_string().into_bytes();
    let bytes = Transcoder::encode("v1", "Pod", &pod).unwrap();
    println!("Pod is {} bytes, without what it points to", size_of::<Pod>());
    measure("JSON", &text, |bytes| drop(black_box(Pod::decode(bytes, Encoding::Json).unwrap())));
    measure("protobuf", &bytes, |bytes| {
        drop(black_box(Pod::decode(bytes, Encoding::Protobuf).unwrap()));
    });
    measure("protobuf to JSON tree", &bytes, |bytes| {
        drop(black_box(Transcoder::decode("v1", "Pod", bytes).unwrap()));
    });
    measure("JSON tree to protobuf", &text, |_| {
        drop(black_box(Transcoder::encode("v1", "Pod", &pod).unwrap()));
    });
}

fn measure(what: &str, input: &[u8], run: impl Fn(&[u8])) {
    run(input);
    let start = Instant::now();
    for _ in 0..ROUNDS {
        run(black_box(input));
    }
    println!(
        "{what}: {} bytes, {:.2} µs each",
        input.len(),
        start.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS)
    );
}

/// Returns a running pod of a ReplicaSet, as the server stores it.
fn pod() -> serde_json::Value {
    let fields: serde_json::Map<_, _> = (0..60)
        .map(|n| (format!("f:field{n}"), json!({".": {}, "f:name": {}, "f:value": {}})))
        .collect();
    let managed = |manager: &str| json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields.clone()}});
    let condition = |type_: &str| json!({"type": type_, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 1});
    let env: Vec<_> = (0..8)
        .map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "some value or other"}))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web-5d9c6d7f8b-x2x9z", "generateName": "web-5d9c6d7f8b-", "namespace": "shop", "uid": "0b7c6a0e-3f1c-4f0e-9a55-0d9a3a1f1d11",
            "resourceVersion": "123456", "generation": 1, "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"app": "web", "pod-template-hash": "5d9c6d7f8b", "tier": "front"}, "annotations": {"example.com/checksum": "d41d8cd98f00b204e9800998ecf8427e"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9c6d7f8b", "uid": "7a0f", "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [managed("kube-controller-manager"), managed("kubelet")]
        },
        "spec": {
            "volumes": [{"name": "kube-api-access-abcde", "projected": {"sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}], "defaultMode": 420}}],
            "containers": [{
                "name": "web", "image": "registry.example.com/shop/web:1.2.3", "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}], "env": env,
                "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "250m", "memory": "128Mi"}},
                "volumeMounts": [{"name": "kube-api-access-abcde", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
                "readinessProbe": {"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"
            }],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "serviceAccountName": "default", "serviceAccount": "default",
            "nodeName": "node-17", "securityContext": {}, "schedulerName": "default-scheduler", "priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}, {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]
        },
        "status": {
            "phase": "Running", "conditions": [condition("Initialized"), condition("Ready"), condition("ContainersReady"), condition("PodScheduled")],
            "hostIP": "10.0.0.17", "podIP": "10.1.17.4", "podIPs": [{"ip": "10.1.17.4"}], "startTime": "2026-01-02T03:04:05Z", "qosClass": "Burstable",
            "containerStatuses": [{
                "name": "web", "state": {"running": {"startedAt": "2026-01-02T03:04:07Z"}}, "lastState": {}, "ready": true, "restartCount": 0, "started": true,
                "image": "registry.example.com/shop/web:1.2.3", "imageID": "registry.example.com/shop/web@sha256:0123456789abcdef", "containerID": "containerd://0123456789abcdef"
            }]
        }
    })
}
