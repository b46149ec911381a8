//! Validation of PersistentVolumeClaims, and of the claim templates of StatefulSets.

use super::persistentvolume::{access_modes, positive, volume_mode};
use super::{labels, names, quantity};
use crate::internal::diff;
use crate::persistentvolumeclaim::normalize_data_sources;
use evenkeel_apimachinery::amount::Amount;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{copy, get, list, object, same, same_meaning, set, text};
use serde_json::{Value, json};

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const STORAGE: &str = "resources.requests.storage";

const RESIZE_STATUSES: &[&str] = &[
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// Validates a new claim or a claim template.
pub(super) fn create(claim: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_spec(claim, None, path, errors);
}

/// Validates the spec of a PersistentVolumeClaim. An update may keep values that are invalid for a new claim if the old
/// claim has them.
///
/// Upstream: `ValidatePersistentVolumeClaimSpec`, `ValidationOptionsForPersistentVolumeClaim`.
fn validate_spec(claim: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    let spec = claim.get("spec").unwrap_or(&Value::Null);
    if list(spec, "accessModes").is_empty() {
        errors.required(&path.field("accessModes"), "at least 1 access mode is required");
    }
    if let Some(selector) = get(spec, "selector") {
        labels::selector(selector, &path.field("selector"), errors);
    }
    access_modes(spec, path, errors);
    let resources = path.field("resources");
    let storage = resources.key("storage");
    match get(spec, STORAGE) {
        None => errors.required(&storage, ""),
        Some(amount) => {
            positive(amount, &storage, errors);
        }
    }
    let class_name = |field: &str, errors: &mut Errors| {
        let class = text(spec, field);
        if !class.is_empty() {
            errors.invalid_for_each(&path.field(field), class, &names::dns_subdomain(class));
        }
    };
    class_name("storageClassName", errors);
    volume_mode(spec, path, errors);
    let allows_group = old.is_some_and(|old| {
        ["spec.dataSource.apiGroup", "spec.dataSourceRef.apiGroup"]
            .iter()
            .any(|field| get(old, field).is_some())
    });
    data_sources(spec, allows_group, path, errors);
    class_name("volumeAttributesClassName", errors);
}

/// Validates the two fields that name a claim's data source.
///
/// Upstream: `validateDataSource`, `validateDataSourceRef`.
fn data_sources(spec: &Value, allows_group: bool, path: &Path<'_>, errors: &mut Errors) {
    for field in ["dataSource", "dataSourceRef"] {
        let Some(source) = get(spec, field) else { continue };
        let path = path.field(field);
        for required in ["name", "kind"] {
            if text(source, required).is_empty() {
                errors.required(&path.field(required), "");
            }
        }
        let (kind, group) = (text(source, "kind"), text(source, "apiGroup"));
        if group.is_empty() && kind != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.invalid(&path, kind, detail);
        }
        if !group.is_empty() && !allows_group {
            errors.invalid_for_each(&path.field("apiGroup"), group, &names::dns_subdomain(group));
        }
        let namespace = text(source, "namespace");
        if !namespace.is_empty() {
            errors.invalid_for_each(
                &path.field("namespace"),
                namespace,
                &names::dns_label(namespace),
            );
        }
    }
    let (Some(source), Some(reference)) = (get(spec, "dataSource"), get(spec, "dataSourceRef"))
    else {
        return;
    };
    // Upstream's error contains a path without exported fields as its value.
    if !text(reference, "namespace").is_empty() {
        let detail = "may not be specified when dataSourceRef.namespace is specified";
        errors.invalid(path, json!({}), detail);
    } else if ["apiGroup", "kind", "name"]
        .iter()
        .any(|field| get(source, field) != get(reference, field))
    {
        errors.invalid(path, json!({}), "must match dataSourceRef");
    }
}

