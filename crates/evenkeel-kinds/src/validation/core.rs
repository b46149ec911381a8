//! Validation of the core group.

use super::{ValidationTarget, affinity, labels, names, pod, pod_update, quantity, service};
use evenkeel_apimachinery::amount::Amount;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{flag, get, int, is_empty, list, object, text};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const DATA_LIMIT: usize = 1024 * 1024;
const ACCESS_MODES: &[&str] =
    &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];
const TAINT_EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

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
        "Node" => node(new, errors),
        "PersistentVolume" => persistent_volume(new, errors),
        "PersistentVolumeClaim" => claim(new, &Path::new("spec"), errors),
        "ResourceQuota" => quota(new, errors),
        "LimitRange" => limit_range(new, errors),
        "Endpoints" => endpoints(new, errors),
        "Namespace" => namespace_finalizers(new, errors),
        _ => {}
    }
}

pub(crate) fn update(target: ValidationTarget<'_>, new: &Value, old: &Value, errors: &mut Errors) {
    if target.subresource == "status" {
        match target.kind {
            "Pod" => pod_update::update(target, new, old, errors),
            "Service" => service::load_balancer(new, errors),
            "Node" => node_resources(new, errors),
            "ReplicationController" => {
                let path = Path::new("status");
                for field in [
                    "replicas",
                    "readyReplicas",
                    "availableReplicas",
                    "fullyLabeledReplicas",
                    "observedGeneration",
                ] {
                    errors.non_negative(&path.field(field), int(new, &format!("status.{field}")));
                }
            }
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
        "Node" => node_update(new, old, errors),
        "PersistentVolume" => persistent_volume_update(new, old, errors),
        "PersistentVolumeClaim" => claim_update(new, old, errors),
        "ResourceQuota" => {
            quota(new, errors);
            errors.immutable(
                &Path::new("spec.scopes"),
                get(new, "spec.scopes"),
                get(old, "spec.scopes"),
            );
        }
        kind => create(kind, new, errors),
    }
}

/// Upstream: `ValidateReplicationControllerSpec`.
fn replication_controller(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    errors.non_negative(&path.field("minReadySeconds"), int(new, "spec.minReadySeconds"));
    let selector = object(new, "spec.selector");
    if selector.is_none_or(serde_json::Map::is_empty) {
        errors.required(&path.field("selector"), "");
    }
    errors.non_negative(&path.field("replicas"), int(new, "spec.replicas"));
    let template_path = path.field("template");
    let Some(template) = get(new, "spec.template") else {
        errors.required(&template_path, "");
        return;
    };
    let labels = object(template, "metadata.labels");
    let selects = selector
        .into_iter()
        .flatten()
        .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value));
    if !selects {
        let labels = labels.cloned().map_or_else(|| json!({}), Value::Object);
        let words = "`selector` does not match template `labels`";
        errors.invalid(&template_path.field("metadata").field("labels"), labels, words);
    }
    pod::template(template, &template_path, errors);
    let policy = text(template, "spec.restartPolicy");
    if policy != "Always" {
        errors.not_supported(
            &template_path.field("spec").field("restartPolicy"),
            policy,
            &["Always"],
        );
    }
}

fn data_keys(new: &Value, fields: &[&str], root: &str, errors: &mut Errors) {
    let mut size = 0;
    for field in fields {
        let path = Path::new(field);
        for (key, value) in object(new, field).into_iter().flatten() {
            let path = path.key(key);
            errors.invalid_all(&path, key, &names::config_key(key));
            if *field == "binaryData"
                && object(new, "data").is_some_and(|data| data.contains_key(key))
            {
                errors.invalid(&path, key.as_str(), "duplicate of key present in data");
            }
            let length = value.as_str().unwrap_or_default().len();
            // Base64 encodes three bytes in four characters.
            size += if *field == "data" && root.is_empty() { length } else { length / 4 * 3 };
        }
    }
    if size > DATA_LIMIT {
        errors.too_long(&Path::new(if root.is_empty() { "[]" } else { root }), DATA_LIMIT);
    }
}

/// Upstream: `ValidateConfigMap`.
fn config_map(new: &Value, errors: &mut Errors) {
    data_keys(new, &["data", "binaryData"], "", errors);
}

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

