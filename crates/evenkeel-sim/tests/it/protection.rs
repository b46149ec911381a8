//! Protection controllers, publishers and cleaners under faults.

use crate::{
    fixtures::{MINUTE, PODS, REST, SILENCE, bare_pod, every_kind},
    identity::without_nodes,
};
use evenkeel_sim::{Faults, Options, World};
use serde_json::{Value, json};

const BUNDLES: &str = "/apis/certificates.k8s.io/v1/clustertrustbundles";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests";
const ATTRIBUTES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
const STORAGE_CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const DRIVERS: &str = "/apis/storage.k8s.io/v1/csidrivers";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

/// Certificate request without a subject, created for these tests.
const STUB: &str = include_str!("testdata/stub.pem");

fn claim(class: &str, mode: &str) -> Value {
    let resources = json!({"requests": {"storage": "1Gi"}});
    let spec = json!({"storageClassName": class, "accessModes": [mode], "resources": resources});
    json!({"metadata": {"name": "x"}, "spec": spec})
}

fn volume(class: &str, mode: &str, source: &Value) -> Value {
    let mut spec = json!({"storageClassName": class, "accessModes": [mode],
        "capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": "Retain"});
    for (name, source) in source.as_object().into_iter().flatten() {
        spec[name] = source.clone();
    }
    json!({"metadata": {"name": "a"}, "spec": spec})
}

/// The controller restores the API server's trust bundle after a change or a deletion, and deletes other bundles of its
/// signer.
pub(crate) async fn trust_bundles(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    let [own] = &world.list(BUNDLES).await[..] else { panic!("not one bundle") };
    let path = format!("{BUNDLES}/{}", own["metadata"]["name"].as_str().expect("a name"));
    world.arm(faults);
    let mut other = json!({"spec": own["spec"], "metadata": {}});
    other["metadata"]["name"] = "kubernetes.io:kube-apiserver-serving:old".into();
    world.create(BUNDLES, &other).await;
    world.settle(REST).await;
    assert_eq!(world.list(BUNDLES).await.len(), 1);
    world.delete(&path, "Background").await;
    world.settle(REST).await;
    let again = world.get(&path).await.expect("it is published again");
    assert_eq!(again["spec"], own["spec"]);
    world.stays_silent(SILENCE).await;
}

