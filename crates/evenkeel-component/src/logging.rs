//! The log: one line an event, text or JSON, on standard error.

use crate::options::{Format, LoggingOptions};
use tracing::Level;
use tracing_subscriber::{filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

/// Starts logging. The verbosity is klog's: 0 tells what an operator wants to know, 4 what is decided, 6 what is sent.
pub fn start(options: &LoggingOptions) {
    let (ours, others) = match options.verbosity {
        0..=3 => (Level::INFO, Level::WARN),
        4..=5 => (Level::DEBUG, Level::WARN),
        6..=8 => (Level::TRACE, Level::INFO),
        _ => (Level::TRACE, Level::DEBUG),
    };
    let filter = Targets::new()
        .with_default(others)
        .with_target("evenkeel", ours)
        .with_target("kube_", ours);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    // A second start (in a test) keeps the first one's.
    let _ = if options.format == Format::Json {
        registry.with(lines.json()).try_init()
    } else {
        registry.with(lines.with_ansi(false)).try_init()
    };
}
