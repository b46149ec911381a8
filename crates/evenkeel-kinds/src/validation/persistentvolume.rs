//! Validation of PersistentVolumes, including inline specs in VolumeAttachments.

use super::{affinity, names, persistentvolumesource, quantity};
use crate::internal::{diff, quoted};
use evenkeel_apimachinery::amount::Amount;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{Object, get, is_blank, list, object, remove, same, text};
use serde_json::{Value, json};

const ACCESS_MODES: &[&str] =
    &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

/// Fields of volume sources that are maps of strings.
const STRING_MAPS: [&str; 2] = ["options", "volumeAttributes"];

/// Volume sources that support mount options in the annotation.
const SOURCES_WITH_MOUNT_OPTIONS: [&str; 13] = [
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
];

/// Beta labels in a node affinity that an update may replace, each with its replacement.
///
/// Upstream: `betaToGALabel`.
const BETA_LABELS: [(&str, &str); 5] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

/// Validates a new volume: its spec, and that its source supports the mount options in the annotation, if any.
///
/// Upstream: `ValidatePersistentVolume`, `checkMountOption`.
pub(super) fn create(new: &Value, errors: &mut Errors) {
    volume(new, None, errors);
}

fn volume(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = new.get("spec").unwrap_or(&Value::Null);
    let old_affinity = old.and_then(|old| get(old, "spec.nodeAffinity.required"));
    let allow_invalid_values = old_affinity.is_some_and(affinity::has_invalid_value);
    let name = text(new, "metadata.name");
    let context = Context { name, is_inline: false, allow_invalid_values };
    validate_spec(spec, context, &Path::new("spec"), errors);
    let annotations = object(new, "metadata.annotations");
    let has_options =
        annotations.is_some_and(|annotations| annotations.contains_key(MOUNT_OPTIONS));
    if has_options && SOURCES_WITH_MOUNT_OPTIONS.iter().all(|source| get(spec, source).is_none()) {
        let path = Path::new("metadata");
        let path = path.field("annotations");
        let detail = "may not specify mount options for this volume type";
        errors.forbidden(&path.field(MOUNT_OPTIONS), detail);
    }
}

/// Validates an update. The source is immutable, and so is an existing node affinity.
///
/// Upstream: `ValidatePersistentVolumeUpdate`.
pub(super) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    volume(new, Some(old), errors);
    let (after, before) = (&new["spec"], &old["spec"]);
    let path = Path::new("spec");
    let (mut source, stored) = (sources_of(after), sources_of(before));
    // An update may add a secret for expansion, so a new secret is not compared.
    let secret = "csi.controllerExpandSecretRef";
    if get(&stored, "csi").is_some() && get(&stored, secret).is_none() {
        remove(&mut source, secret);
    }
    if !same_source(&source, &stored) {
        let diff = diff("core.PersistentVolumeSource", Some(&stored), Some(after));
        errors.forbidden(
            &path.field("persistentvolumesource"),
            &format!("spec.persistentvolumesource is immutable after creation\n{diff}"),
        );
    }
    let (mode, stored) = (get(after, "volumeMode"), get(before, "volumeMode"));
    errors.immutable(&Path::new("volumeMode"), mode, stored);
    if let Some(stored) = get(before, "nodeAffinity") {
        let affinity = get(after, "nodeAffinity").unwrap_or(&Value::Null);
        if !same_affinity(affinity, stored) {
            let detail = "field is immutable, except for updating from beta label to GA";
            errors.invalid(
                &Path::new("nodeAffinity"),
                quoted("*core.VolumeNodeAffinity", Some(affinity)),
                detail,
            );
        }
    }
    let class = "volumeAttributesClassName";
    if get(before, class).is_some() && get(after, class).is_none() {
        errors.forbidden(&path.field(class), "update from non-nil value to nil is forbidden");
    }
}

/// Returns the volume sources of a spec. A valid spec has exactly one.
fn sources_of(spec: &Value) -> Value {
    let mut sources = json!({});
    for source in persistentvolumesource::NAMES {
        if let Some(value) = get(spec, source) {
            sources[source] = value.clone();
        }
    }
    sources
}

