//! Small sorted maps with string keys.

use crate::text::Text;

/// A small map with string keys. It has one allocation for the entries, which are sorted by key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Map<T>(Box<[(Text, T)]>);

impl<T> Map<T> {
    /// Returns the value of `key`.
    pub fn get(&self, key: &str) -> Option<&T> {
        let index = self.0.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.0[index].1)
    }

    /// Returns whether the map contains `key`.
    pub fn contains(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Iterates over the entries in the order of keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &T)> + '_ {
        self.0.iter().map(|(k, v)| (&**k, v))
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Builds a map from entries in any order. The last of entries with the same key wins.
    pub fn from_entries(entries: Vec<(Text, T)>) -> Self {
        Self(sort_and_dedup(entries).into_boxed_slice())
    }

    pub(crate) fn into_entries(self) -> Vec<(Text, T)> {
        self.0.into_vec()
    }
}

impl<T> Default for Map<T> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<K: Into<Text>, T> FromIterator<(K, T)> for Map<T> {
    fn from_iter<I: IntoIterator<Item = (K, T)>>(entries: I) -> Self {
        Self::from_entries(entries.into_iter().map(|(k, v)| (k.into(), v)).collect())
    }
}

/// A value that is not decoded: only its presence matters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Unread;

/// A JSON value that is kept in encoded form; empty if it is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct RawJson(pub Text);

/// Sorts entries by key, and keeps the last of several entries with the same key. Entries from the server are usually
/// sorted.
pub(crate) fn sort_and_dedup<T>(mut entries: Vec<(Text, T)>) -> Vec<(Text, T)> {
    if !entries.is_sorted_by(|a, b| a.0 < b.0) {
        // Reverse first: the stable sort then puts the last of equal keys first, which `dedup_by` keeps.
        entries.reverse();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.dedup_by(|later, first| later.0 == first.0);
    }
    entries
}
