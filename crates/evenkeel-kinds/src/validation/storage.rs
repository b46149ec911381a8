//! Validation of storage.k8s.io.

use super::resource::declared_driver;
use super::{labels, names, persistentvolume, quantity};
use crate::internal::quoted;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{Object, get, int, list, object, same, text};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Maximum number of parameters of a class.
const MAX_PARAMETERS: usize = 512;
/// Maximum total size of a class's parameters in bytes.
const MAX_PARAMETERS_SIZE: usize = 256 * 1024;
/// Maximum length of a driver's name in bytes.
const MAX_DRIVER_NAME: usize = 63;
/// Maximum total size of `attachmentMetadata` in bytes.
const MAX_METADATA_SIZE: usize = 256 * 1024;
/// Maximum length of a driver's ID of a node in bytes.
const MAX_NODE_ID: usize = 256;
/// Maximum length of an attach or detach error's message in bytes.
const MAX_VOLUME_ERROR: usize = 1024;
/// Minimum lifetime of a token in seconds.
const MIN_TOKEN_LIFETIME: i64 = 600;
/// Maximum lifetime of a token in seconds.
const MAX_TOKEN_LIFETIME: i64 = 1 << 32;

pub(super) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    match kind {
        "StorageClass" => storage_class(new, errors),
        "CSINode" => csi_node(new, errors),
        "CSIDriver" => csi_driver(new, errors),
        "CSIStorageCapacity" => storage_capacity(new, errors),
        "VolumeAttachment" => {
            volume_attachment(new, errors);
            let path = Path::new("spec");
            declared_driver(text(new, "spec.attacher"), &path.field("attacher"), errors);
        }
        "VolumeAttributesClass" => volume_attributes_class(new, errors),
        _ => {}
    }
}

pub(super) fn update(kind: &str, new: &Value, old: &Value, errors: &mut Errors) {
    match kind {
        "StorageClass" => {
            storage_class(new, errors);
            for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
                immutable_hidden(field, new, old, errors);
            }
        }
        "CSINode" => {
            csi_node(new, errors);
            csi_node_update(new, old, errors);
        }
        "CSIDriver" => {
            csi_driver(new, errors);
            let path = Path::new("spec");
            // Upstream's path has a different name for this field.
            let attach = [new, old].map(|driver| get(driver, "spec.attachRequired"));
            errors.immutable(&path.field("attachedRequired"), attach[0], attach[1]);
            let modes = [new, old].map(|driver| get(driver, "spec.volumeLifecycleModes"));
            errors.immutable(&path.field("volumeLifecycleModes"), modes[0], modes[1]);
        }
        "CSIStorageCapacity" => {
            storage_capacity(new, errors);
            for (field, type_name) in
                [("nodeTopology", "*v1.LabelSelector"), ("storageClassName", "s")]
            {
                let quoted = |value: Option<&Value>| quoted(type_name, value);
                errors.immutable_as(&Path::new(field), get(new, field), get(old, field), quoted);
            }
        }
        "VolumeAttachment" => {
            let path = Path::new("spec");
            driver_name(text(new, "spec.attacher"), &path.field("attacher"), errors);
            volume_attachment(new, errors);
            immutable_hidden("spec", new, old, errors);
        }
        "VolumeAttributesClass" => {
            for field in ["driverName", "parameters"] {
                if !same(get(new, field), get(old, field)) {
                    let detail = format!("updates to {field} are forbidden.");
                    errors.forbidden(&Path::new(field), &detail);
                }
            }
            volume_attributes_class(new, errors);
        }
        _ => {}
    }
}

/// Rejects a change of the field. Like upstream's declarative rules, the error does not quote the value.
fn immutable_hidden(field: &str, new: &Value, old: &Value, errors: &mut Errors) {
    if !same(get(new, field), get(old, field)) {
        errors.invalid(&Path::new(field), Value::Null, "field is immutable");
    }
}

/// Validates provisioner, parameters, reclaim policy, binding mode and allowed topologies.
///
/// Upstream: `ValidateStorageClass`.
fn storage_class(new: &Value, errors: &mut Errors) {
    provisioner(text(new, "provisioner"), &Path::new("provisioner"), errors);
    parameters(new, errors);
    let policy = text(new, "reclaimPolicy");
    if !policy.is_empty() {
        errors.one_of(&Path::new("reclaimPolicy"), policy, &["Delete", "Retain"]);
    }
    let path = Path::new("volumeBindingMode");
    match get(new, "volumeBindingMode").and_then(Value::as_str) {
        None => errors.required(&path, ""),
        Some(mode) if ["Immediate", "WaitForFirstConsumer"].contains(&mode) => {}
        Some(mode) => errors.not_supported(&path, mode, &["Immediate", "WaitForFirstConsumer"]),
    }
    allowed_topologies(list(new, "allowedTopologies"), errors);
}

