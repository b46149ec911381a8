//! Encoding of JSON values as YAML, in block style with sorted keys.

use std::fmt::Write as _;

use serde_json::Value;

/// Maximum length in bytes of a key on the same line as its colon. Parsers reject a key of more than 1,024.
///
/// Upstream: `yaml_emitter_check_simple_key`.
const MAX_SIMPLE_KEY: usize = 128;

/// Column after which a text is continued in the next line.
///
/// Upstream: `best_width`.
const BEST_WIDTH: usize = 80;

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
                    other => line(other, depth, out),
                }
            }
        }
        other => line(other, depth, out),
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
            line(other, depth, out);
        }
    }
}

/// Writes a value without block style, and ends its line. `depth` is the depth of the collection that contains it.
fn line(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::String(text) => {
            let start = out.rfind('\n').map_or(0, |at| at.saturating_add(1));
            let column = out.get(start..).map_or(0, |line| line.chars().count());
            let indent = depth.saturating_add(1).saturating_mul(2);
            out.push_str(&wrapped(text, column, indent));
        }
        other => out.push_str(&leaf(other)),
    }
    out.push('\n');
}

/// Encodes a string like [`scalar`], and breaks it at spaces after the column [`BEST_WIDTH`]. `column` is the column of
/// its first character, and `indent` the indentation of further lines.
///
/// Upstream: `yaml_emitter_process_scalar` with the `best_width` of `newEncoder` (`go.yaml.in/yaml/v2`).
fn wrapped(text: &str, column: usize, indent: usize) -> String {
    let encoded = scalar(text);
    if column.saturating_add(encoded.chars().count()) <= BEST_WIDTH {
        return encoded;
    }
    // No text without quotes begins with one.
    let is_double = encoded.starts_with('"');
    let is_quoted = is_double || encoded.starts_with('\'');
    let characters: Vec<char> = encoded.chars().collect();
    let last = characters.len().saturating_sub(if is_quoted { 2 } else { 1 });
    let first = usize::from(is_quoted);
    let mut out = String::with_capacity(encoded.len());
    let (mut column, mut follows_space) = (column, false);
    for (index, character) in characters.iter().enumerate() {
        let next_is_space = characters.get(index.saturating_add(1)) == Some(&' ');
        let may_break = *character == ' '
            && !follows_space
            && column > BEST_WIDTH
            && (is_double || !next_is_space)
            && index > first
            && index < last;
        follows_space = *character == ' ';
        if may_break {
            out.push('\n');
            (0..indent).for_each(|_| out.push(' '));
            column = indent;
            if next_is_space {
                out.push('\\');
                column = column.saturating_add(1);
            }
        } else {
            out.push(*character);
            column = column.saturating_add(1);
        }
    }
    out
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

/// Encodes a string. The result has no quotes if YAML parses it as a string, double quotes if YAML would parse it as
/// another type, and single quotes if its characters have a meaning in YAML.
///
/// Upstream: `encoder.stringv`.
fn scalar(text: &str) -> String {
    if text.chars().any(is_escaped) || resolves_to_other_type(text) {
        double_quoted(text)
    } else if has_indicators(text) {
        format!("'{}'", text.replace('\'', "''"))
    } else {
        text.to_owned()
    }
}

/// Returns whether characters of a string have a meaning in YAML, or would be lost.
///
/// Upstream: `yaml_emitter_analyze_scalar`.
fn has_indicators(text: &str) -> bool {
    let mut chars = text.chars();
    let first = chars.next().unwrap_or(' ');
    let is_alone = chars.next().is_none_or(|second| second == ' ');
    let starts = match first {
        '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%'
        | '@' | '`' => true,
        '?' | ':' | '-' => is_alone,
        _ => false,
    };
    starts
        || text.starts_with([' '])
        || text.ends_with([' ', ':'])
        || text.starts_with("---")
        || text.starts_with("...")
        || text.contains(": ")
        || text.contains(" #")
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

/// Returns whether YAML 1.1 resolves a plain scalar to another type than a string.
///
/// Upstream: `resolve`, `isBase60Float`.
fn resolves_to_other_type(text: &str) -> bool {
    const WORDS: [&str; 10] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n", ".inf"];
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_word = |word: &&str| {
        // All small, all capital, or with a capital first letter.
        let (head, tail) = word.split_at(usize::from(word.starts_with('.')) + 1);
        let title = format!("{}{tail}", head.to_ascii_uppercase());
        let text = if *word == ".inf" { unsigned } else { text };
        text == *word || text == word.to_ascii_uppercase() || text == title
    };
    matches!(text, "" | "~" | "<<" | ".nan" | ".NaN" | ".NAN")
        || WORDS.iter().any(is_word)
        || is_number(&unsigned.replace('_', ""))
        || is_sexagesimal(unsigned)
        || is_time(text)
}

/// Returns whether `text` is an integer or a decimal number without a sign.
fn is_number(text: &str) -> bool {
    let of_base = |prefix: &str, base: u32| {
        let digits = text.strip_prefix(prefix);
        digits.is_some_and(|digits| !digits.is_empty() && digits.chars().all(|c| c.is_digit(base)))
    };
    if of_base("0x", 16) || of_base("0X", 16) || of_base("0b", 2) || of_base("0o", 8) {
        return true;
    }
    let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    (!whole.is_empty() || !fraction.is_empty())
        && !exponent.is_empty()
        && [whole, fraction, exponent].iter().all(|part| part.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns whether `text` is a number in base 60, such as `1:30`.
fn is_sexagesimal(text: &str) -> bool {
    let (number, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = number.split(':');
    let is_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let first = parts.next().unwrap_or_default();
    let mut n_more = 0_u32;
    let are_sixtieths = parts.all(|part| {
        n_more = n_more.saturating_add(1);
        (1..=2).contains(&part.len()) && part.parse::<u8>().is_ok_and(|number| number < 60)
    });
    first.starts_with(|c: char| c.is_ascii_digit())
        && is_digits(first)
        && is_digits(fraction)
        && are_sixtieths
        && n_more > 0
}

/// Returns whether `text` is a date, with or without a time.
///
/// Upstream: `parseTimestamp`.
fn is_time(text: &str) -> bool {
    let is_digits = |part: &str, longest: usize| {
        (1..=longest).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit())
    };
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let date: Vec<&str> = date.split('-').collect();
    let is_date = match date.as_slice() {
        [year, month, day] => {
            year.len() == 4 && is_digits(year, 4) && is_digits(month, 2) && is_digits(day, 2)
        }
        _ => false,
    };
    let is_clock = |time: &str| {
        let time = time
            .strip_suffix('Z')
            .unwrap_or_else(|| time.rsplit_once(['+', '-']).map_or(time, |(time, _)| time));
        let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
        clock.split(':').count() == 3
            && clock.split(':').all(|part| is_digits(part, 2))
            && is_digits(fraction, 9)
    };
    is_date && time.is_none_or(is_clock)
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
    fn long_strings_continue_in_further_lines() {
        let message = "invalid continue token: continue key is not valid: illegal base64 data at input byte 0";
        assert_eq!(
            document(&json!({"message": message})),
            "message: 'invalid continue token: continue key is not valid: illegal base64 data at\n  input byte 0'\n"
        );
        let words = "word ".repeat(40);
        for text in [words.trim().to_owned(), words.clone(), format!("{words}  {words}\u{7}x")] {
            let value = json!({"a": [{"b": text}, text]});
            let written = document(&value);
            assert!(written.lines().all(|line| line.chars().count() < 100), "{written}");
            assert_eq!(crate::decode::file(written.as_bytes()).as_ref(), Ok(&value), "{written}");
        }
    }

    #[test]
    fn strings_have_the_quotes_of_go() {
        for (text, written) in [
            ("2026-01-01T00:00:00Z", "\"2026-01-01T00:00:00Z\""),
            ("2026-01-01", "\"2026-01-01\""),
            ("", "\"\""),
            ("8", "\"8\""),
            ("1e3", "\"1e3\""),
            ("-1.5", "\"-1.5\""),
            ("0x1F", "\"0x1F\""),
            ("1:30", "\"1:30\""),
            ("True", "\"True\""),
            ("tRue", "tRue"),
            ("1.27.3", "1.27.3"),
            ("10.96.0.1", "10.96.0.1"),
            ("10.96.0.0/16", "10.96.0.0/16"),
            ("100m", "100m"),
            ("fd00::1", "fd00::1"),
            ("-", "'-'"),
            ("-a", "-a"),
            ("*", "'*'"),
            ("a: b", "'a: b'"),
            ("a #b", "'a #b'"),
            ("a#b", "a#b"),
            ("it's", "it's"),
            ("{}", "'{}'"),
            (" a", "' a'"),
            ("$(a)", "$(a)"),
        ] {
            assert_eq!(document(&json!(text)), format!("{written}\n"));
        }
    }

    #[test]
    fn nested_values_are_in_block_style() {
        let value = json!({"a": {"b": [], "c": [{"d": 1, "e": "yes"}, [1], "x"]}, "t": "one\ntwo\n", "n": null, "s": "1.5"});
        let text = "a:\n  b: []\n  c:\n  - d: 1\n    e: \"yes\"\n  - \n    - 1\n  - x\n\"n\": null\ns: \"1.5\"\nt: |\n  one\n  two\n";
        assert_eq!(document(&value), text);
    }
}
