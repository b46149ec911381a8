//! Snapshots: copies of all data at one revision, each in one file with checksums.
//!
//! A snapshot contains the objects and the change history, in the format of the data folder's file. It does not contain
//! keys and certificates, which are separate files (`pki`). Encrypted values stay encrypted.
//!
//! The counterparts for etcd are `etcdctl snapshot save` and `etcdutl snapshot restore` and `status`.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{Database, StorageBackend as _};

use super::backend::{BackendError, Extent};
use super::engine;
use super::error::OpenError;
use super::handle::Store;
use super::migration;
use super::open::{DATABASE, is_its_file, open_error};
use super::record::{self, StoredRecord};
use crate::files;

/// Number of revisions that a restore skips, because clients may have observed later revisions of the lost state. For
/// the same reason, a restored store has no earlier history.
///
/// The flags `--bump-revision 1000000000 --mark-compacted` of `etcdutl snapshot restore` do the same.
const BUMP_REVISION: u64 = 1_000_000_000;

/// First bytes of a file of the engine.
const FORMAT: &[u8] = b"redb";

/// Contents of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Revision of the snapshot's state.
    pub revision: u64,
    /// Compacted revision. Watches can resume from this revision and later ones.
    pub compacted: u64,
    /// Number of objects.
    pub n_objects: u64,
    /// Number of records, one for each kept revision.
    pub n_records: u64,
}

/// Reason why a snapshot was not saved, restored or verified.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The source file cannot be opened, or is damaged.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The file is of another format.
    #[error("{} is not a snapshot: `evenkeel snapshot save FILE --data-dir DIR` writes one", .0.display())]
    NoSnapshot(PathBuf),
    /// The data folder has no objects, because they are in etcd, which saves its snapshots itself.
    #[error(
        "the data folder has no objects; if they are in etcd, save a snapshot of it with: etcdctl snapshot save FILE"
    )]
    InEtcd,
    /// The target file already exists.
    #[error("{} is there already; move it away first", .0.display())]
    Exists(PathBuf),
    /// The target file cannot be written.
    #[error("{} cannot be written: {why}", path.display())]
    Write {
        /// Path of the target file.
        path: PathBuf,
        /// Error of the system or of the engine.
        why: String,
    },
}

/// Saves a snapshot of a data folder that no server uses, and verifies all its records.
///
/// # Errors
/// Fails if a server uses the folder, a record is damaged, or the file cannot be written. An error leaves no file.
pub fn save(data_dir: &Path, file: &Path) -> Result<Summary, SnapshotError> {
    let source = data_dir.join(DATABASE);
    if !source.exists() && data_dir.join("pki").exists() {
        return Err(SnapshotError::InEtcd);
    }
    copy(&source, &open(&source)?, file, None)
}

/// Restores a snapshot into a data folder without data. The new revisions are far beyond those of the snapshot, so that
/// watches must start again.
///
/// # Errors
/// Fails if the folder has data, the snapshot is damaged, or the folder cannot be written to. An error leaves no data.
pub fn restore(file: &Path, data_dir: &Path) -> Result<Summary, SnapshotError> {
    require_snapshot(file)?;
    let database = open(file)?;
    let Extent { revision, .. } = extent(file, &database)?;
    let target = data_dir.join(DATABASE);
    files::make_folder(data_dir, is_its_file).map_err(|error| SnapshotError::Write {
        path: data_dir.to_owned(),
        why: error.to_string(),
    })?;
    copy(file, &database, &target, Some(revision + BUMP_REVISION))
}

/// Removes the data of a folder that no server uses, even damaged data. Keeps keys and certificates. Returns whether
/// the folder had data.
///
/// # Errors
/// Fails if a server uses the folder, or the files cannot be removed.
pub fn discard(data_dir: &Path) -> Result<bool, SnapshotError> {
    let path = data_dir.join(DATABASE);
    // Holds the lock of the file until it is removed.
    let _database = match open(&path) {
        Ok(database) => Some(database),
        Err(SnapshotError::Open(OpenError::Io { source, .. }))
            if source.kind() == io::ErrorKind::NotFound =>
        {
            return Ok(false);
        }
        Err(SnapshotError::Open(OpenError::Damaged { .. })) => None,
        Err(error) => return Err(error),
    };
    let failed = |error: io::Error| SnapshotError::Write {
        path: data_dir.to_owned(),
        why: error.to_string(),
    };
    for entry in std::fs::read_dir(data_dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_str().is_some_and(is_its_file) {
            std::fs::remove_file(entry.path()).map_err(failed)?;
        }
    }
    files::sync_folder(data_dir).map_err(failed)?;
    Ok(true)
}

/// Verifies all records of a snapshot, or of the file in a data folder that no server uses. Does not change the file.
///
/// # Errors
/// Fails if the file cannot be read or is damaged.
pub fn verify(file: &Path) -> Result<Summary, SnapshotError> {
    require_snapshot(file)?;
    let database = open(file)?;
    let extent = extent(file, &database)?;
    let mut count = Count::default();
    engine::read(&database, 0, &mut |revision, bytes| count.add(revision, bytes))
        .map_err(|error| damaged(file, error))?;
    Ok(count.summary(extent))
}

