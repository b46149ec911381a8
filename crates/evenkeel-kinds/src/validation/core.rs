//! Validation of the core API group.

use super::{
    ValidationTarget, apps, core_node, limitrange, names, persistentvolume, persistentvolumeclaim,
    pod, pod_update, resourcequota, service,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{Object, flag, get, int, list, object, text};
use serde_json::Value;

/// Maximum size in bytes of all values of a ConfigMap or Secret together.
const DATA_LIMIT: usize = 1024 * 1024;

pub(crate) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    match kind {
        "Pod" => pod::create(new, errors),
        "PodTemplate" => {
            if let Some(template) = new.get("template") {
                pod::template(template, &Path::new("template"), errors);
            }
        }
        "ReplicationController" => replication_controller(new, errors),
        "Service" => service::service(new, errors),
        "ConfigMap" => config_map(new, errors),
        "Secret" => secret(new, errors),
        "Node" => core_node::create(new, errors),
        "PersistentVolume" => persistentvolume::create(new, errors),
        "PersistentVolumeClaim" => {
            persistentvolumeclaim::create(new, &Path::new("spec"), errors);
        }
        "ResourceQuota" => resourcequota::quota(new, errors),
        "LimitRange" => limitrange::limit_range(new, errors),
        "Endpoints" => endpoints(new, errors),
        "Namespace" => namespace_finalizers(new, false, errors),
        _ => {}
    }
}

pub(crate) fn update(target: ValidationTarget<'_>, new: &Value, old: &Value, errors: &mut Errors) {
    if target.subresource == "status" {
        match target.kind {
            "Pod" => pod_update::update(target, new, old, errors),
            "Service" => service::update_status(new, errors),
            "Node" => core_node::update_status(new, old, errors),
            "Namespace" => namespace_status(new, errors),
            "ResourceQuota" => resourcequota::status(new, errors),
            "PersistentVolumeClaim" => persistentvolumeclaim::status(new, errors),
            "ReplicationController" => apps::status(target.kind, new, old, errors),
            _ => {}
        }
        return;
    }
    match target.kind {
        "Pod" => pod_update::update(target, new, old, errors),
        "Service" => service::update(new, old, errors),
        "ConfigMap" => {
            config_map(new, errors);
            immutable_data(new, old, &["data", "binaryData"], errors);
        }
        "Secret" => {
            errors.immutable(&Path::new("type"), new.get("type"), old.get("type"));
            secret(new, errors);
            immutable_data(new, old, &["data"], errors);
        }
        "Node" => core_node::update(new, old, errors),
        "PersistentVolume" => persistentvolume::update(new, old, errors),
        "PersistentVolumeClaim" => persistentvolumeclaim::update(new, old, errors),
        "ResourceQuota" => resourcequota::update(new, old, errors),
        "Namespace" => namespace_finalizers(new, target.subresource == "finalize", errors),
        kind => create(kind, new, errors),
    }
}

/// Requires a selector and a matching template, and numbers that are not negative.
///
/// Upstream: `ValidateReplicationControllerSpec`.
fn replication_controller(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let selector = object(new, "spec.selector");
    if selector.is_none_or(serde_json::Map::is_empty) {
        errors.required(&path.field("selector"), "");
    }
    let template_path = path.field("template");
    match get(new, "spec.template") {
        Some(template) => controlled_template(template, selector, &template_path, errors),
        None => errors.required(&template_path, ""),
    }
    // Upstream declares these rules by tags on the type. Their errors come last.
    for field in ["replicas", "minReadySeconds"] {
        errors.non_negative(&path.field(field), get(new, "spec").and_then(|spec| int(spec, field)));
    }
}

