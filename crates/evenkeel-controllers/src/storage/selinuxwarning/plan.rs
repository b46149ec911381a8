//! Warnings about pods that share a volume with different SELinux labels. Upstream: `syncPod`, `syncVolume`.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `seLinuxOptions` of pod and container | `./labels.rs` |
//! | `seLinuxChangePolicy`: `MountOption` by default; `Recursive` for volumes without support, and without a label | `volume_use` |
//! | CSIDriver: `seLinuxMount`; iSCSI and FC volumes always support it | `supports` |
//! | containers of a pod with different labels: `MultipleSELinuxLabels` | `plan` |
//! | `SELinuxLabelConflict`, `SELinuxChangePolicyConflict` on both pods | `plan`, `./volume_cache.rs` |
//! | finished pods use no volumes | `plan` |

use super::{
    labels::PodLabels,
    volume_cache::{self, VolumeUse},
};
use crate::{storage::iscsi_fc, wire};
use evenkeel_api::{
    Text,
    views::{PersistentVolume, PersistentVolumeClaim, Pod, VolumeSource},
};
use evenkeel_component_helpers::storage::{attach, csi_translation, ephemeral};
use evenkeel_runtime::{
    introspect::Description,
    plan::{EventRecord, Key, Plan, PlanError},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Policy that mounts volumes with their label. Upstream: `SELinuxChangePolicyMountOption`.
const MOUNT_OPTION: &str = "MountOption";
/// Policy that labels all files of a volume. Upstream: `SELinuxChangePolicyRecursive`.
const RECURSIVE: &str = "Recursive";

/// Uses of volumes by a pod, by the volumes' unique names. Empty for a finished pod.
pub(super) type Memory = BTreeMap<Text, VolumeUse>;

/// A pod, its volumes, and the other pods with the same volumes.
pub(super) struct Observed {
    pub(super) pod: Arc<Pod>,
    pub(super) labels: Arc<PodLabels>,
    /// Sources of the pod's volumes, by their names in the pod.
    pub(super) volumes: BTreeMap<Text, Result<Source, String>>,
    /// Other pods by the unique name of a volume.
    pub(super) others: BTreeMap<Text, Vec<OtherPod>>,
    /// CSI drivers of the pod's volumes with `seLinuxMount`.
    pub(super) mounting_drivers: BTreeSet<Text>,
}

impl Observed {
    /// Returns whether a volume is mounted with a label. Upstream: `SupportsSELinuxContextMount`.
    fn supports(&self, source: &Source) -> bool {
        match source {
            Source::Csi { driver, .. } => self.mounting_drivers.contains(driver),
            Source::Network { .. } => true,
            Source::Other => false,
        }
    }
}

/// Another pod with a volume of the pod.
pub(super) struct OtherPod {
    pub(super) key: Key,
    pub(super) volume_use: VolumeUse,
    /// The pod. `None` if it was deleted meanwhile.
    pub(super) pod: Option<Arc<Pod>>,
}

/// Source of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// Volume of a CSI driver, with its unique name. An inline volume has none.
    Csi { driver: Text, unique_name: Option<Text> },
    /// iSCSI or Fibre Channel volume, with its unique name.
    Network { unique_name: Text },
    /// Volume of another plugin. None supports mounts with a label, so that pods cannot conflict.
    Other,
}

impl Source {
    /// Returns the CSI driver; empty for other volumes.
    pub(super) fn csi_driver(&self) -> &str {
        if let Self::Csi { driver, .. } = self { driver } else { "" }
    }

    /// Returns the unique name of the volume.
    pub(super) fn unique_name(&self) -> Option<&Text> {
        match self {
            Self::Csi { unique_name, .. } => unique_name.as_ref(),
            Self::Network { unique_name } => Some(unique_name),
            Self::Other => None,
        }
    }
}

/// Returns the source of a PersistentVolume. Upstream: `CreateVolumeSpec`.
pub(super) fn source_of_volume(volume: &PersistentVolume) -> Source {
    if let Some((driver, _)) = csi_translation::driver_and_handle(volume) {
        let unique_name = attach::attached_name(volume).map(Text::from);
        return Source::Csi { driver, unique_name };
    }
    let network = iscsi_fc::unique_volume_name(volume);
    network.map_or(Source::Other, |name| Source::Network { unique_name: name.into() })
}

