//! Validation of a pod's volumes and mounts.

use super::persistentvolumesource::no_backsteps;
use super::pod_env::{VOLUME_FIELDS, field_ref, resource_field_ref};
use super::template_metadata::template_metadata;
use super::{names, persistentvolumeclaim, persistentvolumesource};
use evenkeel_apimachinery::amount::Amount;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{flag, get, int, list, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Fields of a volume that name its type, in the order in which upstream validates them.
const SOURCES: &[&str] = &[
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// Valid volumes of a pod, which containers may use, by name. The value is whether the volume is a claim, which can be
/// a block device.
pub(super) type Volumes<'a> = BTreeMap<&'a str, bool>;

/// Validates `spec.volumes`, and returns the valid ones. `pod_name` is empty for a template.
///
/// Upstream: `ValidateVolumes`.
pub(super) fn volumes<'a>(
    spec: &'a Value,
    pod_name: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Volumes<'a> {
    let mut valid = Volumes::new();
    for (index, volume) in list(spec, "volumes").iter().enumerate() {
        let path = path.index(index);
        let mut volume_errors = Errors::default();
        source(volume, &path, &mut volume_errors);
        let name = text(volume, "name");
        let is_ephemeral = get(volume, "ephemeral").is_some();
        if is_ephemeral && !pod_name.is_empty() && !name.is_empty() {
            let claim = format!("{pod_name}-{name}");
            for error in names::dns_subdomain(&claim) {
                let detail = format!("PVC name {claim:?}: {error}");
                volume_errors.invalid(&path.field("name"), name, &detail);
            }
        }
        volume_errors.required_valid(&path.field("name"), name, names::dns_label);
        if valid.contains_key(name) {
            volume_errors.duplicate(&path.field("name"), name);
        }
        if volume_errors.is_empty() {
            let is_claim = is_ephemeral || get(volume, "persistentVolumeClaim").is_some();
            valid.insert(name, is_claim);
        }
        errors.extend(volume_errors);
    }
    valid
}

/// Requires exactly one type of volume, and validates its fields.
///
/// Upstream: `validateVolumeSource`.
fn source(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut source_count = 0;
    for field in SOURCES {
        let Some(source) = get(volume, field) else { continue };
        source_count += 1;
        let path = path.field(match *field {
            // Upstream's paths have these spellings.
            "cephfs" if source_count > 1 => "cephFS",
            "downwardAPI" if source_count > 1 => "downwarAPI",
            field => field,
        });
        if source_count > 1 {
            errors.forbidden(&path, "may not specify more than 1 volume type");
        } else {
            one_source(field, source, text(volume, "name"), &path, errors);
        }
    }
    if source_count == 0 {
        errors.required(path, "must specify a volume type");
    }
}

/// Validates the source of a volume, whose field is `kind`.
fn one_source(kind: &str, source: &Value, volume: &str, path: &Path<'_>, errors: &mut Errors) {
    let required = |field: &str, errors: &mut Errors| {
        if text(source, field).is_empty() {
            errors.required(&path.field(field), "");
        }
    };
    match kind {
        "emptyDir" => {
            let limit = get(source, "sizeLimit").and_then(Amount::of);
            if limit.is_some_and(Amount::is_negative) {
                errors.forbidden(
                    &path.field("sizeLimit"),
                    "SizeLimit field must be a valid resource quantity",
                );
            }
        }
        "secret" => {
            required("secretName", errors);
            mode_and_items(source, path, errors);
        }
        "configMap" => {
            required("name", errors);
            mode_and_items(source, path, errors);
        }
        "downwardAPI" => {
            mode(source, "defaultMode", path, errors);
            downward(source, path, errors);
        }
        "projected" => super::volume_projected::projected(source, path, errors),
        "persistentVolumeClaim" => required("claimName", errors),
        "gitRepo" => required("repository", errors),
        "image" => required("reference", errors),
        "ephemeral" => {
            let path = path.field("volumeClaimTemplate");
            match get(source, "volumeClaimTemplate") {
                None => errors.required(&path, ""),
                Some(template) => {
                    if let Some(metadata) = get(template, "metadata") {
                        template_metadata(metadata, &path.field("metadata"), errors);
                    }
                    persistentvolumeclaim::create(template, &path.field("spec"), errors);
                }
            }
        }
        _ => persistentvolumesource::pod_source(kind, source, volume, path, errors),
    }
}

/// Validates the file mode in a field, which is optional.
pub(super) fn mode(source: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(mode) = int(source, field).filter(|mode| !(0..=0o777).contains(mode)) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.invalid(&path.field(field), mode, detail);
    }
}

