//! Decides whether an external controller must expand a volume, and records events about it.

use crate::wire;
use evenkeel_api::{
    quantity::Quantity,
    views::{PersistentVolume, PersistentVolumeClaim},
};
use evenkeel_component_helpers::storage::{csi_translation, volume};
use evenkeel_runtime::plan::{EventRecord, OnError, Patch, PatchForm, Plan};
use serde_json::json;
use std::sync::Arc;

const PRE_RESIZE: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";
const RESIZER: &str = "volume.kubernetes.io/storage-resizer";
const EVENT: &str = "ExternalExpanding";

/// A claim and its volume.
pub(super) struct Observed {
    pub(super) claim: Arc<PersistentVolumeClaim>,
    pub(super) volume: Option<Arc<PersistentVolume>>,
}

/// Reports whether the claim's request or its capacity grew.
pub(super) fn grew(old: &PersistentVolumeClaim, new: &PersistentVolumeClaim) -> bool {
    volume::requested(new) > volume::requested(old) || capacity(new) > capacity(old)
}

fn capacity(claim: &PersistentVolumeClaim) -> Quantity {
    claim.status.capacity.get("storage").copied().unwrap_or(Quantity::from_units(0))
}

/// Reports whether the claim's volume is smaller than requested, or is being expanded.
pub(super) fn needs_expansion(observed: &Observed) -> bool {
    let claim = &*observed.claim;
    observed.volume.as_deref().is_some_and(|volume| {
        let bound = volume.spec.claim_ref.as_deref().is_some_and(|of| of.uid == claim.meta.uid);
        bound
            && (volume::requested(claim) > capacity(claim)
                || volume.meta.annotations.contains(PRE_RESIZE))
    })
}

pub(super) fn plan(observed: &Observed) -> Plan {
    let (mut plan, claim) = (Plan::nothing(), &*observed.claim);
    let Some(volume) = observed.volume.as_deref().filter(|_| needs_expansion(observed)) else {
        return plan;
    };
    let event = |message: String| EventRecord::normal(wire::target(claim), EVENT, message);
    let Some((plugin, driver)) = migrated_plugin(volume) else {
        plan.push(event("waiting for an external controller to expand this PVC".to_owned()));
        return plan;
    };
    plan.push(event(format!(
        "CSI migration enabled for {plugin}; waiting for external resizer to expand the pvc"
    )));
    if claim.meta.annotations.get(RESIZER) != Some(driver) {
        let body = json!({"metadata": {"uid": claim.meta.uid, "annotations": {RESIZER: driver}}});
        let failed = format!(
            "error setting resizer annotation to pvc {}/{}, with error {{error}}",
            claim.meta.namespace, claim.meta.name
        );
        plan.push(Patch {
            subresource: "status",
            failed: Some(EventRecord::warning(wire::target(claim), EVENT, failed)),
            on_error: OnError::SkipRest,
            ..Patch::new(wire::target(claim), PatchForm::Strategic, body.to_string())
        });
    }
    plan
}

/// Returns the in-tree plugin of a migrated volume, and the CSI driver that replaced it.
fn migrated_plugin(volume: &PersistentVolume) -> Option<(&'static str, &'static str)> {
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
    let (_, plugin) = table.into_iter().find(|(is_migrated, _)| *is_migrated)?;
    Some((plugin, csi_translation::driver_of(plugin)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::object;
    use evenkeel_runtime::plan::Action;
    use serde_json::Value;

    /// Returns a claim that requests one size and has another, and its volume, which is bound to the claim's uid
    /// `of`.
    fn observed(requested: &str, has: &str, source: &Value, of: &str) -> Observed {
        let mut spec = json!({"claimRef": {"namespace": "ns", "name": "c", "uid": of}});
        for (key, value) in source.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        Observed {
            claim: Arc::new(object(
                &json!({"metadata": {"name": "c", "namespace": "ns", "uid": "u"},
                "spec": {"resources": {"requests": {"storage": requested}}},
                "status": {"phase": "Bound", "capacity": {"storage": has}}}),
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
