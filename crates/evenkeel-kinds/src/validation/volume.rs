//! Validation of a pod's volumes and of their mounts.

use super::{names, pod};
use evenkeel_apimachinery::amount::Amount;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, int, list, text};
use serde_json::Value;
use std::collections::BTreeSet;

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
const HOST_PATH_TYPES: &[&str] = &[
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];

/// Validates `spec.volumes` and returns the names that containers may mount.
///
/// Upstream: `ValidateVolumes`.
pub(super) fn volumes<'a>(
    spec: &'a Value,
    path: &Path<'_>,
    errors: &mut Errors,
) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for (index, volume) in list(spec, "volumes").iter().enumerate() {
        let path = path.index(index);
        source(volume, &path, errors);
        let name = text(volume, "name");
        if name.is_empty() {
            errors.required(&path.field("name"), "");
        } else {
            errors.invalid_all(&path.field("name"), name, &names::dns_label(name));
        }
        if !seen.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
    }
    seen
}

/// Upstream: `validateVolumeSource`.
fn source(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut n_sources = 0;
    for field in SOURCES {
        let Some(source) = get(volume, field) else { continue };
        n_sources += 1;
        let path = path.field(field);
        if n_sources > 1 {
            errors.forbidden(&path, "may not specify more than 1 volume type");
        } else {
            one_source(field, source, &path, errors);
        }
    }
    if n_sources == 0 {
        errors.required(path, "must specify a volume type");
    }
}

fn one_source(kind: &str, source: &Value, path: &Path<'_>, errors: &mut Errors) {
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
        "hostPath" => {
            required("path", errors);
            no_backsteps(text(source, "path"), &path.field("path"), errors);
            errors.one_of(&path.field("type"), text(source, "type"), HOST_PATH_TYPES);
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
        "projected" => projected(source, path, errors),
        "persistentVolumeClaim" => required("claimName", errors),
        "nfs" => {
            required("server", errors);
            required("path", errors);
            if !text(source, "path").is_empty() && !text(source, "path").starts_with('/') {
                errors.invalid(
                    &path.field("path"),
                    text(source, "path"),
                    "must be an absolute path",
                );
            }
        }
        "gitRepo" => required("repository", errors),
        "csi" => required("driver", errors),
        "image" => required("reference", errors),
        "ephemeral" if get(source, "volumeClaimTemplate").is_none() => {
            errors.required(&path.field("volumeClaimTemplate"), "");
        }
        "cephfs" | "rbd" if list(source, "monitors").is_empty() => {
            errors.required(&path.field("monitors"), "");
        }
        "gcePersistentDisk" => required("pdName", errors),
        "awsElasticBlockStore" | "cinder" => required("volumeID", errors),
        _ => {}
    }
}

fn mode(source: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(mode) = int(source, field).filter(|mode| !(0..=0o777).contains(mode)) {
        let words = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.invalid(&path.field(field), mode, words);
    }
}

