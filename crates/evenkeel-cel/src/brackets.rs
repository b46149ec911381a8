//! What an expression needs where it cannot go on: the end of the innermost bracket.

use crate::bounds::{after_line, after_string};

/// What is open, and ends with a token.
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

/// Returns the token that ends what is open at an offset, in the words of the parser. Brackets at the offsets of `skipped`
/// are left out.
pub(crate) fn expected(source: &str, end: usize, skipped: &[usize]) -> &'static str {
    let mut open: Vec<Open> = Vec::new();
    let text = source.get(..end).unwrap_or(source);
    let last_bytes = |left: &[u8]| text.get(text.len() - left.len()..).unwrap_or_default();
    let (mut rest, mut last) = (text, ' ');
    while let Some(letter) = rest.chars().next() {
        let at = text.len() - rest.len();
        if rest.starts_with("//") {
            rest = last_bytes(after_line(rest.as_bytes()));
            continue;
        }
        let is_raw = last == 'r' || last == 'R';
        rest = match letter {
            '\'' | '"' => last_bytes(after_string(rest.as_bytes(), is_raw)),
            letter => &rest[letter.len_utf8()..],
        };
        if letter.is_whitespace() {
            continue;
        }
        match letter {
            _ if skipped.contains(&at) => {}
            '(' => open.push(Open::Parenthesis),
            '[' => open.push(Open::Bracket),
            '{' => open.push(Open::Key),
            '?' if !"([{,.".contains(last) => open.push(Open::Conditional),
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
        last = letter;
    }
    match open.last() {
        None => "<EOF>",
        Some(Open::Parenthesis) => "')'",
        Some(Open::Bracket) => "']'",
        Some(Open::Key | Open::Conditional) => "':'",
        Some(Open::Value) => "'}'",
    }
}

/// Ends the innermost bracket of a kind, and what is open within it.
fn close(open: &mut Vec<Open>, kinds: &[Open]) {
    if let Some(at) = open.iter().rposition(|one| kinds.contains(one)) {
        open.truncate(at);
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
