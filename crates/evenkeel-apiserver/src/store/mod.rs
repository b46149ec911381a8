//! The store: every object as encoded bytes in memory, one revision counter, transactions with preconditions, a ring of
//! recent events for each collection, and, where a data folder is given, a log on disk. What is not on disk is neither
//! acknowledged nor shown to anybody.

mod cursor;
mod entry;
mod index;
mod log;
mod ring;
mod transaction;
mod writer;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_api::json;
use serde_json::Value;
use tokio::sync::watch;

pub(crate) use cursor::Cursor;
pub(crate) use entry::{Change, Encoded, Entry, SelectionAttributes};
use index::Index;
pub(crate) use index::IndexedResources;
pub use log::OpenError;
use ring::Ring;
pub(crate) use transaction::{Expect, Transaction, WriteError};
use writer::Writer;

use crate::output::Format;
use crate::resource::ResourcePrefix;

/// After a start, revisions go on this far past the last one on disk: those in between may have been seen but never
/// acknowledged, and a watch from one of them must be told to start anew.
const GAP: u64 = 1_000;

/// A change, as watches are told of it.
#[derive(Debug)]
pub(crate) struct Event {
    /// The object after the change; after a deletion as it was last, at the deletion's revision.
    pub(crate) entry: Arc<Entry>,
    /// The object before.
    pub(crate) previous: Option<Arc<Entry>>,
    /// Frames in forms other than the stored one, made once however many watch.
    frames: Mutex<Vec<(Format, Change, Bytes)>>,
}

impl Event {
    pub(crate) fn new(entry: Arc<Entry>, previous: Option<Arc<Entry>>) -> Self {
        Self { entry, previous, frames: Mutex::new(Vec::new()) }
    }

    /// The frame in this form, made by `make` when nobody has needed it yet.
    pub(crate) fn frame<E>(
        &self,
        format: &Format,
        change: Change,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let find = |frames: &[(Format, Change, Bytes)]| {
            frames
                .iter()
                .find(|(f, c, _)| *c == change && f == format)
                .map(|(_, _, frame)| frame.clone())
        };
        if let Some(frame) = find(&self.frames.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(frame);
        }
        let frame = make()?;
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        if find(&frames).is_none() {
            frames.push((format.clone(), change, frame.clone()));
        }
        Ok(frame)
    }
}

/// Whether an object may be stored, for a dry run that does not store it.
pub(crate) fn storable(object: &Value) -> Result<(), WriteError> {
    if json::is_deeper(object, json::MAX_DEPTH) { Err(WriteError::TooDeep) } else { Ok(()) }
}

/// That revision is no longer (or not yet) held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expired;

/// Objects of a collection at one revision, in order of key.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Revision of the store at which this was read.
    pub(crate) revision: u64,
    /// The listed objects, in order of key.
    pub(crate) entries: Vec<Arc<Entry>>,
    /// How many more there are after these (0 when all were taken).
    pub(crate) more: usize,
}

/// The part of a collection that is listed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Range<'a> {
    /// One namespace, or all when empty.
    pub(crate) namespace: &'a str,
    /// Only keys after this one.
    pub(crate) after: Option<&'a str>,
    /// Take at most this many.
    pub(crate) limit: Option<usize>,
}

/// The store. Cheap to clone; the last clone to go stops the log's thread.
#[derive(Clone)]
pub(crate) struct Store {
    shared: Arc<Shared>,
    _writer: Option<Arc<Writer>>,
}

pub(super) struct Shared {
    state: RwLock<State>,
    /// The resources that have an index.
    indexed_resources: IndexedResources,
    /// Up to which revision everything is on disk (and in the rings).
    settled: watch::Sender<u64>,
    log: Option<log::Log>,
    /// Commits are made by the log's own thread; otherwise by whoever writes.
    threaded: bool,
    wake: std::sync::Condvar,
    queue: Mutex<Queue>,
    /// Held while a batch is committed and shown by the one who wrote it, so that batches stay in order.
    committing: Mutex<()>,
}

