//! Errors about an expression, with the place that they are about.
//!
//! Upstream: `Error.ToDisplayString` of cel-go's `common`.

/// Errors with the line and a pointer to the place under each that names one: `ERROR: <input>:1:5: …`.
///
/// The parser has already added these, without the space that cel-go has, and with one pointer for all characters.
pub(crate) fn with_places(source: &str, errors: &str) -> String {
    let mut shown: Vec<String> = Vec::new();
    for line in errors.lines().filter(|line| !line.starts_with("| ")) {
        shown.push(expecting(line));
        if let Some((row, column)) = place_of(line) {
            shown.push(snippet(source, row, column));
        }
    }
    shown.join("\n")
}

/// What is left after a whole expression is an error about the end of the input, as cel-go's parser has it.
fn expecting(line: &str) -> String {
    match line.split_once(" expecting {<EOF>, ") {
        Some((before, _)) => format!("{before} expecting <EOF>"),
        None => line.to_owned(),
    }
}

/// The row and the column, both from 1, that an error names.
fn place_of(line: &str) -> Option<(usize, usize)> {
    let mut parts = line.strip_prefix("ERROR: <input>:")?.split(':');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// A line of the source, and a pointer to a column of it.
fn snippet(source: &str, row: usize, column: usize) -> String {
    let line = source.split('\n').nth(row.saturating_sub(1)).unwrap_or_default();
    let mut letters = line.chars();
    let before: String = letters
        .by_ref()
        .take(column.saturating_sub(1))
        .map(|letter| if letter.len_utf8() > 1 { '．' } else { '.' })
        .collect();
    let pointer =
        if letters.next().is_some_and(|letter| letter.len_utf8() > 1) { '＾' } else { '^' };
    format!(" | {line}\n | {before}{pointer}")
}

/// Adds to an error of the checker the place of the name that it is about.
pub(crate) fn with_place_of_name(source: &str, error: String) -> String {
    let Some(what) = error.strip_prefix("compilation failed: ERROR: ") else { return error };
    let name = |prefix: &str| what.strip_prefix(prefix)?.split_once('\'').map(|(name, _)| name);
    let offset = match (name("undeclared reference to '"), name("undefined field '")) {
        (Some(name), _) => find(source, name, false),
        (_, Some(name)) => find(source, name, true),
        _ => None,
    };
    let Some(offset) = offset else { return error };
    let before = source.get(..offset).unwrap_or_default();
    let row = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let located = format!("ERROR: <input>:{row}:{column}: {what}");
    format!("compilation failed: {}", with_places(source, &located))
}

/// Where a name is first used, outside of strings: as a field, at its dot, or by itself.
fn find(source: &str, name: &str, is_field: bool) -> Option<usize> {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let (mut quote, mut dot, mut is_escaped) = (None, None, false);
    let mut rest = source.char_indices().peekable();
    while let Some((at, letter)) = rest.next() {
        if let Some(open) = quote {
            if !is_escaped && letter == open {
                quote = None;
            }
            is_escaped = !is_escaped && letter == '\\';
            continue;
        }
        match letter {
            '\'' | '"' => {
                quote = Some(letter);
                dot = None;
            }
            '.' => dot = Some(at),
            letter if letter.is_whitespace() || letter == '?' => {}
            letter if is_part(letter) => {
                let mut end = at + letter.len_utf8();
                while let Some((_, letter)) = rest.next_if(|(_, letter)| is_part(*letter)) {
                    end += letter.len_utf8();
                }
                if source.get(at..end) == Some(name) && dot.is_some() == is_field {
                    return Some(dot.unwrap_or(at));
                }
                dot = None;
            }
            _ => dot = None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_show_their_place() {
        let checked = |source: &str, what: &str| {
            with_place_of_name(source, format!("compilation failed: ERROR: {what}"))
        };
        for (source, what, want) in [
            (
                " a",
                "undeclared reference to 'a' (in container '')",
                ":1:2: undeclared reference to 'a' (in container '')\n |  a\n | .^",
            ),
            (
                "'a.b' == x.a &&\n a.ab + a.b",
                "undefined field 'b'",
                ":2:10: undefined field 'b'\n |  a.ab + a.b\n | .........^",
            ),
            (
                "'x' + x",
                "undeclared reference to 'x'",
                ":1:7: undeclared reference to 'x'\n | 'x' + x\n | ......^",
            ),
        ] {
            assert_eq!(checked(source, what), format!("compilation failed: ERROR: <input>{want}"));
        }
        assert_eq!(checked("1 + 'a'", "other"), "compilation failed: ERROR: other");
        let parsed =
            "ERROR: <input>:1:1: at 'ü'\n| ünï\n| ^\nERROR: <input>:1:3: at 'ï'\n| ünï\n| ..^";
        let want = "ERROR: <input>:1:1: at 'ü'\n | ünï\n | ＾\nERROR: <input>:1:3: at 'ï'\n | ünï\n | ．.＾";
        assert_eq!(with_places("ünï", parsed), want);
        let parsed = "ERROR: <input>:1:2: input 'm' expecting {<EOF>, '=='}\n| 1m\n| .^";
        let want = "ERROR: <input>:1:2: input 'm' expecting <EOF>\n | 1m\n | .^";
        assert_eq!(with_places("1m", parsed), want);
    }
}
