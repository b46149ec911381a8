//! CSI volumes of pods and VolumeAttachments, which count towards the limits.

use evenkeel_api::views::{CsiNode, PersistentVolumeClaim, Pod, Volume, VolumeAttachment};
use evenkeel_component_helpers::storage::{csi_translation, ephemeral, volume};
use std::{collections::HashSet, sync::Arc};

use crate::{
    framework::Status,
    plugins::volumes::{CLAIM_RESOURCE, VolumeListers, not_found},
};

/// A volume of a CSI driver. Volumes with equal driver and handle are the same.
#[derive(Debug, Clone)]
pub(super) struct CsiVolume {
    pub(super) driver: Box<str>,
    handle: Box<str>,
    /// Whether the volume is of an in-tree type that migrated to CSI. Such a volume counts only on nodes with a
    /// CSINode.
    is_migrated: bool,
}

impl PartialEq for CsiVolume {
    fn eq(&self, other: &Self) -> bool {
        self.driver == other.driver && self.handle == other.handle
    }
}

impl Eq for CsiVolume {}

impl std::hash::Hash for CsiVolume {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.driver, &self.handle).hash(state);
    }
}

impl CsiVolume {
    fn new(driver: &str, handle: &str, is_migrated: bool) -> Option<Self> {
        let is_known = !driver.is_empty() && !handle.is_empty();
        is_known.then(|| Self { driver: driver.into(), handle: handle.into(), is_migrated })
    }

    /// Returns whether the volume counts on a node with this CSINode.
    pub(super) fn counts_on(&self, node: Option<&CsiNode>) -> bool {
        !self.is_migrated || node.is_some()
    }
}

/// Returns the volumes of a pending pod, each once.
///
/// # Errors
///
/// Fails if a claim does not exist, belongs to another pod, or has no name.
pub(super) fn volumes_of_pod(
    listers: &dyn VolumeListers,
    pod: &Pod,
) -> Result<Vec<CsiVolume>, Status> {
    let mut volumes: Vec<CsiVolume> = Vec::new();
    for volume in &pod.spec.volumes {
        let csi_volume = match claim_of(listers, pod, volume)? {
            ClaimLookup::Claim(claim) => volume_of_claim(listers, &claim),
            ClaimLookup::Missing(name) => {
                let namespace = &pod.meta.namespace;
                let reason = not_found(CLAIM_RESOURCE, &name);
                let reason = format!("looking up PVC {namespace}/{name}: {reason}");
                return Err(Status::unresolvable(reason));
            }
            ClaimLookup::Inline => volume_of_inline_source(volume)?,
        };
        volumes.extend(csi_volume.filter(|csi_volume| !volumes.contains(csi_volume)));
    }
    Ok(volumes)
}

/// Returns the volumes of the pods on a node.
pub(super) fn volumes_on_node<'a>(
    listers: &dyn VolumeListers,
    pods: impl Iterator<Item = &'a Pod>,
    node: Option<&CsiNode>,
) -> Result<HashSet<CsiVolume>, Status> {
    let mut volumes = HashSet::new();
    for pod in pods {
        for volume in &pod.spec.volumes {
            let csi_volume = match claim_of(listers, pod, volume)? {
                ClaimLookup::Claim(claim) => volume_of_claim(listers, &claim),
                ClaimLookup::Missing(_) => None,
                ClaimLookup::Inline => volume_of_inline_source(volume)?,
            };
            volumes.extend(csi_volume.filter(|csi_volume| csi_volume.counts_on(node)));
        }
    }
    Ok(volumes)
}

/// Returns the volumes that are attached to a node or are to be attached.
pub(super) fn attached_volumes(
    listers: &dyn VolumeListers,
    attachments: &[Arc<VolumeAttachment>],
) -> HashSet<CsiVolume> {
    let csi_volume = |attachment: &Arc<VolumeAttachment>| {
        let volume = attachment.spec.source.persistent_volume_name.as_deref()?;
        let volume = listers.volume(volume)?;
        let csi = volume.spec.source.csi.as_deref()?;
        CsiVolume::new(&attachment.spec.attacher, &csi.volume_handle, false)
    };
    attachments.iter().filter_map(csi_volume).collect()
}

