//! Strategic merge patches, which merge lists by their schema and support `$` directives.
//!
//! Upstream: `k8s.io/apimachinery/pkg/util/strategicpatch`.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::ordering::{self, ElementIdentity, Positions};
use crate::go_text::{go, go_string};
use crate::schema::node::{PatchRule, Shape, TypeRef};

/// Directive to `replace`, `delete` or `merge` an object or a list.
const DIRECTIVE: &str = "$patch";
/// Directive that lists the keys of an object to keep.
const RETAIN_KEYS: &str = "$retainKeys";
/// Prefix of a directive that lists the values to delete from a list of primitives.
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
/// Prefix of a directive that lists the elements of a list in their order.
const SET_ORDER: &str = "$setElementOrder";

/// Reason why a strategic merge patch was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StrategicError {
    /// A 400 with this message.
    BadRequest(&'static str),
    /// A 422 without a message.
    Unprocessable,
    /// A 500 with this message: upstream does not treat these as client errors.
    Internal(String),
}

/// Merges `patch` into `original`, an object of the given type. `None` is a type that the schema does not specify.
///
/// Upstream: `mergeMap`.
pub(super) fn apply(
    original: Map<String, Value>,
    patch: Map<String, Value>,
    type_ref: Option<TypeRef<'_>>,
) -> Result<Map<String, Value>, StrategicError> {
    let (mut original, mut patch) = (original, patch);
    match patch.get(DIRECTIVE) {
        None => {}
        Some(Value::String(d)) if d == "replace" => {
            patch.remove(DIRECTIVE);
            return Ok(patch);
        }
        Some(Value::String(d)) if d == "delete" => return Ok(Map::new()),
        Some(other) => return Err(unknown_directive(other, &patch)),
    }
    apply_retain_keys(&mut original, &mut patch)?;
    apply_element_orders(&mut original, &mut patch, type_ref)?;
    for (key, value) in patch {
        merge_entry(&mut original, &key, value, type_ref)?;
    }
    Ok(original)
}

fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> StrategicError {
    let patch = go(&Value::Object(patch.clone()));
    StrategicError::Internal(format!(
        "unknown patch type: {} in map: {patch}",
        go_string(directive)
    ))
}

/// Applies `$retainKeys`, which lists the keys to keep. Removes all other keys.
///
/// Upstream: `applyRetainKeysDirective`.
fn apply_retain_keys(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), StrategicError> {
    let Some(list) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let bad = StrategicError::BadRequest("invalid patch format of retainKeys");
    let Value::Array(list) = list else { return Err(bad) };
    let names: HashSet<&str> = list.iter().filter_map(Value::as_str).collect();
    // The patch may set only the keys that it retains.
    for (key, value) in patch.iter() {
        let is_directive = key.starts_with(DELETE_FROM) || key.starts_with(SET_ORDER);
        if !value.is_null() && !is_directive && !names.contains(key.as_str()) {
            return Err(bad);
        }
    }
    original.retain(|key, _| names.contains(key.as_str()));
    Ok(())
}

/// Merges the patch's list `x` and orders it by `$setElementOrder/x`.
///
/// Upstream: `mergePatchIntoOriginal`.
fn apply_element_orders(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    type_ref: Option<TypeRef<'_>>,
) -> Result<(), StrategicError> {
    let bad = || StrategicError::BadRequest("invalid patch format of setElementOrder list");
    let keys: Vec<String> = patch.keys().filter(|k| k.starts_with(SET_ORDER)).cloned().collect();
    for directive in keys {
        let order = list(patch.remove(&directive).unwrap_or_default())?;
        let key = directive
            .strip_prefix(SET_ORDER)
            .and_then(|rest| rest.strip_prefix('/'))
            .ok_or_else(bad)?;
        let before = original.get(key).cloned().map(list).transpose()?;
        let actual = patch.remove(key).map(list).transpose()?;
        let (rule, item) = patch_rule_of(type_ref, key)?;
        let identity = ElementIdentity { key: rule.key.as_deref() };
        ordering::validate_element_order(actual.as_deref().unwrap_or_default(), &order, identity)?;
        let merged = match (before.clone(), actual) {
            (None, None) => continue,
            (Some(before), None) => before,
            (None, Some(actual)) => actual.into_iter().filter_map(remove_directives).collect(),
            (Some(before), Some(actual)) => merge_lists(before, actual, &rule, item)?,
        };
        let ordered = ordering::normalize_element_order(
            merged,
            &order,
            before.as_deref().unwrap_or_default(),
            identity,
        )?;
        original.insert(key.to_owned(), Value::Array(ordered));
    }
    Ok(())
}

