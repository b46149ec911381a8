//! What changed between two objects, as sets of fields.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::element;
use super::form::{self, Form};
use super::set::FieldSet;
use crate::schema::node::At;

/// The difference of two objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// Only the new one has these.
    pub added: FieldSet,
    /// Both have these, with other values.
    pub modified: FieldSet,
    /// Only the old one has these.
    pub removed: FieldSet,
}

impl Comparison {
    /// Without the fields of `ignored` and all that is below them.
    pub(crate) fn outside(&self, ignored: &FieldSet) -> Self {
        Self {
            added: self.added.outside(ignored),
            modified: self.modified.outside(ignored),
            removed: self.removed.outside(ignored),
        }
    }

    /// Added or modified.
    pub(crate) fn written(&self) -> FieldSet {
        self.added.union(&self.modified)
    }
}

/// What one element stands for in the old list and in the new one.
type Sides<'v> = (Vec<&'v Value>, Vec<&'v Value>);

/// Compares two objects of one type.
pub(crate) fn compare(old: &Value, new: &Value, at: At<'_>) -> Comparison {
    let mut walker = Walker::default();
    walker.walk(Some(old), Some(new), Some(at));
    walker.out
}

#[derive(Default)]
struct Walker {
    path: Vec<Box<str>>,
    out: Comparison,
}

impl Walker {
    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, _) => self.out.added.insert(&self.path),
            (_, None) => self.out.removed.insert(&self.path),
            (Some(old), Some(new)) if !equal(old, new) => self.out.modified.insert(&self.path),
            _ => {}
        }
    }

    fn walk(&mut self, old: Option<&Value>, new: Option<&Value>, at: Option<At<'_>>) {
        let Some(shown) = new.filter(|v| !v.is_null()).or(old).or(new) else { return };
        // Most of an object stays as it was: nothing below need be looked at.
        if old.is_some() && old == new {
            return;
        }
        match form::form(at, shown) {
            Form::Map(at) if form::entries(old).is_some() || form::entries(new).is_some() => {
                let keys: BTreeSet<&String> = [old, new]
                    .into_iter()
                    .filter_map(form::entries)
                    .flat_map(|m| m.keys())
                    .collect();
                for key in keys {
                    let of = |side| form::entries(side).and_then(|m| m.get(key));
                    self.below(element::field(key), of(old), of(new), form::field(at, key).0);
                }
            }
            Form::List { item, keys }
                if !(form::items(old).is_empty() && form::items(new).is_empty()) =>
            {
                self.list(form::items(old), form::items(new), item, keys);
            }
            _ => return self.leaf(old, new),
        }
        match (old, new) {
            (None, _) => self.out.added.insert(&self.path),
            (_, None) => self.out.removed.insert(&self.path),
            _ => {}
        }
    }

    fn below(
        &mut self,
        element: Box<str>,
        old: Option<&Value>,
        new: Option<&Value>,
        at: Option<At<'_>>,
    ) {
        self.path.push(element);
        self.walk(old, new, at);
        self.path.pop();
    }

    fn list(&mut self, old: &[Value], new: &[Value], item: At<'_>, keys: &[Box<str>]) {
        let mut all: BTreeMap<Box<str>, Sides<'_>> = BTreeMap::new();
        for value in old {
            if let Ok(element) = form::item_element(value, keys, item) {
                all.entry(element).or_default().0.push(value);
            }
        }
        for value in new {
            if let Ok(element) = form::item_element(value, keys, item) {
                all.entry(element).or_default().1.push(value);
            }
        }
        for (element, (old, new)) in all {
            self.element(element, &old, &new, item);
        }
    }

    /// Items that cannot be told apart are compared, and owned, together.
    fn element(&mut self, element: Box<str>, old: &[&Value], new: &[&Value], item: At<'_>) {
        if old.len() <= 1 && new.len() <= 1 {
            return self.below(element, old.first().copied(), new.first().copied(), Some(item));
        }
        if old.len() >= 2 && new.len() >= 2 {
            self.path.push(element);
            if old != new {
                self.out.modified.insert(&self.path);
            }
        } else if old.len() >= 2 {
            if let Some(new) = new.first() {
                self.below(element.clone(), None, Some(new), Some(item));
            }
            self.path.push(element);
            self.out.removed.insert(&self.path);
        } else {
            if let Some(old) = old.first() {
                self.below(element.clone(), Some(old), None, Some(item));
            }
            self.path.push(element);
            self.out.added.insert(&self.path);
        }
        self.path.pop();
    }
}

/// Equal as values: 1 and 1.0 are.
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
