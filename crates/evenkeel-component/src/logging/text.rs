//! klog's text format: `I1121 12:00:00.000000   12345 file.rs:42] "Message" key="value"`.

use super::{Line, fields::Value, short};
use tracing::Level;

/// Formats a line, including the line feed. The time is in UTC.
pub(super) fn line(line: &Line<'_>) -> String {
    let severity = match line.level {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        Level::INFO | Level::DEBUG | Level::TRACE => 'I',
    };
    let (time, process) = (line.time.strftime("%m%d %H:%M:%S%.6f"), line.process);
    let (file, number) = (short(line.file, false), line.number);
    let mut text = format!("{severity}{time} {process:>7} {file}:{number}] ");
    quote(&line.fields.message, &mut text);
    for (name, value) in &line.fields.values {
        text.push(' ');
        text.push_str(name);
        match value {
            Value::Text(value) if value.contains('\n') => paragraph(value, &mut text),
            Value::Text(value) => {
                text.push('=');
                quote(value, &mut text);
            }
            Value::Bool(value) => text.push_str(&format!("={value}")),
            Value::Int(value) => text.push_str(&format!("={value}")),
            Value::Float(value) => text.push_str(&format!("={value}")),
        }
    }
    text.push('\n');
    text
}

/// Appends a text of several lines, indented below the field's name.
fn paragraph(value: &str, text: &mut String) {
    text.push_str("=<\n");
    for line in value.lines() {
        text.push('\t');
        text.push_str(line);
        text.push('\n');
    }
    text.push_str(" >");
}

/// Appends a quoted text, as Go's `strconv.Quote` quotes it.
fn quote(value: &str, text: &mut String) {
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