/// Validates a pod template. Its labels must match the selector, and its restart policy must be `Always`.
///
/// Upstream: `ValidatePodTemplateSpecForRC`.
fn controlled_template(
    template: &Value,
    selector: Option<&Object>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let labels = object(template, "metadata.labels");
    let mut required_labels = selector.into_iter().flatten();
    let selects_template = required_labels
        .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value));
    if !selects_template {
        let labels = labels.cloned().map_or(Value::Null, Value::Object);
        let detail = "`selector` does not match template `labels`";
        errors.invalid(&path.field("metadata").field("labels"), labels, detail);
    }
    pod::template(template, path, errors);
    let policy = text(template, "spec.restartPolicy");
    if policy != "Always" {
        errors.not_supported(&path.field("spec").field("restartPolicy"), policy, &["Always"]);
    }
    if get(template, "spec.activeDeadlineSeconds").is_some() {
        errors.forbidden(
            &path.field("spec").field("activeDeadlineSeconds"),
            "activeDeadlineSeconds in ReplicationController is not Supported",
        );
    }
}

/// Validates the keys of the maps in `fields`, and the total size of their values. `size_path` is the path of the error
/// about the size. For a ConfigMap, it is empty: the error then has the path `[]`, and `data` is not Base64.
fn data_keys(new: &Value, fields: &[&str], size_path: &str, errors: &mut Errors) {
    let mut size = 0;
    for field in fields {
        let path = Path::new(field);
        for (key, value) in object(new, field).into_iter().flatten() {
            let path = path.key(key);
            errors.invalid_for_each(&path, key, &names::config_key(key));
            if *field == "data"
                && fields.contains(&"binaryData")
                && object(new, "binaryData").is_some_and(|data| data.contains_key(key))
            {
                errors.invalid(&path, key.as_str(), "duplicate of key present in binaryData");
            }
            let value = value.as_str().unwrap_or_default();
            let is_plain_text = *field == "data" && size_path.is_empty();
            size += if is_plain_text { value.len() } else { decoded_length(value) };
        }
    }
    if size > DATA_LIMIT {
        let path = if size_path.is_empty() { "[]" } else { size_path };
        errors.too_long(&Path::new(path), DATA_LIMIT);
    }
}

