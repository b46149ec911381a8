//! Decides whether an external controller must expand a volume, and records events about it.

use crate::wire;
use evenkeel_api::{
    quantity::Quantity,
    views::{PersistentVolume, PersistentVolumeClaim},
};
use evenkeel_component_helpers::storage::{csi_translation, volume};
use evenkeel_runtime::plan::{EventRecord, OnError, Patch, PatchType, Plan};
use serde_json::json;
use std::sync::Arc;

/// Annotation that names the component that expands the claim's volume.
const RESIZER_ANNOTATION: &str = "volume.kubernetes.io/storage-resizer";
/// Reason of the event for a claim that an external controller must expand.
const EVENT_REASON: &str = "ExternalExpanding";

/// A claim and its volume.
pub(super) struct Observed {
    pub(super) claim: Arc<PersistentVolumeClaim>,
    pub(super) volume: Option<Arc<PersistentVolume>>,
}

/// Returns whether the claim's request or its capacity grew.
pub(super) fn has_grown(old: &PersistentVolumeClaim, new: &PersistentVolumeClaim) -> bool {
    volume::requested_storage(new) > volume::requested_storage(old) || capacity(new) > capacity(old)
}

/// Returns the capacity in the claim's status, 0 if there is none.
fn capacity(claim: &PersistentVolumeClaim) -> Quantity {
    claim.status.capacity.get("storage").copied().unwrap_or(Quantity::from_units(0))
}

/// Returns whether the claim's volume is smaller than requested, or is being expanded.
pub(super) fn needs_expansion(observed: &Observed) -> bool {
    volume_to_expand(observed).is_some()
}

/// Returns the claim's volume if it is smaller than requested, or is being expanded.
fn volume_to_expand(observed: &Observed) -> Option<&PersistentVolume> {
    let claim = &*observed.claim;
    let volume = observed.volume.as_deref()?;
    let reference = volume.spec.claim_ref.as_deref();
    let is_bound = reference.is_some_and(|reference| reference.uid == claim.meta.uid);
    let is_too_small = volume::requested_storage(claim) > capacity(claim);
    let is_being_expanded = volume.meta.annotations.contains(volume::PRE_RESIZE_CAPACITY);
    (is_bound && (is_too_small || is_being_expanded)).then_some(volume)
}

/// Records an event for the external controller that must expand the volume. If a CSI driver replaced the volume's
/// plugin, also names the driver in an annotation of the claim. Upstream: `syncHandler`.
pub(super) fn plan(observed: &Observed) -> Plan {
    let Some(volume) = volume_to_expand(observed) else { return Plan::nothing() };
    let claim = &*observed.claim;
    let event = |message: String| EventRecord::normal(wire::target(claim), EVENT_REASON, message);
    let Some(MigratedPlugin { plugin, driver }) = migrated_plugin(volume) else {
        return Plan::one(event(
            "waiting for an external controller to expand this PVC".to_owned(),
        ));
    };
    let mut plan = Plan::one(event(format!(
        "CSI migration enabled for {plugin}; waiting for external resizer to expand the pvc"
    )));
    if claim.meta.annotations.get(RESIZER_ANNOTATION) != Some(driver) {
        let body = json!({"metadata": {"uid": claim.meta.uid, "annotations": {RESIZER_ANNOTATION: driver}}});
        let failed = format!(
            "error setting resizer annotation to pvc {}/{}, with error {{error}}",
            claim.meta.namespace, claim.meta.name
        );
        plan.push(Patch {
            subresource: "status",
            failed: Some(EventRecord::warning(wire::target(claim), EVENT_REASON, failed)),
            on_error: OnError::SkipRest,
            ..Patch::new(wire::target(claim), PatchType::Strategic, body.to_string())
        });
    }
    plan
}

/// An in-tree plugin, and the CSI driver that replaced it.
struct MigratedPlugin {
    plugin: &'static str,
    driver: &'static str,
}

/// Returns the volume's plugin, if a CSI driver replaced it.
fn migrated_plugin(volume: &PersistentVolume) -> Option<MigratedPlugin> {
    let source = &volume.spec.source;
    let table = [
        (source.gce_persistent_disk.is_some(), "kubernetes.io/gce-pd"),
        (source.aws_elastic_block_store.is_some(), "kubernetes.io/aws-ebs"),
        (source.azure_disk.is_some(), "kubernetes.io/azure-disk"),
        (source.azure_file.is_some(), "kubernetes.io/azure-file"),
        (source.cinder.is_some(), "kubernetes.io/cinder"),
        (source.vsphere_volume.is_some(), "kubernetes.io/vsphere-volume"),
        (source.portworx_volume.is_some(), "kubernetes.io/portworx-volume"),
    ];
    let (_, plugin) = table.into_iter().find(|(is_used, _)| *is_used)?;
    Some(MigratedPlugin { plugin, driver: csi_translation::driver_of(plugin)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::object;
    use evenkeel_runtime::plan::Action;
    use serde_json::Value;

    /// Returns the claim of the uid `u` with these requested and actual sizes, and a volume that is bound to the claim
    /// of the uid `claim_uid`.
    fn observed(requested: &str, actual: &str, source: &Value, claim_uid: &str) -> Observed {
        let mut spec = json!({"claimRef": {"namespace": "ns", "name": "c", "uid": claim_uid}});
        for (key, value) in source.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        Observed {
            claim: Arc::new(object(
                &json!({"metadata": {"name": "c", "namespace": "ns", "uid": "u"},
                "spec": {"resources": {"requests": {"storage": requested}}},
                "status": {"phase": "Bound", "capacity": {"storage": actual}}}),
            )),
            volume: Some(Arc::new(object(&json!({"metadata": {"name": "v"}, "spec": spec})))),
        }
    }

    fn messages(observed: &Observed) -> Vec<String> {
        let plan = plan(observed);
        let messages = plan.actions.iter().map(|action| match action {
            Action::Event(event) => event.message.clone(),
            Action::Patch(patch) => std::str::from_utf8(&patch.body).unwrap().to_owned(),
            other => panic!("{other:?}"),
        });
        messages.collect()
    }

    #[test]
    fn claims_to_expand_are_reported_to_the_driver() {
        let csi = json!({"csi": {"driver": "d", "volumeHandle": "h"}});
        let external = "waiting for an external controller to expand this PVC";
        assert_eq!(messages(&observed("2Gi", "1Gi", &csi, "u")), [external]);
        assert!(messages(&observed("1Gi", "1Gi", &csi, "u")).is_empty());
        assert!(messages(&observed("2Gi", "1Gi", &csi, "another")).is_empty());
        let disk = json!({"gcePersistentDisk": {"pdName": "p"}});
        let messages = messages(&observed("2Gi", "1Gi", &disk, "u"));
        assert!(
            messages[0].starts_with("CSI migration enabled for kubernetes.io/gce-pd;"),
            "{messages:?}"
        );
        assert!(messages[1].contains("pd.csi.storage.gke.io"), "{messages:?}");
    }
}
