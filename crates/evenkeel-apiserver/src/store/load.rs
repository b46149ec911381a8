//! Reads the state out of a durable engine: the objects, and the events since the last compaction.

use std::sync::Arc;

use super::backend::{Backend, BackendError};
use super::entry::Change;
use super::event::Event;
use super::history::History;
use super::index::IndexedResources;
use super::record::{self, DamagedRecord, Record, Transformer};
use super::state::{Staged, State};
use crate::resource::ResourcePrefix;

/// Reads everything.
///
/// # Errors
/// When the engine cannot be read, or a record is damaged: then nothing is used.
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
    };
    backend.read(0, &mut |revision, bytes| {
        let record = record::decode(revision, bytes, transformer);
        let read = record.and_then(|record| loading.replay(revision, bytes.len(), record));
        read.map_err(|damaged| BackendError::Damaged(damaged.to_string()))
    })?;
    let Loading { mut state, history, .. } = loading;
    state.revision = extent.revision;
    state.index_all().map_err(BackendError::Damaged)?;
    Ok((state, history))
}

struct Loading {
    state: State,
    history: History,
    /// The names of collections, each held once.
    prefixes: Vec<ResourcePrefix>,
}

impl Loading {
    fn replay(
        &mut self,
        revision: u64,
        size: usize,
        record: Record<'_>,
    ) -> Result<(), DamagedRecord> {
        let resource_prefix = self.prefix(record.resource_prefix);
        let previous = self.state.get(&resource_prefix, record.key).cloned();
        let replaces = previous.as_ref().map(|previous| (previous.revision, size));
        self.history.note(revision, record.entry.is_none(), replaces);
        let entry = match (record.entry, &previous) {
            (Some(mut entry), previous) => {
                if let Some(previous) = previous {
                    entry.key = previous.key.clone();
                }
                entry
            }
            (None, Some(previous)) => previous.at(revision, Change::Deleted),
            // Its object was removed by a compaction, and the deletion itself is about to be.
            (None, None) if revision <= self.state.compacted => return Ok(()),
            (None, None) => {
                return Err(DamagedRecord {
                    revision,
                    object: Some((resource_prefix.to_string(), record.key.to_owned())),
                    why: "it deletes an object that is not there".to_owned(),
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