fn list(value: Value) -> Result<Vec<Value>, StrategicError> {
    match value {
        Value::Array(items) => Ok(items),
        other => {
            let kind = ordering::go_type(&other);
            Err(StrategicError::Internal(format!(
                "expected a []interface {{}}, but received a {kind}"
            )))
        }
    }
}

/// Merges one key of the patch.
fn merge_entry(
    original: &mut Map<String, Value>,
    key: &str,
    value: Value,
    type_ref: Option<TypeRef<'_>>,
) -> Result<(), StrategicError> {
    let mut key = key;
    let deletes = key.starts_with(DELETE_FROM);
    if deletes {
        let name = key.strip_prefix(DELETE_FROM).and_then(|rest| rest.strip_prefix('/'));
        key = name.ok_or(StrategicError::BadRequest("invalid patch format of primitive list"))?;
    }
    if value.is_null() {
        original.remove(key);
        return Ok(());
    }
    let merged = match (original.remove(key), value) {
        (Some(Value::Object(before)), Value::Object(patch)) if !deletes => {
            let field = type_ref.and_then(TypeRef::as_struct).and_then(|s| s.field(key));
            require_field(type_ref, key)?;
            let merged = if field.is_some_and(|f| f.patch.replace) {
                patch
            } else {
                apply(before, patch, type_ref.and_then(|a| a.child(key)))?
            };
            Some(Value::Object(merged))
        }
        (Some(Value::Array(before)), Value::Array(patch)) if deletes => {
            let deleted_ids = ordering::json_texts(&patch);
            let kept = before.into_iter().filter(|v| !deleted_ids.contains(&v.to_string()));
            Some(Value::Array(kept.collect()))
        }
        (Some(Value::Array(before)), Value::Array(patch)) => {
            require_field(type_ref, key)?;
            let (rule, item) = patch_rule_of(type_ref, key)?;
            Some(Value::Array(merge_lists(before, patch, &rule, item)?))
        }
        (before, _) if deletes => before,
        (_, mut value) => {
            discard_null_values(&mut value);
            remove_directives(value)
        }
    };
    if let Some(merged) = merged {
        original.insert(key.to_owned(), merged);
    }
    Ok(())
}

/// Refuses to merge into a field that Go's struct does not have. A `RawExtension` has no fields.
///
/// Upstream: `LookupPatchMetadataForStruct`.
fn require_field(type_ref: Option<TypeRef<'_>>, key: &str) -> Result<(), StrategicError> {
    let name = match type_ref.map(|type_ref| (type_ref, type_ref.shape())) {
        Some((_, Shape::Raw)) => "RawExtension",
        Some((type_ref, Shape::Struct(s))) if s.field(key).is_none() => {
            type_ref.node().go.rsplit('.').next().unwrap_or_default()
        }
        _ => return Ok(()),
    };
    Err(StrategicError::Internal(format!(
        "unable to find api field in struct {name} for the json field \"{key}\""
    )))
}

/// Returns the merge rule of the list `key`, and the type of its elements.
fn patch_rule_of<'a>(
    type_ref: Option<TypeRef<'a>>,
    key: &str,
) -> Result<(PatchRule, Option<TypeRef<'a>>), StrategicError> {
    let Some(type_ref) = type_ref else { return Ok((PatchRule::default(), None)) };
    let Some(owner) = type_ref.as_struct() else { return Ok((PatchRule::default(), None)) };
    require_field(Some(type_ref), key)?;
    let Some(field) = owner.field(key) else { return Ok((PatchRule::default(), None)) };
    let item = match type_ref.to(field.node).shape() {
        Shape::List { item, .. } => Some(type_ref.to(*item)),
        _ => None,
    };
    Ok((field.patch.clone(), item))
}