/// Upstream: `ValidateSecret`.
fn secret(new: &Value, errors: &mut Errors) {
    data_keys(new, &["data"], "data", errors);
    let path = Path::new("data");
    let has = |key: &str| object(new, "data").is_some_and(|data| data.contains_key(key));
    let required: &[&str] = match text(new, "type") {
        "kubernetes.io/service-account-token" => {
            if is_empty(new, "metadata.annotations")
                || object(new, "metadata.annotations")
                    .and_then(|annotations| annotations.get("kubernetes.io/service-account.name"))
                    .and_then(Value::as_str)
                    .is_none_or(str::is_empty)
            {
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
        }
    }
}

/// Upstream: `ValidateNode`.
fn node(new: &Value, errors: &mut Errors) {
    taints(new, errors);
    node_resources(new, errors);
    let path = Path::new("spec");
    let path = path.field("podCIDRs");
    let cidr = text(new, "spec.podCIDR");
    let cidrs: Vec<&str> = match list(new, "spec.podCIDRs") {
        [] if cidr.is_empty() => Vec::new(),
        [] => vec![cidr],
        cidrs => cidrs.iter().filter_map(Value::as_str).collect(),
    };
    for (index, cidr) in cidrs.iter().enumerate() {
        errors.invalid_all(&path.index(index), cidr, &names::cidr(cidr));
    }
    if cidrs.len() > 2 {
        errors.invalid(&path, json!(cidrs), "may specify no more than one CIDR for each IP family");
    }
}

/// Upstream: `validateNodeTaints`.
fn taints(new: &Value, errors: &mut Errors) {
    let path = Path::new("metadata");
    let path = path.field("taints");
    let mut seen = BTreeSet::new();
    for (index, taint) in list(new, "spec.taints").iter().enumerate() {
        let path = path.index(index);
        let (key, value, effect) =
            (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        errors.invalid_all(&path.field("key"), key, &names::qualified_name(key));
        errors.invalid_all(&path.field("value"), value, &names::label_value(value));
        if effect.is_empty() {
            errors.required(&path.field("effect"), "");
        } else {
            errors.one_of(&path.field("effect"), effect, TAINT_EFFECTS);
        }
        if !seen.insert((key, effect)) {
            errors.duplicate(&path, taint.clone());
        }
    }
}

fn node_resources(new: &Value, errors: &mut Errors) {
    let path = Path::new("status");
    for field in ["capacity", "allocatable"] {
        quantity::validate_quantities(
            object(new, &format!("status.{field}")),
            &path.field(field),
            errors,
        );
    }
}

/// Upstream: `ValidateNodeUpdate`.
fn node_update(new: &Value, old: &Value, errors: &mut Errors) {
    node(new, errors);
    let path = Path::new("spec");
    let before = list(old, "spec.podCIDRs");
    if !before.is_empty() && before != list(new, "spec.podCIDRs") {
        errors.forbidden(
            &path.field("podCIDRs"),
            "node updates may not change podCIDR except from \"\" to valid",
        );
    }
    let (before, after) = (text(old, "spec.providerID"), text(new, "spec.providerID"));
    if !before.is_empty() && before != after {
        errors.invalid(&path.field("providerID"), Value::Null, "field cannot be modified once set");
    }
}

fn access_modes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.field("accessModes");
    let modes = list(spec, "accessModes");
    if modes.is_empty() {
        errors.required(&path, "at least 1 access mode is required");
    }
    for mode in modes.iter().filter_map(Value::as_str) {
        if !ACCESS_MODES.contains(&mode) {
            errors.not_supported(&path, mode, ACCESS_MODES);
        }
    }
    if modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        errors.forbidden(&path, "may not use ReadWriteOncePod with other access modes");
    }
}

fn volume_mode(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mode = text(spec, "volumeMode");
    if !mode.is_empty() {
        errors.one_of(&path.field("volumeMode"), mode, VOLUME_MODES);
    }
}

