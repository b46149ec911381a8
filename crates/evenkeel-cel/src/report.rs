//! Errors in an expression, each with its location.
//!
//! Upstream: `Errors.ToDisplayString` of cel-go's `common`.

/// Location in an expression: line from 1 and column from 0, in characters. Upstream: `common.Location`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    line: i64,
    column: i64,
}

impl Location {
    /// Location of an error about the whole expression.
    pub(crate) const NONE: Self = Self { line: -1, column: -1 };

    /// Returns the location at a line and a column, both counted from 1.
    pub(crate) fn at(line: isize, column: isize) -> Self {
        Self { line: line as i64, column: column as i64 - 1 }
    }

    /// Returns the offset of the location in bytes; `None` if the source has no such line.
    pub(crate) fn offset(self, source: &str) -> Option<usize> {
        let lines_before = usize::try_from(self.line - 1).ok()?;
        let start: usize = source.split('\n').take(lines_before).map(|line| line.len() + 1).sum();
        let line = source.get(start..)?;
        let column = usize::try_from(self.column).ok()?;
        let offset = line.char_indices().nth(column).map_or(line.len(), |(at, _)| at);
        Some(start + offset)
    }

    /// Returns the location of the byte at an offset.
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

/// Errors found in an expression.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    /// The first [`MAX_SHOWN`] errors, each with its location.
    shown: Vec<(Location, String)>,
    /// Number of all errors.
    count: usize,
}

impl Errors {
    /// Adds an error. `location` is called only for an error that is shown, because it scans the source.
    pub(crate) fn add(&mut self, location: impl FnOnce() -> Location, message: String) {
        self.count += 1;
        if self.shown.len() < MAX_SHOWN {
            self.shown.push((location(), message));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the messages of all errors, ordered by location; `Ok` without errors.
    pub(crate) fn into_result(mut self, source: &str) -> Result<(), String> {
        if self.is_empty() {
            return Ok(());
        }
        self.shown.sort_by_key(|(location, _)| *location);
        let mut texts: Vec<String> =
            self.shown.iter().map(|(location, message)| text(source, *location, message)).collect();
        if self.count > MAX_SHOWN {
            texts.push(format!("{} more errors were truncated", self.count - MAX_SHOWN));
        }
        Err(format!("compilation failed: {}", texts.join("\n")))
    }
}

/// Formats an error: its message, the source line, and a pointer to the column.
fn text(source: &str, location: Location, message: &str) -> String {
    let Location { line, column } = location;
    let head = format!("ERROR: <input>:{line}:{}: {message}", column + 1);
    let index = usize::try_from(line - 1).ok();
    match index.and_then(|index| source.split('\n').nth(index)) {
        Some(line) if line.len() <= MAX_LINE => {
            format!("{head}\n{}", snippet(line, usize::try_from(column).unwrap_or_default()))
        }
        _ => head,
    }
}

/// Returns a line of the source and, below it, a pointer to a column. Characters of more than one byte have a wide
/// dot or pointer below them, as upstream has it.
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
        let mut errors = Errors::default();
        errors.add(|| Location::of_offset(source, 15), "undefined field 'b'".to_owned());
        errors.add(|| Location::at(1, 1), "at 'ü'".to_owned());
        errors.add(|| Location::at(1, 3), "at 'ï'".to_owned());
        errors.add(|| Location::NONE, "too long".to_owned());
        let want = "compilation failed: ERROR: <input>:-1:0: too long\n\
            ERROR: <input>:1:1: at 'ü'\n | ünï\n | ＾\n\
            ERROR: <input>:1:3: at 'ï'\n | ünï\n | ．.＾\n\
            ERROR: <input>:2:10: undefined field 'b'\n |  a.ab + a.b\n | .........^";
        assert_eq!(errors.into_result(source), Err(want.to_owned()));
        assert_eq!(Errors::default().into_result(source), Ok(()));
        let mut many = Errors::default();
        (0..103).for_each(|_| many.add(|| Location::NONE, "x".to_owned()));
        let error = many.into_result("").expect_err("errors");
        assert!(error.ends_with("\n3 more errors were truncated"), "{error}");
    }
}
