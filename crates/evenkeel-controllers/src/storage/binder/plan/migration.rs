//! CSI migration: annotations and finalizers of volumes whose in-tree plugin a CSI driver has replaced.

use super::reclaim;
use evenkeel_api::{
    StrMap,
    views::{PersistentVolume, PersistentVolumeClaim},
};
use evenkeel_component_helpers::storage::{csi_translation, volume};
use serde_json::{Value, json};

pub(super) use csi_translation::driver_of as driver;

/// Returns the change of the annotation `migrated-to` for the object's provisioner, or `None` if the annotation is
/// correct. An object whose plugin was not migrated has no such annotation.
fn migrated_to_change(annotations: &StrMap, provisioner: Option<&str>) -> Option<Value> {
    let driver = driver(provisioner?);
    let current = annotations.get(volume::MIGRATED_TO).filter(|current| !current.is_empty());
    (current != driver).then(|| json!({volume::MIGRATED_TO: driver}))
}

/// Returns the update of a claim, or `None` if its annotation is correct.
pub(super) fn claim_update(claim: &PersistentVolumeClaim) -> Option<Value> {
    let annotations = &claim.meta.annotations;
    let beta = || annotations.get(volume::BETA_STORAGE_PROVISIONER);
    let provisioner = annotations.get(volume::STORAGE_PROVISIONER).or_else(beta);
    let change = migrated_to_change(annotations, provisioner)?;
    Some(json!({"metadata": {"annotations": change}}))
}

/// Returns the update of a volume, or `None` if its annotation and its deletion finalizers are correct.
pub(super) fn volume_update(volume: &PersistentVolume) -> Option<Value> {
    let meta = &volume.meta;
    let provisioner = meta.annotations.get(volume::PROVISIONED_BY);
    let mut body = json!({});
    if let Some(change) = migrated_to_change(&meta.annotations, provisioner) {
        body["metadata"]["annotations"] = change;
    }
    if let Some(provisioner) = provisioner {
        let current: Vec<&str> = meta.finalizers.iter().map(|finalizer| &**finalizer).collect();
        let finalizers = reclaim::finalizers(volume, provisioner, &current);
        if finalizers != current {
            body["metadata"]["finalizers"] = json!(finalizers);
        }
    }
    (body != json!({})).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::{
        reclaim::{
            EXTERNAL_PROTECTION_FINALIZER as EXTERNAL, IN_TREE_PROTECTION_FINALIZER as IN_TREE,
        },
        *,
    };
    use crate::fixtures::{label, meta};

    /// Returns a volume of this provisioner, if any, with this reclaim policy and these finalizers.
    fn volume(provisioner: &str, policy: &str, finalizers: &[&str]) -> PersistentVolume {
        let mut volume = PersistentVolume { meta: meta("v"), ..PersistentVolume::default() };
        if !provisioner.is_empty() {
            volume.meta.annotations = label(volume::PROVISIONED_BY, provisioner);
        }
        volume.meta.finalizers = finalizers.iter().map(|f| (*f).into()).collect();
        volume.spec.persistent_volume_reclaim_policy = policy.into();
        volume
    }

    #[test]
    fn deleter_decides_about_the_volume_finalizers() {
        let (host, csi) = ("kubernetes.io/host-path", "csi.example.com");
        let migrated = Some(
            json!({"metadata": {"annotations": {volume::MIGRATED_TO: "pd.csi.storage.gke.io"}, "finalizers": ["x"]}}),
        );
        let finalizers = |all: &[&str]| Some(json!({"metadata": {"finalizers": all}}));
        for (provisioner, policy, has, want) in [
            (host, "Delete", &["x"][..], finalizers(&["x", IN_TREE])),
            (host, "Delete", &[EXTERNAL, IN_TREE], finalizers(&[IN_TREE])),
            (host, "Retain", &["x", IN_TREE], finalizers(&["x"])),
            (host, "Delete", &[IN_TREE], None),
            (csi, "Delete", &[EXTERNAL], None),
            ("", "Delete", &[IN_TREE], None),
            ("kubernetes.io/gce-pd", "Delete", &["x", IN_TREE], migrated),
        ] {
            assert_eq!(
                volume_update(&volume(provisioner, policy, has)),
                want,
                "{provisioner} {policy} {has:?}"
            );
        }
    }

    #[test]
    fn migrated_to_annotation_follows_the_provisioner() {
        let mut claim =
            PersistentVolumeClaim { meta: meta("c"), ..PersistentVolumeClaim::default() };
        assert_eq!(claim_update(&claim), None);
        claim.meta.annotations = label(volume::BETA_STORAGE_PROVISIONER, "kubernetes.io/cinder");
        let note =
            json!({"metadata": {"annotations": {volume::MIGRATED_TO: "cinder.csi.openstack.org"}}});
        assert_eq!(claim_update(&claim), Some(note));
        claim.meta.annotations =
            claim.meta.annotations.with(volume::STORAGE_PROVISIONER, "csi.example.com");
        assert_eq!(claim_update(&claim), None);
        claim.meta.annotations =
            claim.meta.annotations.with(volume::MIGRATED_TO, "cinder.csi.openstack.org");
        assert_eq!(
            claim_update(&claim),
            Some(json!({"metadata": {"annotations": {volume::MIGRATED_TO: null}}}))
        );
    }
}
