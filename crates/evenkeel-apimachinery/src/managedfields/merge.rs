//! Merge of an applied object into the live one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::merge_type::{self, MergeType};
use crate::schema::node::TypeRef;

/// Returns the live object with all values of `applied`. Items of lists keep the live order where possible.
///
/// Upstream: `Merge` of `typed`.
pub(crate) fn merge(live: &Value, applied: &Value, type_ref: TypeRef<'_>) -> Value {
    merged(Some(live), Some(applied), Some(type_ref)).unwrap_or_else(|| Value::Object(Map::new()))
}

/// Merges an applied value into the live one; each is `None` if it is absent. Returns `None` if the result is empty.
fn merged(
    live: Option<&Value>,
    applied: Option<&Value>,
    type_ref: Option<TypeRef<'_>>,
) -> Option<Value> {
    // Without a schema, a value that is not null determines how the two merge.
    let type_hint = applied.filter(|v| !v.is_null()).or(live).or(applied)?;
    match merge_type::merge_type(type_ref, type_hint) {
        MergeType::Map(type_ref)
            if merge_type::entries(live).is_some() || merge_type::entries(applied).is_some() =>
        {
            let keys: BTreeSet<&String> = [live, applied]
                .into_iter()
                .filter_map(merge_type::entries)
                .flat_map(|m| m.keys())
                .collect();
            let mut out = Map::new();
            for key in keys {
                let entry_of = |side| merge_type::entries(side).and_then(|m| m.get(key));
                let field_type = merge_type::field_type(type_ref, key);
                if let Some(value) = merged(entry_of(live), entry_of(applied), field_type) {
                    out.insert(key.clone(), value);
                }
            }
            (!out.is_empty()).then_some(Value::Object(out))
        }
        MergeType::AssociativeList { item, keys }
            if !(merge_type::items(live).is_empty() && merge_type::items(applied).is_empty()) =>
        {
            let out = merged_items(merge_type::items(live), merge_type::items(applied), item, keys);
            (!out.is_empty()).then_some(Value::Array(out))
        }
        _ => applied.or(live).cloned(),
    }
}

/// Items of a list, indexed by path element.
struct Indexed<'v> {
    order: Vec<(Box<str>, &'v Value)>,
    /// Item of each path element; `None` if several items share it, which are not merged.
    by_element: BTreeMap<Box<str>, Option<&'v Value>>,
}

/// Indexes the items of a list by path element. Skips items without one.
fn index<'v>(items: &'v [Value], item: TypeRef<'_>, keys: &[Box<str>]) -> Indexed<'v> {
    let mut indexed =
        Indexed { order: Vec::with_capacity(items.len()), by_element: BTreeMap::new() };
    for value in items {
        let Ok(element) = merge_type::item_element(value, keys, item) else { continue };
        indexed.by_element.entry(element.clone()).and_modify(|v| *v = None).or_insert(Some(value));
        indexed.order.push((element, value));
    }
    indexed
}

/// Merges two lists. Shared items are in the order of the applied list; other live items keep their position.
///
/// Upstream: `visitListItems` of `mergingWalker`.
fn merged_items(
    live: &[Value],
    applied: &[Value],
    item: TypeRef<'_>,
    keys: &[Box<str>],
) -> Vec<Value> {
    let (live, applied) = (index(live, item, keys), index(applied, item, keys));
    let mut shared =
        applied.order.iter().map(|(e, _)| e).filter(|e| live.by_element.contains_key(*e));
    let mut next_shared = shared.next();
    let mut merged_elements: BTreeSet<&str> = BTreeSet::new();
    let mut out = Vec::new();
    let (mut live_index, mut applied_index) = (0, 0);
    while live_index < live.order.len() || applied_index < applied.order.len() {
        let next_live = live.order.get(live_index);
        let next_applied = applied.order.get(applied_index);
        if let (Some((live_element, _)), Some((applied_element, value))) = (next_live, next_applied)
        {
            if live_element == applied_element {
                out.extend(merged(
                    live.by_element.get(live_element).copied().flatten(),
                    Some(value),
                    Some(item),
                ));
                merged_elements.insert(applied_element);
                (live_index, applied_index) = (live_index + 1, applied_index + 1);
                next_shared = shared.next();
                continue;
            }
            if applied.by_element.contains_key(live_element)
                && next_shared.is_some_and(|next| next != live_element)
            {
                // The applied list has this element at a later position and merges it there.
                live_index += 1;
                continue;
            }
        }
        if let Some((live_element, value)) = next_live {
            if !applied.by_element.contains_key(live_element) {
                out.extend(merged(Some(value), None, Some(item)));
                live_index += 1;
                continue;
            }
            if merged_elements.contains(&**live_element) {
                live_index += 1;
            }
        }
        if let Some((applied_element, value)) = next_applied {
            out.extend(merged(
                live.by_element.get(applied_element).copied().flatten(),
                Some(value),
                Some(item),
            ));
            merged_elements.insert(applied_element);
            applied_index += 1;
            if next_shared == Some(applied_element) {
                next_shared = shared.next();
            }
        }
    }
    out
}
