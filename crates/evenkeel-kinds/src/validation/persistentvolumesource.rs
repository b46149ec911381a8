//! Validation of the volume sources of PersistentVolumes, and of those that pods share with them.

use super::{names, storage};
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{flag, get, int, is_empty, list, object, text};
use serde_json::Value;

/// Names of the volume sources, in the order of upstream's validation.
pub(super) const NAMES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
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

/// Validates that a volume has exactly one source, and validates the fields of the source.
///
/// Upstream: `ValidatePersistentVolumeSpec`.
pub(super) fn source(
    spec: &Value,
    volume: &str,
    is_inline: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let mut source_count = 0;
    for name in NAMES {
        let Some(source) = get(spec, name) else { continue };
        source_count += 1;
        // Upstream accepts a flexVolume as a second source. In two of its paths, the name differs from that of the
        // field.
        if source_count > 1 && name != "flexVolume" {
            let name = if name == "cephfs" { "cephFS" } else { name };
            errors.forbidden(&path.field(name), "may not specify more than 1 volume type");
            continue;
        }
        let field = if name == "gcePersistentDisk" { "persistentDisk" } else { name };
        Source { value: source, path: &path.field(field) }.validate(name, volume, errors);
        let has_affinity = !is_inline && get(spec, "nodeAffinity").is_some();
        if name == "local" && !has_affinity {
            let detail = "Local volume requires node affinity";
            errors.required(&path.field("nodeAffinity"), detail);
        }
    }
    if source_count == 0 {
        errors.required(path, "must specify a volume type");
    }
}

/// Validates a volume source that pods share with PersistentVolumes. A pod's sources reference secrets in its own
/// namespace.
///
/// Upstream: `validateVolumeSource`.
pub(super) fn pod_source(
    kind: &str,
    value: &Value,
    volume: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let source = Source { value, path };
    match kind {
        // In upstream's path, this field has a different name.
        "gcePersistentDisk" => {
            let name = path.to_string().replace("gcePersistentDisk", "persistentDisk");
            Source { value, path: &Path::new(&name) }.disk("pdName", errors);
        }
        "cinder" => {
            source.required(&["volumeID"], errors);
            source.named_secret(&["name"], errors);
        }
        "storageos" => {
            source.storageos_volume(errors);
            source.named_secret(&["name"], errors);
        }
        "csi" => {
            storage::driver_name(text(value, "driver"), &path.field("driver"), errors);
            if let Some(secret) = get(value, "nodePublishSecretRef") {
                let secret_path = path.field("nodePublishSecretRef");
                match text(secret, "name") {
                    "" => errors.required(&secret_path.field("name"), ""),
                    name => {
                        errors.invalid_for_each(
                            &path.field("name"),
                            name,
                            &names::dns_subdomain(name),
                        );
                    }
                }
            }
        }
        "iscsi" => {
            source.iscsi(volume, false, errors);
        }
        _ => source.validate(kind, volume, errors),
    }
}

/// Rejects a path with an element `..`.
///
/// Upstream: `ValidatePathNoBacksteps`.
pub(super) fn no_backsteps(target: &str, path: &Path<'_>, errors: &mut Errors) {
    if target.split('/').any(|part| part == "..") {
        errors.invalid(path, target, "must not contain '..'");
    }
}

/// Volume source and its path.
struct Source<'a> {
    value: &'a Value,
    path: &'a Path<'a>,
}

