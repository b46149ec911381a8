//! Parsing of expressions: the syntax errors of the parser as cel-go words them, and the places of an expression's parts.

use cel::common::ast::{Expr, LiteralValue, SourceInfo};
use cel::parser::{Expression, ParseError, ParseErrors};

use crate::report::{Found, Location};
use crate::{Extensions, bounds, brackets, expand, macros};

/// Stack size of the parser's thread in bytes. Only the used part takes memory.
const PARSER_STACK: usize = 64 * 1024 * 1024;

/// Places of an expression's parts: the offset in bytes of each by its number.
#[derive(Debug, Default)]
pub(crate) struct Offsets(Vec<u32>);

/// Offset of a part that has no place.
const NOWHERE: u32 = u32::MAX;

impl Offsets {
    pub(crate) fn get(&self, id: u64) -> Option<usize> {
        let offset = *self.0.get(usize::try_from(id).ok()?)?;
        (offset != NOWHERE).then_some(offset as usize)
    }

    /// Returns the number of a new part, whose place is that of another one.
    pub(crate) fn next(&mut self, at: u64) -> u64 {
        let at = usize::try_from(at).ok().and_then(|at| self.0.get(at)).copied();
        self.0.push(at.unwrap_or(NOWHERE));
        self.0.len() as u64 - 1
    }

    /// Returns the number of parts, and of those that macros replaced.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    fn of(info: &SourceInfo) -> Self {
        let mut offsets = vec![NOWHERE];
        while let Some((start, _)) = info.offset_for(offsets.len() as u64) {
            offsets.push(start);
        }
        Self(offsets)
    }
}

/// Parses an expression, and expands its macros.
pub(crate) fn parse(source: &str, extensions: Extensions) -> Result<(Expression, Offsets), String> {
    let mut found = Found::default();
    if let Err(error) = bounds::check(source) {
        return Err(format!("compilation failed: ERROR: <input>:-1:0: {error}"));
    }
    // The parser looks ahead by recursion. In debug builds, a few brackets fill a worker's stack.
    let parsed = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(PARSER_STACK);
        let parsing = thread.spawn_scoped(scope, || read(source))?;
        parsing.join().map_err(|_| std::io::Error::other("the parser failed"))
    });
    match parsed {
        Ok(Ok((expression, mut offsets))) => {
            place_signs(&expression, source, &mut offsets);
            let expression =
                expand::macros(expression, source, extensions, &mut offsets, &mut found);
            found.into_result(source).map(|()| (expression, offsets))
        }
        Ok(Err(wrong)) => {
            wrong.into_iter().for_each(|(place, what)| found.add(|| place, what));
            found.into_result(source)?;
            Err("compilation failed: the expression has no syntax tree".to_owned())
        }
        Err(error) => Err(format!("compilation failed: {error}")),
    }
}

fn read(source: &str) -> Result<(Expression, Offsets), Vec<(Location, String)>> {
    let parser =
        macros::parser().max_recursion_depth(bounds::MAX_NESTED).enable_optional_syntax(true);
    parser
        .parse_with_source_info(source)
        .map(|(expression, info)| (expression, Offsets::of(&info)))
        .map_err(|errors| worded(source, &errors))
}

/// Beginnings of errors that the parser adds to a syntax error, about the parts that it lacks.
const INCOMPLETE: [&str; 5] = ["No `", "Incomplete ", "Unknown `", "UNKNOWN", "unsupported ident"];

fn worded(source: &str, errors: &ParseErrors) -> Vec<(Location, String)> {
    let all = || errors.errors.iter();
    let is_incomplete = |what: &str| INCOMPLETE.iter().any(|start| what.starts_with(start));
    let alone = all().all(|error| is_incomplete(&error.msg));
    let mut skipped: Vec<usize> = Vec::new();
    let mut is_lost = false;
    let mut found: Vec<(Location, String)> = Vec::new();
    for error in all().filter(|error| alone || !is_incomplete(&error.msg)) {
        let place = signed(source, place(source, error, &errors.errors), &error.msg);
        let left_out = (!is_lost).then_some(skipped.as_slice());
        let what = words(&error.msg, source, place, left_out);
        is_lost |= what.contains("no viable alternative");
        found.push((place, what));
        if error.msg.contains("extraneous input") {
            skipped.extend(place.offset(source));
        }
    }
    found
}