/// The cleaner deletes a PodCertificateRequest when its pod can no longer use the certificate.
pub(crate) async fn pod_certificate_requests(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    let der: String = STUB.lines().filter(|line| !line.starts_with('-')).collect();
    for name in ["one", "two"] {
        let spec = json!({
            "signerName": "example.com/x", "podName": "p", "podUID": "p-uid",
            "serviceAccountName": "default", "serviceAccountUID": "s-uid", "nodeName": "n",
            "nodeUID": "n-uid", "maxExpirationSeconds": 86400, "stubPKCS10Request": der,
        });
        world.create(REQUESTS, &json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    world.pass(10 * MINUTE).await;
    assert_eq!(world.list(REQUESTS).await.len(), 2);
    world.until("both go", 60 * MINUTE, async |user| user.list(REQUESTS).await.is_empty()).await;
    world.settle(REST).await;
    world.stays_silent(SILENCE).await;
}

/// A VolumeAttributesClass exists until no claim refers to it.
pub(crate) async fn attributes_class_in_use(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    let class = json!({"metadata": {"name": "gold"}, "driverName": "disks.test", "parameters": {"iops": "9"}});
    world.create(ATTRIBUTES, &class).await;
    let mut claim = claim("", "ReadWriteOnce");
    claim["spec"]["volumeAttributesClassName"] = "gold".into();
    world.create(CLAIMS, &claim).await;
    world.settle(REST).await;
    world.delete(&format!("{ATTRIBUTES}/gold"), "Background").await;
    world.settle(REST).await;
    let held = world.get(&format!("{ATTRIBUTES}/gold")).await.expect("it is in use");
    assert!(held["metadata"]["deletionTimestamp"].is_string(), "{held:#}");
    world.delete(&format!("{CLAIMS}/x"), "Background").await;
    world.settle(REST).await;
    assert_eq!(world.get(&format!("{CLAIMS}/x")).await, None, "no pod uses it");
    assert_eq!(world.get(&format!("{ATTRIBUTES}/gold")).await, None);
    world.stays_silent(SILENCE).await;
}

/// A deleted claim exists until no pod uses it.
pub(crate) async fn claim_in_use(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    world.create(CLAIMS, &claim("", "ReadWriteOnce")).await;
    let mut pod = bare_pod("user");
    pod["spec"]["nodeName"] = "node-0".into();
    pod["spec"]["volumes"] = json!([{"name": "x", "persistentVolumeClaim": {"claimName": "x"}}]);
    world.create(PODS, &pod).await;
    world.settle(REST).await;
    world.delete(&format!("{CLAIMS}/x"), "Background").await;
    world.settle(REST).await;
    let held = world.get(&format!("{CLAIMS}/x")).await.expect("it is in use");
    assert!(held["metadata"]["deletionTimestamp"].is_string(), "{held:#}");
    world.delete(&format!("{PODS}/user"), "Background").await;
    world.settle(MINUTE).await;
    assert_eq!(world.get(&format!("{CLAIMS}/x")).await, None);
    world.stays_silent(SILENCE).await;
}

/// A claim that must be expanded gets an annotation with the CSI driver to which its volume was migrated.
pub(crate) async fn expansion_of_a_migrated_volume(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    let class = json!({"metadata": {"name": "ebs"}, "provisioner": "kubernetes.io/aws-ebs", "allowVolumeExpansion": true});
    world.create(STORAGE_CLASSES, &class).await;
    let source = json!({"awsElasticBlockStore": {"volumeID": "vol-1"}});
    world.create(VOLUMES, &volume("ebs", "ReadWriteOnce", &source)).await;
    world.create(CLAIMS, &claim("ebs", "ReadWriteOnce")).await;
    world.settle(REST).await;
    world.arm(faults);
    let path = format!("{CLAIMS}/x");
    let bound = world.get(&path).await.expect("it is there");
    assert_eq!(bound["status"]["phase"], "Bound");
    let more = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    world.merge(&path, &more).await;
    world.settle(REST).await;
    let claim = world.get(&path).await.expect("it is there");
    let resizer = &claim["metadata"]["annotations"]["volume.kubernetes.io/storage-resizer"];
    assert_eq!(resizer, "ebs.csi.aws.com", "{claim:#}");
    world.stays_silent(SILENCE).await;
}

/// Two pods with different SELinux labels on one volume get warnings. The controller only writes events.
pub(crate) async fn conflicting_labels(world: &mut World, faults: Faults) {
    world.settle(REST).await;
    world.arm(faults);
    let driver = json!({"metadata": {"name": "disks.test"}, "spec": {"seLinuxMount": true, "attachRequired": false}});
    world.create(DRIVERS, &driver).await;
    let source = json!({"csi": {"driver": "disks.test", "volumeHandle": "h"}});
    world.create(VOLUMES, &volume("", "ReadWriteMany", &source)).await;
    world.create(CLAIMS, &claim("", "ReadWriteMany")).await;
    world.settle(REST).await;
    for (name, level) in [("one", "s0:c1,c2"), ("two", "s0:c3,c4")] {
        let mut pod = bare_pod(name);
        pod["spec"]["volumes"] =
            json!([{"name": "x", "persistentVolumeClaim": {"claimName": "x"}}]);
        pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "x", "mountPath": "/x"}]);
        pod["spec"]["securityContext"] = json!({"seLinuxOptions": {"level": level}});
        world.create(PODS, &pod).await;
    }
    world.settle(REST).await;
    let warned = world.log().since(0).into_iter().filter(|write| {
        write.is_event() && String::from_utf8_lossy(&write.body).contains("SELinuxLabelConflict")
    });
    assert!(warned.count() >= 2, "both pods are warned about");
    world.stays_silent(2 * SILENCE).await;
}

#[test]
fn trust_bundles_with_every_kind_of_fault() {
    every_kind(&without_nodes(), &trust_bundles);
}

#[test]
fn pod_certificate_requests_with_every_kind_of_fault() {
    every_kind(&without_nodes(), &pod_certificate_requests);
}

#[test]
fn attributes_class_in_use_with_every_kind_of_fault() {
    every_kind(&without_nodes(), &attributes_class_in_use);
}

#[test]
fn claim_in_use_with_every_kind_of_fault() {
    every_kind(&Options::default(), &claim_in_use);
}

#[test]
fn expansion_of_a_migrated_volume_with_every_kind_of_fault() {
    every_kind(&without_nodes(), &expansion_of_a_migrated_volume);
}

#[test]
fn conflicting_labels_with_every_kind_of_fault() {
    every_kind(&Options::default(), &conflicting_labels);
}
