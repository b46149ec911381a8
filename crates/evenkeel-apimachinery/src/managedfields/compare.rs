//! Comparison of two objects, with sets of fields as the result.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::field_set::{FieldSet, Node};
use super::merge_type::{self, MergeType};
use super::path_element;
use crate::schema::node::TypeRef;

/// The difference of two objects.
///
/// Upstream: `Comparison`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// Fields that only the new object has.
    pub added: FieldSet,
    /// Fields that both have, with different values.
    pub modified: FieldSet,
    /// Fields that only the old object has.
    pub removed: FieldSet,
}

impl Comparison {
    /// Removes the fields of `excluded` and all fields below them.
    ///
    /// Upstream: `ExcludeFields`.
    pub(crate) fn exclude_fields(&self, excluded: &FieldSet) -> Self {
        Self {
            added: self.added.recursive_difference(excluded),
            modified: self.modified.recursive_difference(excluded),
            removed: self.removed.recursive_difference(excluded),
        }
    }

    /// Returns the union of added and modified fields.
    pub(crate) fn added_or_modified(&self) -> FieldSet {
        self.added.union(&self.modified)
    }
}

/// Items of the old and of the new list with the same path element.
#[derive(Default)]
struct ItemsOfElement<'v> {
    old: Vec<&'v Value>,
    new: Vec<&'v Value>,
}

/// Difference of two values at one path.
#[derive(Default)]
struct Difference {
    added: Node,
    modified: Node,
    removed: Node,
}

/// Compares two objects of one type.
///
/// Upstream: `Compare`.
pub(crate) fn compare(old: &Value, new: &Value, type_ref: TypeRef<'_>) -> Comparison {
    // The object itself is not a field.
    let Difference { added, modified, removed } = walk(Some(old), Some(new), Some(type_ref));
    Comparison { added: added.children, modified: modified.children, removed: removed.children }
}

/// Compares two values; each is `None` if it is absent.
fn walk(old: Option<&Value>, new: Option<&Value>, type_ref: Option<TypeRef<'_>>) -> Difference {
    // Most values are unchanged and need no comparison of their fields.
    if old.is_some() && old == new {
        Difference::default()
    } else {
        walk_changed(old, new, type_ref)
    }
}

/// Like [`walk`], for two values that are not equal.
fn walk_changed(
    old: Option<&Value>,
    new: Option<&Value>,
    type_ref: Option<TypeRef<'_>>,
) -> Difference {
    // Without a schema, a value that is not null determines how the two are compared.
    let Some(type_hint) = new.filter(|v| !v.is_null()).or(old).or(new) else {
        return Difference::default();
    };
    let mut difference = match merge_type::merge_type(type_ref, type_hint) {
        MergeType::Map(type_ref)
            if merge_type::entries(old).is_some() || merge_type::entries(new).is_some() =>
        {
            compare_maps(merge_type::entries(old), merge_type::entries(new), type_ref)
        }
        MergeType::AssociativeList { item, keys }
            if !(merge_type::items(old).is_empty() && merge_type::items(new).is_empty()) =>
        {
            compare_lists(merge_type::items(old), merge_type::items(new), item, keys)
        }
        _ => {
            // They are owned as a whole.
            let mut difference = Difference::default();
            difference.modified.is_member = old.zip(new).is_some_and(|(old, new)| !equal(old, new));
            difference
        }
    };
    difference.added.is_member |= old.is_none();
    difference.removed.is_member |= old.is_some() && new.is_none();
    difference
}

fn compare_maps(
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
    type_ref: Option<TypeRef<'_>>,
) -> Difference {
    let mut difference = Difference::default();
    // Equal entries need no path.
    let mut compare = |key: &str, old: Option<&Value>, new: Option<&Value>| {
        if old != new {
            let entry = walk_changed(old, new, merge_type::field_type(type_ref, key));
            difference.put(&path_element::field(key), entry);
        }
    };
    for (key, value) in old.into_iter().flatten() {
        compare(key, Some(value), new.and_then(|new| new.get(key)));
    }
    for (key, value) in new.into_iter().flatten() {
        if old.is_none_or(|old| !old.contains_key(key)) {
            compare(key, None, Some(value));
        }
    }
    difference
}

fn compare_lists(old: &[Value], new: &[Value], item: TypeRef<'_>, keys: &[Box<str>]) -> Difference {
    let mut by_element: BTreeMap<Box<str>, ItemsOfElement<'_>> = BTreeMap::new();
    for value in old {
        if let Ok(element) = merge_type::item_element(value, keys, item) {
            by_element.entry(element).or_default().old.push(value);
        }
    }
    for value in new {
        if let Ok(element) = merge_type::item_element(value, keys, item) {
            by_element.entry(element).or_default().new.push(value);
        }
    }
    let mut difference = Difference::default();
    for (element, items) in by_element {
        difference.put(&element, compare_items(&items.old, &items.new, item));
    }
    difference
}

/// Compares the items with the same path element. If there are several, compares them as a unit, because they also
/// have the same owner.
fn compare_items(old: &[&Value], new: &[&Value], item: TypeRef<'_>) -> Difference {
    let (first_old, first_new) = (old.first().copied(), new.first().copied());
    match (old.len() >= 2, new.len() >= 2) {
        (false, false) => walk(first_old, first_new, Some(item)),
        (true, true) => {
            let mut difference = Difference::default();
            difference.modified.is_member = old != new;
            difference
        }
        (true, false) => {
            let mut difference = walk(None, first_new, Some(item));
            difference.removed.is_member = true;
            difference
        }
        (false, true) => {
            let mut difference = walk(first_old, None, Some(item));
            difference.added.is_member = true;
            difference
        }
    }
}

impl Difference {
    /// Adds the difference at a path element below the current path.
    fn put(&mut self, element: &str, below: Self) {
        let Self { added, modified, removed } = below;
        for (node, below) in
            [(&mut self.added, added), (&mut self.modified, modified), (&mut self.removed, removed)]
        {
            if !below.is_empty() {
                node.children.put(element.into(), below);
            }
        }
    }
}

/// Returns whether two values are equal. 1 equals 1.0.
pub(crate) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        (Value::Array(x), Value::Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| equal(x, y))
        }
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(k, v)| y.get(k).is_some_and(|w| equal(v, w)))
        }
        _ => a == b,
    }
}