/// Requires a qualified name; its letter case is ignored.
///
/// Upstream: `validateProvisioner`.
fn provisioner(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
    } else {
        let name = name.to_lowercase();
        errors.invalid_for_each(path, &name, &names::qualified_name(&name));
    }
}

/// Validates parameters of a class: their number, their total size, and keys that are not empty.
///
/// Upstream: `validateParameters`.
fn parameters(new: &Value, errors: &mut Errors) {
    let path = Path::new("parameters");
    let Some(parameters) = object(new, "parameters") else { return };
    if parameters.len() > MAX_PARAMETERS {
        errors.too_long(&path, MAX_PARAMETERS);
        return;
    }
    if parameters.contains_key("") {
        errors.invalid(&path, "", "field can not be empty.");
    }
    if text_size(parameters) > MAX_PARAMETERS_SIZE {
        errors.too_long(&path, MAX_PARAMETERS_SIZE);
    }
}

/// Returns the total length in bytes of all keys and values.
fn text_size(texts: &Object) -> usize {
    texts.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum()
}

/// Validates the terms of allowed topologies, and rejects duplicate terms, keys and values.
///
/// Upstream: `validateAllowedTopologies`.
fn allowed_topologies(topologies: &[Value], errors: &mut Errors) {
    let allowed_topologies_path = Path::new("allowedTopologies");
    // Upstream's list of seen terms starts with an empty one. Therefore, a term without expressions is a duplicate.
    let mut seen: BTreeSet<String> = BTreeSet::from([String::new()]);
    for (index, topology) in topologies.iter().enumerate() {
        let path = allowed_topologies_path.index(index);
        let path = path.field("matchLabelExpressions");
        let mut term: BTreeSet<String> = BTreeSet::new();
        let mut keys = BTreeSet::new();
        for (index, expression) in list(topology, "matchLabelExpressions").iter().enumerate() {
            let path = path.index(index);
            let key = text(expression, "key");
            let values = list(expression, "values");
            if values.is_empty() {
                errors.required(&path.field("values"), "");
            }
            let mut distinct = BTreeSet::new();
            for (index, value) in values.iter().filter_map(Value::as_str).enumerate() {
                if !distinct.insert(value) {
                    errors.duplicate(&path.field("values").index(index), value);
                }
            }
            errors.invalid_for_each(&path.field("key"), key, &names::qualified_name(key));
            if !keys.insert(key) {
                errors.duplicate(&path.field("key"), key);
            }
            term.insert(json!([key, distinct]).to_string());
        }
        let term: Vec<String> = term.into_iter().collect();
        if !seen.insert(term.join("\n")) {
            errors.duplicate(&path, "");
        }
    }
}

/// Validates the name of a CSI driver, ignoring case.
///
/// Upstream: `ValidateCSIDriverName`.
pub(super) fn driver_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    if name.len() > MAX_DRIVER_NAME {
        errors.too_long(path, MAX_DRIVER_NAME);
    }
    errors.invalid_for_each(path, name, &names::dns_subdomain(&name.to_lowercase()));
}

/// Validates all fields except the attacher. Upstream validates the attacher of an update before these fields. A
/// declarative rule validates that of a new object after them.
///
/// Upstream: `ValidateVolumeAttachment`.
fn volume_attachment(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let source = path.field("source");
    let volume = get(new, "spec.source.persistentVolumeName").and_then(Value::as_str);
    let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (get(new, "spec.source.inlineVolumeSpec"), volume) {
        (None, None) => errors.required(&source, detail),
        (Some(_), Some(_)) => errors.forbidden(&source, detail),
        (None, Some("")) => {
            let path = source.field("persistentVolumeName");
            errors.required(&path, "must specify non empty persistentVolumeName");
        }
        (Some(spec), None) => {
            persistentvolume::inline_spec(spec, &source.field("inlineVolumeSpec"), errors);
        }
        _ => {}
    }
    let node = text(new, "spec.nodeName");
    errors.invalid_for_each(&path.field("nodeName"), node, &names::dns_subdomain(node));
    let status = Path::new("status");
    let metadata = object(new, "status.attachmentMetadata");
    if metadata.is_some_and(|metadata| text_size(metadata) > MAX_METADATA_SIZE) {
        errors.too_long(&status.field("attachmentMetadata"), MAX_METADATA_SIZE);
    }
    for field in ["attachError", "detachError"] {
        let path = status.field(field);
        let error = |name: &str| format!("status.{field}.{name}");
        if text(new, &error("message")).len() > MAX_VOLUME_ERROR {
            errors.too_long(&path.field("message"), MAX_VOLUME_ERROR);
        }
        let code = int(new, &error("errorCode"));
        errors.in_range(&path.field("errorCode"), code, 0, i64::from(i32::MAX));
    }
    if let Some(volume) = volume {
        let path = source.field("persistentVolumeName");
        errors.invalid_for_each(&path, volume, &names::dns_subdomain(volume));
    }
}