/// Validates an update. The spec is immutable, except for fields that can be set once, and for the size and the
/// attributes class of a bound claim.
///
/// Upstream: `ValidatePersistentVolumeClaimUpdate`.
pub(super) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    validate_spec(new, Some(old), &path, errors);
    let mut stored = old.clone();
    normalize_data_sources(&mut stored);
    let (after, before) = (&new["spec"], &mut stored["spec"]);
    // The new spec, with the old values of the fields that may change.
    let mut allowed = after.clone();
    if text(before, "volumeName").is_empty() {
        copy(before, after, "volumeName");
    }
    storage_class(new, old, &mut allowed, errors);
    if text(old, "status.phase") == "Bound" {
        if get(&allowed, "resources.requests").is_some() {
            let size = get(before, STORAGE).cloned().unwrap_or_else(|| json!("0"));
            set(&mut allowed, STORAGE, size);
        }
        copy(&mut allowed, before, "volumeAttributesClassName");
    }
    // In these fields, an empty value differs from an absent one.
    let is_same = |field: &&str| same(get(&allowed, field), get(before, field));
    let pointers = ["selector.matchLabels", "storageClassName", "volumeAttributesClassName"];
    if !same_meaning(&allowed, before) || !pointers.iter().all(is_same) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        let diff = diff("core.PersistentVolumeClaimSpec", Some(before), Some(&allowed));
        errors.forbidden(&path, &format!("{detail}\n{diff}"));
    }
    let size =
        |claim: &Value, field: &str| get(claim, field).and_then(Amount::of).unwrap_or_default();
    let requested = size(after, STORAGE);
    if requested < size(before, STORAGE) && requested <= size(old, "status.capacity.storage") {
        let resources = path.field("resources");
        let requests = resources.field("requests");
        let detail = "field can not be less than status.capacity";
        errors.forbidden(&requests.field("storage"), detail);
    }
    let (new_mode, old_mode) = (get(after, "volumeMode"), get(before, "volumeMode"));
    errors.immutable(&Path::new("volumeMode"), new_mode, old_mode);
    attributes_class(after, old, &path, errors);
}

/// Validates that the storage class is unchanged. An unset class may be set: to the annotated class if there is
/// one, otherwise to any class. Removes such a class from `allowed`, the spec that is compared with the old one.
///
/// Upstream: `validateStorageClassUpgradeFromAnnotation`, `validateStorageClassUpgradeFromNil`.
fn storage_class(new: &Value, old: &Value, allowed: &mut Value, errors: &mut Errors) {
    let annotation = |claim| {
        object(claim, "metadata.annotations")
            .and_then(|annotations| annotations.get(CLASS_ANNOTATION))
    };
    let (new_annotation, old_annotation) = (annotation(new), annotation(old));
    let class = get(new, "spec.storageClassName");
    let was_absent = get(old, "spec.storageClassName").is_none();
    let is_class_of_annotation = old_annotation.is_some()
        && class == old_annotation
        && (new_annotation.is_none() || new_annotation == old_annotation);
    let is_moved_from_annotation = was_absent && is_class_of_annotation;
    if !is_moved_from_annotation && !same(new_annotation, old_annotation) {
        let path = Path::new("metadata");
        let path = path.field("annotations");
        let value = new_annotation.cloned().unwrap_or_else(|| json!(""));
        errors.invalid(&path.field(CLASS_ANNOTATION), value, "field is immutable");
    }
    if was_absent && class.is_some() && (old_annotation.is_none() || class == old_annotation) {
        evenkeel_apimachinery::value::remove(allowed, "storageClassName");
    }
}

fn attributes_class(after: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let field = "volumeAttributesClassName";
    let class = get(after, field);
    if class == get(old, "spec.volumeAttributesClassName")
        || get(old, "status.currentVolumeAttributesClassName").is_none()
    {
        return;
    }
    let new_value = match class.and_then(Value::as_str) {
        None => "nil",
        Some("") => "empty string",
        Some(_) => return,
    };
    let detail = format!(
        "update to {new_value} is forbidden when status.currentVolumeAttributesClassName is not nil"
    );
    errors.forbidden(&path.field(field), &detail);
}

