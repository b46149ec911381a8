//! Durable engine: a redb file with records by revision. Commits append records to the end of one tree.
//!
//! redb guarantees that commits are atomic. Pages have checksums. After a crash, redb opens the newest commit whose
//! pages are intact, and so drops a commit that was not synced. It also drops a last commit that was damaged after its
//! sync, because it cannot distinguish the two. The engine detects all older damage: opening a file verifies its pages,
//! and every record has its own checksum.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_tasks::catch_call_panic;
use redb::backends::FileBackend;
use redb::{
    Builder, Database, DatabaseError, Durability, ReadableDatabase, ReadableTable,
    ReadableTableMetadata, StorageBackend,
};

use super::backend::{Backend, BackendError, Extent, ReadRecord};
use super::folder::{FailureRecorder, FileFailure, Folder};
use super::layout::{COMPACTED, META, N_RECORDS, RECORDS};
use super::migration;
use super::overlay::OverlayBackend;
use super::record::StoredRecord;

/// Size of the database's cache. It is small because the store holds all objects in memory.
const CACHE_BYTES: usize = 8 << 20;
/// Name of the file that reserves disk space.
pub(super) const RESERVE_FILE: &str = "evenkeel.reserve";
/// Size of [`RESERVE_FILE`] in bytes: enough pages for some hundred deletions, which then free space themselves.
const RESERVE_BYTES: usize = 4 << 20;
/// Maximum number of records in one commit of a rewrite.
const MAX_RECORDS_PER_COMMIT: usize = 1_000;

/// Suffix of a file that is being rewritten.
pub(super) const NEW_SUFFIX: &str = ".new";

/// Reason why a file could not be opened.
#[derive(Debug)]
pub(super) enum NotOpened {
    /// Another process has the file open.
    Locked,
    /// The engine or the disk refused the file.
    Failed(BackendError),
}

/// redb database with the last failure of its file.
pub(super) struct Engine {
    folder: Arc<dyn Folder>,
    name: String,
    file: Option<OpenFile>,
    extent: Extent,
}

/// Open data file.
struct OpenFile {
    database: Database,
    /// First failed operation of the file.
    failure: Arc<Mutex<Option<FileFailure>>>,
    n_records: u64,
}

impl OpenFile {
    /// Returns the error of an operation, or the failure of the file, which takes precedence.
    fn error(&self, error: impl Into<redb::Error>) -> BackendError {
        failure_error(&self.failure).unwrap_or_else(|| engine_error(&error.into()))
    }
}

/// Returns the error of a file's first failure, if an operation has failed.
fn failure_error(failure: &Mutex<Option<FileFailure>>) -> Option<BackendError> {
    let FileFailure { why, full, not_synced } =
        failure.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
    Some(match (not_synced, full) {
        (true, _) => BackendError::NotSynced(why),
        (false, true) => BackendError::Full(why),
        (false, false) => BackendError::Io(why),
    })
}

/// Converts the error of an operation on the folder's files.
fn folder_error(error: &io::Error) -> BackendError {
    let why = error.to_string();
    if super::folder::is_full(error) { BackendError::Full(why) } else { BackendError::Io(why) }
}