/// Returns the number of bytes that a Base64 string encodes: three bytes for every four characters, less the padding.
fn decoded_length(text: &str) -> usize {
    let padding = text.bytes().rev().take(2).take_while(|byte| *byte == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

/// Validates the keys and the total size of a ConfigMap.
///
/// Upstream: `ValidateConfigMap`.
fn config_map(new: &Value, errors: &mut Errors) {
    data_keys(new, &["data", "binaryData"], "", errors);
}

/// Rejects changes of an immutable ConfigMap or Secret.
fn immutable_data(new: &Value, old: &Value, fields: &[&str], errors: &mut Errors) {
    if !flag(old, "immutable") {
        return;
    }
    if !flag(new, "immutable") {
        errors.forbidden(&Path::new("immutable"), "field is immutable when `immutable` is set");
    }
    for field in fields {
        if !evenkeel_apimachinery::value::same(new.get(field), old.get(field)) {
            errors.forbidden(&Path::new(field), "field is immutable when `immutable` is set");
        }
    }
}

/// Validates the keys and the total size of a Secret, and requires the keys and annotations of its type.
///
/// Upstream: `ValidateSecret`.
fn secret(new: &Value, errors: &mut Errors) {
    data_keys(new, &["data"], "data", errors);
    let path = Path::new("data");
    let has = |key: &str| object(new, "data").is_some_and(|data| data.contains_key(key));
    let required: &[&str] = match text(new, "type") {
        "kubernetes.io/service-account-token" => {
            let account = object(new, "metadata.annotations")
                .and_then(|annotations| annotations.get("kubernetes.io/service-account.name"))
                .and_then(Value::as_str);
            if account.is_none_or(str::is_empty) {
                let meta = Path::new("metadata");
                let path = meta.field("annotations");
                errors.required(&path.key("kubernetes.io/service-account.name"), "");
            }
            &[]
        }
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/basic-auth" => {
            if !has("username") && !has("password") {
                errors.required(&path.key("username"), "");
                errors.required(&path.key("password"), "");
            }
            &[]
        }
        _ => &[],
    };
    for key in required {
        if !has(key) {
            errors.required(&path.key(key), "");
        } else if key.starts_with(".docker") {
            let data = object(new, "data").and_then(|data| data.get(*key));
            let value = data.and_then(Value::as_str).unwrap_or_default();
            docker_config(value, &path.key(key), errors);
        }
    }
}

/// Requires that a value in Base64 encodes a JSON object or null. Errors do not quote the value, which is secret.
fn docker_config(value: &str, path: &Path<'_>, errors: &mut Errors) {
    let bytes = STANDARD.decode(value).unwrap_or_default();
    if let Err(detail) = evenkeel_apimachinery::decode::json_object(&bytes) {
        errors.invalid(path, "<secret contents redacted>", &detail);
    }
}

/// Validates the addresses and ports of each subset.
///
/// Upstream: `ValidateEndpoints`.
fn endpoints(new: &Value, errors: &mut Errors) {
    let subsets_path = Path::new("subsets");
    for (index, subset) in list(new, "subsets").iter().enumerate() {
        let path = subsets_path.index(index);
        if list(subset, "addresses").is_empty() && list(subset, "notReadyAddresses").is_empty() {
            errors.required(&path, "must specify `addresses` or `notReadyAddresses`");
        }
        for field in ["addresses", "notReadyAddresses"] {
            let addresses = path.field(field);
            for (index, address) in list(subset, field).iter().enumerate() {
                let ip = text(address, "ip");
                let address_path = addresses.index(index);
                let path = address_path.field("ip");
                errors.invalid_for_each(&path, ip, &names::ip(ip));
                for (field, validate) in [
                    ("hostname", names::dns_label as fn(&str) -> Vec<String>),
                    ("nodeName", names::dns_subdomain),
                ] {
                    let value = get(address, field).and_then(Value::as_str);
                    let is_checked = |value: &&str| field == "nodeName" || !value.is_empty();
                    if let Some(value) = value.filter(is_checked) {
                        errors.invalid_for_each(
                            &address_path.field(field),
                            value,
                            &validate(value),
                        );
                    }
                }
                super::service::non_special_ip(ip, &path, errors);
            }
        }
        let ports = path.field("ports");
        let has_several_ports = list(subset, "ports").len() > 1;
        for (index, port) in list(subset, "ports").iter().enumerate() {
            let path = ports.index(index);
            match text(port, "name") {
                "" if has_several_ports => errors.required(&path.field("name"), ""),
                "" => {}
                name => errors.invalid_for_each(&path.field("name"), name, &names::dns_label(name)),
            }
            errors.in_range(
                &path.field("port"),
                Some(int(port, "port").unwrap_or_default()),
                1,
                65535,
            );
            errors.one_of(&path.field("protocol"), text(port, "protocol"), &["SCTP", "TCP", "UDP"]);
            if let Some(protocol) = get(port, "appProtocol").and_then(Value::as_str) {
                let messages = names::qualified_name(protocol);
                errors.invalid_for_each(&path.field("appProtocol"), protocol, &messages);
            }
        }
    }
}

/// Requires the phase `Terminating` exactly if the namespace has a deletion timestamp.
///
/// Upstream: `ValidateNamespaceStatusUpdate`.
fn namespace_status(new: &Value, errors: &mut Errors) {
    let (expected, when) = match get(new, "metadata.deletionTimestamp") {
        None => ("Active", "empty"),
        Some(_) => ("Terminating", "not empty"),
    };
    let phase = text(new, "status.phase");
    if phase != expected {
        let detail = format!("may only be '{expected}' if `deletionTimestamp` is {when}");
        // Upstream's path begins with a capital letter.
        errors.invalid(&Path::new("status").field("Phase"), phase, &detail);
    }
}

/// Validates the finalizers of a namespace. Only errors about a write of `/finalize` contain their indices.
///
/// Upstream: `ValidateNamespace`, `ValidateNamespaceFinalizeUpdate`.
fn namespace_finalizers(new: &Value, names_index: bool, errors: &mut Errors) {
    let path = Path::new("spec");
    let path = path.field("finalizers");
    let finalizers = list(new, "spec.finalizers").iter().filter_map(Value::as_str);
    for (index, name) in finalizers.enumerate() {
        let item = path.index(index);
        let path = if names_index { &item } else { &path };
        errors.invalid_for_each(path, name, &names::qualified_name(name));
        super::finalizer(name, path, errors);
    }
}