/// Validates the quantities of a status, and the resource names and statuses of a resize.
///
/// Upstream: `ValidatePersistentVolumeClaimStatusUpdate`.
pub(super) fn status(new: &Value, errors: &mut Errors) {
    if list(new, "spec.accessModes").is_empty() {
        // Upstream's path begins with a capital letter.
        errors.required(&Path::new("Spec").field("accessModes"), "");
    }
    let path = Path::new("status");
    let capacity = path.field("capacity");
    for (name, amount) in object(new, "status.capacity").into_iter().flatten() {
        quantity::basic_resource(amount, &capacity.key(name), errors);
    }
    let statuses = path.field("allocatedResourceStatuses");
    for (name, status) in object(new, "status.allocatedResourceStatuses").into_iter().flatten() {
        resource_key(name, &statuses, errors);
        if !status.as_str().is_some_and(|status| RESIZE_STATUSES.contains(&status)) {
            errors.not_supported(&statuses, name.as_str(), RESIZE_STATUSES);
        }
    }
    let allocated = path.field("allocatedResources");
    for (name, amount) in object(new, "status.allocatedResources").into_iter().flatten() {
        if !resource_key(name, &allocated, errors) {
            continue;
        }
        let path = allocated.key(name);
        if quantity::basic_resource(amount, &path, errors) {
            quantity::validate_quantity("storage", amount, &path, errors);
        }
    }
}