/// Converts an error of redb.
fn engine_error(error: &redb::Error) -> BackendError {
    match error {
        redb::Error::Io(error) if super::folder::is_full(error) => folder_error(error),
        // The engine reports an unknown or truncated file with this error.
        redb::Error::Io(error)
            if matches!(
                error.kind(),
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
            ) =>
        {
            BackendError::Damaged(error.to_string())
        }
        redb::Error::Io(_) | redb::Error::PreviousIo => BackendError::Io(error.to_string()),
        other => BackendError::Damaged(other.to_string()),
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

fn not_opened(error: DatabaseError, failure: Option<BackendError>) -> NotOpened {
    match error {
        DatabaseError::DatabaseAlreadyOpen => NotOpened::Locked,
        other => NotOpened::Failed(failure.unwrap_or_else(|| engine_error(&other.into()))),
    }
}

/// Runs engine code on a file that may be damaged. Converts a panic to the error that `damaged` returns.
pub(super) fn catch_engine_panic<T, E>(
    work: impl FnOnce() -> Result<T, E>,
    damaged: impl FnOnce(String) -> E,
) -> Result<T, E> {
    catch_call_panic(work)
        .unwrap_or_else(|panic| Err(damaged(format!("the engine cannot read the file: {panic}"))))
}

/// Verifies a file without changing it. Returns its database, with repairs only in memory, and whether the last process
/// closed the file properly.
pub(super) fn open_verified(file: Box<dyn StorageBackend>) -> Result<(Database, bool), NotOpened> {
    let io = |error: io::Error| NotOpened::Failed(BackendError::Io(error.to_string()));
    catch_engine_panic(
        || {
            let repaired = Arc::new(AtomicBool::new(false));
            let repaired_in_callback = Arc::clone(&repaired);
            let mut database = builder()
                .set_repair_callback(move |_| repaired_in_callback.store(true, Ordering::Relaxed))
                .create_with_backend(OverlayBackend::new(file).map_err(io)?)
                .map_err(|error| not_opened(error, None))?;
            let was_closed = !repaired.load(Ordering::Relaxed);
            // A repair has already verified every page.
            let is_intact = !was_closed
                || database.check_integrity().map_err(|error| not_opened(error, None))?;
            if is_intact {
                return Ok((database, was_closed));
            }
            let why = "the checksum of a page does not match".to_owned();
            Err(NotOpened::Failed(BackendError::Damaged(why)))
        },
        |why| NotOpened::Failed(BackendError::Damaged(why)),
    )
}

/// Reads every record of a database after a revision. A read of all records also checks their number.
pub(super) fn read(
    database: &Database,
    after: u64,
    each: ReadRecord<'_>,
) -> Result<(), BackendError> {
    let failed = |error: redb::Error| engine_error(&error);
    let read = database.begin_read().map_err(|error| failed(error.into()))?;
    let records = read.open_table(RECORDS).map_err(|error| failed(error.into()))?;
    let rows = records.range(after + 1..).map_err(|error| failed(error.into()))?;
    let mut n_found = 0;
    for row in rows {
        let (revision, bytes) = row.map_err(|error| failed(error.into()))?;
        each(revision.value(), bytes.value())?;
        n_found += 1;
    }
    let meta = read.open_table(META).map_err(|error| failed(error.into()))?;
    let expected = meta.get(N_RECORDS).map_err(|error| failed(error.into()))?;
    let expected = expected.map_or(0, |expected| expected.value());
    if after == 0 && n_found != expected {
        return Err(BackendError::Damaged(format!("{n_found} records are there of {expected}")));
    }
    Ok(())
}

/// Returns the range of revisions of a database and its number of records.
pub(super) fn extent(database: &Database) -> Result<(Extent, u64), redb::Error> {
    let read = database.begin_read()?;
    let meta = read.open_table(META)?;
    let records = read.open_table(RECORDS)?;
    let compacted = meta.get(COMPACTED)?.map_or(0, |revision| revision.value());
    let last = records.last()?.map_or(0, |(revision, _)| revision.value());
    Ok((Extent { revision: last.max(compacted), compacted }, records.len()?))
}

/// Writes records to a new database, syncs it to disk, and returns their number.
pub(super) fn write_all(
    database: &Database,
    compacted: u64,
    records: &mut dyn Iterator<Item = Result<StoredRecord, BackendError>>,
) -> Result<u64, BackendError> {
    let failed = |error: redb::Error| engine_error(&error);
    let mut n_records = 0;
    loop {
        let chunk: Vec<StoredRecord> =
            records.take(MAX_RECORDS_PER_COMMIT).collect::<Result<_, _>>()?;
        n_records += chunk.len() as u64;
        let last = chunk.len() < MAX_RECORDS_PER_COMMIT;
        let durability = if last { Durability::Immediate } else { Durability::None };
        write_records(database, &chunk, n_records, Some(compacted), durability).map_err(failed)?;
        if last {
            return Ok(n_records);
        }
    }
}

/// Commits records in one transaction. `n_records` is the number of records after it.
fn write_records(
    database: &Database,
    records: &[StoredRecord],
    n_records: u64,
    compacted: Option<u64>,
    durability: Durability,
) -> Result<(), redb::Error> {
    let mut write = database.begin_write()?;
    write.set_durability(durability)?;
    {
        let mut table = write.open_table(RECORDS)?;
        for record in records {
            table.insert(record.revision, record.bytes.as_slice())?;
        }
        let mut meta = write.open_table(META)?;
        meta.insert(N_RECORDS, n_records)?;
        if let Some(compacted) = compacted {
            meta.insert(COMPACTED, compacted)?;
        }
    }
    write.commit()?;
    Ok(())
}

/// Writes records to a new file, and syncs it to disk.
pub(super) fn write_new(
    to: &Path,
    compacted: u64,
    records: &mut dyn Iterator<Item = Result<StoredRecord, BackendError>>,
) -> Result<(), BackendError> {
    let io = |error: io::Error| engine_error(&redb::Error::Io(error));
    let file = crate::files::create(to).map_err(io)?;
    let file = FileBackend::new(file).map_err(|error| engine_error(&error.into()))?;
    let database = builder().create_with_backend(file);
    let database = database.map_err(|error| engine_error(&error.into()))?;
    write_all(&database, compacted, records)?;
    migration::create_tables(&database).map_err(|error| engine_error(&error))?;
    drop(database);
    crate::files::sync_folder(crate::files::folder_of(to)).map_err(io)
}

impl Engine {
    /// Opens the file with this name, or creates it. Does not change a damaged file.
    pub(super) fn open(folder: Arc<dyn Folder>, name: &str) -> Result<Self, NotOpened> {
        let mut engine =
            Self { folder, name: name.to_owned(), file: None, extent: Extent::default() };
        engine.verify()?;
        engine.open_file()?;
        // A crash may have left an incomplete rewrite.
        if let Err(error) = engine.folder.remove(&format!("{name}{NEW_SUFFIX}")) {
            tracing::warn!(folder = engine.folder.display_path(), %error, "an unused file cannot be removed");
        }
        Ok(engine)
    }

    /// Verifies the file if it exists.
    fn verify(&self) -> Result<(), NotOpened> {
        if !self.folder.contains(&self.name) {
            return Ok(());
        }
        let io = |error: io::Error| NotOpened::Failed(BackendError::Io(error.to_string()));
        let file = self.folder.open(&self.name).map_err(io)?;
        // A process that was killed before its first write leaves an empty file.
        if file.len().map_err(io)? == 0 {
            return Ok(());
        }
        let (_, was_closed) = open_verified(file)?;
        if !was_closed {
            tracing::warn!(
                folder = self.folder.display_path(),
                file = self.name,
                "the file was not closed properly; a last batch that was not synced is cut off, all others are verified"
            );
        }
        Ok(())
    }

    fn open_file(&mut self) -> Result<(), NotOpened> {
        self.file = None;
        let io = |error: io::Error| NotOpened::Failed(folder_error(&error));
        let (file, failure) = FailureRecorder::new(self.folder.open(&self.name).map_err(io)?);
        catch_engine_panic(
            || {
                let database = builder()
                    .create_with_backend(file)
                    .map_err(|error| not_opened(error, failure_error(&failure)))?;
                migration::migrate(&database)
                    .map_err(|error| NotOpened::Failed(failure_error(&failure).unwrap_or(error)))?;
                let (extent, n_records) = extent(&database).map_err(|error| {
                    NotOpened::Failed(
                        failure_error(&failure).unwrap_or_else(|| engine_error(&error)),
                    )
                })?;
                self.extent = extent;
                self.file = Some(OpenFile { database, failure: Arc::clone(&failure), n_records });
                Ok(())
            },
            |why| NotOpened::Failed(BackendError::Damaged(why)),
        )
    }

    fn file(&mut self) -> Result<&mut OpenFile, BackendError> {
        self.file.as_mut().ok_or_else(closed)
    }
}

fn closed() -> BackendError {
    BackendError::Io("the file is closed".to_owned())
}

impl Backend for Engine {
    fn commit(&mut self, records: &[StoredRecord]) -> Result<(), BackendError> {
        let file = self.file()?;
        let n_records = file.n_records + records.len() as u64;
        write_records(&file.database, records, n_records, None, Durability::Immediate)
            .map_err(|error| file.error(error))?;
        file.n_records = n_records;
        if let Some(last) = records.last() {
            self.extent.revision = last.revision;
        }
        Ok(())
    }

    fn read(&self, after: u64, each: ReadRecord<'_>) -> Result<(), BackendError> {
        let file = self.file.as_ref().ok_or_else(closed)?;
        catch_engine_panic(|| read(&file.database, after, each), BackendError::Damaged)
    }

    fn extent(&self) -> Extent {
        self.extent
    }

    fn compact(&mut self, revision: u64, superseded: &[u64]) -> Result<(), BackendError> {
        let file = self.file()?;
        let compact = |file: &OpenFile| -> Result<u64, redb::Error> {
            let mut write = file.database.begin_write()?;
            write.set_durability(Durability::None)?;
            let mut n_records = file.n_records;
            {
                let mut table = write.open_table(RECORDS)?;
                for revision in superseded {
                    n_records -= u64::from(table.remove(revision)?.is_some());
                }
                let mut meta = write.open_table(META)?;
                meta.insert(N_RECORDS, n_records)?;
                meta.insert(COMPACTED, revision)?;
            }
            write.commit()?;
            Ok(n_records)
        };
        file.n_records = compact(file).map_err(|error| file.error(error))?;
        self.extent.compacted = revision;
        Ok(())
    }

    fn reopen(&mut self) -> Result<Extent, BackendError> {
        match self.open_file() {
            Ok(()) => Ok(self.extent),
            Err(NotOpened::Failed(error)) => Err(error),
            Err(NotOpened::Locked) => {
                Err(BackendError::Io("another process has the file open".to_owned()))
            }
        }
    }

    fn rewrite(
        &mut self,
        compacted: u64,
        records: &mut dyn Iterator<Item = Result<StoredRecord, String>>,
    ) -> Result<(), BackendError> {
        let name = format!("{}{NEW_SUFFIX}", self.name);
        let io = |error: io::Error| folder_error(&error);
        self.folder.remove(&name).map_err(io)?;
        let (file, failure) = FailureRecorder::new(self.folder.open(&name).map_err(io)?);
        let mut revision = compacted;
        let mut records = records.map(|record| {
            let record = record.map_err(BackendError::Io)?;
            revision = revision.max(record.revision);
            Ok(record)
        });
        let written = builder()
            .create_with_backend(file)
            .map_err(|error| engine_error(&error.into()))
            .and_then(|database| {
                let n_records = write_all(&database, compacted, &mut records)?;
                migration::create_tables(&database).map_err(|error| engine_error(&error))?;
                self.folder.rename(&name, &self.name).map_err(io)?;
                Ok((database, n_records))
            });
        match written {
            Ok((database, n_records)) => {
                self.file = Some(OpenFile { database, failure, n_records });
                self.extent = Extent { revision, compacted };
                Ok(())
            }
            Err(error) => {
                let error = failure_error(&failure).unwrap_or(error);
                // The old file is kept. Remove the new one to free its space.
                let _ = self.folder.remove(&name);
                Err(error)
            }
        }
    }

    fn shrink(&mut self) -> Result<(), BackendError> {
        let file = self.file()?;
        match file.database.compact() {
            Ok(_) => Ok(()),
            Err(error) => Err(file.error(error)),
        }
    }

    fn reserve(&mut self) -> Result<(), BackendError> {
        self.folder.fill(RESERVE_FILE, RESERVE_BYTES).map_err(|error| {
            let _ = self.folder.remove(RESERVE_FILE);
            folder_error(&error)
        })
    }

    fn release(&mut self) {
        if let Err(error) = self.folder.remove(RESERVE_FILE) {
            tracing::warn!(folder = self.folder.display_path(), %error, "the reserve cannot be given back");
        }
    }
}
