//! Merging an applied object into the live one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::form::{self, Form};
use crate::schema::node::At;

/// The live object with everything that `applied` says; lists of the live object keep their order where they can.
pub(crate) fn merge(live: &Value, applied: &Value, at: At<'_>) -> Value {
    merged(Some(live), Some(applied), Some(at)).unwrap_or_else(|| Value::Object(Map::new()))
}

fn merged(live: Option<&Value>, applied: Option<&Value>, at: Option<At<'_>>) -> Option<Value> {
    let shown = applied.filter(|v| !v.is_null()).or(live).or(applied)?;
    match form::form(at, shown) {
        Form::Map(at) if form::entries(live).is_some() || form::entries(applied).is_some() => {
            let keys: BTreeSet<&String> = [live, applied]
                .into_iter()
                .filter_map(form::entries)
                .flat_map(|m| m.keys())
                .collect();
            let mut out = Map::new();
            for key in keys {
                let of = |side| form::entries(side).and_then(|m| m.get(key));
                if let Some(value) = merged(of(live), of(applied), form::field(at, key).0) {
                    out.insert(key.clone(), value);
                }
            }
            (!out.is_empty()).then_some(Value::Object(out))
        }
        Form::List { item, keys }
            if !(form::items(live).is_empty() && form::items(applied).is_empty()) =>
        {
            let out = merged_items(form::items(live), form::items(applied), item, keys);
            (!out.is_empty()).then_some(Value::Array(out))
        }
        _ => applied.or(live).cloned(),
    }
}

/// A list's items with the elements that tell them apart.
struct Indexed<'v> {
    order: Vec<(Box<str>, &'v Value)>,
    /// `None` for an element that stands for several items: those are not merged with.
    by_element: BTreeMap<Box<str>, Option<&'v Value>>,
}

fn index<'v>(items: &'v [Value], item: At<'_>, keys: &[Box<str>]) -> Indexed<'v> {
    let mut indexed =
        Indexed { order: Vec::with_capacity(items.len()), by_element: BTreeMap::new() };
    for value in items {
        let Ok(element) = form::item_element(value, keys, item) else { continue };
        indexed.by_element.entry(element.clone()).and_modify(|v| *v = None).or_insert(Some(value));
        indexed.order.push((element, value));
    }
    indexed
}

/// Items of both lists: those in both in the order of the applied one, the live one's others where they were.
fn merged_items(live: &[Value], applied: &[Value], item: At<'_>, keys: &[Box<str>]) -> Vec<Value> {
    let (live, applied) = (index(live, item, keys), index(applied, item, keys));
    let mut shared =
        applied.order.iter().map(|(e, _)| e).filter(|e| live.by_element.contains_key(*e));
    let mut next_shared = shared.next();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let mut out = Vec::new();
    let (mut l, mut r) = (0, 0);
    while l < live.order.len() || r < applied.order.len() {
        if let (Some((left, _)), Some((right, value))) = (live.order.get(l), applied.order.get(r)) {
            if left == right {
                out.extend(merged(live.by_element[left], Some(value), Some(item)));
                done.insert(right);
                (l, r) = (l + 1, r + 1);
                next_shared = shared.next();
                continue;
            }
            if applied.by_element.contains_key(left) && next_shared.is_some_and(|next| next != left)
            {
                // Shared, but not the one whose turn it is.
                l += 1;
                continue;
            }
        }
        if let Some((left, value)) = live.order.get(l) {
            if !applied.by_element.contains_key(left) {
                out.extend(merged(Some(value), None, Some(item)));
                l += 1;
                continue;
            }
            if done.contains(&**left) {
                l += 1;
            }
        }
        if let Some((right, value)) = applied.order.get(r) {
            out.extend(merged(
                live.by_element.get(right).copied().flatten(),
                Some(value),
                Some(item),
            ));
            done.insert(right);
            r += 1;
            if next_shared == Some(right) {
                next_shared = shared.next();
            }
        }
    }
    out
}
