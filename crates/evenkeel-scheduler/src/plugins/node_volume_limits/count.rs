//! CSI volumes of pods and attachments, for counting.

use evenkeel_api::views::{CsiNode, PersistentVolumeClaim, Pod, Volume, VolumeAttachment};
use evenkeel_component_helpers::storage::{csi_translation, ephemeral, volume};
use std::{collections::HashSet, sync::Arc};

use crate::{
    framework::Status,
    plugins::volumes::{CLAIM, Lookup, not_found},
};

/// A volume of a CSI driver. Volumes with equal driver and handle are the same.
#[derive(Debug, Clone)]
pub(super) struct Counted {
    pub(super) driver: Box<str>,
    handle: Box<str>,
    /// Whether the volume is of an in-tree type that migrated to CSI. Such a volume counts only on
    /// nodes with a CSINode.
    migrated: bool,
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.driver == other.driver && self.handle == other.handle
    }
}

impl Eq for Counted {}

impl std::hash::Hash for Counted {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.driver, &self.handle).hash(state);
    }
}

impl Counted {
    fn new(driver: &str, handle: &str, migrated: bool) -> Option<Self> {
        let counts = !driver.is_empty() && !handle.is_empty();
        counts.then(|| Self { driver: driver.into(), handle: handle.into(), migrated })
    }

    /// Reports whether the volume counts on a node with this CSINode.
    pub(super) fn counts_on(&self, node: Option<&CsiNode>) -> bool {
        !self.migrated || node.is_some()
    }
}

/// Returns the volumes of a pending pod, each once.
///
/// # Errors
///
/// If a claim does not exist, belongs to another pod, or has no name.
pub(super) fn volumes_of_pod(listers: &dyn Lookup, pod: &Pod) -> Result<Vec<Counted>, Status> {
    let mut found: Vec<Counted> = Vec::new();
    for volume in &pod.spec.volumes {
        let one = match claim_of(listers, pod, volume)? {
            Of::Claim(claim) => of_claim(listers, &claim),
            Of::Missing(name) => {
                let (namespace, why) = (&pod.meta.namespace, not_found(CLAIM, &name));
                let why = format!("looking up PVC {namespace}/{name}: {why}");
                return Err(Status::unresolvable(why));
            }
            Of::Inline => inline(volume)?,
        };
        found.extend(one.filter(|one| !found.contains(one)));
    }
    Ok(found)
}

/// Returns the volumes of the pods on a node.
pub(super) fn volumes_on_node<'a>(
    listers: &dyn Lookup,
    pods: impl Iterator<Item = &'a Pod>,
    node: Option<&CsiNode>,
) -> Result<HashSet<Counted>, Status> {
    let mut found = HashSet::new();
    for pod in pods {
        for volume in &pod.spec.volumes {
            let one = match claim_of(listers, pod, volume)? {
                Of::Claim(claim) => of_claim(listers, &claim),
                Of::Missing(_) => None,
                Of::Inline => inline(volume)?,
            };
            found.extend(one.filter(|one| one.counts_on(node)));
        }
    }
    Ok(found)
}

/// Returns the volumes that are attached to a node or are to be attached.
pub(super) fn attached(
    listers: &dyn Lookup,
    attachments: &[Arc<VolumeAttachment>],
) -> HashSet<Counted> {
    let one = |attachment: &Arc<VolumeAttachment>| {
        let volume = attachment.spec.source.persistent_volume_name.as_deref()?;
        let volume = listers.volume(volume)?;
        let csi = volume.spec.source.csi.as_deref()?;
        Counted::new(&attachment.spec.attacher, &csi.volume_handle, false)
    };
    attachments.iter().filter_map(one).collect()
}

/// Source of a pod's volume.
enum Of {
    Claim(Arc<PersistentVolumeClaim>),
    Missing(String),
    Inline,
}

fn claim_of(listers: &dyn Lookup, pod: &Pod, volume: &Volume) -> Result<Of, Status> {
    let ephemeral = volume.source.persistent_volume_claim.is_none();
    let name = match &volume.source.persistent_volume_claim {
        Some(source) => source.claim_name.to_string(),
        None if volume.source.ephemeral.is_some() => ephemeral::claim_name(pod, volume),
        None => return Ok(Of::Inline),
    };
    if name.is_empty() {
        return Err(Status::error("PersistentVolumeClaim had no name"));
    }
    let Some(claim) = listers.claim(&pod.meta.namespace, &name) else {
        return Ok(Of::Missing(name));
    };
    if ephemeral {
        ephemeral::made_for_pod(&claim, pod).map_err(Status::error)?;
    }
    Ok(Of::Claim(claim))
}

/// Returns the CSI volume of an inline volume, if its in-tree type migrated to CSI.
fn inline(volume: &Volume) -> Result<Option<Counted>, Status> {
    let plugin = csi_translation::plugin_of_inline(&volume.source)
        .filter(|name| csi_translation::is_over(name));
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
    Ok(Counted::new(driver, &handle, true))
}

/// Returns the claim's volume. For an unbound claim, it stands for the volume to be provisioned.
fn of_claim(listers: &dyn Lookup, claim: &PersistentVolumeClaim) -> Option<Counted> {
    let name = &*claim.spec.volume_name;
    let volume = if name.is_empty() { None } else { listers.volume(name) };
    let Some(volume) = volume else { return of_class(listers, claim) };
    if let Some(csi) = volume.spec.source.csi.as_deref() {
        return Counted::new(&csi.driver, &csi.volume_handle, false);
    }
    let plugin =
        csi_translation::plugin_of_volume(&volume).filter(|name| csi_translation::is_over(name))?;
    Counted::new(
        csi_translation::driver_of(plugin)?,
        &csi_translation::handle_of_volume(&volume)?,
        true,
    )
}

fn of_class(listers: &dyn Lookup, claim: &PersistentVolumeClaim) -> Option<Counted> {
    let class = volume::class_of_claim(claim);
    let class = if class.is_empty() { None } else { listers.class(class) }?;
    // The handle of a volume to be provisioned is not known. A NUL byte makes this one differ from
    // all real handles.
    let handle = format!("\0{}/{}", claim.meta.namespace, claim.meta.name);
    match csi_translation::driver_of(&class.provisioner) {
        Some(driver) => csi_translation::is_over(&class.provisioner)
            .then(|| Counted::new(driver, &handle, true))?,
        None => Counted::new(&class.provisioner, &handle, false),
    }
}
