//! Comparison of two objects, with sets of fields as the result.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::field_set::FieldSet;
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

/// Compares two objects of one type.
///
/// Upstream: `Compare`.
pub(crate) fn compare(old: &Value, new: &Value, type_ref: TypeRef<'_>) -> Comparison {
    let mut walker = Walker::default();
    walker.walk(Some(old), Some(new), Some(type_ref));
    walker.out
}

#[derive(Default)]
struct Walker {
    path: Vec<Box<str>>,
    out: Comparison,
}

impl Walker {
    /// Compares two values that are owned as a whole.
    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, _) => self.out.added.insert(&self.path),
            (_, None) => self.out.removed.insert(&self.path),
            (Some(old), Some(new)) if !equal(old, new) => self.out.modified.insert(&self.path),
            _ => {}
        }
    }

    /// Compares the values at the current path; each is `None` if it is absent.
    fn walk(&mut self, old: Option<&Value>, new: Option<&Value>, type_ref: Option<TypeRef<'_>>) {
        // Without a schema, a value that is not null determines how the two are compared.
        let Some(type_hint) = new.filter(|v| !v.is_null()).or(old).or(new) else { return };
        // Most values are unchanged and need no comparison of their fields.
        if old.is_some() && old == new {
            return;
        }
        match merge_type::merge_type(type_ref, type_hint) {
            MergeType::Map(type_ref)
                if merge_type::entries(old).is_some() || merge_type::entries(new).is_some() =>
            {
                self.compare_maps(merge_type::entries(old), merge_type::entries(new), type_ref);
            }
            MergeType::AssociativeList { item, keys }
                if !(merge_type::items(old).is_empty() && merge_type::items(new).is_empty()) =>
            {
                self.compare_lists(merge_type::items(old), merge_type::items(new), item, keys);
            }
            _ => return self.leaf(old, new),
        }
        match (old, new) {
            (None, _) => self.out.added.insert(&self.path),
            (_, None) => self.out.removed.insert(&self.path),
            _ => {}
        }
    }

    /// Compares the values at a path element below the current path.
    fn child(
        &mut self,
        element: Box<str>,
        old: Option<&Value>,
        new: Option<&Value>,
        type_ref: Option<TypeRef<'_>>,
    ) {
        self.path.push(element);
        self.walk(old, new, type_ref);
        self.path.pop();
    }

    /// Compares the entries of two maps, of which the equal ones need no path.
    fn compare_maps(
        &mut self,
        old: Option<&Map<String, Value>>,
        new: Option<&Map<String, Value>>,
        type_ref: Option<TypeRef<'_>>,
    ) {
        let mut compare = |key: &str, old: Option<&Value>, new: Option<&Value>| {
            if old != new {
                let element = path_element::field(key);
                self.child(element, old, new, merge_type::field_type(type_ref, key));
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
    }

    fn compare_lists(
        &mut self,
        old: &[Value],
        new: &[Value],
        item: TypeRef<'_>,
        keys: &[Box<str>],
    ) {
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
        for (element, items) in by_element {
            self.compare_items(element, &items.old, &items.new, item);
        }
    }

    /// Compares the items with the same path element. If there are several, compares them as a unit, because they also
    /// have the same owner.
    fn compare_items(
        &mut self,
        element: Box<str>,
        old: &[&Value],
        new: &[&Value],
        item: TypeRef<'_>,
    ) {
        if old.len() <= 1 && new.len() <= 1 {
            return self.child(element, old.first().copied(), new.first().copied(), Some(item));
        }
        if old.len() >= 2 && new.len() >= 2 {
            self.path.push(element);
            if old != new {
                self.out.modified.insert(&self.path);
            }
        } else if old.len() >= 2 {
            if let Some(new) = new.first() {
                self.child(element.clone(), None, Some(new), Some(item));
            }
            self.path.push(element);
            self.out.removed.insert(&self.path);
        } else {
            if let Some(old) = old.first() {
                self.child(element.clone(), Some(old), None, Some(item));
            }
            self.path.push(element);
            self.out.added.insert(&self.path);
        }
        self.path.pop();
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
