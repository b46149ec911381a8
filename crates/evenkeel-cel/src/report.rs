//! Errors about an expression, with the place that each is about.
//!
//! Upstream: `Errors.ToDisplayString` of cel-go's `common`.

/// Location in an expression: line from 1 and column from 0, in characters. Upstream: `common.Location`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    line: i64,
    column: i64,
}

impl Location {
    /// The place of an error that is about none.
    pub(crate) const NONE: Self = Self { line: -1, column: -1 };

    /// Returns the place at a line and a column, both from 1.
    pub(crate) fn at(line: isize, column: isize) -> Self {
        Self { line: line as i64, column: column as i64 - 1 }
    }

    /// Returns the byte at the place.
    pub(crate) fn offset(self, source: &str) -> Option<usize> {
        let before = usize::try_from(self.line - 1).ok()?;
        let start: usize = source.split('\n').take(before).map(|line| line.len() + 1).sum();
        let line = source.get(start..)?;
        let column = usize::try_from(self.column).ok()?;
        let offset = line.char_indices().nth(column).map_or(line.len(), |(at, _)| at);
        Some(start + offset)
    }

    /// Returns the place of a byte.
    pub(crate) fn of_offset(source: &str, offset: usize) -> Self {
        let before = source.get(..offset).unwrap_or(source);
        let line = before.matches('\n').count() as i64 + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() as i64;
        Self { line, column }
    }
}

/// Maximum number of errors that are shown. Upstream: `maxErrorsToReport`.
const MAX_SHOWN: usize = 100;

/// Maximum length in bytes of a line that is shown. Upstream: `maxSnippetLength`.
const MAX_LINE: usize = 16_384;

/// Errors that were found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    errors: Vec<(Location, String)>,
    count: usize,
}

impl Found {
    /// Adds an error. Its place is only determined if the error is shown, because that reads the source.
    pub(crate) fn add(&mut self, place: impl FnOnce() -> Location, what: String) {
        self.count += 1;
        if self.errors.len() < MAX_SHOWN {
            self.errors.push((place(), what));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns all errors in the order of their places; `Ok` if there are none.
    pub(crate) fn into_result(mut self, source: &str) -> Result<(), String> {
        if self.is_empty() {
            return Ok(());
        }
        self.errors.sort_by_key(|(place, _)| *place);
        let shown = self.errors.iter().map(|(place, what)| shown(source, *place, what));
        let mut shown: Vec<String> = shown.collect();
        if self.count > MAX_SHOWN {
            shown.push(format!("{} more errors were truncated", self.count - MAX_SHOWN));
        }
        Err(format!("compilation failed: {}", shown.join("\n")))
    }
}

/// Returns an error with the line that it is about, and a pointer to its place.
fn shown(source: &str, place: Location, what: &str) -> String {
    let Location { line, column } = place;
    let head = format!("ERROR: <input>:{line}:{}: {what}", column + 1);
    let index = usize::try_from(line - 1).ok();
    match index.and_then(|index| source.split('\n').nth(index)) {
        Some(line) if line.len() <= MAX_LINE => {
            format!("{head}\n{}", snippet(line, usize::try_from(column).unwrap_or_default()))
        }
        _ => head,
    }
}

/// A line, and a pointer to a column of it.
fn snippet(line: &str, column: usize) -> String {
    let line = line.replace('\t', " ");
    let mut letters = line.chars();
    let before: String = letters
        .by_ref()
        .take(column)
        .map(|letter| if letter.len_utf8() > 1 { '．' } else { '.' })
        .collect();
    let pointer =
        if letters.next().is_some_and(|letter| letter.len_utf8() > 1) { '＾' } else { '^' };
    format!(" | {line}\n | {before}{pointer}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_show_their_places_in_order() {
        let source = "ünï\n a.ab + a.b";
        let mut found = Found::default();
        found.add(|| Location::of_offset(source, 15), "undefined field 'b'".to_owned());
        found.add(|| Location::at(1, 1), "at 'ü'".to_owned());
        found.add(|| Location::at(1, 3), "at 'ï'".to_owned());
        found.add(|| Location::NONE, "too long".to_owned());
        let want = "compilation failed: ERROR: <input>:-1:0: too long\n\
            ERROR: <input>:1:1: at 'ü'\n | ünï\n | ＾\n\
            ERROR: <input>:1:3: at 'ï'\n | ünï\n | ．.＾\n\
            ERROR: <input>:2:10: undefined field 'b'\n |  a.ab + a.b\n | .........^";
        assert_eq!(found.into_result(source), Err(want.to_owned()));
        assert_eq!(Found::default().into_result(source), Ok(()));
        let mut many = Found::default();
        (0..103).for_each(|_| many.add(|| Location::NONE, "x".to_owned()));
        let found = many.into_result("").expect_err("errors");
        assert!(found.ends_with("\n3 more errors were truncated"), "{found}");
    }
}
