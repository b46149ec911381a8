//! Quoted strings in Go's format.

/// Quotes a string as Go's `%q` does.
pub fn quote(text: &str) -> String {
    use std::fmt::Write as _;
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            c if is_print(c) => quoted.push(c),
            c => {
                // Writing to a string cannot fail.
                let _ = match c as u32 {
                    code @ (..0x20 | 0x7f) => write!(quoted, "\\x{code:02x}"),
                    code @ ..0x1_0000 => write!(quoted, "\\u{code:04x}"),
                    code => write!(quoted, "\\U{code:08x}"),
                };
            }
        }
    }
    quoted.push('"');
    quoted
}

/// Escapes the characters of a JSON document that Go's encoder escapes in strings: HTML characters and two line
/// separators.
pub fn escape_html(json: String) -> String {
    let is_escaped = |c: char| matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}');
    if !json.contains(is_escaped) {
        return json;
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match c {
            c if is_escaped(c) => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Returns whether a character is printable, as Go's `unicode.IsPrint` does: letters, marks, numbers, punctuation,
/// symbols, and the ASCII space.
pub fn is_print(c: char) -> bool {
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    // Rust's debug format escapes exactly the characters that are not printable. At the start of a string, it also
    // escapes combining marks, so the letter `a` precedes the character here.
    let mut text = [b'a'; 5];
    let end = 1 + c.encode_utf8(&mut text[1..]).len();
    str::from_utf8(&text[..end]).is_ok_and(|text| text.escape_debug().nth(1) == Some(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_as_go_does() {
        for (text, quoted) in [
            ("a\"b\\c\n\u{1}é", "\"a\\\"b\\\\c\\n\\x01é\""),
            ("\u{7f}\u{80}\u{a0}\u{200b}", "\"\\x7f\\u0080\\u00a0\\u200b\""),
            ("e\u{301}\u{1f600}\u{e0001}", "\"e\u{301}\u{1f600}\\U000e0001\""),
        ] {
            assert_eq!(quote(text), quoted);
        }
    }

    #[test]
    fn letters_marks_and_the_space_are_printable() {
        for c in ['a', ' ', '~', '\'', '"', '\\', 'é', '\u{301}', '世', '€', '\u{1f600}'] {
            assert!(is_print(c), "{c:?}");
        }
        for c in
            ['\0', '\t', '\u{7f}', '\u{85}', '\u{a0}', '\u{ad}', '\u{2028}', '\u{3000}', '\u{feff}']
        {
            assert!(!is_print(c), "{c:?}");
        }
    }
}