/// Returns whether two sources are equal. An empty value equals an absent one, except for an empty object in a
/// field that is not a map of strings.
fn same_source(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return same(Some(a), Some(b)) };
    // Whether each field of `a` has an equal field in `b`.
    let is_covered = |a: &Object, b: &Object| {
        let mut fields = a.iter().filter(|(_, value)| !value.is_null());
        fields.all(|(name, a)| {
            let is_string_map = STRING_MAPS.contains(&name.as_str());
            match b.get(name) {
                None | Some(Value::Null) => is_blank(a) && (is_string_map || !a.is_object()),
                Some(b) if is_string_map => a == b,
                Some(b) => same_source(a, b),
            }
        })
    };
    is_covered(a, b) && is_covered(b, a)
}

/// Returns whether two node affinities are equal, except for replaced beta labels.
///
/// Upstream: `validatePvNodeAffinity`.
fn same_affinity(new: &Value, old: &Value) -> bool {
    let terms = "required.nodeSelectorTerms";
    let (after, before) = (list(new, terms), list(old, terms));
    let same_fields = |field: &str, (a, b): (&Value, &Value), same: fn(&Value, &Value) -> bool| {
        let (a, b) = (list(a, field), list(b, field));
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
    };
    !new.is_null()
        && get(new, "required").is_some() == get(old, "required").is_some()
        && after.len() == before.len()
        && after.iter().zip(before).all(|pair| {
            same_fields("matchExpressions", pair, same_requirement)
                && same_fields("matchFields", pair, same_requirement)
        })
}

fn same_requirement(new: &Value, old: &Value) -> bool {
    let (new_key, old_key) = (text(new, "key"), text(old, "key"));
    // Like upstream, accept an empty key as the replacement of any label that is not a beta label.
    let replacement = BETA_LABELS
        .iter()
        .find(|(beta, _)| *beta == old_key)
        .map_or("", |(_, replacement)| *replacement);
    (new_key == old_key || new_key == replacement)
        && text(new, "operator") == text(old, "operator")
        && list(new, "values") == list(old, "values")
}

/// Context of the validation of a volume's spec.
#[derive(Clone, Copy)]
struct Context<'a> {
    /// Name of the volume. It is empty for an inline spec.
    name: &'a str,
    /// Whether the spec is inline in a VolumeAttachment.
    is_inline: bool,
    /// Whether the node affinity may have values that are invalid as label values, because the stored object has
    /// some.
    allow_invalid_values: bool,
}

/// Validates the inline spec of a VolumeAttachment.
pub(super) fn inline_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let context = Context { name: "", is_inline: true, allow_invalid_values: false };
    validate_spec(spec, context, path, errors);
}

/// Validates the spec of a PersistentVolume, or of an inline volume of a VolumeAttachment.
///
/// Upstream: `ValidatePersistentVolumeSpec`.
fn validate_spec(spec: &Value, context: Context<'_>, path: &Path<'_>, errors: &mut Errors) {
    let is_inline = context.is_inline;
    if is_inline {
        let detail = "may not be specified in the context of inline volumes";
        if get(spec, "claimRef").is_some() {
            errors.forbidden(&path.field("claimRef"), detail);
        }
        if object(spec, "capacity").is_some_and(|capacity| !capacity.is_empty()) {
            errors.forbidden(&path.field("capacity"), detail);
        }
        if get(spec, "csi").is_none() {
            let detail = "has to be specified in the context of inline volumes";
            errors.required(&path.field("csi"), detail);
        }
    }
    if list(spec, "accessModes").is_empty() {
        errors.required(&path.field("accessModes"), "");
    }
    access_modes(spec, path, errors);
    if !is_inline {
        capacity(spec, &path.field("capacity"), errors);
    }
    reclaim_policy(spec, is_inline, path, errors);
    if let Some(affinity) = get(spec, "nodeAffinity") {
        let path = path.field("nodeAffinity");
        match get(affinity, "required") {
            _ if is_inline => {
                let detail = "may not be specified in the context of inline volumes";
                errors.forbidden(&path, detail);
            }
            None => {
                errors.required(&path.field("required"), "must specify required node constraints");
            }
            Some(required) => {
                let path = path.field("required");
                affinity::validate_node_selector(
                    required,
                    context.allow_invalid_values,
                    &path,
                    errors,
                );
            }
        }
    }
    persistentvolumesource::source(spec, context.name, is_inline, path, errors);
    if is_root(text(spec, "hostPath.path"))
        && text(spec, "persistentVolumeReclaimPolicy") == "Recycle"
    {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        errors.forbidden(&path.field("persistentVolumeReclaimPolicy"), detail);
    }
    class_and_mode(spec, is_inline, path, errors);
    attributes_class(spec, path, errors);
}