impl Source<'_> {
    fn validate(&self, name: &str, volume: &str, errors: &mut Errors) {
        match name {
            "hostPath" => self.host_path(errors),
            "gcePersistentDisk" => self.disk("pdName", errors),
            "awsElasticBlockStore" => self.disk("volumeID", errors),
            "glusterfs" => self.glusterfs(errors),
            "flocker" => self.flocker(errors),
            "nfs" => self.nfs(errors),
            "rbd" => {
                self.required_list("monitors", errors);
                self.required(&["image"], errors);
            }
            "quobyte" => self.quobyte(errors),
            "cephfs" => self.required_list("monitors", errors),
            "iscsi" => self.iscsi(volume, true, errors),
            "cinder" => {
                self.required(&["volumeID"], errors);
                self.named_secret(&["name", "namespace"], errors);
            }
            "fc" => self.fibre_channel(errors),
            "flexVolume" => self.flex_volume(errors),
            "azureFile" => {
                self.required(&["secretName", "shareName"], errors);
                if get(self.value, "secretNamespace").is_some() {
                    self.required(&["secretNamespace"], errors);
                }
            }
            "vsphereVolume" => self.required(&["volumePath"], errors),
            "photonPersistentDisk" => self.required(&["pdID"], errors),
            "portworxVolume" => self.required(&["volumeID"], errors),
            "azureDisk" => self.azure_disk(errors),
            "scaleIO" => self.required(&["gateway", "system", "volumeName"], errors),
            "local" => {
                self.required(&["path"], errors);
                let path = text(self.value, "path");
                no_backsteps(path, &self.path.field("path"), errors);
            }
            "storageos" => self.storageos(errors),
            "csi" => self.csi(errors),
            _ => {}
        }
    }

    fn required(&self, fields: &[&str], errors: &mut Errors) {
        for field in fields {
            if text(self.value, field).is_empty() {
                errors.required(&self.path.field(field), "");
            }
        }
    }

    fn required_list(&self, field: &str, errors: &mut Errors) {
        if list(self.value, field).is_empty() {
            errors.required(&self.path.field(field), "");
        }
    }

    /// Validates that a secret reference, if present, has these fields.
    fn named_secret(&self, fields: &[&str], errors: &mut Errors) {
        let Some(secret) = get(self.value, "secretRef") else { return };
        let path = self.path.field("secretRef");
        Source { value: secret, path: &path }.required(fields, errors);
    }

    /// Requires a path without `..`, and a known type.
    ///
    /// Upstream: `validateHostPathVolumeSource`.
    fn host_path(&self, errors: &mut Errors) {
        let path = text(self.value, "path");
        if path.is_empty() {
            errors.required(&self.path.field("path"), "");
            return;
        }
        no_backsteps(path, &self.path.field("path"), errors);
        let kind = text(self.value, "type");
        errors.one_of(&self.path.field("type"), kind, HOST_PATH_TYPES);
    }

    /// Requires the disk's ID in the field `id`, and a partition from 0 to 255.
    ///
    /// Upstream: `validateGCEPersistentDiskVolumeSource`, `validateAWSElasticBlockStoreVolumeSource`.
    fn disk(&self, id: &str, errors: &mut Errors) {
        self.required(&[id], errors);
        let partition = int(self.value, "partition");
        if let Some(partition) = partition.filter(|partition| !(0..=255).contains(partition)) {
            let detail = "must be between 1 and 255, inclusive";
            errors.invalid(&self.path.field("partition"), partition, detail);
        }
    }

    /// Requires endpoints and a path. The namespace of the endpoints must not be empty.
    ///
    /// Upstream: `validateGlusterfsPersistentVolumeSource`.
    fn glusterfs(&self, errors: &mut Errors) {
        self.required(&["endpoints", "path"], errors);
        let path = self.path.field("endpointsNamespace");
        match get(self.value, "endpointsNamespace").and_then(Value::as_str) {
            None => {}
            Some("") => {
                let detail = "if the endpointnamespace is set, it must be a valid namespace name";
                errors.invalid(&path, "", detail);
            }
            Some(namespace) => {
                errors.invalid_for_each(&path, namespace, &names::dns_label(namespace));
            }
        }
    }

    /// Requires either the name or the UUID of a dataset.
    ///
    /// Upstream: `validateFlockerVolumeSource`.
    fn flocker(&self, errors: &mut Errors) {
        let name = text(self.value, "datasetName");
        match (name.is_empty(), text(self.value, "datasetUUID").is_empty()) {
            (true, true) => {
                errors.required(self.path, "one of datasetName and datasetUUID is required");
            }
            (false, false) => {
                let detail = "datasetName and datasetUUID can not be specified simultaneously";
                errors.invalid(self.path, "resource", detail);
            }
            _ => {}
        }
        if name.contains('/') {
            errors.invalid(&self.path.field("datasetName"), name, "must not contain '/'");
        }
    }

    /// Requires a server and an absolute path.
    ///
    /// Upstream: `validateNFSVolumeSource`.
    fn nfs(&self, errors: &mut Errors) {
        self.required(&["server", "path"], errors);
        let path = text(self.value, "path");
        if !path.starts_with('/') {
            errors.invalid(&self.path.field("path"), path, "must be an absolute path");
        }
    }

    /// Requires a volume, and a registry as a list of `HOST:PORT`.
    ///
    /// Upstream: `validateQuobyteVolumeSource`.
    fn quobyte(&self, errors: &mut Errors) {
        let registry = text(self.value, "registry");
        let path = self.path.field("registry");
        let detail = "must be a host:port pair or multiple pairs separated by commas";
        if registry.is_empty() {
            errors.required(&path, detail);
        } else if text(self.value, "tenant").len() >= 65 {
            let detail = "must be a UUID and may not exceed a length of 64 characters";
            errors.required(&self.path.field("tenant"), detail);
        } else {
            for _ in registry.split(',').filter(|pair| !is_host_port(pair)) {
                errors.invalid(&path, registry, detail);
            }
        }
        self.required(&["volume"], errors);
    }

    /// Validates a target of a PersistentVolume, or of a volume of a pod.
    ///
    /// Upstream: `validateISCSIPersistentVolumeSource`, `validateISCSIVolumeSource`.
    fn iscsi(&self, volume: &str, is_persistent: bool, errors: &mut Errors) {
        let why = |name: &str| {
            if is_persistent || ["iqn", "eui", "naa"].iter().any(|start| name.starts_with(start)) {
                "must be valid format"
            } else {
                "must be valid format starting with iqn, eui, or naa"
            }
        };
        self.required(&["targetPortal"], errors);
        let portal = text(self.value, "targetPortal");
        let initiator = get(self.value, "initiatorName").and_then(Value::as_str);
        if initiator.is_some() && volume.len() + 1 + portal.len() > 64 {
            let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
            errors.invalid(&self.path.field("targetportal"), portal, detail);
        }
        let name = text(self.value, "iqn");
        if name.is_empty() {
            errors.required(&self.path.field("iqn"), "");
        } else if !is_iscsi_name(name) {
            errors.invalid(&self.path.field("iqn"), name, why(name));
        }
        errors.in_range(&self.path.field("lun"), int(self.value, "lun"), 0, 255);
        let needs_secret = ["chapAuthDiscovery", "chapAuthSession"];
        if needs_secret.iter().any(|field| flag(self.value, field))
            && get(self.value, "secretRef").is_none()
        {
            errors.required(&self.path.field("secretRef"), "");
        }
        if is_persistent {
            self.named_secret(&["name"], errors);
        }
        if let Some(initiator) = initiator.filter(|name| !is_iscsi_name(name)) {
            let path = self.path.field("initiatorname");
            errors.invalid(&path, initiator, why(initiator));
        }
    }

    /// Requires either target WWNs with a LUN, or WWIDs.
    ///
    /// Upstream: `validateFCVolumeSource`.
    fn fibre_channel(&self, errors: &mut Errors) {
        let path = self.path.field("targetWWNs");
        let has_names = !is_empty(self.value, "targetWWNs");
        match (has_names, !is_empty(self.value, "wwids")) {
            (false, false) => {
                let detail = "must specify either targetWWNs or wwids, but not both";
                errors.required(&path, detail);
            }
            (true, true) => {
                let value = get(self.value, "targetWWNs").cloned().unwrap_or_default();
                let detail = "targetWWNs and wwids can not be specified simultaneously";
                errors.invalid(&path, value, detail);
            }
            _ => {}
        }
        let path = self.path.field("lun");
        match int(self.value, "lun") {
            _ if !has_names => {}
            None => errors.required(&path, "lun is required if targetWWNs is specified"),
            lun => errors.in_range(&path, lun, 0, 255),
        }
    }

    /// Requires a driver, and rejects options in the namespaces of Kubernetes.
    ///
    /// Upstream: `validateFlexPersistentVolumeSource`.
    fn flex_volume(&self, errors: &mut Errors) {
        self.required(&["driver"], errors);
        let path = self.path.field("options");
        for key in object(self.value, "options").into_iter().flat_map(|options| options.keys()) {
            let namespace = key.split_once('/').map_or(key.as_str(), |(namespace, _)| namespace);
            let namespace = format!(".{}", namespace.to_lowercase());
            if [".kubernetes.io", ".k8s.io"].iter().any(|suffix| namespace.ends_with(suffix)) {
                let detail = "kubernetes.io and k8s.io namespaces are reserved";
                errors.invalid(&path.key(key), key.as_str(), detail);
            }
        }
    }

    /// Requires name and URI of the disk, and validates the caching mode. The kind of disk determines the form of the
    /// URI.
    ///
    /// Upstream: `validateAzureDisk`.
    fn azure_disk(&self, errors: &mut Errors) {
        self.required(&["diskName", "diskURI"], errors);
        let optional = |field: &str| get(self.value, field).and_then(Value::as_str);
        if let Some(mode) = optional("cachingMode") {
            let modes = ["None", "ReadOnly", "ReadWrite"];
            errors.one_of(&self.path.field("cachingMode"), mode, &modes);
        }
        let Some(kind) = optional("kind") else { return };
        errors.one_of(&self.path.field("kind"), kind, &["Dedicated", "Managed", "Shared"]);
        let (start, form) = match kind {
            "Managed" => (
                "/subscriptions/",
                "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
            ),
            _ => (
                "https://",
                "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",
            ),
        };
        let uri = text(self.value, "diskURI");
        if !uri.starts_with(start) {
            errors.not_supported(&self.path.field("diskURI"), uri, &[form]);
        }
    }

    /// Validates the volume, and the reference to its Secret.
    ///
    /// Upstream: `validateStorageOSPersistentVolumeSource`.
    fn storageos(&self, errors: &mut Errors) {
        self.storageos_volume(errors);
        self.named_secret(&["name", "namespace"], errors);
    }

    fn storageos_volume(&self, errors: &mut Errors) {
        let name = text(self.value, "volumeName");
        errors.required_valid(&self.path.field("volumeName"), name, names::dns_label);
        let namespace = text(self.value, "volumeNamespace");
        if !namespace.is_empty() {
            let path = self.path.field("volumeNamespace");
            errors.invalid_for_each(&path, namespace, &names::dns_label(namespace));
        }
    }

    /// Requires a driver and a volume handle, and validates the references to Secrets.
    ///
    /// Upstream: `validateCSIPersistentVolumeSource`.
    fn csi(&self, errors: &mut Errors) {
        let driver = text(self.value, "driver");
        storage::driver_name(driver, &self.path.field("driver"), errors);
        self.required(&["volumeHandle"], errors);
        for field in [
            "controllerPublishSecretRef",
            "controllerExpandSecretRef",
            "nodePublishSecretRef",
            "nodeExpandSecretRef",
        ] {
            let Some(secret) = get(self.value, field) else { continue };
            let path = self.path.field(field);
            let name = text(secret, "name");
            errors.required_valid(&path.field("name"), name, names::dns_subdomain);
            let namespace = text(secret, "namespace");
            errors.required_valid(&path.field("namespace"), namespace, names::dns_label);
        }
    }
}

