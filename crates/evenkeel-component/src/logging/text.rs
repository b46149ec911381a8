//! klog's text format: `I1121 12:00:00.000000   12345 file.rs:42] "Message" key="value"`.

use super::{Line, fields::Value, source_file};
use tracing::Level;

/// Formats a line, including the line feed. The time is in UTC.
pub(super) fn format_line(line: &Line<'_>) -> String {
    let severity = match line.level {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        Level::INFO | Level::DEBUG | Level::TRACE => 'I',
    };
    let (time, process) = (line.time.strftime("%m%d %H:%M:%S%.6f"), line.process);
    let (file, source_line) = (source_file(line.file), line.source_line);
    let mut text = format!("{severity}{time} {process:>7} {file}:{source_line}] ");
    push_quoted(&line.fields.message, &mut text);
    for (name, value) in &line.fields.values {
        text.push(' ');
        text.push_str(name);
        match value {
            Value::Text(value) if value.contains('\n') => push_paragraph(value, &mut text),
            Value::Text(value) => {
                text.push('=');
                push_quoted(value, &mut text);
            }
            Value::Bool(value) => text.push_str(&format!("={value}")),
            Value::Int(value) => text.push_str(&format!("={value}")),
            Value::Float(value) => text.push_str(&format!("={value}")),
        }
    }
    text.push('\n');
    text
}

/// Appends a string of several lines, indented below the field's name.
fn push_paragraph(value: &str, text: &mut String) {
    text.push_str("=<\n");
    for value_line in value.lines() {
        text.push('\t');
        text.push_str(value_line);
        text.push('\n');
    }
    text.push_str(" >");
}

/// Appends a string in quotes, with escapes for quotes, backslashes and control characters.
fn push_quoted(value: &str, text: &mut String) {
    text.push('"');
    for letter in value.chars() {
        match letter {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            control if control.is_ascii_control() => {
                text.push_str(&format!("\\x{:02x}", u32::from(control)));
            }
            control if control.is_control() => {
                text.push_str(&format!("\\u{:04x}", u32::from(control)));
            }
            other => text.push(other),
        }
    }
    text.push('"');
}
