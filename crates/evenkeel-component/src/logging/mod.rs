//! The log: one line per event, in klog's text format or component-base's JSON format, as upstream's programs
//! write it.
//!
//! Levels of `tracing` correspond to klog's: an error is `E`, a warning `W`, `info` is `-v=0`, `debug` is
//! `-v=4`, and `trace` is `-v=6`. An event is logged with the fields of its spans; its own fields take
//! precedence. Libraries log their warnings, and from `-v=6` on also their `info` events. Their lower levels
//! are never logged, because they contain headers and bodies, which hold secrets.

mod fields;
mod file;
mod json;
mod level;
mod sink;
mod text;

pub use file::LogFile;
pub use level::Levels;

use crate::options::{Format, LoggingOptions};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::{clock::Clock, tasks::Tasks};
use fields::Fields;
use sink::Sink;
use std::{sync::Arc, time::Duration};
use tracing::{
    Event, Level, Metadata, Subscriber, level_filters::LevelFilter, span, subscriber::Interest,
};
use tracing_subscriber::{
    layer::{Context, Layer, SubscriberExt},
    registry::LookupSpan,
    util::SubscriberInitExt,
};

/// Handle of the started log, which changes its verbosity and flushes it.
#[derive(Debug, Clone)]
pub struct Log {
    levels: Arc<Levels>,
    sink: Arc<Sink>,
    flush: Duration,
}

/// Starts the log of this process. If it is already started, as in a test, that log stays.
pub fn start(options: &LoggingOptions) -> Log {
    start_on(options, Sink::of_process(options.split, options.buffer))
}

/// Starts the log of this process, with all lines in `file`. Standard error gets only lines of the level `least_severe` and
/// more severe ones; with `None`, it gets none.
pub fn start_in_file(options: &LoggingOptions, file: LogFile, least_severe: Option<Level>) -> Log {
    let sink = Sink::of_process(options.split, options.buffer);
    start_on(options, sink.with_file(Box::new(file), least_severe))
}

fn start_on(options: &LoggingOptions, sink: Sink) -> Log {
    let log = Log {
        levels: Arc::new(Levels::new(options.verbosity, options.by_file.clone())),
        sink: Arc::new(sink),
        flush: options.flush,
    };
    let lines = Lines {
        levels: log.levels.clone(),
        sink: log.sink.clone(),
        format: options.format,
        clock: Clock::system(),
        process: std::process::id(),
    };
    let _ = tracing_subscriber::registry().with(lines).try_init();
    log
}

impl Log {
    /// Returns the verbosity of the whole process (`-v`).
    pub fn verbosity(&self) -> u32 {
        self.levels.verbosity()
    }

    /// Changes the verbosity of the whole process (`PUT /debug/flags/v`).
    pub fn set_verbosity(&self, verbosity: u32) {
        self.levels.set(verbosity);
        tracing::callsite::rebuild_interest_cache();
    }

    /// Writes buffered lines.
    pub fn flush(&self) {
        self.sink.flush();
    }

    /// Writes buffered lines at the configured interval, as long as `tasks` run. Does nothing without a buffer.
    pub fn keep_flushed(&self, tasks: &Tasks, clock: &Clock) {
        if !self.sink.is_buffered() || self.flush.is_zero() {
            return;
        }
        let (log, clock) = (self.clone(), clock.clone());
        tasks.spawn_restarting_until_cancelled("log", move || {
            let (log, clock) = (log.clone(), clock.clone());
            async move {
                loop {
                    clock.sleep(log.flush).await;
                    log.flush();
                }
            }
        });
    }
}

/// Line of the log.
struct Line<'a> {
    time: Timestamp,
    process: u32,
    level: Level,
    /// klog's verbosity of the event.
    verbosity: u32,
    file: &'a str,
    source_line: u32,
    fields: &'a Fields,
}

/// Layer that formats events as lines.
struct Lines {
    levels: Arc<Levels>,
    sink: Arc<Sink>,
    format: Format,
    clock: Clock,
    process: u32,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.levels.is_enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.levels.is_enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.levels.max_level())
    }

    fn on_new_span(
        &self,
        attributes: &span::Attributes<'_>,
        id: &span::Id,
        context: Context<'_, S>,
    ) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(outer) = span.extensions().get::<Fields>() {
                fields.add_outer(outer);
            }
        }
        let metadata = event.metadata();
        let line = Line {
            time: self.clock.now(),
            process: self.process,
            level: *metadata.level(),
            verbosity: level::verbosity_of(metadata),
            file: metadata.file().unwrap_or("unknown"),
            source_line: metadata.line().unwrap_or_default(),
            fields: &fields,
        };
        let text = match self.format {
            Format::Text => text::format_line(&line),
            Format::Json => json::format_line(&line),
        };
        self.sink.write(line.level, &text);
    }
}

/// Returns the file name of a path, and for a `mod.rs` its folder.
fn source_file(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some((_, "mod.rs")) => source_file_with_folder(path),
        Some((_, file)) => file,
        None => path,
    }
}

/// Returns the file name of a path with its folder.
fn source_file_with_folder(path: &str) -> &str {
    let Some((folders, _)) = path.rsplit_once('/') else { return path };
    folders.rfind('/').map_or(path, |slash| &path[slash + 1..])
}

#[cfg(test)]
mod tests;
