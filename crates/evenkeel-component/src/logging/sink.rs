//! Output streams of the log.

use std::{
    fmt,
    io::{self, BufWriter, Write},
    sync::{Mutex, PoisonError},
};

/// Output streams of the log: all lines on standard error, or only errors there and the others on standard
/// output, perhaps buffered.
pub(super) struct Sink {
    errors: Mutex<Box<dyn Write + Send>>,
    others: Option<Mutex<BufWriter<Box<dyn Write + Send>>>>,
    buffered: bool,
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
        Self { errors: Mutex::new(errors), others, buffered }
    }

    pub(super) fn is_buffered(&self) -> bool {
        self.buffered
    }

    /// Writes a line. A write error is ignored, because it cannot be reported anywhere.
    pub(super) fn write(&self, error: bool, line: &str) {
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