/// Merges two lists, or replaces the old one if the rule does not merge.
///
/// Upstream: `mergeSlice`.
fn merge_lists(
    before: Vec<Value>,
    patch: Vec<Value>,
    rule: &PatchRule,
    item: Option<TypeRef<'_>>,
) -> Result<Vec<Value>, StrategicError> {
    if !rule.merge {
        return Ok(patch);
    }
    if before.is_empty() && patch.is_empty() {
        return Ok(before);
    }
    let identity = ElementIdentity { key: rule.key.as_deref() };
    if !ordering::are_objects(&before, &patch)? {
        let mut merged = before.clone();
        merged.extend(patch.iter().cloned());
        return ordering::normalize_element_order(
            ordering::deduplicate(merged),
            &patch,
            &before,
            identity,
        );
    }
    let Some(key) = identity.key else {
        return Err(StrategicError::Internal("cannot merge lists without merge key".to_owned()));
    };
    let (before, patch) = apply_element_directives(before, patch, key)?;
    let mut merged = before.clone();
    let mut positions = identity.positions(&merged);
    for element in &patch {
        merge_element(&mut merged, &mut positions, element, key, item)?;
    }
    ordering::normalize_element_order(merged, &patch, &before, identity)
}

/// Applies the `$patch` directives in elements of a list, and returns the elements without one.
///
/// Upstream: `mergeSliceWithSpecialElements`.
fn apply_element_directives(
    before: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), StrategicError> {
    let (mut before, mut rest, mut replace) = (before, Vec::with_capacity(patch.len()), false);
    let mut deleted_ids = HashSet::new();
    for element in patch {
        let Some(directive) = element.get(DIRECTIVE) else {
            rest.push(element);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let id =
                    element.get(key).ok_or_else(|| ordering::missing_merge_key(&element, key))?;
                deleted_ids.insert(id.to_string());
            }
            Some("replace") => replace = true,
            Some("merge") => {
                return Err(StrategicError::Internal(
                    "merging lists cannot yet be specified in the patch".to_owned(),
                ));
            }
            _ => {
                return Err(unknown_directive(
                    directive,
                    element.as_object().unwrap_or(&Map::new()),
                ));
            }
        }
    }
    if !deleted_ids.is_empty() {
        before.retain(|v| v.get(key).is_none_or(|id| !deleted_ids.contains(&id.to_string())));
    }
    Ok(if replace { (rest, Vec::new()) } else { (before, rest) })
}

/// Merges an element of the patch into the list, or appends it.
fn merge_element(
    merged: &mut Vec<Value>,
    positions: &mut Positions,
    element: &Value,
    key: &str,
    item: Option<TypeRef<'_>>,
) -> Result<(), StrategicError> {
    element.get(key).ok_or_else(|| ordering::missing_merge_key(element, key))?;
    let identity = ElementIdentity { key: Some(key) };
    let Some(found) = positions.position(identity, element).and_then(|index| merged.get_mut(index))
    else {
        positions.insert(identity, element, merged.len());
        merged.push(element.clone());
        return Ok(());
    };
    if let (Value::Object(before), Value::Object(patch)) = (found.take(), element.clone()) {
        *found = Value::Object(apply(before, patch, item)?);
    }
    Ok(())
}

/// Removes nulls from an added value, because they have nothing to delete.
///
/// Upstream: `discardNullValuesFromPatch`.
fn discard_null_values(value: &mut Value) {
    match value {
        Value::Object(entries) => {
            entries.retain(|_, v| !v.is_null());
            entries.values_mut().for_each(discard_null_values);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_null_values),
        _ => {}
    }
}

