//! Loads the state from a durable engine: objects, and events since the last compaction.

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

/// Loads all records. If a superseded value cannot be decrypted, the history begins after it, because an administrator
/// may remove a key after all objects are rewritten.
///
/// # Errors
/// Fails if the engine cannot be read, a record is damaged, or an object cannot be decrypted.
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
        let replayed = record.and_then(|record| loading.replay(revision, record));
        let result = replayed.or_else(|damaged| loading.keep_undecryptable(damaged, bytes.len()));
        result.map_err(|damaged| BackendError::Damaged(damaged.to_string()))
    })?;
    let Loading { mut state, history, undecryptable, .. } = loading;
    let records = undecryptable.values().map(|(record, _)| record);
    if let Some(first) = records.min_by_key(|record| record.revision) {
        return Err(BackendError::Undecryptable(first.to_string()));
    }
    state.revision = extent.revision;
    state.index_all().map_err(BackendError::Damaged)?;
    Ok((state, history))
}

/// State and history after the records that are loaded so far.
struct Loading {
    state: State,
    history: History,
    /// Names of collections, each stored once.
    prefixes: Vec<ResourcePrefix>,
    /// Last record of each object whose value cannot be decrypted, with its size in bytes.
    undecryptable: BTreeMap<(String, String), (DamagedRecord, usize)>,
}

impl Loading {
    /// Remembers an undecryptable record until a later one supersedes it. Any other damage is an error.
    fn keep_undecryptable(
        &mut self,
        record: DamagedRecord,
        size: usize,
    ) -> Result<(), DamagedRecord> {
        let Some(object) = record.object.clone().filter(|_| record.is_encrypted) else {
            return Err(record);
        };
        let previous = self.state.remove(&object.0, &object.1);
        let previous = previous.map(|previous| (previous.revision, previous.size()));
        let undecryptable = self.undecryptable.get(&object);
        let undecryptable = undecryptable.map(|(earlier, size)| (earlier.revision, *size));
        self.history.add_record(record.revision, false, previous.or(undecryptable));
        self.forget_history(record.revision);
        self.undecryptable.insert(object, (record, size));
        Ok(())
    }

    /// Starts the history after this revision.
    fn forget_history(&mut self, revision: u64) {
        self.state.forget_history(revision);
        self.history.forget_up_to(revision);
    }

    /// Applies a record to the state.
    fn replay(&mut self, revision: u64, record: Record<'_>) -> Result<(), DamagedRecord> {
        let resource_prefix = self.prefix(record.resource_prefix);
        let previous = self.state.get(&resource_prefix, record.key).cloned();
        // Revision and size of the record that this one supersedes.
        let mut superseded = previous.as_ref().map(|previous| (previous.revision, previous.size()));
        if !self.undecryptable.is_empty() {
            let object = (record.resource_prefix.to_owned(), record.key.to_owned());
            if let Some((undecryptable, size)) = self.undecryptable.remove(&object) {
                superseded = Some((undecryptable.revision, size));
                self.forget_history(revision);
            }
        }
        self.history.add_record(revision, record.entry.is_none(), superseded);
        let entry = match (record.entry, &previous) {
            (Some(mut entry), previous) => {
                // All states of an object share its key.
                if let Some(previous) = previous {
                    entry.key = previous.key.clone();
                }
                entry
            }
            (None, Some(previous)) => previous.with_revision(revision, Change::Deleted),
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

    /// Returns the shared name of a collection.
    fn prefix(&mut self, name: &str) -> ResourcePrefix {
        if let Some(known) = self.prefixes.iter().find(|known| ***known == *name) {
            return known.clone();
        }
        let prefix = ResourcePrefix::from(name);
        self.prefixes.push(prefix.clone());
        prefix
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::entry::{Encoded, Entry, SelectionAttributes};
    use super::*;

    fn loading() -> Loading {
        Loading {
            state: State::new(0, &[]),
            history: History::new(0),
            prefixes: Vec::new(),
            undecryptable: BTreeMap::new(),
        }
    }

    /// Returns the entry of an object with data of this length.
    fn entry(revision: u64, length: usize) -> Entry {
        let object = json!({"metadata": {"name": "a"}, "data": "x".repeat(length)});
        let encoded = Encoded::new(&object, SelectionAttributes::default());
        encoded.into_entry("a".into(), revision, Change::Added)
    }

    #[test]
    fn loading_counts_the_same_superseded_bytes_as_writing() {
        let (mut loading, mut written) = (loading(), History::new(0));
        let (big, small) = (entry(1, 10_000), entry(2, 10));
        let sizes = [big.size(), small.size()];
        for (revision, record) in [(1, Some(big)), (2, Some(small)), (3, None)] {
            let record = Record { resource_prefix: "numbers", key: "a", entry: record };
            loading.replay(revision, record).expect("whole");
        }
        written.add_record(1, false, None);
        written.add_record(2, false, Some((1, sizes[0])));
        written.add_record(3, true, Some((2, sizes[1])));
        assert_eq!(loading.history.bytes(), written.bytes());
        assert!(written.bytes() > 10_000);
    }

    #[test]
    fn superseded_records_that_cannot_be_decrypted_count_in_the_history() {
        let mut loading = loading();
        let damaged = |revision| DamagedRecord {
            revision,
            object: Some(("numbers".to_owned(), "a".to_owned())),
            why: "its key is gone".to_owned(),
            is_encrypted: true,
        };
        loading.keep_undecryptable(damaged(1), 500).expect("kept");
        loading.keep_undecryptable(damaged(2), 70).expect("kept");
        assert_eq!(loading.history.bytes(), 500);
        let record = Record { resource_prefix: "numbers", key: "a", entry: Some(entry(3, 10)) };
        loading.replay(3, record).expect("whole");
        assert_eq!(loading.history.bytes(), 570);
    }
}