fn mode_and_items(source: &Value, path: &Path<'_>, errors: &mut Errors) {
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

/// Upstream: `validateDownwardAPIVolumeSource`.
fn downward(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let items = path.field("items");
    for (index, item) in list(source, "items").iter().enumerate() {
        let path = items.index(index);
        if text(item, "path").is_empty() {
            errors.required(&path.field("path"), "");
        } else {
            local_path(text(item, "path"), &path.field("path"), errors);
        }
        match (get(item, "fieldRef"), get(item, "resourceFieldRef")) {
            (Some(field), None) => {
                pod::field_ref(field, pod::VOLUME_FIELDS, &path.field("fieldRef"), errors);
            }
            (Some(_), Some(_)) => errors.invalid(
                &path,
                "resource",
                "fieldRef and resourceFieldRef can not be specified simultaneously",
            ),
            (None, Some(resource)) => {
                if text(resource, "containerName").is_empty() {
                    errors.required(&path.field("resourceFieldRef").field("containerName"), "");
                } else {
                    pod::resource_field_ref(resource, &path.field("resourceFieldRef"), errors);
                }
            }
            (None, None) => {
                errors.required(&path, "one of fieldRef and resourceFieldRef is required");
            }
        }
        mode(item, "mode", &path, errors);
    }
}

/// Upstream: `validateProjectionSources`.
fn projected(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    mode(source, "defaultMode", path, errors);
    let sources = path.field("sources");
    for (index, source) in list(source, "sources").iter().enumerate() {
        let path = sources.index(index);
        let mut n_sources = 0;
        for kind in [
            "secret",
            "configMap",
            "downwardAPI",
            "serviceAccountToken",
            "clusterTrustBundle",
            "podCertificate",
        ] {
            let Some(source) = get(source, kind) else { continue };
            n_sources += 1;
            let path = path.field(kind);
            if n_sources > 1 {
                errors.forbidden(&path, "may not specify more than 1 volume type");
                continue;
            }
            match kind {
                "secret" | "configMap" => {
                    if text(source, "name").is_empty() {
                        errors.required(&path.field("name"), "");
                    }
                    mode_and_items(source, &path, errors);
                }
                "downwardAPI" => downward(source, &path, errors),
                "serviceAccountToken" => token(source, &path, errors),
                _ => {}
            }
        }
    }
}

fn token(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(seconds) = int(source, "expirationSeconds") {
        let path = path.field("expirationSeconds");
        if seconds < 600 {
            errors.invalid(&path, seconds, "may not specify a duration less than 10 minutes");
        } else if seconds > 1 << 32 {
            errors.invalid(&path, seconds, "may not specify a duration larger than 2^32 seconds");
        }
    }
    if text(source, "path").is_empty() {
        errors.required(&path.field("path"), "");
    } else {
        local_path(text(source, "path"), &path.field("path"), errors);
    }
}

/// Validates a relative path that stays inside the volume.
///
/// Upstream: `ValidateLocalNonReservedPath`.
fn local_path(target: &str, path: &Path<'_>, errors: &mut Errors) {
    if target.starts_with('/') {
        errors.invalid(path, target, "must be a relative path");
        return;
    }
    no_backsteps(target, path, errors);
    if target.starts_with("..") && !target.starts_with("../") && target != ".." {
        errors.invalid(path, target, "must not start with '..'");
    }
}

/// Upstream: `ValidatePathNoBacksteps`.
fn no_backsteps(target: &str, path: &Path<'_>, errors: &mut Errors) {
    if target.split('/').any(|part| part == "..") {
        errors.invalid(path, target, "must not contain '..'");
    }
}

/// Validates `volumeMounts` and `volumeDevices` of a container.
///
/// Upstream: `ValidateVolumeMounts`, `ValidateVolumeDevices`.
pub(super) fn mounts(
    container: &Value,
    path: &Path<'_>,
    volumes: &BTreeSet<&str>,
    errors: &mut Errors,
) {
    let all = path.field("volumeMounts");
    let mut points = BTreeSet::new();
    for (index, mount) in list(container, "volumeMounts").iter().enumerate() {
        let path = all.index(index);
        let name = text(mount, "name");
        if name.is_empty() {
            errors.required(&path.field("name"), "");
        }
        if !volumes.contains(name) {
            errors.not_found(&path.field("name"), name);
        }
        let point = text(mount, "mountPath");
        if point.is_empty() {
            errors.required(&path.field("mountPath"), "");
        }
        if !points.insert(point) {
            errors.invalid(&path.field("mountPath"), point, "must be unique");
        }
        for field in ["subPath", "subPathExpr"] {
            let target = text(mount, field);
            if !target.is_empty() {
                local_path(target, &path.field(field), errors);
            }
        }
        if !text(mount, "subPath").is_empty() && !text(mount, "subPathExpr").is_empty() {
            let words = "subPathExpr and subPath are mutually exclusive";
            errors.invalid(&path.field("subPathExpr"), text(mount, "subPathExpr"), words);
        }
    }
    let all = path.field("volumeDevices");
    for (index, device) in list(container, "volumeDevices").iter().enumerate() {
        let path = all.index(index);
        let name = text(device, "name");
        if name.is_empty() {
            errors.required(&path.field("name"), "");
        } else if !volumes.contains(name) {
            errors.not_found(&path.field("name"), name);
        }
        if text(device, "devicePath").is_empty() {
            errors.required(&path.field("devicePath"), "");
        }
    }
}
