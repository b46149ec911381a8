//! Loads the state from a durable engine: the objects, and the events since the last compaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::backend::{Backend, BackendError};
use super::entry::Change;
use super::event::Event;
use super::history::History;
use super::index::IndexedResources;
use super::record::{self, DamagedRecord, Record, Transformer};
use super::state::{Staged, State};
use crate::resource::ResourcePrefix;

/// Loads all records. If an old value cannot be decrypted, the history begins after it, because its key may be removed
/// once all objects are rewritten.
///
/// # Errors
/// The engine cannot be read, a record is damaged, or an object cannot be decrypted. The data is then not used at all.
pub(super) fn load(
    backend: &dyn Backend,
    transformer: &dyn Transformer,
    indexed_resources: IndexedResources,
) -> Result<(State, History), BackendError> {
    let extent = backend.extent();
    let mut loading = Loading {
        state: State::new(extent.compacted, indexed_resources),
        history: History::new(extent.compacted),
        prefixes: Vec::new(),
        undecryptable: BTreeMap::new(),
    };
    backend.read(0, &mut |revision, bytes| {
        let record = record::decode(revision, bytes, transformer);
        let read = record.and_then(|record| loading.replay(revision, bytes.len(), record));
        let kept = read.or_else(|damaged| loading.keep_undecryptable(damaged));
        kept.map_err(|damaged| BackendError::Damaged(damaged.to_string()))
    })?;
    let Loading { mut state, history, undecryptable, .. } = loading;
    if let Some(first) = undecryptable.values().min_by_key(|record| record.revision) {
        return Err(BackendError::Undecryptable(first.to_string()));
    }
    state.revision = extent.revision;
    state.index_all().map_err(BackendError::Damaged)?;
    Ok((state, history))
}

struct Loading {
    state: State,
    history: History,
    /// Names of collections, each stored once.
    prefixes: Vec<ResourcePrefix>,
    /// Last record of each object whose value cannot be decrypted.
    undecryptable: BTreeMap<(String, String), DamagedRecord>,
}

impl Loading {
    /// Keeps an undecryptable record until a later one supersedes it. Any other damage is an error.
    fn keep_undecryptable(&mut self, record: DamagedRecord) -> Result<(), DamagedRecord> {
        let Some(object) = record.object.clone().filter(|_| record.is_encrypted) else {
            return Err(record);
        };
        let previous = self.state.remove(&object.0, &object.1);
        let previous = previous.map(|previous| (previous.revision, previous.size()));
        let superseded = self.undecryptable.get(&object).map(|earlier| (earlier.revision, 0));
        self.history.note(record.revision, false, previous.or(superseded));
        self.forget_history(record.revision);
        self.undecryptable.insert(object, record);
        Ok(())
    }

    /// Lets the history begin after this revision.
    fn forget_history(&mut self, revision: u64) {
        self.state.forget_history(revision);
        self.history.forget(revision);
    }

    fn replay(
        &mut self,
        revision: u64,
        size: usize,
        record: Record<'_>,
    ) -> Result<(), DamagedRecord> {
        let resource_prefix = self.prefix(record.resource_prefix);
        let previous = self.state.get(&resource_prefix, record.key).cloned();
        let mut replaces = previous.as_ref().map(|previous| (previous.revision, size));
        if !self.undecryptable.is_empty() {
            let object = (record.resource_prefix.to_owned(), record.key.to_owned());
            if let Some(superseded) = self.undecryptable.remove(&object) {
                replaces = Some((superseded.revision, size));
                self.forget_history(revision);
            }
        }
        self.history.note(revision, record.entry.is_none(), replaces);
        let entry = match (record.entry, &previous) {
            (Some(mut entry), previous) => {
                if let Some(previous) = previous {
                    entry.key = previous.key.clone();
                }
                entry
            }
            (None, Some(previous)) => previous.at(revision, Change::Deleted),
            // Compaction has removed the object, and will remove the deletion.
            (None, None) if revision <= self.state.compacted => return Ok(()),
            (None, None) => {
                return Err(DamagedRecord {
                    revision,
                    object: Some((resource_prefix.to_string(), record.key.to_owned())),
                    why: "it deletes an object that is not there".to_owned(),
                    is_encrypted: false,
                });
            }
        };
        let event = Arc::new(Event::new(Arc::new(entry), previous));
        self.state.apply(Staged { resource_prefix, event, values: Vec::new() });
        Ok(())
    }

    fn prefix(&mut self, name: &str) -> ResourcePrefix {
        if let Some(known) = self.prefixes.iter().find(|known| ***known == *name) {
            return known.clone();
        }
        let prefix = ResourcePrefix::from(name);
        self.prefixes.push(prefix.clone());
        prefix
    }
}