/// Returns the source of an inline volume.
pub(super) fn source_of_inline(source: &VolumeSource) -> Source {
    if let Some(csi) = &source.csi {
        return Source::Csi { driver: csi.driver.clone(), unique_name: None };
    }
    let migrated = csi_translation::plugin_of_inline(source).and_then(csi_translation::driver_of);
    if let (Some(driver), Some(handle)) = (migrated, csi_translation::handle_of_inline(source)) {
        let unique_name = Some(format!("kubernetes.io/csi/{driver}^{handle}").into());
        return Source::Csi { driver: driver.into(), unique_name };
    }
    let network = iscsi_fc::unique_volume_name_of_inline(source);
    network.map_or(Source::Other, |name| Source::Network { unique_name: name.into() })
}

/// Claim of a pod's volume, and the PersistentVolume that it names.
pub(super) struct ObservedClaim<'a> {
    pub(super) name: &'a str,
    pub(super) is_ephemeral: bool,
    pub(super) claim: Option<Arc<PersistentVolumeClaim>>,
    pub(super) volume: Option<Arc<PersistentVolume>>,
}

/// Returns the source of a claim's volume.
///
/// # Errors
/// Fails if the claim is not bound, or the caches do not contain the objects. Upstream: `getPVCFromCache`,
/// `getPVSpecFromCache`.
pub(super) fn source_of_claim(pod: &Pod, observed: &ObservedClaim<'_>) -> Result<Source, String> {
    let (namespace, name) = (&pod.meta.namespace, observed.name);
    let claim = observed.claim.as_deref();
    let claim = claim
        .ok_or_else(|| format!("failed to find PVC {namespace}/{name} in PVCInformer cache"))?;
    if observed.is_ephemeral {
        ephemeral::made_for_pod(claim, pod)?;
    }
    let (phase, volume_name) = (&claim.status.phase, &claim.spec.volume_name);
    if &**phase != "Bound" || volume_name.is_empty() {
        return Err(format!(
            "PVC {namespace}/{name} has non-bound phase ({phase:?}) or empty pvc.Spec.VolumeName ({volume_name:?})"
        ));
    }
    let volume = observed.volume.as_deref();
    let volume =
        volume.ok_or_else(|| format!("failed to find PV {volume_name:?} in PVInformer cache"))?;
    let reference = volume.spec.claim_ref.as_deref();
    if reference.is_none_or(|reference| reference.uid != claim.meta.uid) {
        return Err(format!("PV {volume_name:?} is not bound to claim {namespace}/{name}"));
    }
    Ok(source_of_volume(volume))
}

/// Returns the events about the pod's volumes, and its uses of them.
pub(super) fn plan(observed: &Observed, memory: &Memory) -> (Plan, Memory) {
    if crate::pods::is_terminal(&observed.pod) {
        return (Plan::nothing(), Memory::new());
    }
    let (mut plan, mut uses, mut errors) = (Plan::nothing(), memory.clone(), Vec::new());
    for (mount, labels) in &observed.labels.mounts {
        let source = match observed.volumes.get(mount) {
            Some(Ok(source)) => source,
            Some(Err(error)) => {
                errors.push(error.clone());
                continue;
            }
            None => continue,
        };
        if labels.len() > 1 {
            let message = format!(
                "Volume {mount:?} is mounted twice with different SELinux labels inside this pod"
            );
            let target = wire::target(&*observed.pod);
            plan.push(EventRecord::warning(target, "MultipleSELinuxLabels", message));
            let labels: Vec<&str> = labels.iter().map(|label| &**label).collect();
            errors.push(format!("multiple SELinux labels found: {}", labels.join(",")));
            continue;
        }
        let label = labels.first().cloned().unwrap_or_default();
        let Some(unique_name) = source.unique_name() else {
            if matches!(source, Source::Csi { .. }) {
                errors.push(format!("failed to get unique volume name for volume {mount:?}"));
            }
            continue;
        };
        let volume_use =
            volume_use(label, &observed.labels.change_policy, source, observed.supports(source));
        if uses.get(unique_name) == Some(&volume_use) {
            continue;
        }
        push_conflicts(&mut plan, observed, unique_name, &volume_use);
        uses.insert(unique_name.clone(), volume_use);
    }
    if !errors.is_empty() {
        plan.error = Some(PlanError::new(errors.join(", ")));
    }
    (plan, uses)
}

