//! Volume binding rules that the persistent volume controller and the scheduler share.
//!
//! Upstream: `k8s.io/component-helpers/storage/volume`.

use crate::scheduling::corev1::nodeaffinity;
use evenkeel_api::{
    quantity::Quantity,
    views::{Node, PersistentVolume, PersistentVolumeClaim, StorageClass},
};
use serde_json::{Value, json};
use std::sync::Arc;

/// Annotation of a claim: its binding has completed. The annotation stays if the volume is lost later.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Annotation of a claim or a volume: the persistent volume controller, not the user, bound claim and volume.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Annotation of a volume: the provisioner that created it.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Annotation of a claim or volume: the CSI driver that replaces its in-tree plugin.
pub const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// Annotation of a claim: the node that the scheduler selected for its first pod.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotation of a claim: the provisioner that should create its volume.
pub const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// Former name of [`STORAGE_PROVISIONER`].
pub const BETA_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// Annotation of a volume that is being expanded: its capacity before the expansion.
pub const PRE_RESIZE_CAPACITY: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";
/// Provisioner of a class without dynamic provisioning.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Annotation of a claim or a volume with its class. The field `storageClassName` has replaced it.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// Annotations of a default class.
const DEFAULT_CLASS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

/// Returns the claim's class, or an empty string. The deprecated annotation takes precedence over the field.
pub fn class_of_claim(claim: &PersistentVolumeClaim) -> &str {
    let annotated = claim.meta.annotations.get(BETA_CLASS);
    annotated.or(claim.spec.storage_class_name.as_deref()).unwrap_or_default()
}

/// Returns whether the claim names a class, or requests no class with an empty name. The default class does not apply
/// to such a claim.
pub fn names_class(claim: &PersistentVolumeClaim) -> bool {
    claim.meta.annotations.contains(BETA_CLASS) || claim.spec.storage_class_name.is_some()
}

/// Returns the volume's class, or an empty string.
pub fn class_of_volume(volume: &PersistentVolume) -> &str {
    volume.meta.annotations.get(BETA_CLASS).unwrap_or(&volume.spec.storage_class_name)
}

/// Returns the default class: the newest class that is annotated as default. If several have the same age, returns the
/// first of them by name.
///
/// Upstream: `GetDefaultClass`.
pub fn default_class(classes: &[Arc<StorageClass>]) -> Option<&Arc<StorageClass>> {
    let is_default = |class: &&Arc<StorageClass>| {
        DEFAULT_CLASS.iter().any(|key| class.meta.annotations.get(key) == Some("true"))
    };
    classes.iter().filter(is_default).max_by(|a, b| {
        a.meta.creation.cmp(&b.meta.creation).then_with(|| b.meta.name.cmp(&a.meta.name))
    })
}

/// Returns whether the class has the binding mode `WaitForFirstConsumer`.
pub fn waits_for_consumer(class: &StorageClass) -> bool {
    &*class.volume_binding_mode == "WaitForFirstConsumer"
}

/// Returns whether the volume's `claimRef` is this claim, by name and, if set, by uid.
///
/// Upstream: `IsVolumeBoundToClaim`.
pub fn is_for_claim(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.spec.claim_ref.as_deref().is_some_and(|reference| {
        reference.name == claim.meta.name
            && reference.namespace == claim.meta.namespace
            && (reference.uid.is_empty() || reference.uid == claim.meta.uid)
    })
}

/// Returns the requested storage of the claim, or 0.
pub fn requested_storage(claim: &PersistentVolumeClaim) -> Quantity {
    claim.spec.resources.requests.get("storage").copied().unwrap_or(Quantity::from_units(0))
}

/// Returns the storage capacity of the volume, or 0.
pub fn capacity(volume: &PersistentVolume) -> Quantity {
    volume.spec.capacity.get("storage").copied().unwrap_or(Quantity::from_units(0))
}

/// Returns whether the volume modes of claim and volume differ.
pub fn modes_differ(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    // An empty mode means `Filesystem`.
    let is_block = |mode: &str| mode == "Block";
    is_block(&claim.spec.volume_mode) != is_block(&volume.spec.volume_mode)
}

/// Returns whether the volume has all access modes that the claim requests.
pub fn has_access_modes(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    claim.spec.access_modes.iter().all(|mode| volume.spec.access_modes.contains(mode))
}

/// Returns whether the volume's node affinity matches the node.
pub fn is_reachable(volume: &PersistentVolume, node: &Node) -> bool {
    let required =
        volume.spec.node_affinity.as_deref().and_then(|affinity| affinity.required.as_deref());
    required.is_none_or(|selector| {
        selector.node_selector_terms.iter().any(|term| nodeaffinity::matches(term, node))
    })
}