/// Validates `defaultMode` and `items` of a ConfigMap's or a Secret's volume.
pub(super) fn mode_and_items(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    mode(source, "defaultMode", path, errors);
    let items = path.field("items");
    for (index, item) in list(source, "items").iter().enumerate() {
        let path = items.index(index);
        if text(item, "key").is_empty() {
            errors.required(&path.field("key"), "");
        }
        if text(item, "path").is_empty() {
            errors.required(&path.field("path"), "");
        } else {
            local_path(text(item, "path"), &path.field("path"), errors);
        }
        mode(item, "mode", &path, errors);
    }
}

/// Validates the items of a downward API volume. As upstream's, the paths of errors have no index.
///
/// Upstream: `validateDownwardAPIVolumeFile`.
pub(super) fn downward(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    for item in list(source, "items") {
        if text(item, "path").is_empty() {
            errors.required(&path.field("path"), "");
        } else {
            local_path(text(item, "path"), &path.field("path"), errors);
        }
        match (get(item, "fieldRef"), get(item, "resourceFieldRef")) {
            (Some(field), None) => {
                field_ref(field, VOLUME_FIELDS, &path.field("fieldRef"), errors);
            }
            (Some(_), Some(_)) => errors.invalid(
                path,
                "resource",
                "fieldRef and resourceFieldRef can not be specified simultaneously",
            ),
            (None, Some(resource)) => {
                resource_field_ref(resource, true, &path.field("resourceFieldRef"), errors);
            }
            (None, None) => {
                errors.required(path, "one of fieldRef and resourceFieldRef is required");
            }
        }
        mode(item, "mode", path, errors);
    }
}

/// Validates a file's path inside a volume. It must be relative, and neither contain `..` nor start with two dots.
///
/// Upstream: `ValidateLocalNonReservedPath`.
pub(super) fn local_path(target: &str, path: &Path<'_>, errors: &mut Errors) {
    descending_path(target, path, errors);
    if target.starts_with("..") && !target.starts_with("../") {
        errors.invalid(path, target, "must not start with '..'");
    }
}