/// Claim of a pod's volume.
enum ClaimLookup {
    Claim(Arc<PersistentVolumeClaim>),
    /// A claim with this name does not exist.
    Missing(String),
    /// The volume has no claim.
    Inline,
}

/// Looks up the claim of a pod's volume.
fn claim_of(
    listers: &dyn VolumeListers,
    pod: &Pod,
    volume: &Volume,
) -> Result<ClaimLookup, Status> {
    let ephemeral = volume.source.persistent_volume_claim.is_none();
    let name = match &volume.source.persistent_volume_claim {
        Some(source) => source.claim_name.to_string(),
        None if volume.source.ephemeral.is_some() => ephemeral::claim_name(pod, volume),
        None => return Ok(ClaimLookup::Inline),
    };
    if name.is_empty() {
        return Err(Status::error("PersistentVolumeClaim had no name"));
    }
    let Some(claim) = listers.claim(&pod.meta.namespace, &name) else {
        return Ok(ClaimLookup::Missing(name));
    };
    if ephemeral {
        ephemeral::made_for_pod(&claim, pod).map_err(Status::error)?;
    }
    Ok(ClaimLookup::Claim(claim))
}

/// Returns the CSI volume of an inline volume, if its in-tree type migrated to CSI.
fn volume_of_inline_source(volume: &Volume) -> Result<Option<CsiVolume>, Status> {
    let plugin = csi_translation::plugin_of_inline(&volume.source)
        .filter(|name| csi_translation::is_migration_on(name));
    let Some((plugin, driver)) =
        plugin.and_then(|name| Some((name, csi_translation::driver_of(name)?)))
    else {
        return Ok(None);
    };
    let Some(handle) = csi_translation::handle_of_inline(&volume.source) else {
        let name = &volume.name;
        return Err(Status::error(format!(
            "converting volume({name}) from inline to csi: the {plugin} volume has no CSI volume handle"
        )));
    };
    Ok(CsiVolume::new(driver, &handle, true))
}

/// Returns the claim's volume, or a placeholder for the volume to be provisioned for an unbound claim.
fn volume_of_claim(
    listers: &dyn VolumeListers,
    claim: &PersistentVolumeClaim,
) -> Option<CsiVolume> {
    let name = &*claim.spec.volume_name;
    let volume = if name.is_empty() { None } else { listers.volume(name) };
    let Some(volume) = volume else { return placeholder_for_claim(listers, claim) };
    if let Some(csi) = volume.spec.source.csi.as_deref() {
        return CsiVolume::new(&csi.driver, &csi.volume_handle, false);
    }
    let plugin = csi_translation::plugin_of_volume(&volume)
        .filter(|name| csi_translation::is_migration_on(name))?;
    CsiVolume::new(
        csi_translation::driver_of(plugin)?,
        &csi_translation::handle_of_volume(&volume)?,
        true,
    )
}

/// Returns a placeholder for the volume that the claim's class will provision.
fn placeholder_for_claim(
    listers: &dyn VolumeListers,
    claim: &PersistentVolumeClaim,
) -> Option<CsiVolume> {
    let class = volume::class_of_claim(claim);
    let class = if class.is_empty() { None } else { listers.class(class) }?;
    // The handle of a volume to be provisioned is not known. A NUL byte makes the placeholder differ from all real
    // handles.
    let handle = format!("\0{}/{}", claim.meta.namespace, claim.meta.name);
    match csi_translation::driver_of(&class.provisioner) {
        Some(driver) => csi_translation::is_migration_on(&class.provisioner)
            .then(|| CsiVolume::new(driver, &handle, true))?,
        None => CsiVolume::new(&class.provisioner, &handle, false),
    }
}
