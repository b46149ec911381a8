//! Audit log: a thread that writes events to a file or to the standard output, one JSON document per line.
//!
//! Upstream: `plugin/pkg/audit/log`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::options::{AuditLogOptions, AuditMode};
use super::rotation;
use crate::clock::Clock;

/// Maximum time that a request waits until its event is written. After one request has waited this long, further
/// requests do not wait before a write succeeds again.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// File mode of the log: only the owner may read and write it.
const FILE_MODE: u32 = 0o600;

/// Encoded event to write.
struct Line {
    bytes: Vec<u8>,
    /// Sends the waiting request whether the event was written; `None` if no request waits.
    written: Option<oneshot::Sender<bool>>,
}

/// Handle of the thread that writes the log, with its queue.
pub(super) struct Log {
    /// Queue of events. `None` closes it, which ends the thread.
    queue: Option<mpsc::Sender<Line>>,
    thread: Option<JoinHandle<()>>,
    mode: AuditMode,
    state: Arc<LogState>,
}

/// State that the log's thread and the requests share.
#[derive(Default)]
struct LogState {
    /// Whether writes take too long, so that requests do not wait.
    is_stalled: AtomicBool,
    /// Number of events that were not written.
    failed: AtomicU64,
}

impl Log {
    /// Opens the log, and starts its thread.
    pub(super) fn start(options: AuditLogOptions, clock: Clock) -> io::Result<Self> {
        let (queue, lines) = mpsc::channel(options.buffer_size.max(1));
        let (mode, state) = (options.mode, Arc::new(LogState::default()));
        let output = Output::open(options, clock)?;
        let shared = state.clone();
        let thread = std::thread::Builder::new().name("audit log".to_owned());
        let thread = thread.spawn(move || run(lines, output, &shared))?;
        Ok(Self { queue: Some(queue), thread: Some(thread), mode, state })
    }

    /// Writes an event. Unless the mode is `batch`, waits at most [`MAX_WAIT`] until it is written. Returns whether the
    /// request may continue.
    pub(super) async fn process(&self, bytes: Vec<u8>) -> bool {
        if self.mode == AuditMode::Batch {
            self.enqueue(bytes);
            return true;
        }
        let is_written = self.write(bytes).await;
        is_written || self.mode != AuditMode::BlockingStrict
    }

    /// Queues an event and waits until it is written. Returns whether it was written in time.
    async fn write(&self, bytes: Vec<u8>) -> bool {
        if self.state.is_stalled.load(Ordering::Relaxed) {
            self.enqueue(bytes);
            return false;
        }
        let Some(queue) = &self.queue else { return false };
        let (written, is_written) = oneshot::channel();
        let write = async {
            let line = Line { bytes, written: Some(written) };
            queue.send(line).await.is_ok() && is_written.await.unwrap_or(false)
        };
        match tokio::time::timeout(MAX_WAIT, write).await {
            Ok(is_written) => is_written,
            Err(_) => {
                tracing::error!(
                    "the audit log takes too long to write; requests do not wait for it"
                );
                self.state.is_stalled.store(true, Ordering::Relaxed);
                false
            }
        }
    }

    /// Queues an event without waiting; drops it if the queue is full.
    pub(super) fn enqueue(&self, bytes: Vec<u8>) {
        let Some(queue) = &self.queue else { return };
        if queue.try_send(Line { bytes, written: None }).is_err() {
            self.state.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of events that were not written.
    pub(super) fn n_failed(&self) -> u64 {
        self.state.failed.load(Ordering::Relaxed)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // The thread ends when it has written all queued events.
        drop(self.queue.take());
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// Writes queued events until the queue is closed.
fn run(mut lines: mpsc::Receiver<Line>, mut output: Output, state: &LogState) {
    while let Some(Line { bytes, written }) = lines.blocking_recv() {
        let result = output.write(&bytes);
        match &result {
            Ok(()) => state.is_stalled.store(false, Ordering::Relaxed),
            Err(error) => {
                if state.failed.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::error!(%error, "an audit event cannot be written");
                }
            }
        }
        if let Some(written) = written {
            // An error means that the request no longer waits.
            let _ = written.send(result.is_ok());
        }
    }
}

/// Destination of the log.
enum Output {
    Stdout,
    File(LogFile),
}

impl Output {
    fn open(options: AuditLogOptions, clock: Clock) -> io::Result<Self> {
        Ok(match options.path.clone() {
            None => Self::Stdout,
            Some(path) => Self::File(LogFile::open(path, options, clock)?),
        })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(line)?;
                out.flush()
            }
            Self::File(file) => file.write(line),
        }
    }
}

/// Log file that is rotated when it is full.
struct LogFile {
    path: PathBuf,
    file: File,
    /// Current size in bytes.
    size: u64,
    options: AuditLogOptions,
    clock: Clock,
}

impl LogFile {
    fn open(path: PathBuf, options: AuditLogOptions, clock: Clock) -> io::Result<Self> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)?;
        }
        let file = append(&path)?;
        let size = file.metadata()?.len();
        Ok(Self { path, file, size, options, clock })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let (length, max) = (line.len() as u64, self.options.max_size);
        if max > 0 && length > max {
            let why = format!("write length {length} exceeds maximum file size {max}");
            return Err(io::Error::other(why));
        }
        if max > 0 && self.size > 0 && self.size + length > max {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.size += length;
        Ok(())
    }

    /// Renames the full file, opens a new one, and removes old files. A failure to remove old files is logged, not
    /// returned.
    fn rotate(&mut self) -> io::Result<()> {
        let now = self.clock.now();
        match std::fs::rename(&self.path, rotation::backup(&self.path, now)) {
            // `NotFound` is fine: another program moved the file, or the last rotation could not open a new one.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.file = append(&self.path)?;
        self.size = 0;
        if let Err(error) = self.remove_old(now) {
            tracing::warn!(%error, "old audit logs cannot be listed");
        }
        Ok(())
    }

    /// Removes the rotated files that exceed the limits on their number and age.
    fn remove_old(&self, now: Timestamp) -> io::Result<()> {
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let entries = folder.read_dir()?.filter_map(Result::ok);
        let names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        let AuditLogOptions { max_age, max_backups, .. } = self.options;
        for name in rotation::removed(&self.path, &names, now, max_age, max_backups) {
            if let Err(error) = std::fs::remove_file(folder.join(name)) {
                tracing::warn!(%error, name, "an old audit log cannot be removed");
            }
        }
        Ok(())
    }
}

