//! Store of a cache: objects by namespace and name, and their indexes. The caller locks it.
//!
//! Upstream: `ThreadSafeStore`.

use super::{CacheEvent, object::Object};
use evenkeel_api::Text;
use foldhash::quality::FixedState;
use hashbrown::{HashMap, HashTable};
use smallvec::{SmallVec, smallvec};
use std::{hash::BuildHasher as _, sync::Arc};

/// Hasher with a fixed seed, so that the iteration order is the same in every run of a simulation.
type FixedHasher = FixedState;

/// Function that calls back with each index key of an object.
pub(crate) type IndexFunc = Box<dyn Fn(&dyn Object, &mut dyn FnMut(&str)) + Send + Sync>;

/// Events caused by a change, in order.
pub(crate) type Events = SmallVec<[CacheEvent<dyn Object>; 2]>;

fn hash(namespace: &str, name: &str) -> u64 {
    FixedHasher::default().hash_one((namespace, name))
}

fn hash_of(object: &dyn Object) -> u64 {
    let meta = object.meta();
    hash(&meta.namespace, &meta.name)
}

/// Set of objects, unique by namespace and name. The key is read from the object, not stored beside it.
pub(crate) struct Table(HashTable<Arc<dyn Object>>);

impl Table {
    pub(crate) fn new() -> Self {
        Self(HashTable::new())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<dyn Object>> {
        self.0.iter()
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<dyn Object>> {
        self.find(hash(namespace, name), namespace, name)
    }

    fn find(&self, hash: u64, namespace: &str, name: &str) -> Option<&Arc<dyn Object>> {
        self.0.find(hash, |object| has_name(&**object, namespace, name))
    }

    pub(crate) fn insert(&mut self, object: Arc<dyn Object>) -> Option<Arc<dyn Object>> {
        self.put(hash_of(&*object), object)
    }

    fn put(&mut self, hash: u64, object: Arc<dyn Object>) -> Option<Arc<dyn Object>> {
        let meta = object.meta();
        match self.0.find_mut(hash, |old| has_name(&**old, &meta.namespace, &meta.name)) {
            Some(slot) => Some(std::mem::replace(slot, object)),
            None => {
                self.0.insert_unique(hash, object, |object| hash_of(&**object));
                None
            }
        }
    }

    pub(crate) fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<dyn Object>> {
        self.take(hash(namespace, name), namespace, name)
    }

    fn take(&mut self, hash: u64, namespace: &str, name: &str) -> Option<Arc<dyn Object>> {
        let entry = self.0.find_entry(hash, |object| has_name(&**object, namespace, name)).ok()?;
        Some(entry.remove().0)
    }
}

/// Returns whether an object has this namespace and name.
fn has_name(object: &dyn Object, namespace: &str, name: &str) -> bool {
    let meta = object.meta();
    *meta.name == *name && *meta.namespace == *namespace
}

/// Tables by namespace, or by index key.
type Buckets = HashMap<Text, Table, FixedHasher>;

struct DeclaredIndex {
    name: &'static str,
    /// Calls back with the keys of an object.
    keys: IndexFunc,
    buckets: Buckets,
}

/// Part of a cache's objects.
#[derive(Clone, Copy)]
pub(crate) enum Selection<'a> {
    /// All objects of the cache.
    All,
    /// The objects of one namespace.
    Namespace(&'a str),
    /// The objects under one key of the index with this number.
    Key(usize, &'a str),
}

/// Objects and indexes of a cache, under one lock.
pub(crate) struct Store {
    namespaces: Buckets,
    indexes: Vec<DeclaredIndex>,
    len: usize,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self { namespaces: HashMap::default(), indexes: Vec::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<dyn Object>> {
        self.namespaces.get(namespace)?.get(namespace, name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<dyn Object>> {
        self.namespaces.values().flat_map(Table::iter)
    }

    /// Counts the selected objects.
    pub(crate) fn count(&self, selection: Selection<'_>) -> usize {
        match selection {
            Selection::All => self.len,
            _ => self.table(selection).map_or(0, Table::len),
        }
    }

    /// Calls `each` with the selected objects.
    pub(crate) fn for_each(
        &self,
        selection: Selection<'_>,
        each: &mut dyn FnMut(&Arc<dyn Object>),
    ) {
        match selection {
            Selection::All => self.iter().for_each(each),
            _ => self.table(selection).into_iter().flat_map(Table::iter).for_each(each),
        }
    }

    fn table(&self, selection: Selection<'_>) -> Option<&Table> {
        match selection {
            Selection::All => None,
            Selection::Namespace(namespace) => self.namespaces.get(namespace),
            Selection::Key(index, key) => self.indexes[index].buckets.get(key),
        }
    }

    /// Declares an index and returns its number. If the name is already declared, returns that index.
    pub(crate) fn declare(&mut self, name: &'static str, keys: IndexFunc) -> usize {
        if let Some(number) = self.indexes.iter().position(|index| index.name == name) {
            return number;
        }
        let mut index = DeclaredIndex { name, keys, buckets: HashMap::default() };
        for object in self.iter() {
            index.add(hash_of(&**object), object);
        }
        self.indexes.push(index);
        self.indexes.len() - 1
    }

    /// Returns the keys of an index with the number of their objects.
    pub(crate) fn keys(&self, index: usize) -> impl Iterator<Item = (&str, usize)> {
        self.indexes[index].buckets.iter().map(|(key, bucket)| (&**key, bucket.len()))
    }

    /// Stores an object's current state.
    pub(crate) fn upsert(&mut self, object: Arc<dyn Object>, initial: bool) -> Events {
        let meta = object.meta();
        let old = self.get(&meta.namespace, &meta.name);
        if old.is_some_and(|old| same_version(&**old, &*object)) {
            return Events::new();
        }
        match self.put(&object) {
            None => smallvec![CacheEvent::Added { object, initial }],
            Some(old) if old.meta().uid == object.meta().uid => {
                smallvec![CacheEvent::Updated { old, new: object }]
            }
            // The object was deleted and created again between two lists.
            Some(old) => {
                smallvec![CacheEvent::Deleted(old), CacheEvent::Added { object, initial: false }]
            }
        }
    }

    /// Removes an object. `last` is its last state if that is newer than the stored one.
    pub(crate) fn delete(
        &mut self,
        namespace: &str,
        name: &str,
        last: Option<Arc<dyn Object>>,
    ) -> Events {
        match self.remove(namespace, name) {
            Some(old) => smallvec![CacheEvent::Deleted(last.unwrap_or(old))],
            None => Events::new(),
        }
    }

    /// Replaces the content of a namespace by `objects`. An empty namespace stands for all namespaces. Stored objects that are
    /// missing in `objects` were deleted while no watch was open.
    ///
    /// Upstream: `DeletedFinalStateUnknown`.
    pub(crate) fn replace(&mut self, namespace: &str, objects: Table, initial: bool) -> Events {
        let is_missing = |object: &&Arc<dyn Object>| {
            objects.get(&object.meta().namespace, &object.meta().name).is_none()
        };
        let mut deleted = Vec::new();
        let replaced = match namespace {
            "" => Selection::All,
            namespace => Selection::Namespace(namespace),
        };
        self.for_each(replaced, &mut |object| {
            if is_missing(&object) {
                deleted.push(Arc::clone(object));
            }
        });
        let mut events = Events::new();
        for object in deleted {
            events.extend(self.delete(&object.meta().namespace, &object.meta().name, None));
        }
        for object in objects.0 {
            events.extend(self.upsert(object, initial));
        }
        events
    }

    /// Stores an object in its namespace and in the indexes. Returns the object that it replaces.
    fn put(&mut self, object: &Arc<dyn Object>) -> Option<Arc<dyn Object>> {
        let hash = hash_of(&**object);
        let table = self.namespaces.entry_ref(&*object.meta().namespace).or_insert_with(Table::new);
        let old = table.put(hash, Arc::clone(object));
        self.len += usize::from(old.is_none());
        for index in &mut self.indexes {
            index.add(hash, object);
            if let Some(old) = &old {
                index.remove_stale_keys(hash, &**old, Some(object));
            }
        }
        old
    }

    fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<dyn Object>> {
        let hash = hash(namespace, name);
        let table = self.namespaces.get_mut(namespace)?;
        let old = table.take(hash, namespace, name)?;
        if table.is_empty() {
            self.namespaces.remove(namespace);
        }
        self.len -= 1;
        for index in &mut self.indexes {
            index.remove_stale_keys(hash, &*old, None);
        }
        Some(old)
    }
}

/// Returns whether both are the same version of the same object, so that there is no event.
pub(crate) fn same_version(left: &dyn Object, right: &dyn Object) -> bool {
    let (left, right) = (left.meta(), right.meta());
    !left.resource_version.is_empty()
        && left.resource_version == right.resource_version
        && left.uid == right.uid
}

impl DeclaredIndex {
    fn add(&mut self, hash: u64, object: &Arc<dyn Object>) {
        let buckets = &mut self.buckets;
        (self.keys)(&**object, &mut |key| {
            buckets.entry_ref(key).or_insert_with(Table::new).put(hash, Arc::clone(object));
        });
    }

    /// Removes `old` from the keys that `new` does not have.
    fn remove_stale_keys(&mut self, hash: u64, old: &dyn Object, new: Option<&Arc<dyn Object>>) {
        let (buckets, keys) = (&mut self.buckets, &self.keys);
        let meta = old.meta();
        keys(old, &mut |key| {
            let mut has_key = false;
            if let Some(new) = new {
                keys(&**new, &mut |other| has_key |= other == key);
            }
            if has_key {
                return;
            }
            if let Some(bucket) = buckets.get_mut(key) {
                bucket.take(hash, &meta.namespace, &meta.name);
                if bucket.is_empty() {
                    buckets.remove(key);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Metadata;
    use evenkeel_api::Meta;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn object(namespace: u8, name: u8, uid: u8, version: u32, labels: &[u8]) -> Arc<dyn Object> {
        let labels = labels.iter().map(|label| (format!("l{label}"), "x"));
        let meta = Meta {
            namespace: format!("ns{namespace}").into(),
            name: format!("n{name}").into(),
            uid: format!("u{uid}").into(),
            resource_version: version.to_string().into(),
            labels: labels.collect(),
            ..Meta::default()
        };
        Arc::new(Metadata { meta })
    }

    fn by_label(object: &dyn Object, key: &mut dyn FnMut(&str)) {
        object.meta().labels.iter().for_each(|(label, _)| key(label));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Upsert(u8, u8, u8, Vec<u8>),
        Delete(u8, u8),
        Replace(Vec<(u8, u8, u8, Vec<u8>)>),
    }

    fn step() -> impl Strategy<Value = Step> {
        let one = || (0u8..3, 0u8..4, 0u8..2, proptest::collection::vec(0u8..3, 0..3));
        prop_oneof![
            4 => one().prop_map(|(a, b, c, d)| Step::Upsert(a, b, c, d)),
            2 => (0u8..3, 0u8..4).prop_map(|(a, b)| Step::Delete(a, b)),
            1 => proptest::collection::vec(one(), 0..6).prop_map(Step::Replace),
        ]
    }

    type Model = BTreeMap<(String, String), Arc<dyn Object>>;

    /// Applies the events to a model. A handler that only sees events must know the same objects as the store.
    fn follow(model: &mut Model, events: Events) {
        let key = |object: &Arc<dyn Object>| {
            let meta = object.meta();
            (meta.namespace.to_string(), meta.name.to_string())
        };
        for event in events {
            match event {
                CacheEvent::Added { object, .. } => {
                    assert!(model.insert(key(&object), object).is_none());
                }
                CacheEvent::Updated { old, new } => {
                    let before = model.insert(key(&new), new).unwrap();
                    assert!(Arc::ptr_eq(&before, &old));
                }
                CacheEvent::Deleted(object) => assert!(model.remove(&key(&object)).is_some()),
            }
        }
    }

    fn check(store: &Store, index: usize, model: &Model) {
        assert_eq!(store.len(), model.len());
        assert_eq!(store.iter().count(), model.len());
        let mut expected: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
        for ((namespace, name), object) in model {
            assert!(Arc::ptr_eq(store.get(namespace, name).unwrap(), object));
            assert!(store.namespaces[&**namespace].get(namespace, name).is_some());
            by_label(&**object, &mut |key| {
                expected.entry(key.into()).or_default().insert((namespace.clone(), name.clone()));
            });
        }
        assert_eq!(store.keys(index).count(), expected.len());
        for (key, members) in expected {
            let bucket = store.indexes[index].buckets.get(&*key).unwrap();
            assert_eq!(bucket.len(), members.len());
            for (namespace, name) in members {
                let held = bucket.get(&namespace, &name).unwrap();
                assert!(
                    Arc::ptr_eq(held, &model[&(namespace, name)]),
                    "an index holds an old state"
                );
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn store_indexes_and_events_agree(steps in proptest::collection::vec(step(), 0..40), late in any::<bool>()) {
            let mut store = Store::new();
            let declare = |store: &mut Store| store.declare("label", Box::new(by_label));
            if !late {
                declare(&mut store);
            }
            let mut model = Model::new();
            for (version, step) in (1u32..).zip(steps) {
                let events = match step {
                    Step::Upsert(ns, name, uid, labels) => store.upsert(object(ns, name, uid, version, &labels), false),
                    Step::Delete(ns, name) => store.delete(&format!("ns{ns}"), &format!("n{name}"), None),
                    Step::Replace(items) => {
                        let mut now = Table::new();
                        for (ns, name, uid, labels) in items {
                            now.insert(object(ns, name, uid, version, &labels));
                        }
                        store.replace("", now, false)
                    }
                };
                follow(&mut model, events);
                if !late {
                    check(&store, 0, &model);
                }
            }
            let index = declare(&mut store);
            check(&store, index, &model);
        }
    }

    #[test]
    fn an_unchanged_version_causes_no_event() {
        let mut store = Store::new();
        assert_eq!(store.upsert(object(0, 0, 0, 7, &[]), true).len(), 1);
        assert!(store.upsert(object(0, 0, 0, 7, &[]), false).is_empty());
        let mut now = Table::new();
        now.insert(object(0, 0, 0, 7, &[]));
        assert!(store.replace("", now, false).is_empty());
    }

    #[test]
    fn a_replacement_reports_deletions_with_the_last_known_state() {
        let mut store = Store::new();
        store.upsert(object(0, 0, 0, 7, &[1]), true);
        let events = store.replace("", Table::new(), false);
        let [CacheEvent::Deleted(last)] = &events[..] else { panic!("{} events", events.len()) };
        assert!(last.meta().labels.contains("l1"));
        assert_eq!(store.len(), 0);
    }

    #[test]
    fn another_uid_is_a_deletion_and_an_addition() {
        let mut store = Store::new();
        store.upsert(object(0, 0, 1, 7, &[]), true);
        let events = store.upsert(object(0, 0, 2, 9, &[]), false);
        assert!(
            matches!(&events[..], [CacheEvent::Deleted(old), CacheEvent::Added { object, initial: false }]
            if &*old.meta().uid == "u1" && &*object.meta().uid == "u2")
        );
    }
}
