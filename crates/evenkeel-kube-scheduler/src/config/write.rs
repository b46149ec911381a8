//! Writes the configuration in the form of `/configz` and `--write-config-to`.

use super::KubeSchedulerConfiguration;
use serde::Serializer;
use serde_json::Value;
use std::fmt::Write as _;

impl KubeSchedulerConfiguration {
    /// Returns the JSON for `/configz`.
    pub(crate) fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Returns a copy without the arguments of plugins that are not enabled.
    pub(crate) fn with_used_args(&self) -> Self {
        let mut used = self.clone();
        for profile in &mut used.profiles {
            let sets = profile.plugins.iter().flat_map(|plugins| plugins.0.values());
            let enabled: Vec<&str> =
                sets.flat_map(|set| &set.enabled).map(|plugin| &*plugin.name).collect();
            profile.plugin_config.retain(|config| enabled.contains(&&*config.name));
            profile.plugin_config.sort_by(|a, b| a.name.cmp(&b.name));
        }
        used
    }

    /// Returns YAML in upstream's form: keys are sorted, and list items have the indentation of their key.
    pub(crate) fn to_yaml(&self) -> String {
        let mut text = String::new();
        write_lines(&mut text, &self.to_json(), 0, FirstLine::Indent);
        text
    }
}

/// Start of the first line of a map or list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstLine {
    /// Write the indentation.
    Indent,
    /// The output already ends with the indentation, as after `- `.
    Continue,
}

/// Writes the lines of a map or list.
fn write_lines(text: &mut String, value: &Value, indent: usize, first_line: FirstLine) {
    let mut is_indented = first_line == FirstLine::Continue;
    let mut begin_line = |text: &mut String| {
        if !std::mem::take(&mut is_indented) {
            text.push_str(&" ".repeat(indent));
        }
    };
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                begin_line(text);
                text.push_str(&scalar(&Value::from(key.as_str())));
                text.push(':');
                write_map_value(text, value, if value.is_array() { indent } else { indent + 2 });
            }
        }
        Value::Array(items) => {
            for item in items {
                begin_line(text);
                text.push_str("- ");
                if fits_on_line(item) {
                    text.push_str(&scalar(item));
                    text.push('\n');
                } else {
                    write_lines(text, item, indent + 2, FirstLine::Continue);
                }
            }
        }
        scalar_value => {
            text.push_str(&scalar(scalar_value));
            text.push('\n');
        }
    }
}

/// Writes the value of a map's key: an empty or scalar value on the key's line, others on the lines below.
fn write_map_value(text: &mut String, value: &Value, indent: usize) {
    if fits_on_line(value) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, " {}", scalar(value));
    } else {
        text.push('\n');
        write_lines(text, value, indent, FirstLine::Indent);
    }
}

/// Returns whether the value is empty or a scalar.
fn fits_on_line(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    }
}

/// Formats an empty or scalar value. Quotes strings that YAML would otherwise read as another value.
fn scalar(value: &Value) -> String {
    let Value::String(word) = value else { return value.to_string() };
    let needs_no_quotes = !word.is_empty()
        && !word.starts_with(|c: char| "!&*-?|>@`'\"%#,[]{}:= ".contains(c))
        && !word.ends_with([' ', ':'])
        && !word.contains(": ")
        && !word.contains(" #")
        && !word.chars().any(char::is_control)
        && serde_saphyr::from_str::<Value>(word).is_ok_and(|read| read == *value)
        && !matches!(word.to_ascii_lowercase().as_str(), "y" | "n" | "yes" | "no" | "on" | "off");
    if needs_no_quotes { word.clone() } else { value.to_string() }
}

/// Serializes a whole number without a fraction, and others with as few digits as single precision needs.
pub(super) fn serialize_float<S: Serializer>(
    number: &f32,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        return serializer.serialize_i64(*number as i64);
    }
    serializer.serialize_f64(number.to_string().parse().unwrap_or(f64::from(*number)))
}