/// Validates the access modes, which may be empty.
pub(super) fn access_modes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.field("accessModes");
    let modes = || list(spec, "accessModes").iter().filter_map(Value::as_str);
    for mode in modes() {
        errors.one_of(&path, mode, ACCESS_MODES);
    }
    let (mut has_once_pod, mut has_others) = (false, false);
    for mode in modes().filter(|mode| ACCESS_MODES.contains(mode)) {
        has_once_pod |= mode == "ReadWriteOncePod";
        has_others |= mode != "ReadWriteOncePod";
    }
    if has_once_pod && has_others {
        errors.forbidden(&path, "may not use ReadWriteOncePod with other access modes");
    }
}

fn capacity(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let amounts = object(spec, "capacity").filter(|amounts| !amounts.is_empty());
    if amounts.is_none() {
        errors.required(path, "");
    }
    if amounts.is_none_or(|amounts| amounts.len() > 1 || !amounts.contains_key("storage")) {
        let value = get(spec, "capacity").cloned().unwrap_or_default();
        errors.not_supported(path, value, &["storage"]);
    }
    for (name, amount) in amounts.into_iter().flatten() {
        let path = path.key(name);
        quantity::basic_resource(amount, &path, errors);
        positive(amount, &path, errors);
    }
}

/// Rejects a quantity that is not positive. Returns whether it is positive.
///
/// Upstream: `ValidatePositiveQuantityValue`.
pub(super) fn positive(quantity: &Value, path: &Path<'_>, errors: &mut Errors) -> bool {
    let is_positive =
        Amount::of(quantity).is_none_or(|amount| !amount.is_zero() && !amount.is_negative());
    if !is_positive {
        errors.invalid(path, quantity.clone(), "must be greater than zero");
    }
    is_positive
}

fn reclaim_policy(spec: &Value, is_inline: bool, path: &Path<'_>, errors: &mut Errors) {
    let path = path.field("persistentVolumeReclaimPolicy");
    match text(spec, "persistentVolumeReclaimPolicy") {
        "" => {}
        "Retain" if is_inline => {}
        _ if is_inline => {
            errors.forbidden(&path, "may only be Retain in the context of inline volumes");
        }
        policy => errors.one_of(&path, policy, &["Delete", "Recycle", "Retain"]),
    }
}

/// Returns whether a path denotes the root folder, such as `/./`.
fn is_root(path: &str) -> bool {
    let mut depth = 0_usize;
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => depth = depth.saturating_sub(1),
            _ => depth += 1,
        }
    }
    path.starts_with('/') && depth == 0
}

fn class_and_mode(spec: &Value, is_inline: bool, path: &Path<'_>, errors: &mut Errors) {
    let class_path = path.field("storageClassName");
    match text(spec, "storageClassName") {
        "" => {}
        _ if is_inline => {
            let detail = "may not be specified in the context of inline volumes";
            errors.forbidden(&class_path, detail);
        }
        class => errors.invalid_for_each(&class_path, class, &names::dns_subdomain(class)),
    }
    let mode = get(spec, "volumeMode").and_then(Value::as_str);
    if is_inline && mode.is_some_and(|mode| mode != "Filesystem") {
        let detail =
            "may not specify volumeMode other than Filesystem in the context of inline volumes";
        errors.forbidden(&path.field("volumeMode"), detail);
    } else if !is_inline {
        volume_mode(spec, path, errors);
    }
}

pub(super) fn volume_mode(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    errors.one_of_if_set(&path.field("volumeMode"), get(spec, "volumeMode"), VOLUME_MODES);
}

