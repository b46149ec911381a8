//! Devices of the network, over iSCSI and Fibre Channel: nothing is done to attach them, but nodes mount them only when it is
//! said that they are attached, and no second node is told so of one that is for one alone.

use evenkeel_api::views::{FcVolumeSource, PersistentVolume, VolumeSource};

const ISCSI: &str = "kubernetes.io/iscsi/";
const FC: &str = "kubernetes.io/fc/";

/// Whether this is what nodes call such a device.
pub(super) fn is_name(name: &str) -> bool {
    name.starts_with(ISCSI) || name.starts_with(FC)
}

/// What nodes call the volume, if it is such a device.
pub(super) fn name(volume: &PersistentVolume) -> Option<String> {
    let source = &volume.spec.source;
    let over_iscsi =
        source.iscsi.as_deref().map(|disk| iscsi(&disk.target_portal, &disk.iqn, disk.lun));
    over_iscsi.or_else(|| fc(source.fc.as_deref()?))
}

/// The same of one that a pod names itself.
pub(super) fn inline_name(source: &VolumeSource) -> Option<String> {
    let over_iscsi =
        source.iscsi.as_deref().map(|disk| iscsi(&disk.target_portal, &disk.iqn, disk.lun));
    over_iscsi.or_else(|| fc(source.fc.as_deref()?))
}

fn iscsi(portal: &str, target: &str, unit: i32) -> String {
    format!("{ISCSI}{portal}:{target}:{unit}")
}

/// By the ports that lead to it and its unit there or else by its own names.
fn fc(disk: &FcVolumeSource) -> Option<String> {
    match disk.lun {
        Some(unit) if !disk.target_wwns.is_empty() => {
            Some(format!("{FC}[{}]:{unit}", disk.target_wwns.join(" ")))
        }
        _ if !disk.wwids.is_empty() => Some(format!("{FC}[{}]", disk.wwids.join(" "))),
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
    fn devices_have_the_names_that_kubelets_look_for() {
        let iscsi = |unit: i32| json!({"iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.x", "lun": unit}});
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
            assert_eq!(name(&volume).as_deref(), want, "{source}");
            let mut inline = source.clone();
            inline["name"] = "x".into();
            let pod: Pod =
                object(&json!({"metadata": {"name": "p"}, "spec": {"volumes": [inline]}}));
            assert_eq!(inline_name(&pod.spec.volumes[0].source).as_deref(), want, "{source}");
            assert!(want.is_none_or(is_name));
        }
    }
}
