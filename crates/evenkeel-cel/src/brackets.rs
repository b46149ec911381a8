//! Finds the token that a syntax error expects: the end of the innermost open bracket.

use crate::bounds::{after_line, after_string};

/// Open bracket or conditional, with the token that ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Parenthesis,
    Bracket,
    /// A map, before the value of an entry.
    Key,
    /// A map, within the value of an entry.
    Value,
    /// A conditional, before its colon.
    Conditional,
}

/// Returns the token that ends the innermost open bracket or conditional at the offset `end`, as the parser prints it.
/// Brackets at the offsets in `skipped` do not count, because the parser skipped them.
pub(crate) fn expected(source: &str, end: usize, skipped: &[usize]) -> &'static str {
    // From the outermost to the innermost.
    let mut open: Vec<Open> = Vec::new();
    let text = source.get(..end).unwrap_or(source);
    let as_text = |rest: &[u8]| text.get(text.len() - rest.len()..).unwrap_or_default();
    let (mut rest, mut previous) = (text, ' ');
    while let Some(letter) = rest.chars().next() {
        let offset = text.len() - rest.len();
        if rest.starts_with("//") {
            rest = as_text(after_line(rest.as_bytes()));
            continue;
        }
        let is_raw = previous == 'r' || previous == 'R';
        rest = match letter {
            '\'' | '"' => as_text(after_string(rest.as_bytes(), is_raw)),
            letter => &rest[letter.len_utf8()..],
        };
        if letter.is_whitespace() {
            continue;
        }
        match letter {
            _ if skipped.contains(&offset) => {}
            '(' => open.push(Open::Parenthesis),
            '[' => open.push(Open::Bracket),
            '{' => open.push(Open::Key),
            // After one of these, the question mark begins an optional element or field instead.
            '?' if !"([{,.".contains(previous) => open.push(Open::Conditional),
            ':' => match open.last_mut() {
                Some(Open::Conditional) => {
                    open.pop();
                }
                Some(entry @ Open::Key) => *entry = Open::Value,
                _ => {}
            },
            ',' => {
                if let Some(entry @ Open::Value) = open.last_mut() {
                    *entry = Open::Key;
                }
            }
            ')' => close(&mut open, &[Open::Parenthesis]),
            ']' => close(&mut open, &[Open::Bracket]),
            '}' => close(&mut open, &[Open::Key, Open::Value]),
            _ => {}
        }
        previous = letter;
    }
    match open.last() {
        None => "<EOF>",
        Some(Open::Parenthesis) => "')'",
        Some(Open::Bracket) => "']'",
        Some(Open::Key | Open::Conditional) => "':'",
        Some(Open::Value) => "'}'",
    }
}

/// Closes the innermost bracket of one of these kinds, and everything that is open within it.
fn close(open: &mut Vec<Open>, kinds: &[Open]) {
    if let Some(index) = open.iter().rposition(|bracket| kinds.contains(bracket)) {
        open.truncate(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_bracket_has_to_end() {
        for (source, want) in [
            ("a b", "<EOF>"),
            ("f(a b", "')'"),
            ("f(a)(b", "')'"),
            ("a[1 b", "']'"),
            ("{'a' b", "':'"),
            ("{'a': 1 b", "'}'"),
            ("{'a': 1, 2 b", "':'"),
            ("a ? b c", "':'"),
            ("a ? b : c d", "<EOF>"),
            ("a[?1].?b c", "<EOF>"),
            ("'(' + r'\\' b", "<EOF>"),
            ("[(1, 2) b", "']'"),
            ("(// don't\n [1 2", "']'"),
            ("['''it's ( ''' b", "']'"),
        ] {
            assert_eq!(expected(source, source.len() - 1, &[]), want, "{source}");
        }
        assert_eq!(expected("f(a)(b", 5, &[4]), "<EOF>");
    }
}
