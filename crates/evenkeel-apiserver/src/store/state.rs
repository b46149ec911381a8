//! Committed objects in memory, by collection. Only commits change them, so that reads, lists and watches observe only
//! data on disk.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use evenkeel_tasks::watch;

use super::entry::{Change, Entry};
use super::event::Event;
use super::event_bytes::HistoryBytes;
use super::index::{Index, IndexedResources};
use super::ring::Ring;
use crate::resource::ResourcePrefix;

/// All collections, with the revision of the last commit.
pub(super) struct State {
    pub(super) revision: u64,
    /// Compacted revision. The collections' rings contain the later history.
    pub(super) compacted: u64,
    pub(super) collections: HashMap<ResourcePrefix, Collection>,
    /// Size in bytes of all objects, without their history.
    pub(super) object_bytes: usize,
    /// Byte counter of all rings.
    pub(super) history_bytes: HistoryBytes,
}

/// Minimum number of bytes to free from a ring, so that searches for the largest ring are rare.
const MIN_EVICTED_BYTES: usize = 1 << 20;

/// Objects under one resource prefix, with their recent events.
pub(super) struct Collection {
    /// Objects by key.
    pub(super) objects: BTreeMap<Arc<str>, Arc<Entry>>,
    /// Index of unique values, if the resource has one.
    pub(super) index: Option<Index>,
    pub(super) ring: Ring,
    /// Revision of the collection's last write.
    pub(super) last_write: u64,
    /// Signals the revision of each commit that wrote to the collection.
    pub(super) signal: Arc<watch::Sender<u64>>,
}

/// Write with an assigned revision. The event of the write has the same revision.
pub(super) struct Staged {
    pub(super) resource_prefix: ResourcePrefix,
    pub(super) event: Arc<Event>,
    /// Values of the object in the resource's index.
    pub(super) values: Vec<String>,
}

impl Collection {
    fn new(floor: u64, history_bytes: &HistoryBytes) -> Self {
        Self {
            objects: BTreeMap::new(),
            index: None,
            ring: Ring::new(floor, history_bytes),
            last_write: 0,
            signal: Arc::new(watch::Sender::new(floor)),
        }
    }
}

impl State {
    /// Creates an empty state, with the indexes of these resources.
    pub(super) fn new(compacted: u64, indexed_resources: IndexedResources) -> Self {
        let history_bytes = HistoryBytes::default();
        let mut state = Self {
            revision: compacted,
            compacted,
            collections: HashMap::new(),
            object_bytes: 0,
            history_bytes,
        };
        for (resource_prefix, values_of) in indexed_resources {
            let collection = state.collection(&(*resource_prefix).into());
            collection.index = Some(Index::new(*values_of));
        }
        state
    }

    /// Returns a collection. Creates an empty one if it does not exist.
    pub(super) fn collection(&mut self, resource_prefix: &ResourcePrefix) -> &mut Collection {
        let (floor, history_bytes) = (self.compacted, &self.history_bytes);
        let new = || Collection::new(floor, history_bytes);
        self.collections.entry(resource_prefix.clone()).or_insert_with(new)
    }

    /// Returns the object with this key.
    pub(super) fn get(&self, resource_prefix: &str, key: &str) -> Option<&Arc<Entry>> {
        self.collections.get(resource_prefix)?.objects.get(key)
    }

    /// Returns the number of objects of an indexed resource that have this value.
    pub(super) fn count_of_value(&self, resource_prefix: &str, value: &str) -> usize {
        self.index(resource_prefix).map_or(0, |index| index.count(value))
    }

    /// Returns whether the object with this key has this value in its resource's index.
    pub(super) fn has_value(&self, resource_prefix: &str, key: &str, value: &str) -> bool {
        self.index(resource_prefix).is_some_and(|index| index.has(key, value))
    }

    fn index(&self, resource_prefix: &str) -> Option<&Index> {
        self.collections.get(resource_prefix)?.index.as_ref()
    }

