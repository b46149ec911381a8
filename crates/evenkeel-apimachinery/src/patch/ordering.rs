//! Order of a merged list: the patch's order, with the elements that only the server has in between.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::strategic::StrategicError;
use crate::go_text::go;
use crate::value;

/// Identity of a list's elements: the merge key, or the value itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct ElementIdentity<'a> {
    pub key: Option<&'a str>,
}

impl ElementIdentity<'_> {
    /// Returns the part of an element that identifies it.
    fn of_element<'v>(&self, element: &'v Value) -> Option<&'v Value> {
        match self.key {
            Some(key) => element.get(key),
            None => Some(element),
        }
    }

    /// Indexes the first position of each element, so that lookups in long lists are fast.
    pub(super) fn positions(&self, list: &[Value]) -> Positions {
        let mut first = HashMap::with_capacity(list.len());
        for (index, element) in list.iter().enumerate() {
            first.entry(self.of_element(element).map(Value::to_string)).or_insert(index);
        }
        Positions(first)
    }

    /// Checks that all elements have the merge key.
    fn require_key(&self, list: &[Value]) -> Result<(), StrategicError> {
        let Some(key) = self.key else { return Ok(()) };
        match list.iter().find(|v| v.get(key).is_none()) {
            None => Ok(()),
            Some(Value::Object(_)) => Err(list
                .iter()
                .find(|v| v.get(key).is_none())
                .map_or(StrategicError::Unprocessable, |v| missing_merge_key(v, key))),
            Some(other) => {
                let kind = go_type(other);
                Err(StrategicError::Internal(format!(
                    "expected a map[string]interface {{}}, but received a {kind}"
                )))
            }
        }
    }
}

/// Positions of a list's elements, by their identity in JSON.
#[derive(Debug, Default)]
pub(super) struct Positions(HashMap<Option<String>, usize>);

impl Positions {
    /// Returns the first position of an element with the same identity as `element`.
    pub(super) fn position(&self, identity: ElementIdentity<'_>, element: &Value) -> Option<usize> {
        self.0.get(&identity.of_element(element).map(Value::to_string)).copied()
    }

    /// Adds the position of an element with a new identity.
    pub(super) fn insert(&mut self, identity: ElementIdentity<'_>, element: &Value, index: usize) {
        self.0.insert(identity.of_element(element).map(Value::to_string), index);
    }
}

/// Returns the error for an element without the merge key.
pub(super) fn missing_merge_key(element: &Value, key: &str) -> StrategicError {
    StrategicError::Internal(format!(
        "map: {} does not contain declared merge key: {key}",
        go(element)
    ))
}

/// Returns Go's name for the type of an untyped value; for null, the string that Go prints for a nil type.
pub(super) fn go_type(value: &Value) -> &'static str {
    value::go_type(value).unwrap_or("%!s(<nil>)")
}

/// Returns whether two lists contain only objects.
///
/// # Errors
/// Fails for a list of lists, and for elements of different types: such lists cannot be merged.
pub(super) fn are_objects(before: &[Value], patch: &[Value]) -> Result<bool, StrategicError> {
    let mut kinds = before.iter().chain(patch).map(go_type);
    let first = kinds.next();
    if first == Some("[]interface {}") {
        return Err(StrategicError::Unprocessable);
    }
    if kinds.any(|kind| Some(kind) != first) {
        let lists = go(&Value::Array(vec![before.to_vec().into(), patch.to_vec().into()]));
        return Err(StrategicError::Internal(format!(
            "list element types are not identical: {lists}"
        )));
    }
    Ok(first == Some("map[string]interface {}"))
}

/// Removes duplicates and keeps the first of equal values.
pub(super) fn deduplicate(list: Vec<Value>) -> Vec<Value> {
    let mut seen = HashSet::with_capacity(list.len());
    list.into_iter().filter(|value| seen.insert(value.to_string())).collect()
}

/// Returns the set of a list's values, each in JSON.
pub(super) fn json_texts(list: &[Value]) -> HashSet<String> {
    list.iter().map(Value::to_string).collect()
}

/// Sorts the elements in `order` by that order and the others by the server's order, then merges both. An element
/// that only the server has comes before the elements of `order` that it preceded on the server.
///
/// Upstream: `normalizeElementOrder`, `mergeSortedSlice`.
pub(super) fn normalize_element_order(
    merged: Vec<Value>,
    order: &[Value],
    server: &[Value],
    identity: ElementIdentity<'_>,
) -> Result<Vec<Value>, StrategicError> {
    identity.require_key(&merged)?;
    if identity.key.is_some()
        && let Some(index) = order.iter().position(|element| !element.is_object())
    {
        return Err(StrategicError::Internal(format!("value for key {index} is not a map")));
    }
    identity.require_key(order)?;
    let (order, server) = (identity.positions(order), identity.positions(server));
    let (mut ordered, mut server_only): (Vec<_>, Vec<_>) =
        merged.into_iter().partition(|element| order.position(identity, element).is_some());
    ordered.sort_by_cached_key(|element| order.position(identity, element));
    server_only.sort_by_cached_key(|element| server.position(identity, element));
    let mut ordered = ordered.into_iter().peekable();
    let mut server_only = server_only.into_iter().peekable();
    let mut result = Vec::new();
    while let (Some(other), Some(next)) = (server_only.peek(), ordered.peek()) {
        let precedes = match (server.position(identity, other), server.position(identity, next)) {
            (Some(other), Some(next)) => other < next,
            _ => false,
        };
        result.extend(if precedes { server_only.next() } else { ordered.next() });
    }
    result.extend(server_only);
    result.extend(ordered);
    Ok(result)
}

/// Rejects a patch whose list is not in the order of its `$setElementOrder`.
///
/// Upstream: `validatePatchWithSetOrderList`.
pub(super) fn validate_element_order(
    patch: &[Value],
    order: &[Value],
    identity: ElementIdentity<'_>,
) -> Result<(), StrategicError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for element in patch.iter().filter(|v| v.get("$patch").is_none()) {
        if !rest.any(|v| identity.of_element(v) == identity.of_element(element)) {
            let (patch, order) = (go(&patch.to_vec().into()), go(&order.to_vec().into()));
            let text = format!(
                "The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n"
            );
            return Err(StrategicError::Internal(text));
        }
    }
    Ok(())
}