/// Validates `volumeMounts` and `volumeDevices` of a container.
///
/// Upstream: `ValidateVolumeMounts`, `ValidateVolumeDevices`.
pub(super) fn mounts<'a>(
    container: &'a Value,
    path: &Path<'_>,
    volumes: &Volumes<'_>,
    errors: &mut Errors,
) {
    let volume_mounts_path = path.field("volumeMounts");
    let (mounts, devices) = (list(container, "volumeMounts"), list(container, "volumeDevices"));
    // Few containers have both mounts and devices. Others need no sets.
    let has_both = !mounts.is_empty() && !devices.is_empty();
    let texts = |items: &'a [Value], field: &str| -> BTreeSet<&'a str> {
        items.iter().filter(|_| has_both).map(|item| text(item, field)).collect()
    };
    let (device_names, device_paths) = (texts(devices, "name"), texts(devices, "devicePath"));
    let (mount_names, mount_paths) = (texts(mounts, "name"), texts(mounts, "mountPath"));
    let mut seen_mount_paths = BTreeSet::new();
    for (index, mount) in mounts.iter().enumerate() {
        let path = volume_mounts_path.index(index);
        let name = text(mount, "name");
        if name.is_empty() {
            errors.required(&path.field("name"), "");
        }
        if !volumes.contains_key(name) {
            errors.not_found(&path.field("name"), name);
        }
        let mount_path = text(mount, "mountPath");
        if mount_path.is_empty() {
            errors.required(&path.field("mountPath"), "");
        }
        if !seen_mount_paths.insert(mount_path) {
            errors.invalid(&path.field("mountPath"), mount_path, "must be unique");
        }
        if device_names.contains(name) {
            let detail = "must not already exist in volumeDevices";
            errors.invalid(&path.field("name"), name, detail);
        }
        if device_paths.contains(mount_path) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.invalid(&path.field("mountPath"), mount_path, detail);
        }
        // From here on, some of upstream's paths have no index.
        let (sub_path, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
        if !sub_path.is_empty() {
            descending_path(sub_path, &volume_mounts_path.field("subPath"), errors);
        }
        if !expression.is_empty() {
            if !sub_path.is_empty() {
                let detail = "subPathExpr and subPath are mutually exclusive";
                errors.invalid(&path.field("subPathExpr"), expression, detail);
            }
            descending_path(expression, &volume_mounts_path.field("subPathExpr"), errors);
        }
        propagation(container, mount, &volume_mounts_path.field("mountPropagation"), errors);
        recursive_read_only(mount, &volume_mounts_path.field("recursiveReadOnly"), errors);
    }
    let volume_devices_path = path.field("volumeDevices");
    let (mut seen, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for (index, device) in devices.iter().enumerate() {
        let path = volume_devices_path.index(index);
        let (name, target) = (text(device, "name"), text(device, "devicePath"));
        if name.is_empty() {
            errors.required(&path.field("name"), "");
        } else if !seen.insert(name) {
            errors.invalid(&path.field("name"), name, "must be unique");
        }
        match volumes.get(name) {
            Some(true) => {}
            Some(false) => errors.invalid(
                &path.field("name"),
                name,
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            ),
            None => errors.not_found(&path.field("name"), name),
        }
        let target_path = path.field("devicePath");
        if target.is_empty() {
            errors.required(&target_path, "");
        }
        if paths.contains(target) {
            errors.invalid(&target_path, target, "must be unique");
        }
        if target.split('/').any(|part| part == "..") {
            errors.invalid(&target_path, target, "can not contain backsteps ('..')");
        } else {
            paths.insert(target);
        }
        if mount_names.contains(name) {
            let detail = "must not already exist in volumeMounts";
            errors.invalid(&path.field("name"), name, detail);
        }
        if mount_paths.contains(target) {
            let detail = "must not already exist as a path in volumeMounts";
            errors.invalid(&target_path, target, detail);
        }
    }
}

/// Validates a path inside a volume. It must be relative, and not contain `..`.
///
/// Upstream: `validateLocalDescendingPath`.
pub(super) fn descending_path(target: &str, path: &Path<'_>, errors: &mut Errors) {
    if target.starts_with('/') {
        errors.invalid(path, target, "must be a relative path");
    }
    no_backsteps(target, path, errors);
}

/// Validates mount propagation. Only privileged containers may use `Bidirectional`.
///
/// Upstream: `validateMountPropagation`.
fn propagation(container: &Value, mount: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(mode) = get(mount, "mountPropagation").and_then(Value::as_str) else { return };
    errors.one_of(path, mode, &["Bidirectional", "HostToContainer", "None"]);
    if mode == "Bidirectional" && !flag(container, "securityContext.privileged") {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.forbidden(path, detail);
    }
}

/// Validates recursive read-only mounts, which need `readOnly` and no mount propagation.
///
/// Upstream: `validateMountRecursiveReadOnly`.
fn recursive_read_only(mount: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(mode) = get(mount, "recursiveReadOnly").and_then(Value::as_str) else { return };
    errors.one_of(path, mode, &["Disabled", "Enabled", "IfPossible"]);
    if !matches!(mode, "Enabled" | "IfPossible") {
        return;
    }
    if !flag(mount, "readOnly") {
        errors.forbidden(path, "may only be specified when readOnly is true");
    }
    if !matches!(text(mount, "mountPropagation"), "" | "None") {
        let detail = "may only be specified when mountPropagation is None or not specified";
        errors.forbidden(path, detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn volumes_have_one_valid_source_and_a_unique_name() {
        let spec = json!({"volumes": [
            {"name": "a", "emptyDir": {}},
            {"name": "b", "emptyDir": {}, "secret": {"secretName": "s"}},
            {"name": "c", "azureDisk": {}},
            {"name": "d", "gcePersistentDisk": {}},
            {"name": "e", "downwardAPI": {"items": [{"path": ""}]}},
            {"name": "f", "flexVolume": {"driver": "x"}},
            {"name": "a", "emptyDir": {}},
            {"name": "g", "persistentVolumeClaim": {"claimName": "c"}},
        ]});
        let mut errors = Errors::default();
        let valid = volumes(&spec, "", &Path::new("v"), &mut errors);
        let fields: Vec<String> = errors.into_vec().into_iter().map(|error| error.field).collect();
        let expected = [
            "v[1].secret",
            "v[2].azureDisk.diskName",
            "v[2].azureDisk.diskURI",
            "v[3].persistentDisk.pdName",
            "v[4].downwardAPI.path",
            "v[4].downwardAPI",
            "v[6].name",
        ];
        assert_eq!(fields, expected);
        assert_eq!(valid, Volumes::from([("a", false), ("f", false), ("g", true)]));
    }

    #[test]
    fn mounts_and_devices_share_neither_names_nor_paths() {
        let check = |container: Value, expected: &[&str]| {
            let mut errors = Errors::default();
            mounts(
                &container,
                &Path::new("c"),
                &Volumes::from([("a", true), ("b", false)]),
                &mut errors,
            );
            let fields: Vec<String> =
                errors.into_vec().into_iter().map(|error| error.field).collect();
            assert_eq!(fields, expected, "{container}");
        };
        let mount = |more: Value| {
            let mut mount = json!({"name": "a", "mountPath": "/a"});
            for (field, value) in more.as_object().into_iter().flatten() {
                mount[field] = value.clone();
            }
            json!({ "volumeMounts": [mount] })
        };
        check(mount(json!({"mountPropagation": "None", "recursiveReadOnly": "Disabled"})), &[]);
        check(mount(json!({"mountPropagation": "x"})), &["c.volumeMounts.mountPropagation"]);
        check(
            mount(json!({"mountPropagation": "Bidirectional"})),
            &["c.volumeMounts.mountPropagation"],
        );
        check(
            mount(json!({"recursiveReadOnly": "Enabled"})),
            &["c.volumeMounts.recursiveReadOnly"],
        );
        check(mount(json!({"recursiveReadOnly": "Enabled", "readOnly": true})), &[]);
        check(mount(json!({"subPath": "/x"})), &["c.volumeMounts.subPath"]);
        check(mount(json!({"name": "x"})), &["c.volumeMounts[0].name"]);
        let device = json!({"name": "a", "devicePath": "/a"});
        let mut both = mount(json!({}));
        both["volumeDevices"] = json!([device, device]);
        check(
            both,
            &[
                "c.volumeMounts[0].name",
                "c.volumeMounts[0].mountPath",
                "c.volumeDevices[0].name",
                "c.volumeDevices[0].devicePath",
                "c.volumeDevices[1].name",
                "c.volumeDevices[1].devicePath",
                "c.volumeDevices[1].name",
                "c.volumeDevices[1].devicePath",
            ],
        );
        let devices = |name: &str| json!({"volumeDevices": [{"name": name, "devicePath": "/d"}]});
        check(devices("a"), &[]);
        check(devices("b"), &["c.volumeDevices[0].name"]);
    }

    #[test]
    fn ephemeral_volumes_have_a_valid_claim_name_with_their_pod() {
        let template = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}});
        let spec =
            json!({"volumes": [{"name": "e", "ephemeral": {"volumeClaimTemplate": template}}]});
        for (pod_name, expected) in [("", 0), ("a", 0), ("a/b", 1)] {
            let mut errors = Errors::default();
            volumes(&spec, pod_name, &Path::new("v"), &mut errors);
            let errors = errors.into_vec();
            let is_of_name = errors.iter().all(|error| error.field == "v[0].name");
            assert!(errors.len() == expected && is_of_name, "{pod_name}: {errors:?}");
        }
    }
}