/// Validates the drivers of a CSINode: unique names, node IDs, allocatable counts and topology keys.
///
/// Upstream: `ValidateCSINode`.
fn csi_node(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let drivers_path = path.field("drivers");
    let mut seen = BTreeSet::new();
    for (index, driver) in list(new, "spec.drivers").iter().enumerate() {
        let path = drivers_path.index(index);
        let name = text(driver, "name");
        driver_name(name, &path.field("name"), errors);
        let node_id = text(driver, "nodeID");
        if node_id.is_empty() {
            errors.required(&path.field("nodeID"), "");
        }
        if node_id.len() > MAX_NODE_ID {
            let detail = format!("must be {MAX_NODE_ID} characters or less");
            errors.invalid(&path.field("nodeID"), node_id, &detail);
        }
        let allocatable = path.field("allocatable");
        errors.non_negative(&allocatable.field("count"), int(driver, "allocatable.count"));
        if !seen.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
        let mut keys = BTreeSet::new();
        for key in list(driver, "topologyKeys").iter().filter_map(Value::as_str) {
            if key.is_empty() {
                errors.required(&path, "");
            }
            if !keys.insert(key) {
                errors.duplicate(&path, key);
            }
            errors.invalid_for_each(&path, key, &names::qualified_name(key));
        }
    }
}

/// Rejects changes of a driver, except of its volume limits in `allocatable`.
///
/// Upstream: `ValidateCSINodeUpdate`.
fn csi_node_update(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let without_limits = |driver: &Value| {
        let mut driver = driver.clone();
        driver.as_object_mut().map(|fields| fields.remove("allocatable"));
        driver
    };
    for before in list(old, "spec.drivers") {
        for driver in list(new, "spec.drivers") {
            if text(driver, "name") == text(before, "name") {
                let (driver, before) = (without_limits(driver), without_limits(before));
                let quoted = |driver: Option<&Value>| quoted("storage.CSINodeDriver", driver);
                errors.immutable_as(&path.field("drivers"), Some(&driver), Some(&before), quoted);
            }
        }
    }
}

/// Validates a CSIDriver's spec: required fields, the fsGroup policy, token requests, lifecycle modes and the update
/// period.
///
/// Upstream: `validateCSIDriverSpec`.
fn csi_driver(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    for (field, name) in [
        ("spec.attachRequired", "attachedRequired"),
        ("spec.podInfoOnMount", "podInfoOnMount"),
        ("spec.storageCapacity", "storageCapacity"),
    ] {
        if get(new, field).is_none() {
            errors.required(&path.field(name), "");
        }
    }
    if let Some(policy) = get(new, "spec.fsGroupPolicy").and_then(Value::as_str) {
        let supported = ["File", "None", "ReadWriteOnceWithFSType"];
        if !supported.contains(&policy) {
            errors.not_supported(&path.field("fsGroupPolicy"), policy, &supported);
        }
    }
    token_requests(list(new, "spec.tokenRequests"), &path.field("tokenRequests"), errors);
    let modes = path.field("volumeLifecycleModes");
    for mode in list(new, "spec.volumeLifecycleModes").iter().filter_map(Value::as_str) {
        if !["Persistent", "Ephemeral"].contains(&mode) {
            errors.not_supported(&modes, mode, &["Persistent", "Ephemeral"]);
        }
    }
    if get(new, "spec.seLinuxMount").is_none() {
        errors.required(&path.field("seLinuxMount"), "");
    }
    let period = int(new, "spec.nodeAllocatableUpdatePeriodSeconds");
    if let Some(period) = period.filter(|period| *period < 10) {
        let path = path.field("nodeAllocatableUpdatePeriodSeconds");
        errors.invalid(&path, period, "must be greater than or equal to 10 seconds");
    }
    let in_secrets = get(new, "spec.serviceAccountTokenInSecrets");
    if let Some(in_secrets) = in_secrets.filter(|_| list(new, "spec.tokenRequests").is_empty()) {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.invalid(&path.field("serviceAccountTokenInSecrets"), in_secrets.clone(), detail);
    }
}

