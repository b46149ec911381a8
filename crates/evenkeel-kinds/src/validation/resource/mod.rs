//! Validation of resource.k8s.io: device classes, claims, claim templates, slices and taint rules.
//!
//! Upstream has two kinds of rules for this group: handwritten Go code, and declarative tags on the types. If both find
//! an error, a response lists it once, with the message of the declarative rule. Errors of declarative validation come
//! last. Therefore, each function adds a handwritten rule's error to one list and a declarative rule's error to
//! another.
//!
//! Fields of feature gates that are off by default need no rules, because a write drops them.
//!
//! Upstream: `pkg/apis/resource/validation`, `pkg/apis/resource/v1/zz_generated.validations.go`.

mod capacity;
mod claim;
mod claim_status;
mod class;
mod names;
mod selector;
mod slice;
mod taint;

pub use claim_status::{DeviceId, device_id};
pub(super) use names::declared_driver;

use super::ValidationTarget;
use evenkeel_apimachinery::schema::go_encoded;
use evenkeel_apimachinery::status::BadValue;
use evenkeel_apimachinery::validation::{Errors, Path};
use serde_json::Value;
use std::collections::BTreeSet;

/// Errors of an object, separated by the validation that reports them.
///
/// Upstream: `ValidateDeclarativelyWithMigrationChecks`.
#[derive(Debug, Default)]
struct ErrorLists {
    handwritten: Errors,
    declarative: Errors,
}

impl ErrorLists {
    /// Appends the errors to those of the object: first handwritten, then declarative ones.
    fn add_to(self, errors: &mut Errors) {
        errors.extend(self.handwritten);
        errors.extend(self.declarative);
    }
}

/// Validates a new object, except its metadata.
pub(super) fn create(kind: &str, new: &Value, errors: &mut Errors) {
    let mut lists = ErrorLists::default();
    match kind {
        "DeviceClass" => class::device_class(new, None, &mut lists),
        "DeviceTaintRule" => taint::device_taint_rule(new, &mut lists),
        "ResourceClaim" => claim::resource_claim(new, &mut lists),
        "ResourceClaimTemplate" => claim::resource_claim_template(new, &mut lists),
        "ResourceSlice" => slice::resource_slice(new, None, &mut lists),
        _ => {}
    }
    lists.add_to(errors);
}

/// Validates an update through the object's path or its `/status`, except the metadata.
pub(super) fn update(target: ValidationTarget<'_>, new: &Value, old: &Value, errors: &mut Errors) {
    let mut lists = ErrorLists::default();
    match (target.kind, target.subresource) {
        ("DeviceClass", "") => class::device_class(new, Some(old), &mut lists),
        ("DeviceTaintRule", "") => taint::device_taint_rule(new, &mut lists),
        ("DeviceTaintRule", "status") => taint::device_taint_rule_status(new, &mut lists),
        ("ResourceClaim", "") => claim::resource_claim_update(new, old, &mut lists),
        ("ResourceClaim", "status") => claim_status::update(new, old, &mut lists),
        ("ResourceClaimTemplate", "") => {
            claim::resource_claim_template_update(new, old, &mut lists);
        }
        ("ResourceSlice", "") => slice::resource_slice(new, Some(old), &mut lists),
        _ => {}
    }
    lists.add_to(errors);
}

/// Validates the items of a list. If it has too many, only adds the declarative rule's error about their number.
///
/// Upstream: `validateSlice`.
fn items(
    items: &[Value],
    max_items: usize,
    path: &Path<'_>,
    lists: &mut ErrorLists,
    mut validate: impl FnMut(&Value, &Path<'_>, &mut ErrorLists),
) {
    if items.len() > max_items {
        return lists.declarative.too_many(path, items.len(), max_items);
    }
    for (index, item) in items.iter().enumerate() {
        validate(item, &path.index(index), lists);
    }
}

/// Validates the items of a list with unique keys. Declarative rules report too many items and duplicates.
///
/// Upstream: `validateSet`.
fn set<'v, K: Ord>(
    list: &'v [Value],
    max_items: usize,
    key: impl Fn(&'v Value) -> K,
    path: &Path<'_>,
    lists: &mut ErrorLists,
    validate: impl FnMut(&Value, &Path<'_>, &mut ErrorLists),
) {
    if list.len() <= max_items {
        let mut keys = BTreeSet::new();
        for (index, item) in list.iter().enumerate() {
            if !keys.insert(key(item)) {
                lists.declarative.duplicate(&path.index(index), declared(item, path));
            }
        }
    }
    items(list, max_items, path, lists, validate);
}

/// Returns an item of the list at `path` as errors of declarative rules quote it: in the encoding of version `v1`.
fn declared(item: &Value, path: &Path<'_>) -> BadValue {
    let path = path.to_string();
    let type_name = match path.rsplit('.').next() {
        Some("requests") => "DeviceRequest",
        Some("firstAvailable") => "DeviceSubRequest",
        Some("sharedCounters") => "CounterSet",
        Some("consumesCounters") => "DeviceCounterConsumption",
        Some("reservedFor") => "ResourceClaimConsumerReference",
        Some("devices") => "AllocatedDeviceStatus",
        _ => "",
    };
    match item {
        Value::Object(_) => {
            BadValue::Encoded(go_encoded(&format!("io.k8s.api.resource.v1.{type_name}"), item))
        }
        item => item.clone().into(),
    }
}

/// Returns an item of a list of strings.
fn item_text(item: &Value) -> &str {
    item.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests;