/// Returns whether a string is a host and a port. An IPv6 address must be in brackets.
///
/// Upstream: `SplitHostPort`.
fn is_host_port(pair: &str) -> bool {
    let Some((host, port)) = pair.rsplit_once(':') else { return false };
    let host = match host.strip_prefix('[') {
        Some(inner) => match inner.strip_suffix(']') {
            Some(address) => return !address.contains(['[', ']']),
            None => return false,
        },
        None => host,
    };
    !host.contains([':', '[', ']']) && !port.contains(['[', ']'])
}

/// Returns whether a string is the name of an iSCSI initiator or target: `iqn.2001-04.com.example:name`, or `eui.` or
/// `naa.` with a number.
///
/// Upstream: `iscsiInitiatorIqnRegex`, `iscsiInitiatorEuiRegex`, `iscsiInitiatorNaaRegex`.
fn is_iscsi_name(name: &str) -> bool {
    let is_number = |rest: &str, length: usize| {
        let mut characters = rest.chars();
        let is_one_line = characters.next().is_some_and(|separator| separator != '\n');
        let number = characters.as_str();
        is_one_line
            && number.len() == length
            && number.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    if let Some(rest) = name.strip_prefix("eui") {
        return is_number(rest, 16);
    }
    if let Some(rest) = name.strip_prefix("naa") {
        return is_number(rest, 32);
    }
    name.starts_with("iqn") && has_qualified_name(name)
}

/// Returns whether a string ends with a qualified name such as `iqn.2001-04.com.example:name`. Scans the string only
/// once, even if `iqn.` occurs many times.
fn has_qualified_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let is_excluded = |c: char| {
        matches!(c, '\t' | '\n' | '\x0c' | '\r' | ' ' | ',' | ';' | '*' | '&' | '$' | '|')
    };
    let last_excluded = text.rfind(is_excluded);
    let mut authority_end = 0;
    text.match_indices("iqn.").any(|(at, start)| {
        let date = at + start.len();
        let Some(authority) = date_end(&text[date..]).map(|length| date + length) else {
            return false;
        };
        if authority_end <= authority {
            let length = text[authority..].find(|c| !fits(c)).unwrap_or(text.len() - authority);
            authority_end = authority + length;
        }
        let unique = authority_end + 1;
        authority_end > authority
            && text[authority_end..].starts_with(':')
            && unique < text.len()
            && last_excluded.is_none_or(|last| last < unique)
    })
}

