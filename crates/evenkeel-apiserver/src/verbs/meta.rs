//! `metadata` of objects in writes.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::strategy::Strategy;
use evenkeel_api::hash::ALPHANUMS;
use evenkeel_apimachinery::status::FieldError;
use evenkeel_kinds::names::{dns_subdomain, path_segment_or_prefix};
use evenkeel_kinds::strategy::Context;

/// Number of characters that follow a `generateName`.
///
/// Upstream: `randomLength`.
const RANDOM_LENGTH: usize = 5;
/// Maximum length of a name from `generateName`, in bytes.
///
/// Upstream: `maxNameLength`.
const MAX_NAME_LENGTH: usize = 63;

/// Returns a string of `metadata`; empty if it is absent.
pub(super) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|m| m.get(field)).and_then(Value::as_str).unwrap_or_default()
}

/// Returns `metadata`, and creates it if it is absent.
pub(super) fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(map) = object else { unreachable!("it was just made one") };
    let metadata = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    let Value::Object(metadata) = metadata else { unreachable!("it was just made one") };
    metadata
}

/// Sets a string, or removes the field if the string is empty.
pub(super) fn set(object: &mut Value, field: &str, value: &str) {
    let metadata = metadata(object);
    if value.is_empty() {
        metadata.remove(field);
    } else {
        metadata.insert(field.to_owned(), Value::from(value));
    }
}

/// Sets the resource version that a written subresource requires, if it names one.
pub(super) fn set_requested_version(subresource: &Value, object: &mut Value) {
    let version = text(subresource, "resourceVersion");
    if !version.is_empty() {
        set(object, "resourceVersion", version);
    }
}

/// Copies a field from `old`, or removes it if `old` lacks it.
pub(super) fn copy_field(object: &mut Value, old: &Value, field: &str) {
    let old_value = old.get("metadata").and_then(|metadata| metadata.get(field)).cloned();
    let metadata = metadata(object);
    match old_value {
        Some(value) => {
            metadata.insert(field.to_owned(), value);
        }
        None => {
            metadata.remove(field);
        }
    }
}

/// Removes the fields that only the server sets from a new object.
///
/// Upstream: `WipeObjectMetaSystemFields`.
pub(super) fn wipe_system_fields(object: &mut Value) {
    for field in
        ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "uid", "creationTimestamp"]
    {
        metadata(object).remove(field);
    }
}

/// Copies the fields that the server sets from `old` to `new` before validation. Keeps a client's value if `old` has
/// none, so that validation refuses it.
///
/// Upstream: `BeforeUpdate`.
pub(super) fn keep_system_fields(new: &mut Value, old: &Value) {
    for field in ["creationTimestamp", "generation", "namespace", "resourceVersion"] {
        copy_field(new, old, field);
    }
    if text(new, "uid").is_empty() {
        copy_field(new, old, "uid");
    }
    if is_being_deleted(old) {
        copy_field(new, old, "deletionTimestamp");
    }
    if deletion_grace_period(new).is_none() {
        copy_field(new, old, "deletionGracePeriodSeconds");
    }
}

/// Returns `metadata.generation`, or 0 if it is absent.
pub(super) fn generation(object: &Value) -> i64 {
    object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0)
}

/// Returns the names in `metadata.finalizers`.
pub(super) fn finalizers(object: &Value) -> Vec<&str> {
    object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .map_or_else(Vec::new, |list| list.iter().filter_map(Value::as_str).collect())
}

/// Sets `metadata.finalizers`, or removes the field for an empty list.
pub(super) fn set_finalizers(object: &mut Value, finalizers: &[&str]) {
    let list = Value::from(finalizers.to_vec());
    let metadata = metadata(object);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), list);
    }
}

/// Returns whether the object has a deletion timestamp.
pub(super) fn is_being_deleted(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

/// Returns the grace period of a deletion in seconds, from `metadata.deletionGracePeriodSeconds`.
pub(super) fn deletion_grace_period(object: &Value) -> Option<i64> {
    object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64)
}