/// Adds the events about conflicts with the other pods of a volume. Upstream: `reportConflictEvents`.
fn push_conflicts(
    plan: &mut Plan,
    observed: &Observed,
    unique_name: &Text,
    volume_use: &VolumeUse,
) {
    let key = &Key::of(&observed.pod.meta);
    for other in observed.others.get(unique_name).into_iter().flatten() {
        let Some(other_pod) = &other.pod else { continue };
        for conflict in volume_cache::conflicts((key, volume_use), (&other.key, &other.volume_use))
        {
            let pod = if conflict.pod == *key { &observed.pod } else { other_pod };
            let (reason, message) = (conflict.event_reason(), conflict.event_message());
            plan.push(EventRecord::normal(wire::target(&**pod), reason, message));
        }
    }
}

/// Returns the use of a volume. Upstream: `GetMountSELinuxLabel`, `syncVolume`.
fn volume_use(label: Text, policy: &str, source: &Source, supports_mount: bool) -> VolumeUse {
    let is_mounted_with_label = supports_mount && policy != RECURSIVE && !label.is_empty();
    let policy = if policy.is_empty() { MOUNT_OPTION } else { policy };
    VolumeUse {
        label: if is_mounted_with_label { label } else { Text::default() },
        change_policy: if is_mounted_with_label { policy.into() } else { RECURSIVE.into() },
        csi_driver: source.csi_driver().into(),
    }
}

