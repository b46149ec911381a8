//! Index of values that must be unique, such as cluster IPs and node ports. Each commit updates the index; opening the
//! store rebuilds it from the stored objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

/// Function that returns an object's values to index, such as the cluster IPs and node ports of a Service.
///
/// Upstream: `IndexFunc` of client-go's `tools/cache`.
pub(crate) type IndexFunc = fn(&Value) -> Vec<String>;

/// Resources that have an index, each with the function that returns an object's values.
pub(crate) type IndexedResources = &'static [(&'static str, IndexFunc)];

/// Index of one resource's objects by value. Several objects may have the same value. A transaction that needs a unique
/// value checks it with [`Transaction::unique`](super::Transaction::unique).
pub(super) struct Index {
    values_of: IndexFunc,
    /// Number of objects with each value. A value without objects is absent.
    counts: BTreeMap<String, usize>,
    /// Values of each object by its key, without duplicates.
    values: BTreeMap<Arc<str>, Vec<String>>,
}

impl Index {
    /// Creates an empty index of the values that `values_of` returns.
    pub(super) fn new(values_of: IndexFunc) -> Self {
        Self { values_of, counts: BTreeMap::new(), values: BTreeMap::new() }
    }

    /// Replaces the values of an object. A deleted object has no values.
    pub(super) fn update(&mut self, key: &Arc<str>, mut values: Vec<String>) {
        for value in self.values.remove(key).unwrap_or_default() {
            match self.counts.get_mut(&value) {
                Some(n) if *n > 1 => *n -= 1,
                _ => drop(self.counts.remove(&value)),
            }
        }
        values.sort_unstable();
        values.dedup();
        for value in &values {
            *self.counts.entry(value.clone()).or_default() += 1;
        }
        if !values.is_empty() {
            self.values.insert(key.clone(), values);
        }
    }

    /// Removes the values of all objects.
    pub(super) fn clear(&mut self) {
        self.counts.clear();
        self.values.clear();
    }

    /// Returns how many objects have this value.
    pub(super) fn count(&self, value: &str) -> usize {
        self.counts.get(value).copied().unwrap_or_default()
    }

    /// Returns whether the object with this key has this value.
    pub(super) fn has(&self, key: &str, value: &str) -> bool {
        self.values.get(key).is_some_and(|values| values.iter().any(|each| each == value))
    }

    /// Returns the values of an object to index.
    pub(super) fn values_of(&self, object: &Value) -> Vec<String> {
        (self.values_of)(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_updates_and_deletions_of_objects() {
        let values = |all: &[&str]| all.iter().map(|each| (*each).to_owned()).collect();
        let mut index = Index::new(|_| Vec::new());
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        index.update(&a, values(&["1", "2", "2"]));
        index.update(&b, values(&["2"]));
        assert_eq!(["1", "2", "3"].map(|value| index.count(value)), [1, 2, 0]);
        assert!(index.has("a", "2") && !index.has("b", "1"));
        index.update(&a, values(&["3"]));
        assert_eq!(["1", "2", "3"].map(|value| index.count(value)), [0, 1, 1]);
        index.update(&a, Vec::new());
        index.update(&b, Vec::new());
        assert!(index.counts.is_empty() && index.values.is_empty());
    }
}
