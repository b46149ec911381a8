//! Encoding of JSON values as YAML, in block style with sorted keys.

use std::fmt::Write as _;

use serde_json::Value;

/// Maximum length in bytes of a key on the same line as its colon. Parsers reject a key of more than 1,024.
///
/// Upstream: `yaml_emitter_check_simple_key`.
const MAX_SIMPLE_KEY: usize = 128;

/// Encodes a value as one YAML document that ends with a line break.
pub fn document(value: &Value) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

fn pad(depth: usize, out: &mut String) {
    (0..depth).for_each(|_| out.push_str("  "));
}

fn block(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (index, (key, value)) in fields.iter().enumerate() {
                if index > 0 || !out.ends_with("- ") {
                    pad(depth, out);
                }
                let key = scalar(key);
                if key.len() > MAX_SIMPLE_KEY {
                    out.push_str("? ");
                    out.push_str(&key);
                    out.push('\n');
                    pad(depth, out);
                } else {
                    out.push_str(&key);
                }
                out.push(':');
                nested(value, depth, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                pad(depth, out);
                out.push_str("- ");
                match item {
                    Value::Object(fields) if !fields.is_empty() => block(item, depth + 1, out),
                    Value::Array(inner) if !inner.is_empty() => {
                        out.push('\n');
                        block(item, depth + 1, out);
                    }
                    other => {
                        out.push_str(&leaf(other));
                        out.push('\n');
                    }
                }
            }
        }
        other => {
            out.push_str(&leaf(other));
            out.push('\n');
        }
    }
}

fn nested(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            out.push('\n');
            block(value, depth + 1, out);
        }
        // Go's encoder does not indent a list below its key.
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            block(value, depth, out);
        }
        Value::String(text) if text.contains('\n') && is_literal(text) => {
            literal(text, depth + 1, out);
        }
        other => {
            out.push(' ');
            out.push_str(&leaf(other));
            out.push('\n');
        }
    }
}

/// Returns whether a multi-line text can be a literal block.
fn is_literal(text: &str) -> bool {
    !text.starts_with([' ', '\n', '\t'])
        && text.chars().all(|c| c == '\n' || c == '\t' || !is_escaped(c))
}

/// Returns whether a character must be escaped: a character that YAML forbids, or a line break.
///
/// Upstream: `is_printable`, `is_break`.
fn is_escaped(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

fn literal(text: &str, depth: usize, out: &mut String) {
    let trailing = text.len() - text.trim_end_matches('\n').len();
    out.push_str(match trailing {
        0 => " |-\n",
        1 => " |\n",
        _ => " |+\n",
    });
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        if !line.is_empty() {
            pad(depth, out);
            out.push_str(line);
        }
        out.push('\n');
    }
}

fn leaf(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => scalar(text),
        Value::Array(_) => "[]".to_owned(),
        Value::Object(_) => "{}".to_owned(),
    }
}

/// Encodes a string, without quotes if YAML parses the result as a string.
fn scalar(text: &str) -> String {
    if text.chars().any(is_escaped) {
        return double_quoted(text);
    }
    let plain_start = text
        .chars()
        .next()
        .is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '/' | '.' | '(' | '<'));
    let special =
        text.contains(": ") || text.contains(" #") || text.ends_with(':') || text.ends_with(' ');
    if plain_start && !special && !resolves_to_other_type(text) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}

fn double_quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        // Writing into a string cannot fail.
        let _ = match c {
            '"' | '\\' => write!(out, "\\{c}"),
            '\0' => write!(out, "\\0"),
            '\u{7}' => write!(out, "\\a"),
            '\u{8}' => write!(out, "\\b"),
            '\t' => write!(out, "\\t"),
            '\n' => write!(out, "\\n"),
            '\u{b}' => write!(out, "\\v"),
            '\u{c}' => write!(out, "\\f"),
            '\r' => write!(out, "\\r"),
            '\u{1b}' => write!(out, "\\e"),
            '\u{85}' => write!(out, "\\N"),
            '\u{2028}' => write!(out, "\\L"),
            '\u{2029}' => write!(out, "\\P"),
            c if !is_escaped(c) => write!(out, "{c}"),
            c if u32::from(c) < 0x100 => write!(out, "\\x{:02X}", u32::from(c)),
            c => write!(out, "\\u{:04X}", u32::from(c)),
        };
    }
    out.push('"');
    out
}

/// Returns whether YAML 1.1 resolves a text to another type than a string.
fn resolves_to_other_type(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    matches!(
        lower.as_str(),
        "null"
            | "~"
            | "true"
            | "false"
            | "yes"
            | "no"
            | "on"
            | "off"
            | "y"
            | "n"
            | ".nan"
            | ".inf"
            | "<<"
    ) || text.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && text.chars().all(|c| {
            c.is_ascii_hexdigit()
                || matches!(c, '.' | '_' | ':' | '-' | '+' | 'x' | 'o' | 'T' | 'Z' | ' ')
        })
}

#[cfg(test)]
mod tests {
    use super::document;
    use serde_json::json;

    #[test]
    fn strings_survive_encoding_and_decoding() {
        let long = "k".repeat(2000);
        for text in [
            "\u{7f}",
            "\u{80}x",
            "a\u{85}b",
            "\u{9f}",
            "\u{2028}",
            "a\nb\u{2029}",
            "\u{feff}a",
            "\u{fffe}\u{ffff}",
            "\0\u{7}\u{8}\t\n\u{b}\u{c}\r\u{1b}\"\\",
            "<<",
            "a\n\u{81}",
            "é\u{1f600}",
            "null",
            "0x1",
            "1e3",
            "a: b",
            &long,
        ] {
            let value = json!({text: {text: [text, {text: text}]}, "k": text});
            let written = document(&value);
            let read = crate::decode::file(written.as_bytes());
            assert_eq!(read.as_ref(), Ok(&value), "{written}");
        }
        assert_eq!(document(&json!("a\u{80}\u{2028}\u{feff}")), "\"a\\x80\\L\\uFEFF\"\n");
    }

    #[test]
    fn nested_values_are_in_block_style() {
        let value = json!({"a": {"b": [], "c": [{"d": 1, "e": "yes"}, [1], "x"]}, "t": "one\ntwo\n", "n": null, "s": "1.5"});
        let text = "a:\n  b: []\n  c:\n  - d: 1\n    e: 'yes'\n  - \n    - 1\n  - x\n'n': null\ns: '1.5'\nt: |\n  one\n  two\n";
        assert_eq!(document(&value), text);
    }
}
