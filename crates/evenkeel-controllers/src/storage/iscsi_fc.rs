//! iSCSI and Fibre Channel volumes. The controller does not attach them, but kubelets mount them only once
//! `status.volumesAttached` lists them. A ReadWriteOnce volume is listed on one node at a time (multi-attach).

use evenkeel_api::views::{FcVolumeSource, PersistentVolume, VolumeSource};

/// Prefix of the unique names of iSCSI volumes.
const ISCSI_PREFIX: &str = "kubernetes.io/iscsi/";
/// Prefix of the unique names of Fibre Channel volumes.
const FC_PREFIX: &str = "kubernetes.io/fc/";

/// Returns whether a unique volume name belongs to the iSCSI or FC plugin.
pub(super) fn is_iscsi_or_fc(name: &str) -> bool {
    name.starts_with(ISCSI_PREFIX) || name.starts_with(FC_PREFIX)
}

/// Returns the unique volume name of an iSCSI or FC volume, or `None` for other volumes. Upstream:
/// `GetUniqueVolumeName`.
pub(super) fn unique_volume_name(volume: &PersistentVolume) -> Option<String> {
    let source = &volume.spec.source;
    let of_iscsi =
        source.iscsi.as_deref().map(|disk| iscsi_name(&disk.target_portal, &disk.iqn, disk.lun));
    of_iscsi.or_else(|| fc_name(source.fc.as_deref()?))
}

/// Returns the unique volume name of an inline iSCSI or FC volume, or `None` for other volumes. Upstream:
/// `GetUniqueVolumeName`.
pub(super) fn unique_volume_name_of_inline(source: &VolumeSource) -> Option<String> {
    let of_iscsi =
        source.iscsi.as_deref().map(|disk| iscsi_name(&disk.target_portal, &disk.iqn, disk.lun));
    of_iscsi.or_else(|| fc_name(source.fc.as_deref()?))
}

/// Returns the unique name of an iSCSI volume.
fn iscsi_name(portal: &str, iqn: &str, lun: i32) -> String {
    format!("{ISCSI_PREFIX}{portal}:{iqn}:{lun}")
}

/// Returns the name, made from `targetWWNs` and `lun` if both are set, otherwise from `wwids`.
fn fc_name(disk: &FcVolumeSource) -> Option<String> {
    match disk.lun {
        Some(lun) if !disk.target_wwns.is_empty() => {
            Some(format!("{FC_PREFIX}[{}]:{lun}", disk.target_wwns.join(" ")))
        }
        _ if !disk.wwids.is_empty() => Some(format!("{FC_PREFIX}[{}]", disk.wwids.join(" "))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::object;
    use evenkeel_api::views::Pod;
    use serde_json::json;

    #[test]
    fn volume_names_are_those_that_kubelets_compute() {
        let iscsi = |lun: i32| json!({"iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.x", "lun": lun}});
        for (source, want) in [
            (iscsi(0), Some("kubernetes.io/iscsi/10.0.0.1:3260:iqn.x:0")),
            (iscsi(2), Some("kubernetes.io/iscsi/10.0.0.1:3260:iqn.x:2")),
            (json!({"fc": {"targetWWNs": ["a", "b"], "lun": 1}}), Some("kubernetes.io/fc/[a b]:1")),
            (json!({"fc": {"targetWWNs": ["a"]}}), None),
            (
                json!({"fc": {"targetWWNs": ["a"], "wwids": ["c", "d"]}}),
                Some("kubernetes.io/fc/[c d]"),
            ),
            (json!({"hostPath": {"path": "/"}}), None),
        ] {
            let volume: PersistentVolume =
                object(&json!({"metadata": {"name": "v"}, "spec": source}));
            assert_eq!(unique_volume_name(&volume).as_deref(), want, "{source}");
            let mut inline = source.clone();
            inline["name"] = "x".into();
            let pod: Pod =
                object(&json!({"metadata": {"name": "p"}, "spec": {"volumes": [inline]}}));
            assert_eq!(
                unique_volume_name_of_inline(&pod.spec.volumes[0].source).as_deref(),
                want,
                "{source}"
            );
            assert!(want.is_none_or(is_iscsi_or_fc));
        }
    }
}
