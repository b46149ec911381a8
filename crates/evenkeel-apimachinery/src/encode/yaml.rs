//! Encoding of JSON values as YAML, in block style with sorted keys.

use serde_json::Value;

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
                out.push_str(&scalar(key));
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
        // Lists stand at the depth of their key, as Go's encoder has them.
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

/// Whether a multi-line text can be a literal block.
fn is_literal(text: &str) -> bool {
    !text.starts_with([' ', '\n', '\t'])
        && text.chars().all(|c| c == '\n' || c == '\t' || !c.is_control())
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

/// Encodes a string, unquoted where YAML reads it back as a string.
fn scalar(text: &str) -> String {
    if text.chars().any(char::is_control) {
        return serde_json::to_string(text).unwrap_or_default();
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

/// Whether YAML 1.1 resolves a text to something other than a string.
fn resolves_to_other_type(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    matches!(
        lower.as_str(),
        "null" | "~" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n" | ".nan" | ".inf"
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
    fn blocks() {
        let value = json!({"a": {"b": [], "c": [{"d": 1, "e": "yes"}, [1], "x"]}, "t": "one\ntwo\n", "n": null, "s": "1.5"});
        let text = "a:\n  b: []\n  c:\n  - d: 1\n    e: 'yes'\n  - \n    - 1\n  - x\n'n': null\ns: '1.5'\nt: |\n  one\n  two\n";
        assert_eq!(document(&value), text);
    }
}