fn damaged(path: &Path, error: BackendError) -> SnapshotError {
    open_error(&path.display().to_string(), engine::NotOpened::Failed(error)).into()
}

/// Checks that a file begins like a file of the engine. An empty file also passes: it is a damaged one.
fn require_snapshot(path: &Path) -> Result<(), SnapshotError> {
    let io = |source| OpenError::Io { path: path.display().to_string(), source };
    let mut head = Vec::new();
    let file = File::open(path).map_err(io)?;
    file.take(FORMAT.len() as u64).read_to_end(&mut head).map_err(io)?;
    if FORMAT.starts_with(&head) { Ok(()) } else { Err(SnapshotError::NoSnapshot(path.to_owned())) }
}

/// Opens a file without changing it.
fn open(path: &Path) -> Result<Database, SnapshotError> {
    let io = |source| OpenError::Io { path: path.display().to_string(), source };
    let file = File::options().read(true).write(true).open(path).map_err(io)?;
    let file = FileBackend::new(file).map_err(|error| io(io::Error::other(error)))?;
    let empty = || BackendError::Damaged("it is empty".to_owned());
    if file.len().map_err(io)? == 0 {
        return Err(damaged(path, empty()));
    }
    let opened = engine::open_verified(Box::new(file));
    let (database, _) = opened.map_err(|error| open_error(&path.display().to_string(), error))?;
    migration::migrate(&database).map_err(|error| damaged(path, error))?;
    Ok(database)
}

/// Returns the range of revisions of a database, which must have records.
fn extent(path: &Path, database: &Database) -> Result<Extent, SnapshotError> {
    let failed = |error: redb::Error| damaged(path, BackendError::Damaged(error.to_string()));
    match engine::extent(database).map_err(failed)? {
        (_, 0) => Err(damaged(path, BackendError::Damaged("it holds no records".to_owned()))),
        (extent, _) => Ok(extent),
    }
}

/// Copies all records to a new file. `compacted` replaces the compacted revision.
fn copy(
    from: &Path,
    database: &Database,
    to: &Path,
    compacted: Option<u64>,
) -> Result<Summary, SnapshotError> {
    let extent = extent(from, database)?;
    let compacted = compacted.unwrap_or(extent.compacted);
    let mut count = Count::default();
    let mut records = Vec::new();
    engine::read(database, 0, &mut |revision, bytes| {
        count.add(revision, bytes)?;
        records.push(StoredRecord { revision, bytes: bytes.to_vec() });
        Ok(())
    })
    .map_err(|error| damaged(from, error))?;
    write(to, compacted, &mut records.into_iter().map(Ok))?;
    let extent = Extent { revision: extent.revision.max(compacted), compacted };
    Ok(count.summary(extent))
}

/// Writes records to a new file under a temporary name, and renames the file when it is complete and on disk.
fn write(
    to: &Path,
    compacted: u64,
    records: &mut dyn Iterator<Item = Result<StoredRecord, BackendError>>,
) -> Result<(), SnapshotError> {
    if to.exists() {
        return Err(SnapshotError::Exists(to.to_owned()));
    }
    let mut temporary = to.as_os_str().to_owned();
    temporary.push(engine::NEW_SUFFIX);
    let temporary = PathBuf::from(temporary);
    let failed = |why: String| SnapshotError::Write { path: to.to_owned(), why };
    // Remove the file of an earlier attempt.
    let _ = std::fs::remove_file(&temporary);
    let written = engine::write_new(&temporary, compacted, records)
        .map_err(|error| failed(error.to_string()))
        .and_then(|()| std::fs::rename(&temporary, to).map_err(|error| failed(error.to_string())))
        .and_then(|()| {
            files::sync_folder(files::folder_of(to)).map_err(|error| failed(error.to_string()))
        });
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// Number of records, and the objects that exist after them.
#[derive(Default)]
struct Count {
    objects: HashSet<(String, String)>,
    n_records: u64,
}

impl Count {
    fn add(&mut self, revision: u64, bytes: &[u8]) -> Result<(), BackendError> {
        let head = record::verify(revision, bytes);
        let head = head.map_err(|error| BackendError::Damaged(error.to_string()))?;
        let object = (head.resource_prefix.to_owned(), head.key.to_owned());
        if head.is_deletion {
            self.objects.remove(&object);
        } else {
            self.objects.insert(object);
        }
        self.n_records += 1;
        Ok(())
    }

    fn summary(&self, extent: Extent) -> Summary {
        Summary {
            revision: extent.revision,
            compacted: extent.compacted,
            n_objects: self.objects.len() as u64,
            n_records: self.n_records,
        }
    }
}

impl Store {
    /// Saves a snapshot of the committed state, and blocks until it is on disk. Writes continue in the meantime.
    pub(crate) fn snapshot(&self, to: &Path) -> Result<(), SnapshotError> {
        if self.is_shared() {
            return Err(SnapshotError::InEtcd);
        }
        let (compacted, records) = self.shared.read().records();
        let mut records = records.iter().map(|(_, (resource_prefix, entry))| {
            record::encode(resource_prefix, entry, &*self.shared.transformer)
                .map_err(BackendError::Io)
        });
        write(to, compacted, &mut records)
    }
}
