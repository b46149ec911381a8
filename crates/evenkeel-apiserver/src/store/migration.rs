//! Migration of files of earlier versions. Version 1 stored only the newest state of each object, by its key. The
//! migration stores these states as records by revision. They have no history, so that no watch can resume.

use std::sync::Arc;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableError, TableHandle};

use super::backend::BackendError;
use super::entry::Entry;
use super::layout::{COMPACTED, META, N_RECORDS, RECORDS};
use super::record::{self, Identity};

/// Objects of version 1, by collection, a zero byte and the key.
const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
/// Counters of version 1.
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");
/// Table with the name of a version 1 table and other types. It makes version 1 refuse the file instead of reading it
/// as empty.
const GUARD: TableDefinition<'_, u64, u64> = TableDefinition::new("objects");
/// Number of revisions to skip, because version 1 may have returned revisions beyond the last one on disk.
const SKIPPED_REVISIONS: u64 = 1_000;

/// Creates the tables of this version if they are missing. Converts the tables of version 1 atomically if the file has
/// them.
pub(super) fn migrate(database: &Database) -> Result<(), BackendError> {
    let backend_error = |error: redb::Error| match error {
        redb::Error::Io(error) => BackendError::Io(error.to_string()),
        other => BackendError::Damaged(other.to_string()),
    };
    if has_records(database).map_err(backend_error)? {
        return Ok(());
    }
    let Some((revision, objects)) = read_objects(database).map_err(backend_error)? else {
        return create_tables(database).map_err(backend_error);
    };
    let mut records = Vec::new();
    for (name, bytes) in objects {
        let damaged = || BackendError::Damaged(format!("the object {name:?} is damaged"));
        let (resource_prefix, key) = name.split_once('\0').ok_or_else(damaged)?;
        let entry = Entry::from_log(Arc::from(key), &bytes).ok_or_else(damaged)?;
        let stored = record::encode(resource_prefix, &entry, &Identity);
        records.push(stored.map_err(BackendError::Damaged)?);
    }
    let count = records.len();
    let write = || -> Result<(), redb::Error> {
        let write = database.begin_write()?;
        write.delete_table(OBJECTS)?;
        write.delete_table(COUNTERS)?;
        {
            write.open_table(GUARD)?;
            let mut table = write.open_table(RECORDS)?;
            for record in &records {
                table.insert(record.revision, record.bytes.as_slice())?;
            }
            let mut meta = write.open_table(META)?;
            meta.insert(N_RECORDS, count as u64)?;
            let skipped = if revision == 0 { 0 } else { SKIPPED_REVISIONS };
            meta.insert(COMPACTED, revision + skipped)?;
        }
        write.commit()?;
        Ok(())
    };
    write().map_err(backend_error)?;
    tracing::info!(count, "the data folder of an earlier version now has this version's format");
    Ok(())
}

/// Creates the missing tables of this version, with [`GUARD`].
pub(super) fn create_tables(database: &Database) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    write.open_table(GUARD)?;
    write.open_table(RECORDS)?;
    write.open_table(META)?;
    write.commit()?;
    Ok(())
}

fn has_records(database: &Database) -> Result<bool, redb::Error> {
    let read = database.begin_read()?;
    let mut tables = read.list_tables()?;
    Ok(tables.any(|table| table.name() == RECORDS.name()))
}

/// Objects of a file of version 1, by the keys of [`OBJECTS`].
type Objects = Vec<(String, Vec<u8>)>;

/// Returns the last revision and all objects of a file of version 1.
fn read_objects(database: &Database) -> Result<Option<(u64, Objects)>, redb::Error> {
    let read = database.begin_read()?;
    let table = match read.open_table(OBJECTS) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let counters = read.open_table(COUNTERS)?;
    let revision = counters.get("revision")?.map_or(0, |revision| revision.value());
    let mut objects = Vec::new();
    for row in table.iter()? {
        let (name, bytes) = row?;
        objects.push((name.value().to_owned(), bytes.value().to_vec()));
    }
    Ok(Some((revision, objects)))
}
