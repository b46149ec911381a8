//! CSI migration: the drivers that replace in-tree volume plugins, and how they name migrated volumes and their
//! topology.
//!
//! Upstream: `k8s.io/csi-translation-lib`.

use super::volume;
use crate::scheduling::corev1::nodeaffinity;
use evenkeel_api::text::Text;
use evenkeel_api::views::{
    AwsElasticBlockStoreVolumeSource, CsiNode, GcePersistentDiskVolumeSource, Node, NodeSelector,
    NodeSelectorRequirement, PersistentVolume, VolumeSource,
};

/// Annotation of a CSINode: the in-tree plugins that a CSI driver replaces on the node.
pub const MIGRATED_PLUGINS: &str = "storage.alpha.kubernetes.io/migrated-plugins";

const AWS_EBS: &str = "kubernetes.io/aws-ebs";
const AZURE_DISK: &str = "kubernetes.io/azure-disk";
const AZURE_FILE: &str = "kubernetes.io/azure-file";
const CINDER: &str = "kubernetes.io/cinder";
const GCE_PD: &str = "kubernetes.io/gce-pd";
const PORTWORX: &str = "kubernetes.io/portworx-volume";
const VSPHERE: &str = "kubernetes.io/vsphere-volume";

const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
/// Separator between the zones in a label of a volume.
const ZONE_SEPARATOR: &str = "__";

/// In-tree plugins and the CSI drivers that replace them, sorted.
const DRIVERS: [(&str, &str); 7] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/azure-file", "file.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
    ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
];

/// Returns the CSI driver that replaces an in-tree plugin.
pub fn driver_of(plugin: &str) -> Option<&'static str> {
    let index = DRIVERS.binary_search_by_key(&plugin, |(plugin, _)| plugin).ok()?;
    Some(DRIVERS[index].1)
}

/// Returns the in-tree plugin of this volume, or `None` if the volume uses none.
pub fn plugin_of_volume(volume: &PersistentVolume) -> Option<&'static str> {
    let source = &volume.spec.source;
    [
        (source.aws_elastic_block_store.is_some(), AWS_EBS),
        (source.azure_disk.is_some(), AZURE_DISK),
        (source.azure_file.is_some(), AZURE_FILE),
        (source.cinder.is_some(), CINDER),
        (source.gce_persistent_disk.is_some(), GCE_PD),
        (source.portworx_volume.is_some(), PORTWORX),
        (source.vsphere_volume.is_some(), VSPHERE),
    ]
    .into_iter()
    .find_map(|(is_set, plugin)| is_set.then_some(plugin))
}

/// Returns the in-tree plugin of a pod's inline volume, or `None` if the volume uses none.
pub fn plugin_of_inline(source: &VolumeSource) -> Option<&'static str> {
    [
        (source.aws_elastic_block_store.is_some(), AWS_EBS),
        (source.azure_disk.is_some(), AZURE_DISK),
        (source.azure_file.is_some(), AZURE_FILE),
        (source.cinder.is_some(), CINDER),
        (source.gce_persistent_disk.is_some(), GCE_PD),
        (source.portworx_volume.is_some(), PORTWORX),
        (source.vsphere_volume.is_some(), VSPHERE),
    ]
    .into_iter()
    .find_map(|(is_set, plugin)| is_set.then_some(plugin))
}

/// Returns whether the scheduler treats the in-tree plugin as migrated to its CSI driver.
///
/// Upstream: `isCSIMigrationOn`.
pub fn is_migration_on(plugin: &str) -> bool {
    matches!(plugin, AWS_EBS | AZURE_DISK | CINDER | GCE_PD | PORTWORX)
}

/// Returns whether the node reports that a CSI driver replaces the in-tree plugin on this node.
pub fn is_migrated_on_node(plugin: &str, node: Option<&CsiNode>) -> bool {
    node.and_then(|node| node.meta.annotations.get(MIGRATED_PLUGINS))
        .is_some_and(|plugins| plugins.split(',').any(|migrated| migrated == plugin))
}

/// Returns the CSI driver's handle of an in-tree volume, or `None` if it cannot be derived.
pub fn handle_of_volume(volume: &PersistentVolume) -> Option<String> {
    let source = &volume.spec.source;
    if let Some(disk) = &source.gce_persistent_disk {
        let labels = &volume.meta.labels;
        let label = labels.get(BETA_ZONE).filter(|zone| !zone.is_empty());
        return gce_handle(disk, label.or_else(|| labels.get(ZONE)).unwrap_or_default());
    }
    if let Some(disk) = &source.aws_elastic_block_store {
        return ebs_handle(disk);
    }
    let handle = source.cinder.as_deref().map(|cinder| &cinder.volume_id);
    let handle = handle.or(source.azure_disk.as_deref().map(|disk| &disk.disk_uri));
    let handle = handle.or(source.portworx_volume.as_deref().map(|portworx| &portworx.volume_id));
    let handle = handle.or(source.vsphere_volume.as_deref().map(|disk| &disk.volume_path));
    handle.map(std::string::ToString::to_string)
}