/// Validates the spec of a claim, in a claim or in a claim template.
///
/// Upstream: `ValidatePersistentVolumeClaimSpec`.
pub(super) fn claim(new: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(spec) = new.get("spec") else { return };
    access_modes(spec, path, errors);
    if let Some(selector) = get(spec, "selector") {
        labels::selector(selector, &path.field("selector"), errors);
    }
    let resources = path.field("resources");
    let requests = resources.field("requests");
    match get(spec, "resources.requests.storage") {
        None => errors.required(&requests.key("storage"), ""),
        Some(storage) => match Amount::of(storage) {
            Some(amount) if amount.is_negative() || amount.is_zero() => {
                errors.invalid(
                    &requests.key("storage"),
                    storage.clone(),
                    "must be greater than zero",
                );
            }
            _ => {}
        },
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        errors.invalid_all(&path.field("storageClassName"), class, &names::dns_subdomain(class));
    }
    volume_mode(spec, path, errors);
    data_sources(spec, path, errors);
}

/// Upstream: `validateDataSource`.
fn data_sources(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["dataSource", "dataSourceRef"] {
        let Some(source) = get(spec, field) else { continue };
        let path = path.field(field);
        for required in ["name", "kind"] {
            if text(source, required).is_empty() {
                errors.required(&path.field(required), "");
            }
        }
        if text(source, "apiGroup").is_empty() && text(source, "kind") != "PersistentVolumeClaim" {
            errors.invalid(
                &path,
                text(source, "kind"),
                "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
            );
        }
    }
}

/// Upstream: `ValidatePersistentVolumeClaimUpdate`.
fn claim_update(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    claim(new, &path, errors);
    let (Some(after), Some(before)) = (new.get("spec"), old.get("spec")) else { return };
    let mut allowed = after.clone();
    let bound = !text(before, "volumeName").is_empty();
    if !bound {
        evenkeel_apimachinery::value::copy(&mut allowed, before, "volumeName");
        if get(before, "storageClassName").is_none() {
            evenkeel_apimachinery::value::copy(&mut allowed, before, "storageClassName");
        }
    }
    let size = |spec: &Value| get(spec, "resources.requests.storage").and_then(Amount::of);
    let (old_size, new_size) = (size(before), size(after));
    if text(old, "status.phase") == "Bound" {
        evenkeel_apimachinery::value::copy(&mut allowed, before, "resources.requests");
        if new_size < old_size {
            let resources = path.field("resources");
            let requests = resources.field("requests");
            errors.forbidden(
                &requests.field("storage"),
                "field can not be less than status.capacity",
            );
        }
    }
    evenkeel_apimachinery::value::copy(&mut allowed, before, "volumeAttributesClassName");
    if allowed != *before {
        let words = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.forbidden(&path, words);
    }
}

/// Upstream: `ValidatePersistentVolumeSpec`.
fn persistent_volume(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let Some(spec) = new.get("spec") else { return };
    access_modes(spec, &path, errors);
    let capacity = path.field("capacity");
    match object(spec, "capacity") {
        Some(amounts) if amounts.contains_key("storage") && amounts.len() == 1 => {}
        Some(amounts) if !amounts.is_empty() => {
            errors.not_supported(&capacity, Value::Object(amounts.clone()), &["storage"]);
        }
        _ => errors.required(&capacity, ""),
    }
    if let Some(amount) = get(spec, "capacity.storage")
        && Amount::of(amount).is_some_and(|amount| amount.is_zero() || amount.is_negative())
    {
        errors.invalid(&capacity.key("storage"), amount.clone(), "must be greater than zero");
    }
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    if !policy.is_empty() {
        errors.one_of(
            &path.field("persistentVolumeReclaimPolicy"),
            policy,
            &["Delete", "Recycle", "Retain"],
        );
    }
    let sources = spec.as_object().into_iter().flatten().filter(|(name, value)| {
        value.is_object() && !matches!(name.as_str(), "capacity" | "claimRef" | "nodeAffinity")
    });
    match sources.count() {
        0 => errors.required(&path, "must specify a volume type"),
        1 => {}
        _ => errors.forbidden(&path, "may not specify more than 1 volume type"),
    }
    if let Some(required) = get(spec, "nodeAffinity.required") {
        let path = path.field("nodeAffinity");
        affinity::node_selector(required, &path.field("required"), errors);
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        errors.invalid_all(&path.field("storageClassName"), class, &names::dns_subdomain(class));
    }
    volume_mode(spec, &path, errors);
}

