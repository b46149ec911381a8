//! Tests of the simulated storage's plan.

use super::{
    DRIVER,
    plan::{Write, sync_attachment, sync_claim, sync_volume, volume_name},
};
use evenkeel_api::{
    Encoding, View,
    views::{PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment},
};
use evenkeel_component_helpers::storage::volume;
use serde_json::{Value, json};

/// Decodes an object.
fn object<V: View>(value: &Value) -> V {
    V::decode(value.to_string().as_bytes(), Encoding::Json).unwrap()
}

/// Returns a claim `data` of the StorageClass `standard` with a provisioner, selected node and requested size. With
/// `has`, the claim is bound and has this capacity.
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

/// Returns the StorageClass `standard` with a volume binding mode.
fn class(mode: &str) -> StorageClass {
    object(
        &json!({"metadata": {"name": "standard"}, "provisioner": DRIVER, "volumeBindingMode": mode}),
    )
}

/// Returns a volume `pvc-u` of 1 GiB for the claim `data`.
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
fn volume_is_provisioned_when_the_binding_mode_allows_it() {
    for (claim, mode, created) in [
        (claim(DRIVER, None, "1Gi", None), "Immediate", 1),
        (claim(DRIVER, None, "1Gi", None), "WaitForFirstConsumer", 0),
        (claim(DRIVER, Some("n"), "1Gi", None), "WaitForFirstConsumer", 1),
        (claim("someone.else", Some("n"), "1Gi", None), "Immediate", 0),
        (claim(DRIVER, None, "1Gi", Some("1Gi")), "Immediate", 0),
    ] {
        assert_eq!(sync_claim(&claim, Some(&class(mode)), None).len(), created, "{claim:?} {mode}");
    }
    let writes =
        sync_claim(&claim(DRIVER, Some("n"), "1Gi", None), Some(&class("Immediate")), None);
    let [Write::Create { body, events, .. }] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!(body["metadata"]["name"], "pvc-u");
    assert_eq!(body["spec"]["claimRef"]["uid"], "u");
    assert_eq!(body["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    assert_eq!(events[1].message, "Successfully provisioned volume pvc-u");
}

#[test]
fn a_volume_is_provisioned_once() {
    let pending = claim(DRIVER, None, "1Gi", None);
    assert_eq!(
        volume_name(&pending),
        "pvc-u",
        "this volume shows that the claim has been provisioned"
    );
    let provisioned = volume("Pending", "Delete", false, &[]);
    assert_eq!(sync_claim(&pending, Some(&class("Immediate")), Some(&provisioned)), []);
    let mut bound = claim(DRIVER, None, "1Gi", Some("1Gi"));
    bound.spec.volume_name = "chosen".into();
    assert_eq!(volume_name(&bound), "chosen");
}

#[test]
fn a_larger_request_expands_the_volume_and_then_the_claim() {
    let bound = volume("Bound", "Delete", false, &[]);
    let writes = sync_claim(&claim(DRIVER, None, "2Gi", Some("1Gi")), None, Some(&bound));
    let subresources: Vec<&str> = writes
        .iter()
        .map(|write| match write {
            Write::Patch { subresource, .. } => *subresource,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(subresources, ["", "status"]);
    assert!(sync_claim(&claim(DRIVER, None, "1Gi", Some("1Gi")), None, Some(&bound)).is_empty());
}

#[test]
fn a_released_volume_is_deleted_unless_it_is_retained() {
    let finalizer = "external-provisioner.volume.kubernetes.io/finalizer";
    for (volume, writes) in [
        (volume("Released", "Delete", false, &[finalizer]), 2),
        (volume("Released", "Delete", true, &[finalizer]), 1),
        (volume("Released", "Delete", true, &[]), 0),
        (volume("Released", "Retain", false, &[finalizer]), 0),
        (volume("Bound", "Delete", false, &[finalizer]), 0),
        (volume("Bound", "Delete", true, &[finalizer]), 0),
        (volume("Available", "Retain", true, &[finalizer]), 1),
    ] {
        assert_eq!(sync_volume(&volume).len(), writes, "{volume:?}");
    }
}

#[test]
fn an_attachment_is_attached_or_detached_if_it_is_being_deleted() {
    let attachment = |attacher: &str,
                      attached: bool,
                      terminating: bool,
                      finalizers: &[&str]|
     -> VolumeAttachment {
        let mut attachment = json!({
            "metadata": {"name": "a", "uid": "a", "finalizers": finalizers},
            "spec": {"attacher": attacher, "nodeName": "n", "source": {"persistentVolumeName": "pvc-u"}},
            "status": {"attached": attached},
        });
        if terminating {
            attachment["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        object(&attachment)
    };
    let finalizer = "external-attacher/csi-sim-evenkeel-dev";
    for (attachment, writes) in [
        (attachment(DRIVER, false, false, &[]), 2),
        (attachment(DRIVER, false, false, &[finalizer]), 1),
        (attachment(DRIVER, true, false, &[finalizer]), 0),
        (attachment(DRIVER, true, true, &[finalizer]), 1),
        (attachment(DRIVER, true, true, &[]), 0),
        (attachment("other", false, false, &[]), 0),
    ] {
        assert_eq!(sync_attachment(&attachment).len(), writes, "{attachment:?}");
    }
}
