//! Validation of ResourceSlices.

use super::super::affinity::validate_node_selector;
use super::super::{immutable, names as forms};
use super::capacity::capacities;
use super::taint::device_taint;
use super::{ErrorLists, item_text, items, names, set};
use crate::internal::quoted;
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{Object, flag, get, int, is_empty, list, object, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum number of devices of a slice.
const MAX_DEVICES: usize = 128;
/// Maximum number of devices if one of them has taints or consumes counters.
const MAX_DEVICES_WITH_ADVANCED_FEATURES: usize = 64;
/// Maximum number of counter sets of a slice.
const MAX_COUNTER_SETS: usize = 8;
/// Maximum number of counters of a counter set, or in a device's consumption of one.
const MAX_COUNTERS: usize = 32;
/// Maximum number of counter sets that a device consumes from.
const MAX_COUNTER_CONSUMPTIONS: usize = 2;
/// Maximum number of attributes and capacities of a device, together.
const MAX_ATTRIBUTES_AND_CAPACITIES: usize = 32;
/// Maximum number of attribute values of a device.
const MAX_ATTRIBUTE_VALUES: usize = 48;
/// Maximum number of taints of a device.
const MAX_TAINTS: usize = 16;
/// Maximum number of binding conditions of a device, and of binding failure conditions.
const MAX_BINDING_CONDITIONS: usize = 4;
/// Maximum length of an attribute's value in bytes.
const MAX_ATTRIBUTE_VALUE: usize = 64;

/// Validates a slice: its driver and pool, its nodes, its devices and its counters.
///
/// Upstream: `ValidateResourceSlice`, `ValidateResourceSliceUpdate`.
pub(super) fn resource_slice(slice: &Value, old: Option<&Value>, lists: &mut ErrorLists) {
    let path = Path::new("spec");
    let spec = slice.get("spec").unwrap_or(&Value::Null);
    let errors = &mut lists.handwritten;
    names::driver(text(spec, "driver"), &path.field("driver"), errors);
    pool(spec, &path.field("pool"), errors);
    if let Some(old) = old {
        immutable(&["spec.pool.name", "spec.driver"], slice, old, errors);
        let (new, old) = (get(slice, "spec.nodeName"), get(old, "spec.nodeName"));
        let shown = |name: Option<&Value>| name.cloned().unwrap_or_default().into();
        errors.immutable_pointer(&path.field("nodeName"), new, old, shown);
    }
    nodes_of_slice(spec, &path, errors);
    let has_both = get(spec, "sharedCounters").is_some() && get(spec, "devices").is_some();
    if has_both {
        errors.invalid(&path, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    devices(spec, old, &path.field("devices"), lists);
    let counter_sets = list(spec, "sharedCounters");
    let path = path.field("sharedCounters");
    let name = |set| text(set, "name");
    set(counter_sets, MAX_COUNTER_SETS, name, &path, lists, |set, path, lists| {
        counters(set, "name", path, lists);
    });
}

/// Validates the name, the number of slices and the generation of a pool.
///
/// Upstream: `validateResourcePool`.
fn pool(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    names::pool(text(spec, "pool.name"), &path.field("name"), errors);
    let count = int(spec, "pool.resourceSliceCount").unwrap_or_default();
    if count <= 0 {
        errors.invalid(&path.field("resourceSliceCount"), count, "must be greater than zero");
    }
    let generation = int(spec, "pool.generation").unwrap_or_default();
    if generation < 0 {
        let detail = "must be greater than or equal to zero";
        errors.invalid(&path.field("generation"), generation, detail);
    }
}

/// Validates the fields that select the nodes of all devices. Exactly one of them must be set.
fn nodes_of_slice(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut is_set = Vec::new();
    match get(spec, "nodeName").and_then(Value::as_str) {
        None => {}
        Some("") => {
            let detail = "must be either unset or set to a non-empty string";
            errors.invalid(&path.field("nodeName"), "", detail);
        }
        Some(name) => {
            is_set.push("`nodeName`");
            errors.invalid_for_each(&path.field("nodeName"), name, &forms::dns_subdomain(name));
        }
    }
    if let Some(selector) = get(spec, "nodeSelector") {
        is_set.push("`nodeSelector`");
        let path = path.field("nodeSelector");
        validate_node_selector(selector, false, &path, errors);
        let terms = list(selector, "nodeSelectorTerms");
        if terms.len() != 1 {
            let detail = "must have exactly one node selector term";
            let terms = quoted("[]core.NodeSelectorTerm", get(selector, "nodeSelectorTerms"));
            errors.invalid(&path.field("nodeSelectorTerms"), terms, detail);
        }
    }
    for (field, name) in
        [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")]
    {
        match get(spec, field).and_then(Value::as_bool) {
            None => {}
            Some(true) => is_set.push(name),
            Some(false) => {
                errors.invalid(&path.field(field), false, "must be either unset or set to true");
            }
        }
    }
    let detail = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match is_set.len() {
        0 => errors.required(path, detail),
        1 => {}
        _ => {
            let detail = format!("{detail}, but multiple fields are set");
            errors.invalid(path, format!("{{{}}}", is_set.join(", ")), &detail);
        }
    }
}

/// Validates the devices. No declarative rule exists for their number and names.
fn devices(spec: &Value, old: Option<&Value>, path: &Path<'_>, lists: &mut ErrorLists) {
    let devices = list(spec, "devices");
    let is_advanced = |device: &Value| {
        ["taints", "consumesCounters"].iter().any(|field| !list(device, field).is_empty())
    };
    let max_devices = if devices.iter().any(is_advanced) {
        MAX_DEVICES_WITH_ADVANCED_FEATURES
    } else {
        MAX_DEVICES
    };
    if devices.len() > max_devices {
        return lists.handwritten.too_many(path, devices.len(), max_devices);
    }
    let old_devices = old.map_or(&[][..], |old| list(old, "spec.devices"));
    let selects_nodes = flag(spec, "perDeviceNodeSelection");
    for (index, item) in devices.iter().enumerate() {
        let name = text(item, "name");
        let old = old_devices.iter().find(|device| text(device, "name") == name);
        device(item, old, selects_nodes, &path.index(index), lists);
    }
    let mut seen = BTreeSet::new();
    for (index, device) in devices.iter().enumerate() {
        let name = text(device, "name");
        if !seen.insert(name) {
            lists.handwritten.duplicate(&path.index(index), name);
        }
    }
}

/// Validates a device of a slice. Unchanged capacities and taints of an update are not validated again.
///
/// Upstream: `validateDevice`.
fn device(
    device: &Value,
    old: Option<&Value>,
    selects_nodes: bool,
    path: &Path<'_>,
    lists: &mut ErrorLists,
) {
    names::label(text(device, "name"), &path.field("name"), &mut lists.handwritten);
    attributes(device, path, lists);
    let is_new = |field: &str| old.is_none_or(|old| get(device, field) != get(old, field));
    if is_new("capacity") {
        let allows_multiple = flag(device, "allowMultipleAllocations");
        capacities(device, allows_multiple, path, &mut lists.handwritten);
    }
    let taints = list(device, "taints");
    let taints_path = path.field("taints");
    if taints.len() > MAX_TAINTS {
        lists.handwritten.too_many(&taints_path, taints.len(), MAX_TAINTS);
    } else if is_new("taints") {
        for (index, taint) in taints.iter().enumerate() {
            device_taint(taint, &taints_path.index(index), lists);
        }
    }
    let consumptions = list(device, "consumesCounters");
    let consumptions_path = path.field("consumesCounters");
    let counter_set = |consumption| text(consumption, "counterSet");
    set(
        consumptions,
        MAX_COUNTER_CONSUMPTIONS,
        counter_set,
        &consumptions_path,
        lists,
        |consumption, path, lists| counters(consumption, "counterSet", path, lists),
    );
    nodes_of_device(device, selects_nodes, path, &mut lists.handwritten);
    binding_conditions(device, path, lists);
}

/// Validates names and values of attributes, and the total number of attributes and capacities.
///
/// Upstream: `validateDeviceAttribute`.
fn attributes(device: &Value, path: &Path<'_>, lists: &mut ErrorLists) {
    let size = |field| object(device, field).map_or(0, Object::len);
    let errors = &mut lists.handwritten;
    let mut limit = |found: usize, what: &str, limit: usize| {
        if found > limit {
            errors.invalid(
                path,
                found,
                &format!("the total number of {what} must not exceed {limit}"),
            );
        }
    };
    let entry_count = size("attributes") + size("capacity");
    limit(entry_count, "attributes and capacities", MAX_ATTRIBUTES_AND_CAPACITIES);
    limit(size("attributes"), "attribute values", MAX_ATTRIBUTE_VALUES);
    let path = path.field("attributes");
    for (name, attribute) in object(device, "attributes").into_iter().flatten() {
        names::qualified(name, &path, &mut lists.handwritten);
        device_attribute(attribute, &path.key(name), lists);
    }
}

/// Validates an attribute, which must have a value of exactly one type.
fn device_attribute(attribute: &Value, path: &Path<'_>, lists: &mut ErrorLists) {
    for field in ["string", "version"] {
        let Some(value) = get(attribute, field).and_then(Value::as_str) else { continue };
        let path = path.field(field);
        if field == "version" && !is_semantic_version(value) {
            let detail = "must be a string compatible with semver.org spec 2.0.0";
            lists.handwritten.invalid(&path, value, detail);
        }
        if value.len() > MAX_ATTRIBUTE_VALUE {
            lists.handwritten.too_long(&path, MAX_ATTRIBUTE_VALUE);
        }
    }
    let types = ["int", "bool", "string", "version"];
    let is_set: Vec<&str> =
        types.into_iter().filter(|field| get(attribute, field).is_some()).collect();
    let all = "`int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`";
    match is_set.len() {
        0 => lists.declarative.invalid(path, "", &format!("must specify one of: {all}")),
        1 => {}
        _ => lists.declarative.invalid(
            path,
            format!("{{{}}}", is_set.join(", ")),
            &format!("must specify exactly one of: {all}"),
        ),
    }
}

/// Returns whether `text` is a semantic version such as `1.2.3-alpha.1+build.2`.
///
/// Upstream: `semverRe`.
fn is_semantic_version(text: &str) -> bool {
    let (version, build) = match text.split_once('+') {
        Some((version, build)) => (version, Some(build)),
        None => (text, None),
    };
    let (version, pre_release) = match version.split_once('-') {
        Some((version, pre_release)) => (version, Some(pre_release)),
        None => (version, None),
    };
    let is_number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let is_word = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_identifier = |part: &str| {
        is_word(part) && (is_number(part) || part.bytes().any(|byte| !byte.is_ascii_digit()))
    };
    let mut numbers = version.split('.');
    version.split('.').count() == 3
        && numbers.all(is_number)
        && pre_release.is_none_or(|text| text.split('.').all(is_identifier))
        && build.is_none_or(|text| text.split('.').all(is_word))
}

/// Validates the name and the counters of a counter set, or of a device's consumption from one.
///
/// Upstream: `validateCounterSet`, `validateDeviceCounterConsumption`.
fn counters(owner: &Value, name_field: &str, path: &Path<'_>, lists: &mut ErrorLists) {
    let name = text(owner, name_field);
    lists.declarative.required_valid(&path.field(name_field), name, forms::dns_label);
    let path = path.field("counters");
    if is_empty(owner, "counters") {
        return lists.declarative.required(&path, "");
    }
    let counters = object(owner, "counters");
    let counter_count = counters.map_or(0, Object::len);
    if counter_count > MAX_COUNTERS {
        lists.handwritten.too_many(&path, counter_count, MAX_COUNTERS);
    }
    for name in counters.into_iter().flat_map(Object::keys) {
        names::label(name, &path, &mut lists.declarative);
    }
}

/// Validates the fields that select the nodes of one device. If the slice `selects_nodes` per device, exactly one
/// of them must be set, otherwise none.
fn nodes_of_device(device: &Value, selects_nodes: bool, path: &Path<'_>, errors: &mut Errors) {
    let has_any =
        ["nodeName", "nodeSelector", "allNodes"].iter().any(|field| get(device, field).is_some());
    if !selects_nodes {
        if has_any {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            errors.invalid(path, Value::Null, detail);
        }
        return;
    }
    let mut is_set = Vec::new();
    match get(device, "nodeName").and_then(Value::as_str) {
        None => {}
        Some("") => errors.invalid(&path.field("nodeName"), "", "must not be empty"),
        Some(name) => {
            is_set.push("`nodeName`");
            errors.invalid_for_each(&path.field("nodeName"), name, &forms::dns_subdomain(name));
        }
    }
    if let Some(selector) = get(device, "nodeSelector") {
        is_set.push("`nodeSelector`");
        validate_node_selector(selector, false, &path.field("nodeSelector"), errors);
    }
    match get(device, "allNodes").and_then(Value::as_bool) {
        None => {}
        Some(true) => is_set.push("`allNodes`"),
        Some(false) => {
            errors.invalid(&path.field("allNodes"), false, "must be either unset or set to true");
        }
    }
    let detail = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    match is_set.len() {
        0 => errors.required(path, detail),
        1 => {}
        _ => errors.invalid(path, format!("{{{}}}", is_set.join(", ")), detail),
    }
}

/// Validates the binding conditions of a device or of its allocation.
///
/// Upstream: `validateDeviceBindingParameters`.
pub(super) fn binding_conditions(device: &Value, path: &Path<'_>, lists: &mut ErrorLists) {
    let conditions = list(device, "bindingConditions");
    let failures = list(device, "bindingFailureConditions");
    let conditions_path = path.field("bindingConditions");
    let failures_path = path.field("bindingFailureConditions");
    for (list, path) in [(conditions, &conditions_path), (failures, &failures_path)] {
        items(list, MAX_BINDING_CONDITIONS, path, lists, |condition, path, lists| {
            names::label_key(item_text(condition), path, &mut lists.handwritten);
        });
    }
    let errors = &mut lists.handwritten;
    let mut seen = BTreeSet::new();
    for (index, condition) in conditions.iter().map(item_text).enumerate() {
        if !seen.insert(condition) {
            errors.duplicate(&conditions_path.index(index), condition);
        }
    }
    let mut seen_failures = BTreeSet::new();
    for (index, condition) in failures.iter().map(item_text).enumerate() {
        let path = failures_path.index(index);
        if !seen_failures.insert(condition) {
            errors.duplicate(&path, condition);
        }
        if seen.contains(condition) {
            let detail = "bindingFailureConditions must not overlap with bindingConditions";
            errors.invalid(&path, condition, detail);
        }
    }
    let value = |field: &str| get(device, field).cloned().unwrap_or_default();
    if conditions.is_empty() && !failures.is_empty() {
        let detail = "bindingConditions are required to use bindingFailureConditions";
        errors.invalid(&conditions_path, value("bindingConditions"), detail);
    }
    if failures.is_empty() && !conditions.is_empty() {
        let detail = "bindingFailureConditions are required to use bindingConditions";
        errors.invalid(&failures_path, value("bindingFailureConditions"), detail);
    }
}