fn attributes_class(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(class) = get(spec, "volumeAttributesClassName").and_then(Value::as_str) else {
        return;
    };
    let class_path = path.field("volumeAttributesClassName");
    if class.is_empty() {
        errors.required(&class_path, "an empty string is disallowed");
    } else {
        errors.invalid_for_each(&class_path, class, &names::dns_subdomain(class));
    }
    if get(spec, "csi").is_none() {
        let detail = "has to be specified when using volumeAttributesClassName";
        errors.required(&path.field("csi"), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Field of the spec, and its new value.
    type Change = (&'static str, Value);

    /// Returns a valid CSI volume with changes of its spec.
    fn volume_with(changes: &[Change]) -> Value {
        let mut volume = json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem",
            "csi": {"driver": "d", "volumeHandle": "h"}}});
        for (field, value) in changes {
            volume["spec"][field] = value.clone();
        }
        volume
    }

    fn fields(errors: Errors) -> Vec<String> {
        errors.into_vec().into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn fields_of_a_volume_are_validated() {
        let none = Value::Null;
        let table: [(Vec<Change>, &[&str]); 14] = [
            (vec![], &[]),
            (vec![("accessModes", json!([]))], &["spec.accessModes"]),
            (vec![("accessModes", json!(["a", "ReadWriteOncePod"]))], &["spec.accessModes"]),
            (
                vec![("accessModes", json!(["ReadWriteOnce", "ReadWriteOncePod"]))],
                &["spec.accessModes"],
            ),
            (vec![("capacity", none.clone())], &["spec.capacity"; 2]),
            (vec![("capacity", json!({"storage": "0"}))], &["spec.capacity[storage]"]),
            (vec![("capacity", json!({"storage": "-1"}))], &["spec.capacity[storage]"; 2]),
            (vec![("nodeAffinity", json!({}))], &["spec.nodeAffinity.required"]),
            (vec![("csi", none.clone())], &["spec"]),
            (vec![("volumeMode", json!("a"))], &["spec.volumeMode"]),
            (vec![("storageClassName", json!("A"))], &["spec.storageClassName"]),
            (vec![("volumeAttributesClassName", json!(""))], &["spec.volumeAttributesClassName"]),
            (
                vec![
                    ("csi", none.clone()),
                    ("volumeAttributesClassName", json!("a")),
                    ("nfs", json!({"server": "s", "path": "/"})),
                ],
                &["spec.csi"],
            ),
            (
                vec![
                    ("csi", none),
                    ("hostPath", json!({"path": "/./"})),
                    ("persistentVolumeReclaimPolicy", json!("Recycle")),
                ],
                &["spec.persistentVolumeReclaimPolicy"],
            ),
        ];
        for (changes, expected) in table {
            let mut errors = Errors::default();
            create(&volume_with(&changes), &mut errors);
            assert_eq!(fields(errors), expected, "{changes:?}");
        }
    }

    #[test]
    fn an_inline_volume_has_no_claim_capacity_class_and_mode() {
        let mut errors = Errors::default();
        let mut spec = volume_with(&[("claimRef", json!({})), ("storageClassName", json!("a"))]);
        spec["spec"]["volumeMode"] = json!("Block");
        inline_spec(&spec["spec"], &Path::new("s"), &mut errors);
        let expected = ["s.claimRef", "s.capacity", "s.storageClassName", "s.volumeMode"];
        assert_eq!(fields(errors), expected);
    }

    #[test]
    fn an_update_keeps_source_node_affinity_and_volume_mode() {
        let affinity = |key: &str| {
            json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": key, "operator": "In", "values": ["a"]}]}]}})
        };
        let old = volume_with(&[("nodeAffinity", affinity("beta.kubernetes.io/os"))]);
        let csi = |field: &str, value: Value| {
            let mut csi = json!({"driver": "d", "volumeHandle": "h"});
            csi[field] = value;
            csi
        };
        let secret = json!({"name": "a", "namespace": "a"});
        let os = ("nodeAffinity", affinity("kubernetes.io/os"));
        let table: [(Vec<Change>, &[&str]); 8] = [
            (vec![os.clone()], &[]),
            (vec![os.clone(), ("csi", csi("volumeAttributes", json!({})))], &[]),
            (
                vec![os.clone(), ("csi", csi("nodePublishSecretRef", json!({})))],
                &[
                    "spec.csi.nodePublishSecretRef.name",
                    "spec.csi.nodePublishSecretRef.namespace",
                    "spec.persistentvolumesource",
                ],
            ),
            (vec![("nodeAffinity", affinity("kubernetes.io/arch"))], &["nodeAffinity"]),
            (vec![], &["nodeAffinity"]),
            (vec![os.clone(), ("csi", csi("controllerExpandSecretRef", secret.clone()))], &[]),
            (
                vec![os.clone(), ("csi", csi("nodePublishSecretRef", secret))],
                &["spec.persistentvolumesource"],
            ),
            (vec![os, ("volumeMode", json!("Block"))], &["volumeMode"]),
        ];
        for (changes, expected) in table {
            let mut errors = Errors::default();
            update(&volume_with(&changes), &old, &mut errors);
            assert_eq!(fields(errors), expected, "{changes:?}");
        }
    }
}
