//! component-base's JSON format: `{"ts":…,"caller":"folder/file.rs:42","msg":"Message","v":0,"key":"value"}`.

use super::{Line, fields::Value, source_file_with_folder};
use serde_json::json;
use tracing::Level;

/// Formats a line, including the line feed.
pub(super) fn format_line(line: &Line<'_>) -> String {
    // The time is in milliseconds, with a fraction.
    let time = line.time.as_nanosecond() as f64 / 1e6;
    let caller = json!(format!("{}:{}", source_file_with_folder(line.file), line.source_line));
    let message = json!(line.fields.message);
    let mut text = format!("{{\"ts\":{time},\"caller\":{caller},\"msg\":{message}");
    if line.level != Level::ERROR {
        text.push_str(&format!(",\"v\":{}", line.verbosity));
    }
    for (name, value) in &line.fields.values {
        let value = match value {
            Value::Text(value) => json!(value),
            Value::Bool(value) => json!(value),
            Value::Int(value) => i64::try_from(*value)
                .map_or_else(|_| json!(value.to_string()), |value| json!(value)),
            Value::Float(value) => json!(value),
        };
        // A field must not replace a key of the line itself.
        let taken = matches!(*name, "ts" | "caller" | "msg" | "v");
        let name = json!(if taken { format!("{name}_") } else { (*name).to_owned() });
        text.push_str(&format!(",{name}:{value}"));
    }
    text.push_str("}\n");
    text
}
