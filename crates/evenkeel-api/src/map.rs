//! Small sorted maps with string keys.

use crate::text::Text;

/// A small map from strings: one allocation for the entries, sorted by key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Map<T>(Box<[(Text, T)]>);

impl<T> Map<T> {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&T> {
        let at = self.0.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// Whether the map contains `key`.
    pub fn contains(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Entries in order of key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &T)> + '_ {
        self.0.iter().map(|(k, v)| (&**k, v))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// From entries in any order; a later entry of the same key wins.
    pub fn from_entries(entries: Vec<(Text, T)>) -> Self {
        Self(settle(entries).into_boxed_slice())
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

/// A value that is not decoded; only its presence counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Unread;

/// A JSON value as text, to pass on unread; empty where there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct RawJson(pub Text);

/// Sorts entries by key and keeps the last of equal ones. What the server sends is sorted already.
pub(crate) fn settle<T>(mut entries: Vec<(Text, T)>) -> Vec<(Text, T)> {
    if !entries.is_sorted_by(|a, b| a.0 < b.0) {
        // Reversed first, so that of equal keys the last given comes first and is the one kept.
        entries.reverse();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.dedup_by(|later, first| later.0 == first.0);
    }
    entries
}