/// A change that is in line for the log.
struct Staged {
    resource_prefix: ResourcePrefix,
    event: Arc<Event>,
    signal: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct Queue {
    events: Vec<Staged>,
    /// Somebody waits for what is in line.
    urgent: bool,
    /// Batches of lazy writes under way.
    batches: usize,
    stop: bool,
    failed: Option<Arc<str>>,
}

struct State {
    revision: u64,
    /// Revision at the start: what a collection held before is not known, what came after is in its ring.
    start: u64,
    collections: HashMap<ResourcePrefix, Collection>,
}

/// The objects stored under one resource prefix, with their recent events.
struct Collection {
    objects: BTreeMap<Arc<str>, Arc<Entry>>,
    index: Option<Index>,
    ring: Ring,
    /// Revision of the last write, settled or not.
    touched: u64,
    signal: Arc<watch::Sender<u64>>,
}

impl Collection {
    fn new(floor: u64) -> Self {
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
    fn new(
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
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows events to watches, now that they are on disk.
    fn publish(&self, events: &[Staged]) {
        let Some(last) = events.last() else { return };
        let mut signals: Vec<(&Arc<watch::Sender<u64>>, u64)> = Vec::new();
        for staged in events {
            let revision = staged.event.entry.revision;
            match signals.iter_mut().find(|(s, _)| Arc::ptr_eq(s, &staged.signal)) {
                Some((_, latest)) => *latest = revision,
                None => signals.push((&staged.signal, revision)),
            }
        }
        let raise = |sender: &watch::Sender<u64>, revision: u64| {
            sender.send_if_modified(|at| std::mem::replace(at, revision.max(*at)) < revision);
        };
        raise(&self.settled, last.event.entry.revision);
        for (signal, revision) in signals {
            raise(signal, revision);
        }
    }
}

impl Store {
    /// A store in memory only, with the indexes of these resources.
    pub(crate) fn in_memory(indexed_resources: IndexedResources) -> Self {
        let state = State::new(0, Vec::new(), indexed_resources);
        Self { shared: Arc::new(Shared::new(state, None, indexed_resources, false)), _writer: None }
    }

    /// A store with its log at `path`. `threaded`: the log has a thread, so that many writers share one commit; without,
    /// each writer commits by itself (a single-threaded runtime in virtual time must not wait for another thread).
    pub(crate) fn open(
        path: &Path,
        threaded: bool,
        indexed_resources: IndexedResources,
    ) -> Result<Self, OpenError> {
        let (log, recovered) = log::Log::open(path)?;
        let revision = if recovered.revision == 0 { 0 } else { recovered.revision + GAP };
        let state = State::new(revision, recovered.entries, indexed_resources);
        let shared = Arc::new(Shared::new(state, Some(log), indexed_resources, threaded));
        let writer = threaded
            .then(|| Writer::start(shared.clone()))
            .transpose()
            .map_err(|source| OpenError::Io { path: path.display().to_string(), source })?;
        Ok(Self { shared, _writer: writer.map(Arc::new) })
    }

    /// The revision up to which everything can be seen.
    pub(crate) fn revision(&self) -> u64 {
        *self.shared.settled.borrow()
    }

    /// Revision of the last write to a collection, 0 where there was none since the start.
    pub(crate) fn touched(&self, resource_prefix: &str) -> u64 {
        self.shared.read().collections.get(resource_prefix).map_or(0, |s| s.touched)
    }

    /// Number of objects in a collection.
    pub(crate) fn count(&self, resource_prefix: &str) -> usize {
        self.shared.read().collections.get(resource_prefix).map_or(0, |s| s.objects.len())
    }

    /// The object with this key as it is at this moment, whether or not that is on disk yet: for decisions that end in a
    /// write, which will come after it.
    pub(crate) fn peek(&self, resource_prefix: &str, key: &str) -> Option<Arc<Entry>> {
        self.shared.read().collections.get(resource_prefix)?.objects.get(key).cloned()
    }

    /// The object with this key, once that is on disk.
    pub(crate) async fn get(
        &self,
        resource_prefix: &str,
        key: &str,
    ) -> Result<Option<Arc<Entry>>, WriteError> {
        let (entry, revision) = {
            let state = self.shared.read();
            let Some(collection) = state.collections.get(resource_prefix) else { return Ok(None) };
            let entry = collection.objects.get(key).cloned();
            let revision = entry.as_ref().map_or(collection.touched, |e| e.revision);
            (entry, revision)
        };
        self.settled(revision).await?;
        Ok(entry)
    }

    /// Waits until this revision is on disk.
    async fn settled(&self, revision: u64) -> Result<(), WriteError> {
        if *self.shared.settled.borrow() >= revision {
            return Ok(());
        }
        let mut settled = self.shared.settled.subscribe();
        loop {
            if *settled.borrow_and_update() >= revision {
                return Ok(());
            }
            if let Some(error) =
                &self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).failed
            {
                return Err(WriteError::Disk(error.clone()));
            }
            if settled.changed().await.is_err() {
                return Err(WriteError::Disk("the store is closed".into()));
            }
        }
    }

    /// Why nothing can be written any more.
    pub(crate) fn health(&self) -> Result<(), String> {
        let queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.failed.as_ref().map_or(Ok(()), |why| Err(why.to_string()))
    }

    /// Waits until the store has reached this revision (for reads that ask for one not older).
    pub(crate) async fn reached(&self, revision: u64) -> Result<(), WriteError> {
        self.settled(revision).await
    }

    /// Commits a transaction. It is staged before the first await: a caller that is dropped while it waits for the disk
    /// leaves a whole transaction. Gives what was written, in order; a deleted object as watches see it go.
    pub(crate) async fn commit(
        &self,
        transaction: Transaction,
    ) -> Result<Vec<Arc<Entry>>, WriteError> {
        let entries = self.stage(transaction)?;
        if let Some(last) = entries.last() {
            self.finish(last.revision).await?;
        }
        Ok(entries)
    }

    /// Writes one object.
    pub(crate) async fn put(
        &self,
        resource_prefix: &ResourcePrefix,
        key: &str,
        expect: Expect,
        object: Encoded,
    ) -> Result<Arc<Entry>, WriteError> {
        let mut transaction = Transaction::default();
        transaction.put(resource_prefix, key, expect, object);
        let mut written = self.commit(transaction).await?;
        written.pop().ok_or(WriteError::Mismatch { op: 0 })
    }

    /// Commits a transaction without waiting for the disk. Readers and watchers see it with the next write, or shortly
    /// after when no other write follows: a request that is refused or cancelled must not leave them waiting.
    pub(crate) fn commit_lazily(&self, transaction: Transaction) -> Result<(), WriteError> {
        self.stage(transaction)?;
        self.shared.commit_soon()
    }

    /// Runs `writes`, whose lazy writes are committed together.
    pub(crate) fn batch<T>(&self, writes: impl FnOnce() -> T) -> Result<T, WriteError> {
        let count = |by: fn(usize) -> usize| {
            let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.batches = by(queue.batches);
        };
        count(|batches| batches + 1);
        let written = writes();
        count(|batches| batches.saturating_sub(1));
        self.shared.commit_soon()?;
        Ok(written)
    }

    /// Checks and applies a transaction under one lock, and puts it in line for the log as a whole.
    fn stage(&self, transaction: Transaction) -> Result<Vec<Arc<Entry>>, WriteError> {
        transaction.check_depth()?;
        let indexed = transaction.indexed(|resource_prefix| self.is_indexed(resource_prefix));
        let mut state = self.shared.write();
        state.check(&transaction)?;
        let staged = state.apply(transaction, &indexed);
        let entries = staged.iter().map(|staged| staged.event.entry.clone()).collect();
        self.shared.stage(staged);
        Ok(entries)
    }

    /// Whether a resource has an index.
    pub(crate) fn is_indexed(&self, resource_prefix: &str) -> bool {
        self.shared.indexed_resources.iter().any(|(indexed, _)| *indexed == resource_prefix)
    }

    /// Whether an object of an indexed resource has this value at this moment; see [`Store::peek`].
    pub(crate) fn is_taken(&self, resource_prefix: &str, value: &str) -> bool {
        self.shared.read().is_taken(resource_prefix, value)
    }

    /// Waits until everything written so far is on disk.
    pub(crate) async fn settle(&self) -> Result<(), WriteError> {
        let revision = self.shared.read().revision;
        self.finish(revision).await
    }

    async fn finish(&self, revision: u64) -> Result<(), WriteError> {
        if !self.shared.threaded {
            return self.shared.flush();
        }
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).urgent = true;
        self.shared.wake.notify_one();
        self.settled(revision).await
    }

