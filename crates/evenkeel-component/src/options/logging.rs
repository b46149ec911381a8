//! Options of the log.

use crate::{
    features::FeatureGates,
    flags::{Reader, duration},
};
use evenkeel_api::quantity::Quantity;
use std::time::Duration;

/// Format of the log (`--logging-format`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// klog's text format.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Options of the log (upstream's `LoggingConfiguration`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoggingOptions {
    /// Format of a line.
    pub format: Format,
    /// Verbosity (`-v`). 0 logs only messages that operators always need.
    pub verbosity: u32,
    /// Verbosity by file name pattern (`--vmodule`), which can only raise `-v` for the matching files.
    pub by_file: Vec<(String, u32)>,
    /// Interval at which the buffer is flushed (`--log-flush-frequency`).
    pub flush: Duration,
    /// Whether errors are written to standard error, and all other lines, perhaps buffered, to standard output.
    pub split: bool,
    /// Size of the standard output buffer in bytes, or 0 for no buffer.
    pub buffer: usize,
}

impl LoggingOptions {
    /// Reads the flags, and records invalid values as errors of the flags.
    pub fn from_flags(read: &Reader, gates: &FeatureGates) -> Self {
        let flush = read.duration("log-flush-frequency");
        if flush.is_zero() {
            let value = duration::print(flush);
            let rule =
                format!("flushFrequency: Invalid value: {value:?}: Must be greater than zero");
            read.record_invalid("log-flush-frequency", rule);
        }
        let format = match read.text("logging-format").as_str() {
            "text" => Format::Text,
            "json" => {
                if !gates.enabled("LoggingBetaOptions") {
                    let rule = "Log format json is disabled, see LoggingBetaOptions feature";
                    read.record_invalid("logging-format", format!("format: Forbidden: {rule}"));
                }
                Format::Json
            }
            other => {
                let rule = format!("format: Invalid value: {other:?}: Unsupported log format");
                read.record_invalid("logging-format", rule);
                Format::Text
            }
        };
        let by_file = parse_vmodule(&read.text("vmodule"));
        if !by_file.is_empty() && format == Format::Json {
            read.record_invalid(
                "vmodule",
                "vmodule: Forbidden: Only supported for text log format",
            );
        }
        // Read and validate the flags of both formats, but use only those of the selected format.
        let text = StreamOptions::from_flags(read, gates, "text");
        let json = StreamOptions::from_flags(read, gates, "json");
        let StreamOptions { split, buffer } = if format == Format::Text { text } else { json };
        let verbosity = u32::try_from(read.int("v")).unwrap_or_default();
        Self { format, verbosity, by_file, flush, split, buffer }
    }
}

/// Output streams of one format.
struct StreamOptions {
    /// Whether errors have a stream of their own.
    split: bool,
    /// Size of the standard output buffer in bytes.
    buffer: usize,
}

impl StreamOptions {
    /// Reads the two alpha flags of a format: split stream and buffer size.
    fn from_flags(read: &Reader, gates: &FeatureGates, format: &str) -> Self {
        let split_flag = format!("log-{format}-split-stream");
        let buffer_flag = format!("log-{format}-info-buffer-size");
        let split = read.bool(&split_flag);
        let size = Quantity::parse(&read.text(&buffer_flag)).map_or(0, Quantity::value);
        let buffer = usize::try_from(size).unwrap_or_default();
        if !gates.enabled("LoggingAlphaOptions") {
            let forbid = |flag: &str, field: &str| {
                let rule = "Forbidden: Feature LoggingAlphaOptions is disabled";
                read.record_invalid(flag, format!("options.{format}.{field}: {rule}"));
            };
            if split {
                forbid(&split_flag, "splitStream");
            }
            if buffer != 0 {
                forbid(&buffer_flag, "infoBufferSize");
            }
        }
        Self { split, buffer }
    }
}

/// Parses `pattern=N,…`. The flag's type has already validated the syntax.
fn parse_vmodule(text: &str) -> Vec<(String, u32)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.filter_map(|(pattern, level)| Some((pattern.to_owned(), level.parse().ok()?))).collect()
}