/// Returns whether the class's allowed topologies include the node.
pub fn allows_topology_of(class: &StorageClass, node: &Node) -> bool {
    let terms = &class.allowed_topologies;
    terms.is_empty()
        || terms.iter().any(|term| {
            term.match_label_expressions.iter().all(|requirement| {
                let label = node.meta.labels.get(&requirement.key);
                label.is_some_and(|label| requirement.values.iter().any(|value| **value == *label))
            })
        })
}

/// Returns the volume for the claim among `volumes`: the volume that is pre-bound to the claim, otherwise the smallest
/// available volume that satisfies the claim. If several have the same size, returns the first of them by name.
///
/// With a `node`, the volume must be accessible from the node. Without a node, a claim whose binding is delayed
/// (`WaitForFirstConsumer`) only matches a pre-bound volume.
///
/// Upstream: `FindMatchingVolume`.
pub fn best_match<'a>(
    claim: &PersistentVolumeClaim,
    volumes: impl IntoIterator<Item = &'a Arc<PersistentVolume>>,
    node: Option<&Node>,
    is_binding_delayed: bool,
) -> Option<&'a Arc<PersistentVolume>> {
    let (requested, class) = (requested_storage(claim), class_of_claim(claim));
    let mut best: Option<&Arc<PersistentVolume>> = None;
    for volume in volumes {
        let is_pre_bound = is_for_claim(volume, claim);
        let is_for_other_claim = volume.spec.claim_ref.is_some() && !is_pre_bound;
        if is_for_other_claim
            || capacity(volume) < requested
            || modes_differ(claim, volume)
            || volume.spec.volume_attributes_class_name != claim.spec.volume_attributes_class_name
            || volume.meta.deleting()
        {
            continue;
        }
        let is_accessible = node.is_none_or(|node| is_reachable(volume, node));
        if is_pre_bound {
            return is_accessible.then_some(volume);
        }
        let selector = claim.spec.selector.as_ref();
        let is_selected = selector.is_none_or(|selector| selector.matches(&volume.meta.labels));
        if (node.is_none() && is_binding_delayed)
            || &*volume.status.phase != "Available"
            || !is_selected
            || class_of_volume(volume) != class
            || !is_accessible
            || !has_access_modes(claim, volume)
        {
            continue;
        }
        let rank = |volume: &PersistentVolume| (capacity(volume), volume.meta.name.clone());
        if best.is_none_or(|best| rank(volume) < rank(best)) {
            best = Some(volume);
        }
    }
    best
}