    /// The objects of a range as they are now.
    pub(crate) async fn list(
        &self,
        resource_prefix: &str,
        range: Range<'_>,
    ) -> Result<Snapshot, WriteError> {
        let snapshot = {
            let state = self.shared.read();
            let revision = state.revision;
            let none = BTreeMap::new();
            let objects = state.collections.get(resource_prefix).map_or(&none, |s| &s.objects);
            let mut found =
                objects.range::<str, _>(bounds(&range, &mut String::new())).map(|(_, entry)| entry);
            let mut found = found.by_ref().take_while(|entry| within(&range, &entry.key));
            let entries = match range.limit {
                Some(limit) => found.by_ref().take(limit).cloned().collect(),
                None => found.by_ref().cloned().collect(),
            };
            Snapshot {
                revision,
                entries,
                more: if range.limit.is_some() { found.count() } else { 0 },
            }
        };
        self.settled(snapshot.revision).await?;
        Ok(snapshot)
    }

    /// The objects of a range as they were at a revision.
    pub(crate) fn list_at(
        &self,
        resource_prefix: &str,
        range: Range<'_>,
        revision: u64,
    ) -> Result<Snapshot, Expired> {
        let state = self.shared.read();
        let empty = || Snapshot { revision, entries: Vec::new(), more: 0 };
        let Some(kept) = state.collections.get(resource_prefix) else {
            return if revision < state.start { Err(Expired) } else { Ok(empty()) };
        };
        // What happened since is undone: a key touched after the revision is as before its first event.
        let mut undone: BTreeMap<&str, Option<&Arc<Entry>>> = BTreeMap::new();
        for event in kept.ring.since(revision)? {
            undone.entry(&event.entry.key).or_insert(event.previous.as_ref());
        }
        let mut before: Vec<&Arc<Entry>> = undone
            .values()
            .filter_map(|e| *e)
            .filter(|e| within(&range, &e.key) && range.after.is_none_or(|after| *e.key > *after))
            .collect();
        before.extend(
            kept.objects
                .range::<str, _>(bounds(&range, &mut String::new()))
                .map(|(_, entry)| entry)
                .take_while(|entry| within(&range, &entry.key))
                .filter(|entry| entry.revision <= revision && !undone.contains_key(&*entry.key)),
        );
        before.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let limit = range.limit.unwrap_or(usize::MAX);
        let more = before.len().saturating_sub(limit);
        Ok(Snapshot { revision, entries: before.into_iter().take(limit).cloned().collect(), more })
    }