/// Requires unique audiences, and lifetimes from 10 minutes to 2^32 seconds.
///
/// Upstream: `validateTokenRequests`.
fn token_requests(requests: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut audiences = BTreeSet::new();
    for (index, request) in requests.iter().enumerate() {
        let path = path.index(index);
        let audience = text(request, "audience");
        if !audiences.insert(audience) {
            errors.duplicate(&path.field("audience"), audience);
            continue;
        }
        let Some(lifetime) = int(request, "expirationSeconds") else { continue };
        let path = path.field("expirationSeconds");
        if lifetime < MIN_TOKEN_LIFETIME {
            errors.invalid(&path, lifetime, "may not specify a duration less than 10 minutes");
        }
        if lifetime > MAX_TOKEN_LIFETIME {
            errors.invalid(&path, lifetime, "may not specify a duration larger than 2^32 seconds");
        }
    }
}

/// Validates node topology, storage class name and capacity.
///
/// Upstream: `ValidateCSIStorageCapacity`.
fn storage_capacity(new: &Value, errors: &mut Errors) {
    if let Some(selector) = get(new, "nodeTopology") {
        labels::selector(selector, &Path::new("nodeTopology"), errors);
    }
    let class = text(new, "storageClassName");
    errors.invalid_for_each(&Path::new("storageClassName"), class, &names::dns_subdomain(class));
    if let Some(capacity) = get(new, "capacity") {
        quantity::non_negative(capacity, &Path::new("capacity"), errors);
    }
}

/// Validates the driver name, and requires at least one parameter.
///
/// Upstream: `ValidateVolumeAttributesClass`.
fn volume_attributes_class(new: &Value, errors: &mut Errors) {
    provisioner(text(new, "driverName"), &Path::new("driverName"), errors);
    parameters(new, errors);
    if object(new, "parameters").is_none_or(serde_json::Map::is_empty) {
        let detail = "must contain at least one key/value pair";
        errors.required(&Path::new("parameters"), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the fields that creating the object has errors of.
    fn fields(kind: &str, object: &Value) -> Vec<String> {
        let mut errors = Errors::default();
        create(kind, object, &mut errors);
        errors.into_vec().into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn invalid_fields_of_each_kind_are_rejected() {
        let driver = json!({"spec": {"attachRequired": true, "podInfoOnMount": true, "storageCapacity": true,
            "seLinuxMount": false, "tokenRequests": [{"audience": "a", "expirationSeconds": 5}, {"audience": "a"}]}});
        let term = json!({"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]});
        let class = json!({"provisioner": "a/b", "volumeBindingMode": "Immediate",
            "allowedTopologies": [term, term, {}]});
        let attachment = json!({"spec": {"attacher": "a", "nodeName": "n", "source": {}}});
        let inline = json!({"spec": {"attacher": "", "nodeName": "n", "source": {"inlineVolumeSpec": {
            "accessModes": ["ReadWriteOnce"], "csi": {"driver": "d", "volumeHandle": ""}}}}});
        let node = json!({"spec": {"drivers": [{"name": "a", "nodeID": "n", "topologyKeys": ["k", "k"]}]}});
        for (kind, object, expected) in [
            (
                "CSIDriver",
                driver,
                &["spec.tokenRequests[0].expirationSeconds", "spec.tokenRequests[1].audience"][..],
            ),
            (
                "StorageClass",
                class,
                &[
                    "allowedTopologies[1].matchLabelExpressions",
                    "allowedTopologies[2].matchLabelExpressions",
                ],
            ),
            ("VolumeAttachment", attachment, &["spec.source"]),
            (
                "VolumeAttachment",
                inline,
                &["spec.source.inlineVolumeSpec.csi.volumeHandle", "spec.attacher"],
            ),
            ("CSINode", node, &["spec.drivers[0]"]),
            ("VolumeAttributesClass", json!({"driverName": "a"}), &["parameters"]),
            (
                "CSIStorageCapacity",
                json!({"storageClassName": "A", "capacity": "-1"}),
                &["storageClassName", "capacity"],
            ),
        ] {
            assert_eq!(fields(kind, &object), expected, "{kind}");
        }
    }

    #[test]
    fn updates_of_a_csi_node_only_change_volume_limits() {
        let node = |id: &str, count: i64| json!({"spec": {"drivers": [{"name": "a", "nodeID": id, "allocatable": {"count": count}}]}});
        for (size, error_count) in [(MAX_NODE_ID, 0), (MAX_NODE_ID + 1, 1)] {
            let mut errors = Errors::default();
            create("CSINode", &node(&"n".repeat(size), 1), &mut errors);
            assert_eq!(errors.into_vec().len(), error_count, "{size}");
        }
        for (id, count, error_count) in [("n", 1, 0), ("n", 2, 0), ("m", 1, 1)] {
            let mut errors = Errors::default();
            update("CSINode", &node(id, count), &node("n", 1), &mut errors);
            assert_eq!(errors.into_vec().len(), error_count, "{id} {count}");
        }
    }
}
