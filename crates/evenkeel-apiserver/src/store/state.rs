//! The objects in memory, by collection.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::watch;

use super::entry::Entry;
use super::event::Event;
use super::index::{Index, IndexedResources};
use super::ring::Ring;
use crate::resource::ResourcePrefix;

/// All collections, and the revision counter.
pub(super) struct State {
    pub(super) revision: u64,
    /// Revision at the start: what a collection held before is not known, what came after is in its ring.
    pub(super) start: u64,
    pub(super) collections: HashMap<ResourcePrefix, Collection>,
}

/// The objects stored under one resource prefix, with their recent events.
pub(super) struct Collection {
    pub(super) objects: BTreeMap<Arc<str>, Arc<Entry>>,
    pub(super) index: Option<Index>,
    pub(super) ring: Ring,
    /// Revision of the last write, settled or not.
    pub(super) touched: u64,
    pub(super) signal: Arc<watch::Sender<u64>>,
}

impl Collection {
    pub(super) fn new(floor: u64) -> Self {
        Self {
            objects: BTreeMap::new(),
            index: None,
            ring: Ring::new(floor),
            touched: 0,
            signal: Arc::new(watch::Sender::new(floor)),
        }
    }
}

impl State {
    /// What was recovered, with the indexes of these resources.
    pub(super) fn new(
        revision: u64,
        recovered: Vec<(ResourcePrefix, Entry)>,
        indexed_resources: IndexedResources,
    ) -> Self {
        let mut collections: HashMap<ResourcePrefix, Collection> = HashMap::new();
        for (resource_prefix, values_of) in indexed_resources {
            let kept = collections
                .entry((*resource_prefix).into())
                .or_insert_with(|| Collection::new(revision));
            kept.index = Some(Index::new(*values_of));
        }
        for (resource_prefix, entry) in recovered {
            let kept =
                collections.entry(resource_prefix).or_insert_with(|| Collection::new(revision));
            if let Some(index) = &mut kept.index {
                match entry.decode() {
                    Ok(object) => index.update(&entry.key, Some(&object)),
                    Err(error) => {
                        tracing::error!(object = %entry.key, %error, "a stored object cannot be read");
                    }
                }
            }
            kept.objects.insert(entry.key.clone(), Arc::new(entry));
        }
        Self { revision, start: revision, collections }
    }

    /// Returns a collection; an empty one if nothing was stored or followed under this prefix yet.
    pub(super) fn collection(&mut self, resource_prefix: &ResourcePrefix) -> &mut Collection {
        let start = self.start;
        self.collections.entry(resource_prefix.clone()).or_insert_with(|| Collection::new(start))
    }
}

/// A change that is in line for the log.
pub(super) struct Staged {
    pub(super) resource_prefix: ResourcePrefix,
    pub(super) event: Arc<Event>,
    pub(super) signal: Arc<watch::Sender<u64>>,
}