/// Upstream: `ValidatePersistentVolumeUpdate`.
fn persistent_volume_update(new: &Value, old: &Value, errors: &mut Errors) {
    persistent_volume(new, errors);
    let path = Path::new("spec");
    let (Some(after), Some(before)) = (new.get("spec"), old.get("spec")) else { return };
    let source = |spec: &Value| {
        let mut spec = spec.as_object().cloned().unwrap_or_default();
        spec.retain(|name, value| {
            value.is_object() && !matches!(name.as_str(), "capacity" | "claimRef" | "nodeAffinity")
        });
        spec
    };
    if source(after) != source(before) {
        errors.forbidden(
            &path.field("persistentvolumesource"),
            "spec.persistentvolumesource is immutable after creation",
        );
    }
    errors.immutable(
        &path.field("volumeMode"),
        get(after, "volumeMode"),
        get(before, "volumeMode"),
    );
}

/// Upstream: `ValidateResourceQuotaSpec`.
fn quota(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let hard = path.field("hard");
    for (name, amount) in object(new, "spec.hard").into_iter().flatten() {
        let path = hard.key(name);
        errors.invalid_all(&path, name, &names::qualified_name(name));
        if !name.contains('/') && !is_quota_resource(name) {
            errors.invalid(
                &path,
                name.as_str(),
                "must be a standard resource type or fully qualified",
            );
            errors.invalid(&path, name.as_str(), "must be a standard resource for quota");
        }
        quantity::validate_quantity(name, amount, &path, errors);
    }
    let scopes = path.field("scopes");
    quota_scopes(new, &scopes, errors);
    let expressions = path.field("scopeSelector");
    let expressions = expressions.field("matchExpressions");
    for expression in list(new, "spec.scopeSelector.matchExpressions") {
        let n_values = list(expression, "values").len();
        match text(expression, "operator") {
            "In" | "NotIn" => {
                if n_values == 0 {
                    let words = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                    errors.required(&expressions.field("values"), words);
                }
            }
            "Exists" | "DoesNotExist" => {
                if n_values > 0 {
                    let words = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                    errors.invalid(
                        &expressions.field("values"),
                        get(expression, "values").cloned().unwrap_or_default(),
                        words,
                    );
                }
            }
            other => errors.invalid(
                &expressions.field("operator"),
                other,
                "not a valid selector operator",
            ),
        }
    }
}

/// Upstream: `ValidateResourceQuotaResourceName`.
fn is_quota_resource(name: &str) -> bool {
    let bare =
        name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits.")).unwrap_or(name);
    matches!(bare, "cpu" | "memory" | "ephemeral-storage" | "storage")
        || bare.starts_with("hugepages-")
        || quantity::is_object_count(name)
        || name.starts_with("count/")
}

/// Upstream: `validateResourceQuotaScopes`.
fn quota_scopes(new: &Value, path: &Path<'_>, errors: &mut Errors) {
    let scopes: Vec<&str> = list(new, "spec.scopes").iter().filter_map(Value::as_str).collect();
    let value = || json!(scopes);
    let pods_only = |name: &str| {
        let bare =
            name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits.")).unwrap_or(name);
        matches!(bare, "cpu" | "memory" | "ephemeral-storage" | "pods")
            || bare.starts_with("hugepages-")
    };
    for scope in &scopes {
        if ![
            "Terminating",
            "NotTerminating",
            "BestEffort",
            "NotBestEffort",
            "PriorityClass",
            "CrossNamespacePodAffinity",
            "VolumeAttributesClass",
        ]
        .contains(scope)
        {
            errors.invalid(path, value(), "unsupported scope");
        }
        for name in object(new, "spec.hard").into_iter().flatten().map(|(name, _)| name) {
            let fits = match *scope {
                "BestEffort" => name == "pods",
                _ => pods_only(name),
            };
            if !fits {
                errors.invalid(path, value(), "unsupported scope applied to resource");
            }
        }
    }
    for pair in [["Terminating", "NotTerminating"], ["BestEffort", "NotBestEffort"]] {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            errors.invalid(path, value(), "conflicting scopes");
        }
    }
}

