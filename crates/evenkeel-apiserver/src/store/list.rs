//! Lists ranges of a collection, in its current state or at an earlier revision.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::entry::Entry;
use super::event::Expired;
use super::handle::Store;

/// Objects of a range of a collection at one revision, ordered by key.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Revision of the objects.
    pub(crate) revision: u64,
    /// Objects of the range.
    pub(crate) entries: Vec<Arc<Entry>>,
    /// Number of objects of the range after `entries`, for `remainingItemCount`; 0 without a limit.
    pub(crate) remaining: usize,
}

/// Range of a collection: a namespace and a page of its keys.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Range<'a> {
    /// Namespace; empty for all.
    pub(crate) namespace: &'a str,
    /// Least key of the range. A page starts at the last key of the previous page with a zero character.
    pub(crate) start: Option<&'a str>,
    /// Maximum number of objects.
    pub(crate) limit: Option<usize>,
}

impl Store {
    /// Lists the current objects of a range.
    pub(crate) fn list(&self, resource_prefix: &str, range: Range<'_>) -> Snapshot {
        let state = self.shared.read();
        let revision = state.revision;
        let empty = BTreeMap::new();
        let objects = match state.collections.get(resource_prefix) {
            Some(collection) => &collection.objects,
            None => &empty,
        };
        let from_start = objects.range::<str, _>(bounds(&range, &mut String::new()));
        let mut in_range = from_start
            .map(|(_, entry)| entry)
            .take_while(|entry| is_in_namespace(&range, &entry.key));
        let Some(limit) = range.limit else {
            return Snapshot { revision, entries: in_range.cloned().collect(), remaining: 0 };
        };
        let entries = in_range.by_ref().take(limit).cloned().collect();
        Snapshot { revision, entries, remaining: in_range.count() }
    }

    /// Lists the objects of a range at an earlier revision. The collection's ring must have all events since then.
    pub(crate) fn list_at(
        &self,
        resource_prefix: &str,
        range: Range<'_>,
        revision: u64,
    ) -> Result<Snapshot, Expired> {
        let state = self.shared.read();
        let empty = || Snapshot { revision, entries: Vec::new(), remaining: 0 };
        let Some(collection) = state.collections.get(resource_prefix) else {
            return if revision < state.compacted { Err(Expired) } else { Ok(empty()) };
        };
        // Undo later events: at the revision, an object that changed afterwards had the `previous` state of its first
        // later event.
        let mut undone: BTreeMap<&str, Option<&Arc<Entry>>> = BTreeMap::new();
        for event in collection.ring.since(revision)? {
            undone.entry(&event.entry.key).or_insert(event.previous.as_ref());
        }
        let is_after_start = |key: &str| range.start.is_none_or(|start| key >= start);
        let mut entries: Vec<&Arc<Entry>> = undone
            .values()
            .filter_map(|previous| *previous)
            .filter(|entry| is_in_namespace(&range, &entry.key) && is_after_start(&entry.key))
            .collect();
        entries.extend(
            collection
                .objects
                .range::<str, _>(bounds(&range, &mut String::new()))
                .map(|(_, entry)| entry)
                .take_while(|entry| is_in_namespace(&range, &entry.key))
                .filter(|entry| entry.revision <= revision && !undone.contains_key(&*entry.key)),
        );
        entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let limit = range.limit.unwrap_or(usize::MAX);
        let remaining = entries.len().saturating_sub(limit);
        let entries = entries.into_iter().take(limit).cloned().collect();
        Ok(Snapshot { revision, entries, remaining })
    }

    /// Returns the objects of a collection in one namespace.
    pub(crate) fn within(&self, resource_prefix: &str, namespace: &str) -> Vec<Arc<Entry>> {
        self.list(resource_prefix, Range { namespace, ..Range::default() }).entries
    }

    /// Returns the newest states of a collection's objects in one namespace; see [`Store::latest`].
    pub(crate) fn latest_within(&self, resource_prefix: &str, namespace: &str) -> Vec<Arc<Entry>> {
        let pending = self.shared.pending();
        let mut entries = self.within(resource_prefix, namespace);
        let range = Range { namespace, ..Range::default() };
        for (key, latest) in pending.objects_of(resource_prefix) {
            if !is_in_namespace(&range, key) {
                continue;
            }
            let position = entries.binary_search_by(|entry| entry.key.cmp(key));
            match (position, latest) {
                (Ok(index), Some(latest)) => entries[index] = latest.clone(),
                (Err(index), Some(latest)) => entries.insert(index, latest.clone()),
                (Ok(index), None) => drop(entries.remove(index)),
                (Err(_), None) => {}
            }
        }
        entries
    }
}

/// Returns the bounds that start at a range's first key: at `range.start`, or at `NAMESPACE/`. `prefix` is an empty
/// buffer that holds `NAMESPACE/`.
fn bounds<'b>(range: &Range<'b>, prefix: &'b mut String) -> (Bound<&'b str>, Bound<&'b str>) {
    if let Some(start) = range.start {
        return (Bound::Included(start), Bound::Unbounded);
    }
    if range.namespace.is_empty() {
        return (Bound::Unbounded, Bound::Unbounded);
    }
    prefix.push_str(range.namespace);
    prefix.push('/');
    (Bound::Included(prefix), Bound::Unbounded)
}

/// Returns whether a key is in the range's namespace.
fn is_in_namespace(range: &Range<'_>, key: &str) -> bool {
    range.namespace.is_empty()
        || key.strip_prefix(range.namespace).is_some_and(|rest| rest.starts_with('/'))
}