/// Returns the length of a date such as `2001-04.` at the start of a string; `None` if the string does not start with a
/// date.
fn date_end(text: &str) -> Option<usize> {
    let (date, _) = text.as_bytes().split_at_checked(8)?;
    let is_date = date.iter().enumerate().all(|(at, byte)| match at {
        4 => *byte == b'-',
        7 => *byte == b'.',
        _ => byte.is_ascii_digit(),
    });
    is_date.then_some(date.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns the fields of the errors of a spec.
    fn fields(spec: &Value) -> Vec<String> {
        let mut errors = Errors::default();
        source(spec, "v", false, &Path::new("s"), &mut errors);
        errors.into_vec().into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn an_iscsi_qualified_name_may_follow_other_text() {
        for (name, qualified) in [
            ("iqn.2001-04.com.example:a", true),
            ("iqn.2001-04.com.example:a:b", true),
            ("iqn.iqn.2001-04.com:a", true),
            ("iqn, iqn.2001-04.com:a", true),
            ("iqn.2001-04.com iqn.2001-04.org:a", true),
            ("iqn.2001-04.com:a,iqn.2001-04.com:b", true),
            ("iqn.2001-04.iqn.2001-04.a:b", true),
            ("iqn.2001-04.com:iqn.2001-04.org:", true),
            ("iqn.2001-04.com:", false),
            ("iqn.2001-04.:a", false),
            ("iqn.2001-04.com", false),
            ("iqn.2001-04.c_m:a", false),
            ("iqn.2001-04.com:a b", false),
            ("iqn.2001-4.com:a", false),
            ("iqn.20010-4.com:a", false),
            ("iqn.2001-0é.com:a", false),
            ("2001-04.com:a", false),
        ] {
            assert_eq!(is_iscsi_name(name), qualified, "{name}");
        }
    }

    #[test]
    fn a_volume_has_one_source_with_valid_fields() {
        let iqn = "iqn.2001-04.com.example:a";
        let table: [(Value, &[&str]); 24] = [
            (json!({}), &["s"]),
            (json!({"hostPath": {}}), &["s.hostPath.path"]),
            (json!({"hostPath": {"path": "/a/../b"}}), &["s.hostPath.path"]),
            (
                json!({"gcePersistentDisk": {"partition": 256}}),
                &["s.persistentDisk.pdName", "s.persistentDisk.partition"],
            ),
            (
                json!({"glusterfs": {"endpoints": "a", "path": "a", "endpointsNamespace": ""}}),
                &["s.glusterfs.endpointsNamespace"],
            ),
            (json!({"flocker": {}}), &["s.flocker"]),
            (json!({"nfs": {"server": "a"}}), &["s.nfs.path"; 2]),
            (json!({"rbd": {}}), &["s.rbd.monitors", "s.rbd.image"]),
            (json!({"quobyte": {"registry": "a:1,b", "volume": "v"}}), &["s.quobyte.registry"]),
            (json!({"iscsi": {"targetPortal": "a", "iqn": iqn}}), &[]),
            (
                json!({"iscsi": {"targetPortal": "a", "iqn": "iqn.1", "lun": 256, "chapAuthSession": true}}),
                &["s.iscsi.iqn", "s.iscsi.lun", "s.iscsi.secretRef"],
            ),
            (
                json!({"cinder": {"volumeID": "a", "secretRef": {"name": "a"}}}),
                &["s.cinder.secretRef.namespace"],
            ),
            (json!({"fc": {}}), &["s.fc.targetWWNs"]),
            (json!({"fc": {"targetWWNs": ["a"]}}), &["s.fc.lun"]),
            (
                json!({"flexVolume": {"driver": "a", "options": {"a.k8s.io/b": ""}}}),
                &["s.flexVolume.options[a.k8s.io/b]"],
            ),
            (
                json!({"azureFile": {"secretName": "a", "shareName": "a", "secretNamespace": ""}}),
                &["s.azureFile.secretNamespace"],
            ),
            (
                json!({"azureDisk": {"diskName": "a", "diskURI": "a", "kind": "Managed"}}),
                &["s.azureDisk.diskURI"],
            ),
            (json!({"scaleIO": {"gateway": "a", "system": "a"}}), &["s.scaleIO.volumeName"]),
            (json!({"local": {"path": "/a"}}), &["s.nodeAffinity"]),
            (json!({"storageos": {"volumeName": "A"}}), &["s.storageos.volumeName"]),
            (
                json!({"csi": {"driver": "", "volumeHandle": "h", "nodePublishSecretRef": {"name": "A"}}}),
                &[
                    "s.csi.driver",
                    "s.csi.nodePublishSecretRef.name",
                    "s.csi.nodePublishSecretRef.namespace",
                ],
            ),
            (json!({"nfs": {"server": "a", "path": "/"}, "csi": {}}), &["s.csi"]),
            (json!({"nfs": {"server": "a", "path": "/"}, "cephfs": {}}), &["s.cephFS"]),
            (
                json!({"nfs": {"server": "a", "path": "/"}, "flexVolume": {}}),
                &["s.flexVolume.driver"],
            ),
        ];
        for (spec, expected) in table {
            assert_eq!(fields(&spec), expected, "{spec}");
        }
    }

    #[test]
    fn iscsi_names_and_hosts_with_ports_are_recognized() {
        for (name, expected) in [
            ("iqn.2001-04.com.example:a", true),
            ("iqn.2001-04.com.example:a:b", true),
            ("iqn.2001-4.com.example:a", false),
            ("iqn.2001-04.com.example", false),
            ("iqn.2001-04.com.example:a b", false),
            ("eui.0123456789abcdef", true),
            ("eui.0123456789abcde", false),
            ("naa.0123456789abcdef0123456789abcdef", true),
            ("a", false),
        ] {
            assert_eq!(is_iscsi_name(name), expected, "{name}");
        }
        for (pair, expected) in
            [("a:1", true), ("[::1]:1", true), ("::1", false), ("a", false), (":", true)]
        {
            assert_eq!(is_host_port(pair), expected, "{pair}");
        }
    }
}
