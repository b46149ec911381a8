//! Table tests of the simulated storage's plan.

use super::{
    DRIVER,
    plan::{Write, of_attachment, of_claim, of_volume},
};
use evenkeel_api::{
    Encoding, View,
    views::{PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment},
};
use evenkeel_component_helpers::storage::volume;
use serde_json::{Value, json};

fn object<V: View>(value: &Value) -> V {
    V::decode(value.to_string().as_bytes(), Encoding::Json).unwrap()
}

fn claim(
    provisioner: &str,
    node: Option<&str>,
    size: &str,
    has: Option<&str>,
) -> PersistentVolumeClaim {
    let mut annotations = json!({volume::STORAGE_PROVISIONER: provisioner});
    if let Some(node) = node {
        annotations[volume::SELECTED_NODE] = node.into();
    }
    let mut claim = json!({
        "metadata": {"name": "data", "namespace": "shop", "uid": "u", "resourceVersion": "7", "annotations": annotations},
        "spec": {"storageClassName": "standard", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
        "status": {"phase": "Pending"},
    });
    if let Some(has) = has {
        claim["status"] = json!({"phase": "Bound", "capacity": {"storage": has}});
        claim["spec"]["volumeName"] = "pvc-u".into();
    }
    object(&claim)
}

fn class(mode: &str) -> StorageClass {
    object(
        &json!({"metadata": {"name": "standard"}, "provisioner": DRIVER, "volumeBindingMode": mode}),
    )
}

fn volume(phase: &str, policy: &str, terminating: bool, finalizers: &[&str]) -> PersistentVolume {
    let mut volume = json!({
        "metadata": {"name": "pvc-u", "uid": "v", "finalizers": finalizers, "annotations": {volume::PROVISIONED_BY: DRIVER}},
        "spec": {"capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": policy,
            "claimRef": {"namespace": "shop", "name": "data", "uid": "u"}},
        "status": {"phase": phase},
    });
    if terminating {
        volume["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    object(&volume)
}

#[test]
fn volume_is_created_by_binding_mode() {
    for (claim, mode, made) in [
        (claim(DRIVER, None, "1Gi", None), "Immediate", 1),
        (claim(DRIVER, None, "1Gi", None), "WaitForFirstConsumer", 0),
        (claim(DRIVER, Some("n"), "1Gi", None), "WaitForFirstConsumer", 1),
        (claim("someone.else", Some("n"), "1Gi", None), "Immediate", 0),
        (claim(DRIVER, None, "1Gi", Some("1Gi")), "Immediate", 0),
    ] {
        assert_eq!(of_claim(&claim, Some(&class(mode)), None).len(), made, "{claim:?} {mode}");
    }
    let writes = of_claim(&claim(DRIVER, Some("n"), "1Gi", None), Some(&class("Immediate")), None);
    let [Write::Create { body, events, .. }] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!(body["metadata"]["name"], "pvc-u");
    assert_eq!(body["spec"]["claimRef"]["uid"], "u");
    assert_eq!(body["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    assert_eq!(events[1].message, "Successfully provisioned volume pvc-u");
}

#[test]
fn claim_and_volume_are_expanded() {
    let one = volume("Bound", "Delete", false, &[]);
    let writes = of_claim(&claim(DRIVER, None, "2Gi", Some("1Gi")), None, Some(&one));
    let subresources: Vec<&str> = writes
        .iter()
        .map(|write| match write {
            Write::Patch { subresource, .. } => *subresource,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(subresources, ["", "status"]);
    assert!(of_claim(&claim(DRIVER, None, "1Gi", Some("1Gi")), None, Some(&one)).is_empty());
}

#[test]
fn released_volume_is_deleted() {
    let held = "external-provisioner.volume.kubernetes.io/finalizer";
    for (volume, writes) in [
        (volume("Released", "Delete", false, &[held]), 2),
        (volume("Released", "Delete", true, &[held]), 1),
        (volume("Released", "Delete", true, &[]), 0),
        (volume("Released", "Retain", false, &[held]), 0),
        (volume("Bound", "Delete", false, &[held]), 0),
        (volume("Bound", "Delete", true, &[held]), 0),
        (volume("Available", "Retain", true, &[held]), 1),
    ] {
        assert_eq!(of_volume(&volume).len(), writes, "{volume:?}");
    }
}

#[test]
fn attachment_and_detachment() {
    let attachment = |attacher: &str,
                      attached: bool,
                      terminating: bool,
                      finalizers: &[&str]|
     -> VolumeAttachment {
        let mut it = json!({
            "metadata": {"name": "a", "uid": "a", "finalizers": finalizers},
            "spec": {"attacher": attacher, "nodeName": "n", "source": {"persistentVolumeName": "pvc-u"}},
            "status": {"attached": attached},
        });
        if terminating {
            it["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        object(&it)
    };
    let held = "external-attacher/csi-sim-evenkeel-dev";
    for (attachment, writes) in [
        (attachment(DRIVER, false, false, &[]), 2),
        (attachment(DRIVER, false, false, &[held]), 1),
        (attachment(DRIVER, true, false, &[held]), 0),
        (attachment(DRIVER, true, true, &[held]), 1),
        (attachment(DRIVER, true, true, &[]), 0),
        (attachment("other", false, false, &[]), 0),
    ] {
        assert_eq!(of_attachment(&attachment).len(), writes, "{attachment:?}");
    }
}
