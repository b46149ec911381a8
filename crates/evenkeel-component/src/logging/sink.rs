//! Output streams of the log.

use std::{
    fmt,
    io::{self, BufWriter, Write},
    sync::{Mutex, PoisonError},
};
use tracing::Level;

/// Output streams of the log: all lines on standard error, or only errors there and the others on standard
/// output, perhaps buffered. With a file, all lines are in the file.
pub(super) struct Sink {
    errors: Mutex<Box<dyn Write + Send>>,
    others: Option<Mutex<BufWriter<Box<dyn Write + Send>>>>,
    buffered: bool,
    file: Option<Mutex<Box<dyn Write + Send>>>,
    /// Least severe level of the lines that are written to the streams. `None` writes no line there.
    least_severe: Option<Level>,
}

impl Sink {
    /// Returns the process's own streams. `buffer` is a size in bytes.
    pub(super) fn of_process(split: bool, buffer: usize) -> Self {
        let others: Option<Box<dyn Write + Send>> = split.then(|| Box::new(io::stdout()) as _);
        Self::new(Box::new(io::stderr()), others, buffer)
    }

    pub(super) fn new(
        errors: Box<dyn Write + Send>,
        others: Option<Box<dyn Write + Send>>,
        buffer: usize,
    ) -> Self {
        let buffered = others.is_some() && buffer > 0;
        let others = others.map(|others| Mutex::new(BufWriter::with_capacity(buffer, others)));
        Self {
            errors: Mutex::new(errors),
            others,
            buffered,
            file: None,
            least_severe: Some(Level::TRACE),
        }
    }

    /// Returns the sink with a file for all lines, so that the streams get only lines of `least_severe` and more severe
    /// ones.
    pub(super) fn with_file(
        mut self,
        file: Box<dyn Write + Send>,
        least_severe: Option<Level>,
    ) -> Self {
        self.file = Some(Mutex::new(file));
        self.least_severe = least_severe;
        self
    }

    pub(super) fn is_buffered(&self) -> bool {
        self.buffered
    }

    /// Writes a line. A write error is ignored, because it cannot be reported anywhere.
    pub(super) fn write(&self, level: Level, line: &str) {
        if let Some(file) = &self.file {
            let _ = file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
        }
        // A less severe level is the greater one.
        if self.least_severe.is_none_or(|least_severe| level > least_severe) {
            return;
        }
        let error = level == Level::ERROR;
        let Some(others) = self.others.as_ref().filter(|_| !error) else {
            let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = errors.write_all(line.as_bytes());
            return;
        };
        let mut others = others.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = others.write_all(line.as_bytes());
        if !self.buffered {
            let _ = others.flush();
        }
    }

    pub(super) fn flush(&self) {
        if let Some(others) = &self.others {
            let _ = others.lock().unwrap_or_else(PoisonError::into_inner).flush();
        }
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("buffered", &self.buffered).finish_non_exhaustive()
    }
}