/// Returns `prefix`, truncated to 58 bytes, with five random characters.
///
/// Upstream: `SimpleNameGenerator`, `GenerateName`.
pub(super) fn generate_name(prefix: &str, rng: &mut impl rand::Rng) -> String {
    let mut end = prefix.len().min(MAX_NAME_LENGTH - RANDOM_LENGTH);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = prefix[..end].to_owned();
    for _ in 0..RANDOM_LENGTH {
        name.push(char::from(ALPHANUMS[rng.random_range(0..ALPHANUMS.len())]));
    }
    name
}

/// Returns the errors of a name by the kind's own rule, or by the rule of DNS subdomains.
pub(super) fn name_errors(
    strategy: &dyn Strategy,
    cx: &Context<'_>,
    object: &Value,
) -> Vec<FieldError> {
    let name = text(object, "name");
    let prefix = text(object, "generateName");
    let mut errors = Vec::new();
    let check = |value: &str, is_prefix: bool| {
        strategy
            .validate_name(cx, value, is_prefix)
            .unwrap_or_else(|| dns_subdomain(value, is_prefix))
    };
    if !prefix.is_empty() {
        for why in check(prefix, true) {
            errors.push(FieldError::invalid("metadata.generateName", prefix, why));
        }
    }
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        for why in check(name, false) {
            errors.push(FieldError::invalid("metadata.name", name, why));
        }
    }
    errors
}

/// Returns the errors of an update's `metadata`.
///
/// Upstream: `ValidateObjectMetaAccessorUpdate`.
pub(super) fn update_errors(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if is_being_deleted(old) {
        let old_finalizers: HashSet<&str> = finalizers(old).into_iter().collect();
        let mut added = finalizers(new);
        added.retain(|finalizer| !old_finalizers.contains(finalizer));
        if !added.is_empty() {
            let quoted: Vec<String> =
                added.iter().map(|f| evenkeel_apimachinery::status::quote(f)).collect();
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    quoted.join(", ")
                ),
            ));
        }
    }
    let prefix = text(new, "generateName");
    for why in path_segment_or_prefix(prefix, true) {
        errors.push(FieldError::invalid("metadata.generateName", prefix, why));
    }
    for field in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let value = |object: &Value| object.get("metadata").and_then(|m| m.get(field)).cloned();
        let (new, old) = (value(new), value(old));
        if new != old {
            let (path, new) = (format!("metadata.{field}"), new.unwrap_or_default());
            errors.push(FieldError::invalid(path, new, "field is immutable"));
        }
    }
    errors
}

/// Returns the errors of `metadata.generation`, which clients may set for kinds without a generation.
///
/// Upstream: `ValidateNonnegativeField`.
pub(super) fn generation_errors(object: &Value) -> Vec<FieldError> {
    let generation = generation(object);
    if generation >= 0 {
        return Vec::new();
    }
    let why = "must be greater than or equal to 0";
    vec![FieldError::invalid("metadata.generation", generation, why)]
}

/// Removes owner references that repeat an earlier one, and returns a warning about them. `when` says at which point of the
/// request they were found.
///
/// Upstream: `dedupOwnerReferencesAndAddWarning`.
pub(crate) fn dedup_owner_references(object: &mut Value, when: &str) -> Option<String> {
    let references = object.pointer_mut("/metadata/ownerReferences")?.as_array_mut()?;
    if references.len() < 2 {
        return None;
    }
    let (mut seen, mut duplicates) = (HashSet::new(), Vec::new());
    references.retain(|reference| {
        let is_new = seen.insert(reference.to_string());
        if !is_new {
            duplicates.push(reference["uid"].as_str().unwrap_or_default().to_owned());
        }
        is_new
    });
    (!duplicates.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and \
             may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            duplicates.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_have_a_truncated_prefix_and_five_random_characters() {
        let name = generate_name("web-", &mut rand::rng());
        assert_eq!(name.len(), 9);
        assert!(name.bytes().skip(4).all(|b| ALPHANUMS.contains(&b)));
        // A prefix is truncated between characters.
        let cut = generate_name(&"é".repeat(30).replacen('é', "e", 1), &mut rand::rng());
        assert_eq!(cut.len(), 62);
        assert_eq!(generate_name(&"x".repeat(300), &mut rand::rng()).len(), MAX_NAME_LENGTH);
    }
}