/// Describes the labels of the pod's volumes.
pub(super) fn describe(observed: &Observed) -> Description {
    let mut description = Description::new();
    for (mount, labels) in &observed.labels.mounts {
        let labels: Vec<&str> = labels.iter().map(|label| &**label).collect();
        description.fact(&format!("labels of volume {mount}"), labels.join(", "));
    }
    description
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::object;
    use evenkeel_runtime::plan::Action;
    use serde_json::{Value, json};

    /// Returns a pod whose containers mount the volume `data` with these levels.
    fn observed(name: &str, levels: &[&str], policy: &str, source: Source) -> Observed {
        let containers: Vec<Value> = levels
            .iter()
            .map(|level| {
                json!({
                    "name": "c", "volumeMounts": [{"name": "data"}],
                    "securityContext": {"seLinuxOptions": {"level": level}},
                })
            })
            .collect();
        let pod = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name},
            "spec": {"containers": containers, "securityContext": {"seLinuxChangePolicy": policy}},
        });
        Observed {
            pod: Arc::new(object(&pod)),
            labels: Arc::new(object(&pod)),
            volumes: [("data".into(), Ok(source))].into(),
            others: BTreeMap::new(),
            mounting_drivers: ["csi.test".into()].into(),
        }
    }

    fn csi() -> Source {
        Source::Csi { driver: "csi.test".into(), unique_name: Some("v".into()) }
    }

    fn key(name: &str) -> Key {
        Key::new("ns", name)
    }

    fn decide(observed: &Observed, memory: &Memory) -> (Vec<String>, Option<String>, Memory) {
        let (plan, memory) = plan(observed, memory);
        let events = plan.actions.iter().map(|action| match action {
            Action::Event(event) => format!("{} {}", event.regarding.name, event.reason),
            _ => panic!("{action:?}"),
        });
        (events.collect(), plan.error.map(|error| error.message), memory)
    }

    #[test]
    fn conflict_is_reported_once_on_both_pods() {
        let mut pod = observed("p", &["s0:c1"], "", csi());
        let (_, _, other) = decide(&observed("o", &["s0:c2"], "", csi()), &Memory::new());
        let other = OtherPod {
            key: key("o"),
            volume_use: other["v"].clone(),
            pod: Some(Arc::clone(&observed("o", &[], "", csi()).pod)),
        };
        pod.others.insert("v".into(), vec![other]);
        let (events, error, memory) = decide(&pod, &Memory::new());
        assert_eq!(events, ["p SELinuxLabelConflict", "o SELinuxLabelConflict"]);
        assert_eq!((error, &*memory["v"].label), (None, ":::s0:c1"));
        assert_eq!(decide(&pod, &memory), (vec![], None, memory.clone()));
        if let Some(others) = pod.others.get_mut("v") {
            others[0].pod = None;
        }
        assert_eq!(decide(&pod, &Memory::new()).0, Vec::<String>::new());
    }

    #[test]
    fn label_and_policy_depend_on_the_volume() {
        let network = || Source::Network { unique_name: "v".into() };
        // Levels, policy, source, label and effective policy.
        let table = [
            (vec!["s0"], "", csi(), Some((":::s0", MOUNT_OPTION))),
            (vec!["s0"], "", network(), Some((":::s0", MOUNT_OPTION))),
            (vec!["s0", "s0"], MOUNT_OPTION, csi(), Some((":::s0", MOUNT_OPTION))),
            (vec!["s0"], RECURSIVE, csi(), Some(("", RECURSIVE))),
            (vec![""], "", csi(), Some(("", RECURSIVE))),
            (vec!["s0"], "", Source::Other, None),
        ];
        for (levels, policy, source, want) in table {
            let (events, error, memory) =
                decide(&observed("p", &levels, policy, source), &Memory::new());
            assert_eq!((events, error), (vec![], None));
            let found = memory.get("v").map(|used| (&*used.label, &*used.change_policy));
            assert_eq!(found, want, "{levels:?} {policy}");
        }
        let mut unsupported = observed("p", &["s0"], "", csi());
        unsupported.mounting_drivers.clear();
        let (_, _, memory) = decide(&unsupported, &Memory::new());
        assert_eq!((&*memory["v"].label, &*memory["v"].change_policy), ("", RECURSIVE));
    }

    #[test]
    fn unclear_volumes_are_retried() {
        let (events, error, memory) =
            decide(&observed("p", &["s0:c1", "s0:c2"], "", csi()), &Memory::new());
        assert_eq!(events, ["p MultipleSELinuxLabels"]);
        assert_eq!(error.as_deref(), Some("multiple SELinux labels found: :::s0:c1,:::s0:c2"));
        assert!(memory.is_empty());
        let inline = Source::Csi { driver: "csi.test".into(), unique_name: None };
        assert!(decide(&observed("p", &["s0"], "", inline), &Memory::new()).1.is_some());
        let mut unbound = observed("p", &["s0"], "", csi());
        unbound.volumes.insert("data".into(), Err("unbound".to_owned()));
        assert_eq!(decide(&unbound, &Memory::new()).1.as_deref(), Some("unbound"));
    }

    #[test]
    fn finished_pod_uses_no_volume() {
        let mut finished = observed("p", &["s0"], "", csi());
        let (_, _, memory) = decide(&finished, &Memory::new());
        let mut pod = (*finished.pod).clone();
        pod.status.phase = "Succeeded".into();
        finished.pod = Arc::new(pod);
        assert_eq!(decide(&finished, &memory), (vec![], None, Memory::new()));
    }

    #[test]
    fn claims_must_be_bound() {
        let pod: Pod = object(&json!({"metadata": {"name": "p", "namespace": "ns", "uid": "p"}}));
        let claim = |phase: &str| {
            let claim = json!({
                "metadata": {"name": "c", "namespace": "ns", "uid": "c-uid"},
                "spec": {"volumeName": "v"}, "status": {"phase": phase},
            });
            Some(Arc::new(object(&claim)))
        };
        let volume = |uid: &str| {
            let volume = json!({"metadata": {"name": "v"}, "spec": {
                "csi": {"driver": "csi.test", "volumeHandle": "h"}, "claimRef": {"uid": uid},
            }});
            Some(Arc::new(object(&volume)))
        };
        let source = |claim, volume| {
            let observed = ObservedClaim { name: "c", is_ephemeral: false, claim, volume };
            source_of_claim(&pod, &observed)
        };
        let found = Source::Csi {
            driver: "csi.test".into(),
            unique_name: Some("kubernetes.io/csi/csi.test^h".into()),
        };
        assert_eq!(source(claim("Bound"), volume("c-uid")), Ok(found));
        assert!(source(claim("Bound"), volume("other")).is_err());
        assert!(source(claim("Pending"), volume("c-uid")).is_err());
        assert!(source(claim("Bound"), None).is_err());
        assert!(source(None, None).is_err());
    }
}