    /// Applies a committed write. Returns the signal of its collection's watches.
    pub(super) fn apply(&mut self, staged: Staged) -> Arc<watch::Sender<u64>> {
        let Staged { resource_prefix, event, values } = staged;
        let entry = &event.entry;
        let (compacted, revision) = (self.compacted, entry.revision);
        self.revision = revision;
        let collection = self.collection(&resource_prefix);
        collection.last_write = revision;
        if let Some(index) = &mut collection.index {
            index.update(&entry.key, values);
        }
        let (previous, bytes) = if entry.change == Change::Deleted {
            (collection.objects.remove(&entry.key), 0)
        } else {
            (collection.objects.insert(entry.key.clone(), entry.clone()), entry.size())
        };
        let signal = collection.signal.clone();
        if revision > compacted {
            collection.ring.push(event);
        }
        let previous_bytes = previous.map_or(0, |previous| previous.size());
        self.object_bytes = (self.object_bytes + bytes).saturating_sub(previous_bytes);
        self.evict_events();
        signal
    }

    /// Drops the oldest events of the largest rings until all rings together are below the maximum number of bytes.
    fn evict_events(&mut self) {
        loop {
            let excess = self.history_bytes.excess();
            if excess == 0 {
                return;
            }
            let rings = self.collections.values_mut().map(|collection| &mut collection.ring);
            let largest = rings.filter(|ring| ring.len() > 1).max_by_key(|ring| ring.bytes());
            // Stop if each ring has only its last event.
            if !largest.is_some_and(|ring| ring.evict(excess.max(MIN_EVICTED_BYTES))) {
                return;
            }
        }
    }

    /// Replaces all objects by those of a revision, which becomes the compacted revision. Returns the signals of all
    /// collections.
    pub(super) fn replace(
        &mut self,
        revision: u64,
        objects: Vec<Staged>,
    ) -> Vec<Arc<watch::Sender<u64>>> {
        self.forget_history(revision);
        self.object_bytes = 0;
        for collection in self.collections.values_mut() {
            collection.objects.clear();
            collection.last_write = revision;
            if let Some(index) = &mut collection.index {
                index.clear();
            }
        }
        for staged in objects {
            self.apply(staged);
        }
        self.revision = revision;
        self.collections.values().map(|collection| collection.signal.clone()).collect()
    }

    /// Removes an object whose next state cannot be read. Returns the removed state.
    pub(super) fn remove(&mut self, resource_prefix: &str, key: &str) -> Option<Arc<Entry>> {
        let removed = self.collections.get_mut(resource_prefix)?.objects.remove(key)?;
        self.object_bytes = self.object_bytes.saturating_sub(removed.size());
        Some(removed)
    }

    /// Drops the history up to a revision, which must be at least the revision of every event.
    pub(super) fn forget_history(&mut self, revision: u64) {
        self.compacted = revision;
        for collection in self.collections.values_mut() {
            collection.ring = Ring::new(revision, &self.history_bytes);
        }
    }

    /// Rebuilds the indexes from all objects.
    ///
    /// # Errors
    /// Fails if an object cannot be decoded; the message has its key.
    pub(super) fn index_all(&mut self) -> Result<(), String> {
        for (resource_prefix, collection) in &mut self.collections {
            let Some(index) = &mut collection.index else { continue };
            for (key, entry) in &collection.objects {
                let object = entry.decode();
                let object = object
                    .map_err(|error| format!("the object {resource_prefix} {key}: {error}"))?;
                let values = index.values_of(&object);
                index.update(key, values);
            }
        }
        Ok(())
    }

    /// Returns the compacted revision, and the records of all objects and of the history in the rings, by revision. The
    /// history is incomplete up to the compacted revision.
    pub(super) fn records(&self) -> (u64, BTreeMap<u64, (ResourcePrefix, Arc<Entry>)>) {
        let mut records = BTreeMap::new();
        let mut compacted = self.compacted;
        for (resource_prefix, collection) in &self.collections {
            compacted = compacted.max(collection.ring.floor());
            let events = collection
                .ring
                .events()
                .flat_map(|event| std::iter::once(&event.entry).chain(event.previous.as_ref()));
            for entry in collection.objects.values().chain(events) {
                records.insert(entry.revision, (resource_prefix.clone(), entry.clone()));
            }
        }
        (compacted, records)
    }
}
