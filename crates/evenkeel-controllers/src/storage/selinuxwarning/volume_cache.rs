//! Volumes of all pods with their labels, and the conflicts between pods. Upstream: `VolumeCache`.

use super::labels;
use evenkeel_api::Text;
use evenkeel_runtime::plan::Key;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Use of a volume by a pod. Upstream: `podInfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VolumeUse {
    /// SELinux label with which the volume is mounted; empty for none.
    pub(super) label: Text,
    /// `MountOption` or `Recursive`.
    pub(super) change_policy: Text,
    /// CSI driver of the volume; empty for other volumes.
    pub(super) csi_driver: Text,
}

/// A pod that conflicts with another one of the same volume, and the property that differs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Conflict {
    /// `SELinuxLabel` or `SELinuxChangePolicy`.
    pub(super) property: &'static str,
    pub(super) pod: Key,
    pub(super) value: Text,
    pub(super) other_pod: Key,
    pub(super) other_value: Text,
}

impl Conflict {
    pub(super) fn event_reason(&self) -> String {
        format!("{}Conflict", self.property)
    }

    /// Returns the message of the event. It does not reveal pods of other namespaces. Upstream: `EventMessage`.
    pub(super) fn event_message(&self) -> String {
        let Self { property, value, other_value, .. } = self;
        let end = "If both pods land on the same node, only one of them may access the volume.";
        if self.pod.namespace == self.other_pod.namespace {
            let name = &self.other_pod.name;
            return format!(
                "{property} \"{value}\" conflicts with pod {name} that uses the same volume as this pod with {property} \"{other_value}\". {end}"
            );
        }
        // Upstream's message has no space before the value.
        format!(
            "{property}\"{value}\" conflicts with another pod that uses the same volume as this pod with a different {property}. {end}"
        )
    }
}

/// Returns the conflicts between two pods of a volume, each for both pods. Upstream: `AddVolume`.
pub(super) fn conflicts(
    (pod, a): (&Key, &VolumeUse),
    (other_pod, b): (&Key, &VolumeUse),
) -> Vec<Conflict> {
    let both = |property: &'static str, value: &Text, other_value: &Text| {
        let conflict = Conflict {
            property,
            pod: pod.clone(),
            value: value.clone(),
            other_pod: other_pod.clone(),
            other_value: other_value.clone(),
        };
        let reverse = Conflict {
            property,
            pod: other_pod.clone(),
            value: other_value.clone(),
            other_pod: pod.clone(),
            other_value: value.clone(),
        };
        [conflict, reverse]
    };
    let mut conflicts = Vec::new();
    if a.change_policy != b.change_policy {
        conflicts.extend(both("SELinuxChangePolicy", &a.change_policy, &b.change_policy));
    }
    if labels::conflict(&a.label, &b.label) {
        conflicts.extend(both("SELinuxLabel", &a.label, &b.label));
    }
    conflicts
}

/// Uses of volumes by pods, by the volumes' unique names.
#[derive(Debug, Default)]
pub(super) struct VolumeCache {
    volumes: BTreeMap<Text, BTreeMap<Key, VolumeUse>>,
    by_pod: HashMap<Key, BTreeSet<Text>>,
}

impl VolumeCache {
    /// Records a pod's use of a volume.
    pub(super) fn add(&mut self, volume: &Text, pod: &Key, volume_use: &VolumeUse) {
        let pods = self.volumes.entry(volume.clone()).or_default();
        pods.insert(pod.clone(), volume_use.clone());
        self.by_pod.entry(pod.clone()).or_default().insert(volume.clone());
    }

    /// Removes a pod.
    pub(super) fn delete_pod(&mut self, pod: &Key) {
        for volume in self.by_pod.remove(pod).into_iter().flatten() {
            if let Some(pods) = self.volumes.get_mut(&volume) {
                pods.remove(pod);
                if pods.is_empty() {
                    self.volumes.remove(&volume);
                }
            }
        }
    }

    /// Returns the other pods of a volume, with their uses.
    pub(super) fn others(&self, volume: &str, pod: &Key) -> Vec<(Key, VolumeUse)> {
        let pods = self.volumes.get(volume).into_iter().flatten();
        let others = pods.filter(|(other, _)| *other != pod);
        others.map(|(other, volume_use)| (other.clone(), volume_use.clone())).collect()
    }

    /// Returns the pods with a volume of a CSI driver. Upstream: `GetPodsForCSIDriver`.
    pub(super) fn pods_of_driver(&self, driver: &str) -> BTreeSet<Key> {
        let uses = self.volumes.values().flatten();
        let of_driver = uses.filter(|(_, volume_use)| &*volume_use.csi_driver == driver);
        of_driver.map(|(pod, _)| pod.clone()).collect()
    }

    /// Returns all conflicts, in both directions. Upstream: `GetConflicts`.
    pub(super) fn conflicts(&self) -> BTreeSet<Conflict> {
        let mut all = BTreeSet::new();
        for pods in self.volumes.values() {
            let mut rest = pods.iter();
            while let Some(pod) = rest.next() {
                all.extend(rest.clone().flat_map(|other| conflicts(pod, other)));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(label: &str, change_policy: &str) -> VolumeUse {
        VolumeUse {
            label: label.into(),
            change_policy: change_policy.into(),
            csi_driver: "csi.test".into(),
        }
    }

    #[test]
    fn conflicts_last_until_a_pod_is_deleted() {
        let [a, b, c] = ["a", "b", "c"].map(|name| Key::new("ns", name));
        let mut cache = VolumeCache::default();
        cache.add(&"v".into(), &a, &labelled(":::s0:c1", "MountOption"));
        cache.add(&"v".into(), &b, &labelled(":::s0:c2", "MountOption"));
        cache.add(&"v".into(), &c, &labelled(":::s0:c1", "MountOption"));
        cache.add(&"w".into(), &c, &labelled("", "Recursive"));
        let pairs = |cache: &VolumeCache| {
            let conflicts = cache.conflicts().into_iter();
            conflicts
                .map(|c| format!("{} {}-{}", c.property, c.pod.name, c.other_pod.name))
                .collect::<Vec<_>>()
        };
        let all = ["a-b", "b-a", "b-c", "c-b"].map(|pair| format!("SELinuxLabel {pair}"));
        assert_eq!(pairs(&cache), all);
        assert_eq!(cache.others("v", &a).len(), 2);
        assert_eq!(cache.pods_of_driver("csi.test").len(), 3);
        cache.delete_pod(&b);
        assert!(pairs(&cache).is_empty());
        cache.delete_pod(&a);
        cache.delete_pod(&c);
        assert!(cache.volumes.is_empty() && cache.by_pod.is_empty());
    }

    #[test]
    fn messages_name_pods_of_the_same_namespace_only() {
        let [a, b, far] = [("ns", "a"), ("ns", "b"), ("far", "c")]
            .map(|(namespace, name)| Key::new(namespace, name));
        let (mount, recursive) = (labelled(":::s0", "MountOption"), labelled(":::s0", "Recursive"));
        let near = conflicts((&a, &mount), (&b, &recursive));
        assert_eq!(near.len(), 2);
        assert_eq!(near[0].event_reason(), "SELinuxChangePolicyConflict");
        assert_eq!(
            near[0].event_message(),
            "SELinuxChangePolicy \"MountOption\" conflicts with pod b that uses the same volume as this pod with SELinuxChangePolicy \"Recursive\". If both pods land on the same node, only one of them may access the volume."
        );
        assert_eq!(
            conflicts((&a, &mount), (&far, &recursive))[1].event_message(),
            "SELinuxChangePolicy\"Recursive\" conflicts with another pod that uses the same volume as this pod with a different SELinuxChangePolicy. If both pods land on the same node, only one of them may access the volume."
        );
    }
}
