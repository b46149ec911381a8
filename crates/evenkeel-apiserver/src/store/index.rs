//! Index of values (cluster IPs, node ports) for unique checks: a transaction may refuse a value that another object has.
//! Each commit updates the index; opening the store rebuilds it from the stored objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

/// Returns the values of an object to index, such as the cluster IPs and node ports of a Service.
///
/// Upstream: `IndexFunc` of client-go's `tools/cache`.
pub(crate) type IndexFunc = fn(&Value) -> Vec<String>;

/// Resources that have an index, each with the function that returns an object's values.
pub(crate) type IndexedResources = &'static [(&'static str, IndexFunc)];

/// Index of one resource's objects by value. The index allows several objects with one value; a transaction that wants
/// unique values checks with [`Transaction::unique`](super::Transaction::unique).
pub(super) struct Index {
    values_of: IndexFunc,
    /// Number of objects that have a value; a value that no object has is absent.
    n_objects: BTreeMap<String, usize>,
    /// Values of each object by its store key, without duplicates.
    values: BTreeMap<Arc<str>, Vec<String>>,
}

impl Index {
    /// Creates an empty index of the values that `values_of` returns.
    pub(super) fn new(values_of: IndexFunc) -> Self {
        Self { values_of, n_objects: BTreeMap::new(), values: BTreeMap::new() }
    }

    /// Replaces the values of an object; `None` for a deleted object removes them.
    pub(super) fn update(&mut self, key: &Arc<str>, object: Option<&Value>) {
        for value in self.values.remove(key).unwrap_or_default() {
            match self.n_objects.get_mut(&value) {
                Some(n) if *n > 1 => *n -= 1,
                _ => drop(self.n_objects.remove(&value)),
            }
        }
        let mut values = object.map(self.values_of).unwrap_or_default();
        values.sort_unstable();
        values.dedup();
        for value in &values {
            *self.n_objects.entry(value.clone()).or_default() += 1;
        }
        if !values.is_empty() {
            self.values.insert(key.clone(), values);
        }
    }

    /// Returns whether any object has this value.
    pub(super) fn has(&self, value: &str) -> bool {
        self.n_objects.contains_key(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_follow_their_objects() {
        let values = |object: &Value| {
            let all = object.as_array().into_iter().flatten();
            all.filter_map(|value| value.as_str().map(str::to_owned)).collect()
        };
        let mut index = Index::new(values);
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        index.update(&a, Some(&json!(["1", "2", "2"])));
        index.update(&b, Some(&json!(["2"])));
        assert!(index.has("1") && index.has("2") && !index.has("3"));
        index.update(&a, Some(&json!(["3"])));
        assert!(!index.has("1") && index.has("2") && index.has("3"));
        index.update(&a, None);
        index.update(&b, None);
        assert!(index.n_objects.is_empty() && index.values.is_empty());
    }
}
