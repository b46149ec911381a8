//! The durable log: what is acknowledged is in a redb file. Many writers, one commit.

use std::path::Path;
use std::sync::Arc;

use redb::{
    Builder, Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, TableDefinition,
};

use super::entry::{Change, Entry};
use super::event::Event;

const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");
/// Everything is held in memory, so the database needs little of its own.
const CACHE_BYTES: usize = 8 << 20;

/// Why the store under a data folder could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{0} is in use by another process")]
    Locked(String),
    /// The folder or the file cannot be read or made.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The database cannot be read.
    #[error("{path}: {source}")]
    Database {
        /// The file.
        path: String,
        /// Why.
        source: Box<redb::Error>,
    },
}

/// The open database.
pub(super) struct Log {
    database: Database,
}

/// What was in it.
#[derive(Default)]
pub(super) struct Recovered {
    pub(super) revision: u64,
    /// Collection and entry.
    pub(super) entries: Vec<(Arc<str>, Entry)>,
}

impl Log {
    /// Opens (or makes) `path` and reads all of it.
    pub(super) fn open(path: &Path) -> Result<(Self, Recovered), OpenError> {
        let shown = path.display().to_string();
        let file = crate::files::open(path)
            .map_err(|source| OpenError::Io { path: shown.clone(), source })?;
        let database =
            Builder::new().set_cache_size(CACHE_BYTES).create_file(file).map_err(|error| {
                match error {
                    DatabaseError::DatabaseAlreadyOpen => OpenError::Locked(shown.clone()),
                    other => {
                        OpenError::Database { path: shown.clone(), source: Box::new(other.into()) }
                    }
                }
            })?;
        Self::of(database)
            .map_err(|source| OpenError::Database { path: shown, source: Box::new(source) })
    }

    /// Reads all of an open database.
    pub(super) fn of(database: Database) -> Result<(Self, Recovered), redb::Error> {
        let log = Self { database };
        let recovered = log.read()?;
        Ok((log, recovered))
    }

    fn read(&self) -> Result<Recovered, redb::Error> {
        let write = self.database.begin_write()?;
        write.open_table(OBJECTS)?;
        write.open_table(COUNTERS)?;
        write.commit()?;
        let read = self.database.begin_read()?;
        let mut recovered = Recovered::default();
        if let Some(revision) = read.open_table(COUNTERS)?.get("revision")? {
            recovered.revision = revision.value();
        }
        let mut collections: Vec<Arc<str>> = Vec::new();
        for row in read.open_table(OBJECTS)?.iter()? {
            let (key, value) = row?;
            let Some((resource_prefix, key)) = key.value().split_once('\0') else { continue };
            if collections.last().is_none_or(|last| **last != *resource_prefix) {
                collections.push(resource_prefix.into());
            }
            let Some(entry) = Entry::from_log(key.into(), value.value()) else {
                tracing::error!(
                    resource_prefix,
                    key,
                    "a damaged object in the data folder is left out"
                );
                continue;
            };
            if let Some(resource_prefix) = collections.last() {
                recovered.entries.push((resource_prefix.clone(), entry));
            }
        }
        Ok(recovered)
    }

    /// Writes events in one commit; on disk when it returns.
    pub(super) fn commit<'a>(
        &self,
        events: impl Iterator<Item = (&'a str, &'a Event)>,
    ) -> Result<(), redb::Error> {
        let mut write = self.database.begin_write()?;
        write.set_durability(Durability::Immediate)?;
        {
            let mut objects = write.open_table(OBJECTS)?;
            let mut revision = 0;
            let mut name = String::new();
            for (resource_prefix, event) in events {
                name.clear();
                name.push_str(resource_prefix);
                name.push('\0');
                name.push_str(&event.entry.key);
                if event.entry.change == Change::Deleted {
                    objects.remove(name.as_str())?;
                } else {
                    objects.insert(name.as_str(), event.entry.to_log().as_slice())?;
                }
                revision = event.entry.revision;
            }
            write.open_table(COUNTERS)?.insert("revision", revision)?;
        }
        write.commit()?;
        Ok(())
    }
}