/// Returns the volume's CSI driver and its handle in that driver. For an in-tree volume, the driver is the one that
/// replaces its plugin.
pub fn driver_and_handle(volume: &PersistentVolume) -> Option<(Text, Text)> {
    if let Some(csi) = &volume.spec.source.csi {
        return Some((csi.driver.clone(), csi.volume_handle.clone()));
    }
    let driver = driver_of(plugin_of_volume(volume)?)?;
    Some((driver.into(), handle_of_volume(volume)?.into()))
}

/// Returns the CSI driver's handle of an inline in-tree volume of a pod.
pub fn handle_of_inline(source: &VolumeSource) -> Option<String> {
    if let Some(disk) = &source.gce_persistent_disk {
        return gce_handle(disk, "");
    }
    if let Some(disk) = &source.aws_elastic_block_store {
        return ebs_handle(disk);
    }
    let handle = source.cinder.as_deref().map(|cinder| &cinder.volume_id);
    let handle = handle.or(source.azure_disk.as_deref().map(|disk| &disk.disk_uri));
    let handle = handle.or(source.portworx_volume.as_deref().map(|portworx| &portworx.volume_id));
    let handle = handle.or(source.vsphere_volume.as_deref().map(|disk| &disk.volume_path));
    handle.map(std::string::ToString::to_string)
}

/// Returns the handle of a GCE disk. `zones` is the volume's zone label. The handle of a disk in several zones contains
/// their region. Returns `None` if the zones are in different regions.
fn gce_handle(disk: &GcePersistentDiskVolumeSource, zones: &str) -> Option<String> {
    let name = &disk.pd_name;
    let zones: Vec<&str> = zones.split(ZONE_SEPARATOR).collect();
    Some(match zones.as_slice() {
        ["" | "UNSPECIFIED"] => format!("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/{name}"),
        [zone] => format!("projects/UNSPECIFIED/zones/{zone}/disks/{name}"),
        zones => {
            let region = region_of(zones.first()?)?;
            if !zones.iter().all(|zone| region_of(zone) == Some(region)) {
                return None;
            }
            format!("projects/UNSPECIFIED/regions/{region}/disks/{name}")
        }
    })
}

/// Returns the region of a GCE zone: `us-central1` for `us-central1-a`.
fn region_of(zone: &str) -> Option<&str> {
    zone.rsplit_once('-').map(|(region, _)| region)
}

/// Returns the handle of an EBS volume: its ID. The volume's source contains the ID itself, or `aws://zone/id`.
fn ebs_handle(disk: &AwsElasticBlockStoreVolumeSource) -> Option<String> {
    let Some(rest) = disk.volume_id.strip_prefix("aws://") else {
        return Some(disk.volume_id.to_string());
    };
    let id = rest.split_once('/').map(|(_, path)| path.trim_matches('/')).unwrap_or_default();
    let number = id.strip_prefix("vol-")?;
    let is_valid = !number.is_empty() && number.chars().all(|c| c.is_ascii_alphanumeric());
    is_valid.then(|| id.to_owned())
}

/// Returns whether the volume is accessible from the node. If a CSI driver replaces the in-tree plugin on the node,
/// the volume's zones are translated to the driver's topology.
pub fn is_reachable(volume: &PersistentVolume, node: &Node, csi_node: Option<&CsiNode>) -> bool {
    let driver_topology_key = plugin_of_volume(volume)
        .filter(|plugin| is_migration_on(plugin) && is_migrated_on_node(plugin, csi_node))
        .and_then(topology_key);
    let Some(topology_key) = driver_topology_key else {
        return volume::is_reachable(volume, node);
    };
    translate_node_affinity(volume, topology_key).is_none_or(|selector| {
        selector.node_selector_terms.iter().any(|term| nodeaffinity::matches(term, node))
    })
}

/// Returns the topology label of the CSI driver that replaces the plugin.
fn topology_key(plugin: &str) -> Option<&'static str> {
    match plugin {
        AWS_EBS => Some("topology.ebs.csi.aws.com/zone"),
        CINDER => Some("topology.cinder.csi.openstack.org/zone"),
        GCE_PD => Some("topology.gke.io/zone"),
        _ => None,
    }
}

/// Returns the volume's node affinity, translated to the CSI driver's topology label `topology_key`. The zones are in
/// the node affinity or in a label of the volume, under the current or the beta key.
fn translate_node_affinity(volume: &PersistentVolume, topology_key: &str) -> Option<NodeSelector> {
    let affinity = volume.spec.node_affinity.as_deref();
    let mut selector = affinity.and_then(|affinity| affinity.required.as_deref()).cloned();
    let has_key = |selector: &Option<NodeSelector>, key: &str| {
        let terms = selector.iter().flat_map(|selector| &*selector.node_selector_terms);
        terms.flat_map(|term| &*term.match_expressions).any(|expression| &*expression.key == key)
    };
    let labels = &volume.meta.labels;
    let is_beta_label = !labels.contains(ZONE) && labels.contains(BETA_ZONE);
    let is_beta = !has_key(&selector, ZONE) && (has_key(&selector, BETA_ZONE) || is_beta_label);
    let (zone, region) = if is_beta { (BETA_ZONE, BETA_REGION) } else { (ZONE, REGION) };
    if has_key(&selector, zone) {
        rename_key(&mut selector, zone, topology_key);
    } else if let Some(label) = labels.get(zone) {
        add_zones(&mut selector, topology_key, label);
    }
    if is_beta {
        rename_key(&mut selector, region, REGION);
    }
    selector
}

