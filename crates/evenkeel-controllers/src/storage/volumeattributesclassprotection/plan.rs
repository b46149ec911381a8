//! Decides whether the finalizer of a VolumeAttributesClass is added or removed.

use crate::finalizers;
use evenkeel_api::views::{PersistentVolume, PersistentVolumeClaim, VolumeAttributesClass};
use evenkeel_runtime::plan::Plan;
use std::sync::Arc;

/// Finalizer that protects a class. Upstream: `VACProtectionFinalizer`.
pub(super) const FINALIZER: &str = "kubernetes.io/vac-protection";

/// A class, and whether a volume or a claim names it.
pub(super) struct Observed {
    pub(super) class: Arc<VolumeAttributesClass>,
    pub(super) is_used: bool,
}

/// Keeps the finalizer while the class is used.
pub(super) fn plan(observed: &Observed) -> Plan {
    finalizers::protect(&*observed.class, FINALIZER, observed.is_used)
}

/// Returns the class that a volume names, if any.
pub(super) fn class_of_volume(volume: &PersistentVolume) -> impl Iterator<Item = &str> {
    [&*volume.spec.volume_attributes_class_name].into_iter().filter(|name| !name.is_empty())
}

/// Returns the requested, the current and the target class of a claim, possibly with duplicates.
pub(super) fn classes_of_claim(claim: &PersistentVolumeClaim) -> impl Iterator<Item = &str> {
    let modification = claim.status.modify_volume_status.as_deref();
    let names = [
        &*claim.spec.volume_attributes_class_name,
        &*claim.status.current_volume_attributes_class_name,
        modification.map_or("", |status| &status.target_volume_attributes_class_name),
    ];
    names.into_iter().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, meta, object};
    use serde_json::json;

    #[test]
    fn classes_in_use_keep_the_finalizer() {
        let mut class =
            VolumeAttributesClass { meta: meta("gold"), ..VolumeAttributesClass::default() };
        class.meta.finalizers = Box::new([FINALIZER.into()]);
        class.meta.deletion = Some(T0);
        let class = Arc::new(class);
        for (is_used, writes) in [(true, 0), (false, 1)] {
            assert_eq!(plan(&Observed { class: class.clone(), is_used }).actions.len(), writes);
        }
    }

    #[test]
    fn claim_uses_its_requested_current_and_target_class() {
        let claim: PersistentVolumeClaim = object(&json!({
            "spec": {"volumeAttributesClassName": "a"},
            "status": {"currentVolumeAttributesClassName": "b",
                "modifyVolumeStatus": {"targetVolumeAttributesClassName": "c", "status": "Pending"}},
        }));
        assert_eq!(classes_of_claim(&claim).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(classes_of_claim(&PersistentVolumeClaim::default()).count(), 0);
    }
}