/// Returns the `spec.claimRef` of a volume that is bound to the claim.
pub fn claim_reference(claim: &PersistentVolumeClaim) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.meta.namespace,
        "name": claim.meta.name,
        "uid": claim.meta.uid,
        "resourceVersion": claim.meta.resource_version,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::{Encoding, View};

    fn object<V: View>(value: &Value) -> V {
        V::decode(value.to_string().as_bytes(), Encoding::Json).unwrap()
    }

    /// Returns an available volume of class `c`, with `change` merged into its manifest.
    fn volume(name: &str, size: &str, change: &Value) -> Arc<PersistentVolume> {
        let mut manifest = json!({
            "metadata": {"name": name, "uid": name, "labels": {"of": name}},
            "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "c"},
            "status": {"phase": "Available"},
        });
        json_merge(&mut manifest, change);
        Arc::new(object(&manifest))
    }

    fn json_merge(into: &mut Value, change: &Value) {
        for (key, value) in change.as_object().into_iter().flatten() {
            if value.is_object() && into.get(key).is_some_and(Value::is_object) {
                json_merge(&mut into[key], value);
            } else {
                into[key] = value.clone();
            }
        }
    }

    /// Returns a claim to 2 GiB of class `c`, with `change` merged into its manifest.
    fn claim(change: &Value) -> PersistentVolumeClaim {
        let mut manifest = json!({
            "metadata": {"name": "data", "namespace": "ns", "uid": "u"},
            "spec": {"storageClassName": "c", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "2Gi"}}},
        });
        json_merge(&mut manifest, change);
        object(&manifest)
    }

    #[test]
    fn best_match_is_the_prebound_volume_or_the_smallest_that_satisfies_the_claim() {
        let none = json!({});
        let prebound = |uid: &str| json!({"spec": {"claimRef": {"namespace": "ns", "name": "data", "uid": uid}}});
        // Name, volumes, change of the claim, and the name of the match.
        type Case = (&'static str, Vec<Arc<PersistentVolume>>, Value, Option<&'static str>);
        let table: Vec<Case> = vec![
            (
                "smallest",
                vec![
                    volume("a", "9Gi", &none),
                    volume("b", "3Gi", &none),
                    volume("c", "1Gi", &none),
                ],
                none.clone(),
                Some("b"),
            ),
            (
                "the first by name of equal sizes",
                vec![volume("b", "3Gi", &none), volume("a", "3Gi", &none)],
                none.clone(),
                Some("a"),
            ),
            (
                "another class",
                vec![volume("a", "3Gi", &json!({"spec": {"storageClassName": "d"}}))],
                none.clone(),
                None,
            ),
            (
                "class in the deprecated annotation",
                vec![volume("a", "3Gi", &json!({"metadata": {"annotations": {BETA_CLASS: "d"}}}))],
                json!({"spec": {"storageClassName": "d"}}),
                Some("a"),
            ),
            (
                "label selector",
                vec![volume("a", "3Gi", &none), volume("b", "4Gi", &none)],
                json!({"spec": {"selector": {"matchLabels": {"of": "b"}}}}),
                Some("b"),
            ),
            (
                "an empty selector matches all volumes",
                vec![volume("a", "3Gi", &none)],
                json!({"spec": {"selector": {}}}),
                Some("a"),
            ),
            (
                "not available",
                vec![volume("a", "3Gi", &json!({"status": {"phase": "Released"}}))],
                none.clone(),
                None,
            ),
            (
                "other volume mode",
                vec![
                    volume("a", "3Gi", &json!({"spec": {"volumeMode": "Block"}})),
                    volume("b", "9Gi", &none),
                ],
                none.clone(),
                Some("b"),
            ),
            (
                "access modes",
                vec![
                    volume("a", "3Gi", &none),
                    volume(
                        "b",
                        "3Gi",
                        &json!({"spec": {"accessModes": ["ReadOnlyMany", "ReadWriteOnce"]}}),
                    ),
                ],
                json!({"spec": {"accessModes": ["ReadOnlyMany"]}}),
                Some("b"),
            ),
            (
                "volume attributes class",
                vec![
                    volume("a", "3Gi", &none),
                    volume("b", "3Gi", &json!({"spec": {"volumeAttributesClassName": "gold"}})),
                ],
                json!({"spec": {"volumeAttributesClassName": "gold"}}),
                Some("b"),
            ),
            (
                "being deleted",
                vec![volume(
                    "a",
                    "3Gi",
                    &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
                )],
                none.clone(),
                None,
            ),
            (
                "prebound",
                vec![volume("a", "3Gi", &none), volume("b", "9Gi", &prebound(""))],
                none.clone(),
                Some("b"),
            ),
            (
                "prebound with uid",
                vec![volume("b", "9Gi", &prebound("u"))],
                none.clone(),
                Some("b"),
            ),
            (
                "prebound to another claim of the same name",
                vec![volume("b", "9Gi", &prebound("v"))],
                none.clone(),
                None,
            ),
            (
                "prebound and too small",
                vec![volume("b", "1Gi", &prebound("u")), volume("z", "3Gi", &none)],
                none.clone(),
                Some("z"),
            ),
        ];
        for (what, volumes, change, want) in table {
            let found = best_match(&claim(&change), &volumes, None, false);
            assert_eq!(found.map(|volume| &*volume.meta.name), want, "{what}");
        }
    }

    #[test]
    fn a_delayed_claim_only_matches_prebound_volumes_or_those_of_its_node() {
        let zone = |zone: &str| {
            json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]}}}})
        };
        let volumes = [volume("a", "3Gi", &zone("x")), volume("b", "4Gi", &zone("y"))];
        let claim = claim(&json!({}));
        assert!(best_match(&claim, &volumes, None, true).is_none());
        let node: Node = object(&json!({"metadata": {"name": "n", "labels": {"zone": "y"}}}));
        let found = best_match(&claim, &volumes, Some(&node), true);
        assert_eq!(found.map(|volume| &*volume.meta.name), Some("b"));
    }

    #[test]
    fn default_class_is_the_newest_then_the_first_by_name() {
        let class = |name: &str, second: u32, default: &str| {
            let manifest = json!({"metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:0{second}Z"),
                "annotations": {DEFAULT_CLASS[0]: default}}});
            Arc::new(object::<StorageClass>(&manifest))
        };
        let classes = [
            class("a", 1, "true"),
            class("c", 2, "true"),
            class("b", 2, "true"),
            class("d", 3, "false"),
        ];
        assert_eq!(default_class(&classes).map(|class| &*class.meta.name), Some("b"));
        assert!(default_class(&classes[3..]).is_none());
    }

    #[test]
    fn a_node_must_match_all_expressions_of_one_allowed_topology() {
        let class: StorageClass = object(&json!({"allowedTopologies": [
            {"matchLabelExpressions": [{"key": "zone", "values": ["x", "y"]}, {"key": "rack", "values": ["1"]}]}]}));
        let node = |zone: &str, rack: &str| {
            object::<Node>(&json!({"metadata": {"labels": {"zone": zone, "rack": rack}}}))
        };
        assert!(allows_topology_of(&class, &node("y", "1")));
        assert!(
            !allows_topology_of(&class, &node("y", "2"))
                && !allows_topology_of(&class, &node("z", "1"))
        );
        assert!(allows_topology_of(&StorageClass::default(), &node("z", "9")));
    }
}