/// Renames a label key in all requirements of a node selector.
fn rename_key(selector: &mut Option<NodeSelector>, from: &str, to: &str) {
    let terms = selector.iter_mut().flat_map(|selector| &mut *selector.node_selector_terms);
    for expression in terms.flat_map(|term| &mut *term.match_expressions) {
        if &*expression.key == from {
            expression.key = to.into();
        }
    }
}

/// Adds a requirement for the zones of a label to all terms of a node selector.
fn add_zones(selector: &mut Option<NodeSelector>, key: &str, label: &str) {
    let zones = label.split(ZONE_SEPARATOR).map(str::trim).filter(|zone| !zone.is_empty());
    let values: Box<[Text]> = zones.map(Text::from).collect();
    if values.is_empty() {
        return;
    }
    let selector = selector.get_or_insert_default();
    if selector.node_selector_terms.is_empty() {
        selector.node_selector_terms = Box::new([Default::default()]);
    }
    for term in &mut selector.node_selector_terms {
        let mut expressions = std::mem::take(&mut term.match_expressions).into_vec();
        expressions.push(NodeSelectorRequirement {
            key: key.into(),
            operator: "In".into(),
            values: values.clone(),
        });
        term.match_expressions = expressions.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::{Encoding, View};
    use serde_json::{Value, json};

    fn object<V: View>(value: &Value) -> V {
        V::decode(value.to_string().as_bytes(), Encoding::Json).unwrap()
    }

    #[test]
    fn in_tree_plugins_have_csi_drivers() {
        assert!(DRIVERS.is_sorted());
        assert_eq!(driver_of("kubernetes.io/gce-pd"), Some("pd.csi.storage.gke.io"));
        assert_eq!(driver_of("kubernetes.io/nfs"), None);
    }

    #[test]
    fn in_tree_volumes_have_the_handles_of_their_drivers() {
        for (labels, source, want) in [
            (json!({}), json!({"awsElasticBlockStore": {"volumeID": "vol-1"}}), Some("vol-1")),
            (
                json!({}),
                json!({"awsElasticBlockStore": {"volumeID": "aws://us-1a/vol-1f"}}),
                Some("vol-1f"),
            ),
            (json!({}), json!({"awsElasticBlockStore": {"volumeID": "aws://us-1a/nope"}}), None),
            (
                json!({}),
                json!({"gcePersistentDisk": {"pdName": "d"}}),
                Some("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"),
            ),
            (
                json!({ ZONE: "us-b" }),
                json!({"gcePersistentDisk": {"pdName": "d"}}),
                Some("projects/UNSPECIFIED/zones/us-b/disks/d"),
            ),
            (
                json!({ BETA_ZONE: "us-central1-a__us-central1-b" }),
                json!({"gcePersistentDisk": {"pdName": "d"}}),
                Some("projects/UNSPECIFIED/regions/us-central1/disks/d"),
            ),
            (json!({}), json!({"cinder": {"volumeID": "c"}}), Some("c")),
            (json!({}), json!({"azureDisk": {"diskName": "n", "diskURI": "u"}}), Some("u")),
            (json!({}), json!({"vsphereVolume": {"volumePath": "[ds] v"}}), Some("[ds] v")),
            (json!({}), json!({"hostPath": {"path": "/"}}), None),
        ] {
            let volume: PersistentVolume =
                object(&json!({"metadata": {"name": "v", "labels": labels}, "spec": source}));
            assert_eq!(handle_of_volume(&volume).as_deref(), want, "{source}");
        }
    }

    #[test]
    fn zones_are_translated_if_the_node_has_the_driver() {
        let volume: PersistentVolume = object(&json!({
            "metadata": {"name": "v", "labels": {ZONE: "z"}},
            "spec": {"gcePersistentDisk": {"pdName": "d"}},
        }));
        let node =
            |key: &str| object::<Node>(&json!({"metadata": {"name": "n", "labels": {key: "z"}}}));
        let drivers: CsiNode = object(
            &json!({"metadata": {"name": "n", "annotations": {MIGRATED_PLUGINS: "x,kubernetes.io/gce-pd"}}}),
        );
        assert!(is_reachable(&volume, &node("none"), None), "the volume has no node affinity");
        assert!(!is_reachable(&volume, &node(ZONE), Some(&drivers)));
        assert!(is_reachable(&volume, &node("topology.gke.io/zone"), Some(&drivers)));
    }
}