/// Beginnings of the errors of macros, whose columns count bytes.
const OF_MACROS: [&str; 5] = [
    "argument must be",
    "argument is not",
    "invalid argument to has()",
    "duplicate variable name",
    "iteration variable overwrites",
];

fn place(source: &str, error: &ParseError, others: &[ParseError]) -> Location {
    // A part that was not read has no place; it is that of the error about it.
    let known = others.iter().map(|other| other.pos).find(|pos| *pos != (0, 0));
    let (line, column) = if error.pos == (0, 0) { known.unwrap_or(error.pos) } else { error.pos };
    if !OF_MACROS.iter().any(|start| error.msg.starts_with(start)) {
        return Location::at(line, column);
    }
    let line_of = |line: isize| source.split('\n').nth(usize::try_from(line - 1).ok()?);
    let before = usize::try_from(column - 1).ok().and_then(|end| line_of(line)?.get(..end));
    Location::at(line, before.map_or(column, |before| before.chars().count() as isize + 1))
}

/// Returns the place of a number that cannot be read: that of its sign, if it has one.
fn signed(source: &str, place: Location, what: &str) -> Location {
    if !matches!(what, "invalid int literal" | "invalid double literal") {
        return place;
    }
    let before = place.offset(source).and_then(|offset| source.get(..offset));
    let Some(before) = before.and_then(|before| before.trim_end().strip_suffix('-')) else {
        return place;
    };
    let is_sign =
        before.trim_end().chars().next_back().is_none_or(|c| "([{,:?+-*/%<>=!&|".contains(c));
    if is_sign { Location::of_offset(source, before.len()) } else { place }
}

/// Returns the words that cel-go has for an error at a place. Tokens at the offsets of `skipped` are left out; without them, the
/// parser is no longer within a bracket.
fn words(what: &str, source: &str, place: Location, skipped: Option<&[usize]>) -> String {
    if let Some((before, tokens)) = what.split_once(" expecting {")
        && what.contains("mismatched input")
        && tokens.contains("'=='")
    {
        let end = place.offset(source).unwrap_or(source.len());
        let expected = skipped.map_or("<EOF>", |skipped| brackets::expected(source, end, skipped));
        return format!("{before} expecting {expected}");
    }
    for word in ["true", "false", "null"] {
        let viable = format!("no viable alternative at input '.{word}'");
        if what.contains(&viable) {
            return what
                .replace(&viable, &format!("mismatched input '{word}' expecting IDENTIFIER"));
        }
    }
    let literal = what
        .strip_prefix("invalid string literal: ")
        .or_else(|| what.strip_prefix("invalid bytes literal: "));
    let Some(literal) = literal else { return what.to_owned() };
    let is_octal = (b'0'..=b'3')
        .any(|digit| literal.contains(&format!("escape: \"\\\\{}", char::from(digit))));
    if is_octal {
        "unable to unescape octal sequence in string".to_owned()
    } else if literal.contains("Unicode { value: ") && !literal.contains("value: 0 ") {
        "invalid unicode code point".to_owned()
    } else {
        "unable to unescape string".to_owned()
    }
}

/// Moves the place of each negative literal to its sign, where cel-go has it.
fn place_signs(e: &Expression, source: &str, offsets: &mut Offsets) {
    let is_negative = match &e.expr {
        Expr::Literal(LiteralValue::Int(number)) => *number.inner() < 0,
        Expr::Literal(LiteralValue::Double(number)) => number.inner().is_sign_negative(),
        _ => false,
    };
    if is_negative
        && let Some(before) = offsets.get(e.id).and_then(|offset| source.get(..offset))
        && let Some(sign) = before.trim_end().strip_suffix('-')
        && let Some(offset) = usize::try_from(e.id).ok().and_then(|id| offsets.0.get_mut(id))
    {
        *offset = sign.len() as u32;
    }
    crate::names::each_part(e, &mut |part| place_signs(part, source, offsets));
}
