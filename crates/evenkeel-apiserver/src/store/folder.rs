//! Files of a data folder for the engine. Tests replace the folder with one that injects faults.

use std::fmt::{self, Debug};
use std::io::{self, Write as _};
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use redb::StorageBackend;
use redb::backends::FileBackend;

use crate::files;

/// Forwards the lock functions of a [`StorageBackend`] to its field `file`.
macro_rules! forward_locks {
    () => {
        fn try_lock_range(
            &self,
            start: Bound<u64>,
            end: Bound<u64>,
        ) -> Result<bool, redb::BackendError> {
            self.file.try_lock_range(start, end)
        }

        fn try_lock_shared_range(
            &self,
            start: Bound<u64>,
            end: Bound<u64>,
        ) -> Result<bool, redb::BackendError> {
            self.file.try_lock_shared_range(start, end)
        }

        fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), redb::BackendError> {
            self.file.lock_range(start, end)
        }

        fn lock_shared_range(
            &self,
            start: Bound<u64>,
            end: Bound<u64>,
        ) -> Result<(), redb::BackendError> {
            self.file.lock_shared_range(start, end)
        }

        fn unlock_range(
            &self,
            start: Bound<u64>,
            end: Bound<u64>,
        ) -> Result<(), redb::BackendError> {
            self.file.unlock_range(start, end)
        }

        fn query_lock_range(
            &self,
            start: Bound<u64>,
            end: Bound<u64>,
        ) -> Result<bool, redb::BackendError> {
            self.file.query_lock_range(start, end)
        }
    };
}
pub(super) use forward_locks;

/// Folder of private files.
pub(super) trait Folder: Send + Sync {
    /// Opens a file, and creates it if it does not exist.
    fn open(&self, name: &str) -> io::Result<Box<dyn StorageBackend>>;
    /// Renames a file durably, and replaces an existing one.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. A missing file counts as removed.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Creates a file with this many bytes, and syncs it to disk.
    fn fill(&self, name: &str, bytes: usize) -> io::Result<()>;
    /// Returns whether a file exists.
    fn contains(&self, name: &str) -> bool;
    /// Returns the path of the folder for messages.
    fn display_path(&self) -> String;
}

/// Data folder on disk.
pub(super) struct DiskFolder(pub(super) PathBuf);

impl Folder for DiskFolder {
    fn open(&self, name: &str) -> io::Result<Box<dyn StorageBackend>> {
        let is_new = !self.contains(name);
        let file = files::open(&self.0.join(name))?;
        if is_new {
            // Without this sync, a power failure may remove the file with all its synced data.
            files::sync_folder(&self.0)?;
            files::sync_folder(files::folder_of(&self.0))?;
        }
        Ok(Box::new(FileBackend::new(file).map_err(io::Error::other)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.0.join(from), self.0.join(to))?;
        files::sync_folder(&self.0)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match std::fs::remove_file(self.0.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn fill(&self, name: &str, bytes: usize) -> io::Result<()> {
        let mut file = files::open(&self.0.join(name))?;
        // Some file systems allocate no space for zeros, so write another byte.
        file.write_all(&vec![0x5a; bytes])?;
        file.sync_all()
    }

    fn contains(&self, name: &str) -> bool {
        self.0.join(name).exists()
    }

    fn display_path(&self) -> String {
        self.0.display().to_string()
    }
}

/// First failed operation of a file.
#[derive(Debug, Clone)]
pub(super) struct FileFailure {
    pub(super) why: String,
    /// Whether the disk had no space left for the operation.
    pub(super) full: bool,
    /// Whether the operation was a sync. Data since the previous sync may then be lost, even if it can be read now.
    pub(super) not_synced: bool,
}

/// File that records its first failure. The engine reports the cause only for the failing operation, not for later
/// ones.
pub(super) struct FailureRecorder {
    file: Box<dyn StorageBackend>,
    failure: Arc<Mutex<Option<FileFailure>>>,
}

impl FailureRecorder {
    /// Wraps a file. Also returns the cell that receives its first failure.
    pub(super) fn new(file: Box<dyn StorageBackend>) -> (Self, Arc<Mutex<Option<FileFailure>>>) {
        let failure = Arc::default();
        (Self { file, failure: Arc::clone(&failure) }, failure)
    }

    fn record<T>(&self, operation: &str, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert_with(|| FileFailure {
                why: format!("{operation}: {error}"),
                full: is_full(error),
                not_synced: operation == SYNC,
            });
        }
        result
    }
}

const SYNC: &str = "sync";

/// Returns whether the error is a lack of space: a full disk, the user's quota, or the maximum size of a file.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

impl Debug for FailureRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

impl StorageBackend for FailureRecorder {
    fn len(&self) -> io::Result<u64> {
        self.record("read the length", self.file.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.record("read", self.file.read(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.record("change the length", self.file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.record(SYNC, self.file.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.record("write", self.file.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    forward_locks!();
}