/// Removes objects with a directive from an added value.
///
/// Upstream: `removeDirectives`.
fn remove_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(entries) if entries.contains_key(DIRECTIVE) => None,
        Value::Object(entries) => {
            let kept = entries.into_iter().filter_map(|(k, v)| Some((k, remove_directives(v)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => {
            Some(Value::Array(items.into_iter().filter_map(remove_directives).collect()))
        }
        other => Some(other),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::schema::Schema;

    fn merged(
        kind: (&str, &str),
        original: &Value,
        patch: &Value,
    ) -> Result<Value, StrategicError> {
        let schema = Schema::builtin(kind.0, "v1", kind.1).expect("a built-in kind");
        let (Value::Object(original), Value::Object(patch)) = (original.clone(), patch.clone())
        else {
            panic!("objects")
        };
        apply(original, patch, Some(schema.type_ref())).map(Value::Object)
    }

    fn pod(containers: &Value) -> Value {
        json!({"spec": {"containers": containers}})
    }

    const POD: (&str, &str) = ("", "Pod");

    #[test]
    fn fields_of_a_raw_extension_cannot_be_merged() {
        let revision = json!({"data": {"spec": {"a": 1}}});
        let refused = merged(("apps", "ControllerRevision"), &revision, &revision);
        let why = "unable to find api field in struct RawExtension for the json field \"spec\"";
        assert_eq!(refused, Err(StrategicError::Internal(why.to_owned())));
        let added = json!({"data": {"a": 1}});
        let both = json!({"data": {"spec": {"a": 1}, "a": 1}});
        assert_eq!(merged(("apps", "ControllerRevision"), &revision, &added), Ok(both));
    }

    #[test]
    fn lists_merge_by_key() {
        let start = pod(
            &json!([{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "1"}]),
        );
        for (patch, want) in [
            (
                json!([{"name": "a", "image": "2"}]),
                json!([{"name": "a", "image": "2", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "1"}]),
            ),
            (json!([{"name": "a", "$patch": "delete"}]), json!([{"name": "b", "image": "1"}])),
            (json!([{"$patch": "replace"}, {"name": "z"}]), json!([{"name": "z"}])),
            (
                json!([{"name": "a", "env": [{"name": "X", "value": null}]}]),
                json!([{"name": "a", "image": "1", "env": [{"name": "X"}]}, {"name": "b", "image": "1"}]),
            ),
            (
                json!([{"name": "c"}]),
                json!([{"name": "c"}, {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "1"}]),
            ),
        ] {
            assert_eq!(merged(POD, &start, &pod(&patch)), Ok(pod(&want)), "{patch}");
        }
    }

    #[test]
    fn directives_replace_delete_retain_and_order() {
        let start =
            json!({"metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x", "y", "z"]}});
        for (patch, want) in [
            (
                json!({"metadata": {"labels": {"$patch": "replace", "c": "3"}}}),
                json!({"metadata": {"labels": {"c": "3"}, "finalizers": ["x", "y", "z"]}}),
            ),
            (
                json!({"metadata": {"labels": {"$patch": "delete"}}}),
                json!({"metadata": {"labels": {}, "finalizers": ["x", "y", "z"]}}),
            ),
            (
                json!({"metadata": {"labels": {"$retainKeys": ["b"]}}}),
                json!({"metadata": {"labels": {"b": "2"}, "finalizers": ["x", "y", "z"]}}),
            ),
            (
                json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["y"]}}),
                json!({"metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x", "z"]}}),
            ),
            (
                json!({"metadata": {"$setElementOrder/finalizers": ["z", "w", "x"], "finalizers": ["w"]}}),
                json!({"metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["y", "z", "w", "x"]}}),
            ),
            (json!({"metadata": {"annotations": {"$patch": "replace", "q": "r"}}}), start.clone()),
        ] {
            assert_eq!(merged(POD, &start, &patch), Ok(want), "{patch}");
        }
    }

    #[test]
    fn errors_have_upstreams_text() {
        let start = pod(&json!([{"name": "a"}]));
        for (patch, error) in [
            (
                json!([{"image": "new"}]),
                "map: map[image:new] does not contain declared merge key: name",
            ),
            (json!(["x"]), "list element types are not identical: [[map[name:a]] [x]]"),
            (
                json!([{"name": "a", "$patch": "nope"}]),
                "unknown patch type: nope in map: map[$patch:nope name:a]",
            ),
        ] {
            assert_eq!(
                merged(POD, &start, &pod(&patch)),
                Err(StrategicError::Internal(error.to_owned())),
                "{patch}"
            );
        }
        let patch = json!({"metadata": {"$retainKeys": ["a"], "b": 1}});
        assert_eq!(
            merged(POD, &json!({"metadata": {}}), &patch),
            Err(StrategicError::BadRequest("invalid patch format of retainKeys"))
        );
    }

    fn containers() -> impl Strategy<Value = Value> {
        let one = ("[a-d]", prop::option::of("[x-z]"));
        prop::collection::vec(one, 0..4).prop_map(|list| {
            let mut seen = std::collections::BTreeMap::new();
            for (name, image) in list {
                seen.insert(
                    name.clone(),
                    match image {
                        Some(image) => json!({"name": name, "image": image}),
                        None => json!({"name": name}),
                    },
                );
            }
            pod(&seen.into_values().collect())
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn applying_a_patch_twice_equals_applying_it_once(start in containers(), patch in containers()) {
            let once = merged(POD, &start, &patch).expect("applies");
            let twice = merged(POD, &once, &patch).expect("applies");
            prop_assert_eq!(once, twice);
        }
    }
}