    /// Follows a collection from a revision on.
    pub(crate) fn follow(
        &self,
        resource_prefix: &ResourcePrefix,
        revision: u64,
    ) -> Result<Cursor, Expired> {
        let signal = {
            let mut state = self.shared.write();
            let start = state.start;
            let kept = state
                .collections
                .entry(resource_prefix.clone())
                .or_insert_with(|| Collection::new(start));
            kept.ring.holds(revision)?;
            kept.signal.subscribe()
        };
        Ok(Cursor::new(self.clone(), resource_prefix.clone(), revision, signal))
    }

    /// Tells of writes to a collection, once they can be seen. It does not keep the store.
    pub(crate) fn changes(&self, resource_prefix: &ResourcePrefix) -> watch::Receiver<u64> {
        let mut state = self.shared.write();
        let start = state.start;
        let kept = state
            .collections
            .entry(resource_prefix.clone())
            .or_insert_with(|| Collection::new(start));
        kept.signal.subscribe()
    }

    /// The objects of a collection in one namespace as they are at this moment; see [`Store::peek`].
    pub(crate) fn within(&self, resource_prefix: &str, namespace: &str) -> Vec<Arc<Entry>> {
        let state = self.shared.read();
        let Some(collection) = state.collections.get(resource_prefix) else { return Vec::new() };
        let range = Range { namespace, ..Range::default() };
        let found = collection.objects.range::<str, _>(bounds(&range, &mut String::new()));
        found.map(|(_, entry)| entry).take_while(|e| within(&range, &e.key)).cloned().collect()
    }

    /// All objects of a collection, without waiting; for the start and for rules that are compiled from them.
    pub(crate) fn all(&self, resource_prefix: &str) -> Vec<Arc<Entry>> {
        self.shared
            .read()
            .collections
            .get(resource_prefix)
            .map_or_else(Vec::new, |s| s.objects.values().cloned().collect())
    }
}

/// Waits for what [`Store::changes`] tells, or until it is time to look `again`; `false` when there is nothing more to come.
pub(crate) async fn changed(changes: &mut watch::Receiver<u64>, again: Option<Duration>) -> bool {
    let wait = async {
        match again {
            Some(delay) => tokio::time::sleep(delay).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        changed = changes.changed() => changed.is_ok(),
        () = wait => true,
    }
}

/// `ns/` and after, or after the given key.
fn bounds<'b>(range: &Range<'b>, prefix: &'b mut String) -> (Bound<&'b str>, Bound<&'b str>) {
    if let Some(after) = range.after {
        return (Bound::Excluded(after), Bound::Unbounded);
    }
    if range.namespace.is_empty() {
        return (Bound::Unbounded, Bound::Unbounded);
    }
    prefix.push_str(range.namespace);
    prefix.push('/');
    (Bound::Included(prefix), Bound::Unbounded)
}

fn within(range: &Range<'_>, key: &str) -> bool {
    range.namespace.is_empty()
        || key.strip_prefix(range.namespace).is_some_and(|rest| rest.starts_with('/'))
}