/// Validates the name of a resource of a claim, and returns whether it is valid.
///
/// Upstream: `validatePersistentVolumeClaimResourceKey`.
fn resource_key(name: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    let messages = names::qualified_name(name);
    errors.invalid_for_each(path, name, &messages);
    let is_known = name == "storage" || !quantity::is_native(name);
    if messages.is_empty() && !is_known {
        errors.not_supported(path, name, &["storage"]);
    }
    messages.is_empty() && is_known
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORAGE_FIELD: &str = "spec.resources.requests.storage";

    /// Field and its new value. Null removes the field.
    type Change = (&'static str, Value);
    type Changes<'a> = &'a [Change];

    /// Returns a valid pending claim to 2 GiB with changes.
    fn claim_with(changes: Changes<'_>) -> Value {
        let mut claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "2Gi"}}}, "status": {"phase": "Pending"}});
        for (field, value) in changes {
            match value {
                Value::Null => {
                    evenkeel_apimachinery::value::remove(&mut claim, field);
                }
                value => set(&mut claim, field, value.clone()),
            }
        }
        claim
    }

    fn fields(errors: Errors) -> Vec<String> {
        errors.into_vec().into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn fields_of_a_claim_are_validated() {
        let volume = json!({"kind": "PersistentVolumeClaim", "name": "a"});
        let foreign = json!({"kind": "PersistentVolumeClaim", "name": "a", "namespace": "A"});
        let other = json!({"kind": "A", "name": "a", "apiGroup": "A"});
        let table: [(Changes<'_>, &[&str]); 11] = [
            (&[], &[]),
            (&[("spec", Value::Null)], &["spec.accessModes", "spec.resources[storage]"]),
            (&[("spec.accessModes", json!(["a"]))], &["spec.accessModes"]),
            (&[(STORAGE_FIELD, json!("0"))], &["spec.resources[storage]"]),
            (&[("spec.storageClassName", json!("A"))], &["spec.storageClassName"]),
            (&[("spec.volumeMode", json!("A"))], &["spec.volumeMode"]),
            (
                &[("spec.volumeAttributesClassName", json!("A"))],
                &["spec.volumeAttributesClassName"],
            ),
            (
                &[("spec.dataSourceRef", json!({"kind": "A"}))],
                &["spec.dataSourceRef.name", "spec.dataSourceRef"],
            ),
            (&[("spec.dataSourceRef", other.clone())], &["spec.dataSourceRef.apiGroup"]),
            (
                &[("spec.dataSource", volume.clone()), ("spec.dataSourceRef", foreign)],
                &["spec.dataSourceRef.namespace", "spec"],
            ),
            (
                &[("spec.dataSource", volume), ("spec.dataSourceRef", other)],
                &["spec.dataSourceRef.apiGroup", "spec"],
            ),
        ];
        for (changes, expected) in table {
            let mut errors = Errors::default();
            create(&claim_with(changes), &Path::new("spec"), &mut errors);
            assert_eq!(fields(errors), expected, "{changes:?}");
        }
    }

    #[test]
    fn an_update_may_set_absent_fields_and_resize_a_bound_claim() {
        let bound = ("status.phase", json!("Bound"));
        let size = |size: &str| (STORAGE_FIELD, json!(size));
        let class = |class: &str| ("spec.storageClassName", json!(class));
        let attributes = |class: &str| ("spec.volumeAttributesClassName", json!(class));
        let current = ("status.currentVolumeAttributesClassName", json!("a"));
        let annotated = ("metadata", json!({"annotations": {CLASS_ANNOTATION: "a"}}));
        let capacity = ("status.capacity", json!({"storage": "1Gi"}));
        let source = json!({"kind": "PersistentVolumeClaim", "name": "a"});
        let table: [(Vec<Change>, Vec<Change>, &[&str]); 18] = [
            (vec![], vec![], &[]),
            (vec![], vec![("spec.volumeName", json!("a"))], &[]),
            (
                vec![("spec.volumeName", json!("a"))],
                vec![("spec.volumeName", json!("b"))],
                &["spec"],
            ),
            (vec![], vec![class("a")], &[]),
            (vec![class("a")], vec![class("b")], &["spec"]),
            (vec![annotated.clone()], vec![annotated.clone(), class("a")], &[]),
            (vec![annotated.clone()], vec![annotated.clone(), class("b")], &["spec"]),
            (
                vec![annotated],
                vec![],
                &["metadata.annotations.volume.beta.kubernetes.io/storage-class"],
            ),
            (vec![], vec![("spec.selector", json!({"matchLabels": {"a": ""}}))], &["spec"]),
            (vec![], vec![size("3Gi")], &["spec"]),
            (vec![bound.clone()], vec![bound.clone(), size("3Gi")], &[]),
            (vec![bound.clone()], vec![bound.clone(), size("1Gi")], &[]),
            (
                vec![bound.clone(), capacity.clone()],
                vec![bound.clone(), capacity, size("1Gi")],
                &[STORAGE_FIELD],
            ),
            (vec![], vec![attributes("a")], &["spec"]),
            (vec![bound.clone()], vec![bound.clone(), attributes("a")], &[]),
            (
                vec![bound.clone(), current.clone(), attributes("a")],
                vec![bound, current],
                &["spec.volumeAttributesClassName"],
            ),
            (vec![], vec![("spec.volumeMode", json!("Block"))], &["spec", "volumeMode"]),
            (
                vec![("spec.dataSource", source.clone())],
                vec![("spec.dataSource", source.clone()), ("spec.dataSourceRef", source)],
                &[],
            ),
        ];
        for (before, after, expected) in table {
            let mut errors = Errors::default();
            update(&claim_with(&after), &claim_with(&before), &mut errors);
            assert_eq!(fields(errors), expected, "{before:?} {after:?}");
        }
    }

    #[test]
    fn quantities_and_resource_names_of_a_status_are_validated() {
        let none: &[&str] = &[];
        for (field, value, expected) in [
            ("status.capacity", json!({"storage": "1"}), none),
            ("status.capacity", json!({"storage": "-1"}), &["status.capacity[storage]"]),
            ("status.allocatedResources", json!({"cpu": "1"}), &["status.allocatedResources"]),
            (
                "status.allocatedResources",
                json!({"storage": "-1"}),
                &["status.allocatedResources[storage]"],
            ),
            (
                "status.allocatedResourceStatuses",
                json!({"storage": "a"}),
                &["status.allocatedResourceStatuses"],
            ),
            ("status.allocatedResourceStatuses", json!({"storage": "NodeResizePending"}), none),
            ("spec.accessModes", json!([]), &["Spec.accessModes"]),
        ] {
            let mut errors = Errors::default();
            status(&claim_with(&[(field, value.clone())]), &mut errors);
            assert_eq!(fields(errors), expected, "{field} {value}");
        }
    }
}