/// Upstream: `ValidateLimitRange`.
fn limit_range(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let all = path.field("limits");
    let mut seen = BTreeSet::new();
    for (index, item) in list(new, "spec.limits").iter().enumerate() {
        let path = all.index(index);
        let kind = text(item, "type");
        if !seen.insert(kind) {
            errors.duplicate(&path.field("type"), kind);
        }
        if kind == "Pod" {
            for field in ["default", "defaultRequest"] {
                if !is_empty(item, field) {
                    errors
                        .forbidden(&path.field(field), "may not be specified when `type` is 'Pod'");
                }
            }
        }
        if kind == "PersistentVolumeClaim"
            && get(item, "min.storage").is_none()
            && get(item, "max.storage").is_none()
        {
            errors.required(
                &path.field("limits"),
                "either minimum or maximum storage value is required, but neither was provided",
            );
        }
        limits_in_order(item, &path, errors);
    }
}

fn limits_in_order(item: &Value, path: &Path<'_>, errors: &mut Errors) {
    let amount = |field: &str, name: &str| {
        object(item, field).and_then(|map| map.get(name)).and_then(Amount::of)
    };
    let names: BTreeSet<&String> =
        ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"]
            .iter()
            .filter_map(|field| object(item, field))
            .flat_map(|map| map.keys())
            .collect();
    for name in names {
        for (low, high, words) in [
            ("min", "max", "min value {} is greater than max value {}"),
            ("min", "defaultRequest", "min value {} is greater than default request value {}"),
            ("defaultRequest", "max", "default request value {} is greater than max value {}"),
            (
                "defaultRequest",
                "default",
                "default request value {} is greater than default limit value {}",
            ),
            ("min", "default", "min value {} is greater than default value {}"),
            ("default", "max", "default value {} is greater than max value {}"),
        ] {
            let (Some(first), Some(second)) = (amount(low, name), amount(high, name)) else {
                continue;
            };
            if first > second {
                let detail = words.replacen("{}", &first.to_string(), 1).replacen(
                    "{}",
                    &second.to_string(),
                    1,
                );
                // Upstream names the lower bound, except where the default limit exceeds the maximum.
                let field = path.field(low);
                errors.invalid(&field.key(name), first.to_string(), &detail);
            }
        }
        if amount("maxLimitRequestRatio", name).is_some_and(|ratio| ratio < Amount::whole(1)) {
            let ratio = amount("maxLimitRequestRatio", name).unwrap_or_default().to_string();
            errors.invalid(
                &path.field("maxLimitRequestRatio").key(name),
                ratio.as_str(),
                &format!("ratio {ratio} is less than 1"),
            );
        }
    }
}

/// Upstream: `ValidateEndpoints`.
fn endpoints(new: &Value, errors: &mut Errors) {
    let all = Path::new("subsets");
    for (index, subset) in list(new, "subsets").iter().enumerate() {
        let path = all.index(index);
        if list(subset, "addresses").is_empty() && list(subset, "notReadyAddresses").is_empty() {
            errors.required(&path, "must specify `addresses` or `notReadyAddresses`");
        }
        for field in ["addresses", "notReadyAddresses"] {
            let addresses = path.field(field);
            for (index, address) in list(subset, field).iter().enumerate() {
                let ip = text(address, "ip");
                let addresses = addresses.index(index);
                let path = addresses.field("ip");
                errors.invalid_all(&path, ip, &names::ip(ip));
                super::service::non_special_ip(ip, &path, errors);
            }
        }
        let ports = path.field("ports");
        let several = list(subset, "ports").len() > 1;
        for (index, port) in list(subset, "ports").iter().enumerate() {
            let path = ports.index(index);
            match text(port, "name") {
                "" if several => errors.required(&path.field("name"), ""),
                "" => {}
                name => errors.invalid_all(&path.field("name"), name, &names::dns_label(name)),
            }
            errors.in_range(
                &path.field("port"),
                Some(int(port, "port").unwrap_or_default()),
                1,
                65535,
            );
            errors.one_of(&path.field("protocol"), text(port, "protocol"), &["SCTP", "TCP", "UDP"]);
        }
    }
}

fn namespace_finalizers(new: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let path = path.field("finalizers");
    for (index, name) in list(new, "spec.finalizers").iter().filter_map(Value::as_str).enumerate() {
        let path = path.index(index);
        errors.invalid_all(&path, name, &names::qualified_name(name));
        if !name.contains('/') && name != "kubernetes" {
            errors.invalid(
                &path,
                name,
                "name is neither a standard finalizer name nor is it fully qualified",
            );
        }
    }
}