/// Opens a file for appending, and creates it if necessary.
fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(FILE_MODE).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::atomic::AtomicI64;

    use super::*;

    /// Returns a clock whose time advances by a second with each reading.
    fn ticking() -> Clock {
        let second = AtomicI64::new(1_767_225_600);
        Clock::new(move || {
            Timestamp::from_second(second.fetch_add(1, Ordering::Relaxed)).expect("a time")
        })
    }

    fn options(path: &Path, mode: AuditMode) -> AuditLogOptions {
        AuditLogOptions { path: Some(path.to_owned()), mode, ..AuditLogOptions::default() }
    }

    #[tokio::test]
    async fn events_are_lines_of_a_private_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("logs/audit.log");
        for mode in [AuditMode::Batch, AuditMode::Blocking, AuditMode::BlockingStrict] {
            let log = Log::start(options(&path, mode), ticking()).expect("a log");
            assert!(log.process(b"one\n".to_vec()).await);
            log.enqueue(b"two\n".to_vec());
            drop(log);
        }
        assert_eq!(std::fs::read_to_string(&path).expect("a log"), "one\ntwo\n".repeat(3));
        let mode = path.metadata().expect("a log").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
    }

    #[tokio::test]
    async fn a_full_file_is_replaced_and_old_ones_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        let limited =
            AuditLogOptions { max_size: 10, max_backups: 2, ..options(&path, AuditMode::Blocking) };
        let log = Log::start(limited, ticking()).expect("a log");
        for at in 0..9 {
            assert!(log.process(format!("{at}234\n").into_bytes()).await);
        }
        assert_eq!(log.n_failed(), 0);
        log.process(b"longer than the whole file".to_vec()).await;
        assert_eq!(log.n_failed(), 1);
        drop(log);
        let mut texts: Vec<String> = folder
            .path()
            .read_dir()
            .expect("a folder")
            .map(|entry| std::fs::read_to_string(entry.expect("a file").path()).expect("a log"))
            .collect();
        texts.sort();
        assert_eq!(texts, ["4234\n5234\n", "6234\n7234\n", "8234\n"]);
    }

    #[tokio::test]
    async fn a_log_that_cannot_be_written_refuses_only_strictly() {
        for (mode, goes_on) in [
            (AuditMode::Batch, true),
            (AuditMode::Blocking, true),
            (AuditMode::BlockingStrict, false),
        ] {
            let path = Path::new("/dev/full");
            let log = Log::start(options(path, mode), ticking()).expect("a log");
            assert_eq!(log.process(b"lost\n".to_vec()).await, goes_on, "{mode:?}");
        }
    }

    /// A queue that is never emptied holds at most its size, and requests wait only once.
    #[tokio::test(start_paused = true)]
    async fn a_stalled_log_stops_no_request() {
        let (queue, _lines) = mpsc::channel(2);
        let (mode, state) = (AuditMode::Blocking, Arc::new(LogState::default()));
        let log = Log { queue: Some(queue), thread: None, mode, state };
        for _ in 0..5 {
            assert!(log.process(b"late\n".to_vec()).await);
        }
        assert_eq!(log.n_failed(), 3);
        let strict = AuditMode::BlockingStrict;
        let log =
            Log { mode: strict, queue: log.queue.clone(), thread: None, state: log.state.clone() };
        assert!(!log.process(b"late\n".to_vec()).await);
    }
}
