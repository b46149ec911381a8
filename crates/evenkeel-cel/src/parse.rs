//! Parsing of expressions, with syntax errors as cel-go words them, and the offset of each node.

use cel::Env;
use cel::common::ast::{Expr, LiteralValue, SourceInfo};
use cel::parser::{Expression, ParseError, ParseErrors, Parser};

use crate::report::{Errors, Location};
use crate::{Extensions, bounds, brackets, expand, macros};

/// Stack size of the parser's thread in bytes. Only the used part takes memory.
const PARSER_STACK: usize = 64 * 1024 * 1024;

/// Offset in bytes of each node in the source; the index is the id of the node.
#[derive(Debug, Default)]
pub(crate) struct Offsets(Vec<u32>);

/// Offset of a node that the source does not contain.
const NO_OFFSET: u32 = u32::MAX;

impl Offsets {
    /// Returns the offset of a node; `None` if the source does not contain it.
    pub(crate) fn get(&self, id: u64) -> Option<usize> {
        let offset = *self.0.get(usize::try_from(id).ok()?)?;
        (offset != NO_OFFSET).then_some(offset as usize)
    }

    /// Returns the id of a new node with the same offset as the node `source_id`.
    pub(crate) fn new_id(&mut self, source_id: u64) -> u64 {
        let offset = usize::try_from(source_id).ok().and_then(|index| self.0.get(index)).copied();
        self.0.push(offset.unwrap_or(NO_OFFSET));
        self.0.len() as u64 - 1
    }

    /// Returns the number of ids. Nodes that the expansion of macros replaced count, too.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Collects the offsets that the parser determined. Ids begin with 1.
    fn of(info: &SourceInfo) -> Self {
        let mut offsets = vec![NO_OFFSET];
        while let Some((start, _)) = info.offset_for(offsets.len() as u64) {
            offsets.push(start);
        }
        Self(offsets)
    }
}

/// Parses an expression, and expands its macros. The error has the messages of all syntax errors.
pub(crate) fn parse(source: &str, extensions: Extensions) -> Result<(Expression, Offsets), String> {
    let mut errors = Errors::default();
    if let Err(error) = bounds::check(source) {
        return Err(format!("compilation failed: ERROR: <input>:-1:0: {error}"));
    }
    let parser = || macros::parser().enable_optional_syntax(true);
    match parse_on_large_stack(source, parser) {
        Ok(Ok((expression, mut offsets))) => {
            move_offsets_to_signs(&expression, source, &mut offsets);
            let expression =
                expand::expand_macros(expression, source, extensions, &mut offsets, &mut errors);
            errors.into_result(source).map(|()| (expression, offsets))
        }
        Ok(Err(syntax_errors)) => {
            for (location, message) in syntax_errors {
                errors.add(|| location, message);
            }
            errors.into_result(source)?;
            Err("compilation failed: the expression has no syntax tree".to_owned())
        }
        Err(error) => Err(format!("compilation failed: {error}")),
    }
}

/// Parses an expression without optional syntax, and without expanding macros. The error is the message of the first
/// syntax error.
pub(crate) fn parse_without_macros(source: &str) -> Result<Expression, String> {
    bounds::check(source)?;
    let parser = || Env::default().parser().enable_optional_syntax(false);
    match parse_on_large_stack(source, parser) {
        Ok(Ok((expression, _))) => Ok(expression),
        Ok(Err(syntax_errors)) => {
            // cel-go checks the tree after it has parsed the whole expression. Errors of the tree have no such prefix.
            let is_early = |(_, message): &&(Location, String)| message.starts_with("Syntax error");
            let first = syntax_errors.iter().find(is_early).or(syntax_errors.first());
            Err(first.map_or_else(|| "no syntax tree".to_owned(), |(_, message)| message.clone()))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Parsed expression with the offsets of its nodes, or its syntax errors.
type Parsed = Result<(Expression, Offsets), Vec<(Location, String)>>;

/// Parses an expression on a thread of its own. The parser looks ahead by recursion: in debug builds, a few brackets fill
/// a worker's stack.
fn parse_on_large_stack(source: &str, parser: fn() -> Parser) -> std::io::Result<Parsed> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(PARSER_STACK);
        let parsing = thread.spawn_scoped(scope, || parse_syntax(source, parser()))?;
        parsing.join().map_err(|_| std::io::Error::other("the parser failed"))
    })
}

/// Parses an expression. The parser expands its own macros, but not those of [`expand`].
fn parse_syntax(source: &str, parser: Parser) -> Parsed {
    parser
        .max_recursion_depth(bounds::MAX_NESTED)
        .parse_with_source_info(source)
        .map(|(expression, info)| (expression, Offsets::of(&info)))
        .map_err(|errors| in_words_of_cel_go(source, &errors))
}

/// Prefixes of errors about missing nodes, which the parser adds to a syntax error.
const INCOMPLETE: [&str; 5] = ["No `", "Incomplete ", "Unknown `", "UNKNOWN", "unsupported ident"];

/// Returns the parser's errors with the locations and messages that cel-go has. Errors about missing nodes are only
/// kept without other errors, because cel-go does not report them.
fn in_words_of_cel_go(source: &str, errors: &ParseErrors) -> Vec<(Location, String)> {
    let is_incomplete =
        |error: &ParseError| INCOMPLETE.iter().any(|prefix| error.msg.starts_with(prefix));
    let keeps_incomplete = errors.errors.iter().all(is_incomplete);
    // Offsets of the tokens that the parser skipped.
    let mut skipped: Vec<usize> = Vec::new();
    // Whether the parser has left all brackets that were open.
    let mut is_outside_brackets = false;
    let mut worded: Vec<(Location, String)> = Vec::new();
    for error in &errors.errors {
        if is_incomplete(error) && !keeps_incomplete {
            continue;
        }
        let location = location_of(source, error, &errors.errors);
        let location = with_sign(source, location, &error.msg);
        let within_brackets = (!is_outside_brackets).then_some(skipped.as_slice());
        let message = reworded(&error.msg, source, location, within_brackets);
        is_outside_brackets |= message.contains("no viable alternative");
        worded.push((location, message));
        if error.msg.contains("extraneous input") {
            skipped.extend(location.offset(source));
        }
    }
    worded
}

/// Prefixes of the errors of macros. Columns of these errors count bytes; columns of other errors count characters.
const OF_MACROS: [&str; 5] = [
    "argument must be",
    "argument is not",
    "invalid argument to has()",
    "duplicate variable name",
    "iteration variable overwrites",
];

/// Returns the location of one of the parser's errors.
fn location_of(source: &str, error: &ParseError, errors: &[ParseError]) -> Location {
    // An error about a missing node has no position. It gets the location of the syntax error that caused it.
    let cause = errors.iter().map(|other| other.pos).find(|pos| *pos != (0, 0));
    let (line, column) = if error.pos == (0, 0) { cause.unwrap_or(error.pos) } else { error.pos };
    if !OF_MACROS.iter().any(|prefix| error.msg.starts_with(prefix)) {
        return Location::at(line, column);
    }
    let line_text = |line: isize| source.split('\n').nth(usize::try_from(line - 1).ok()?);
    let before = usize::try_from(column - 1).ok().and_then(|end| line_text(line)?.get(..end));
    Location::at(line, before.map_or(column, |before| before.chars().count() as isize + 1))
}

/// Returns the location of an error. The location of a number that cannot be parsed is its minus sign, if it has one.
fn with_sign(source: &str, location: Location, message: &str) -> Location {
    if !matches!(message, "invalid int literal" | "invalid double literal") {
        return location;
    }
    let before = location.offset(source).and_then(|offset| source.get(..offset));
    let Some(before) = before.and_then(|before| before.trim_end().strip_suffix('-')) else {
        return location;
    };
    // After an operand, the minus is a subtraction.
    let is_sign =
        before.trim_end().chars().next_back().is_none_or(|c| "([{,:?+-*/%<>=!&|".contains(c));
    if is_sign { Location::of_offset(source, before.len()) } else { location }
}

/// Returns cel-go's message for an error of the parser. `skipped` has the offsets of the tokens that the parser skipped
/// before; `None` if it has left all brackets.
fn reworded(message: &str, source: &str, location: Location, skipped: Option<&[usize]>) -> String {
    // Where an operator such as `==` could follow, cel-go names only the token that ends the innermost bracket.
    if let Some((before, tokens)) = message.split_once(" expecting {")
        && message.contains("mismatched input")
        && tokens.contains("'=='")
    {
        let end = location.offset(source).unwrap_or(source.len());
        let expected = skipped.map_or("<EOF>", |skipped| brackets::expected(source, end, skipped));
        return format!("{before} expecting {expected}");
    }
    for word in ["true", "false", "null"] {
        let viable = format!("no viable alternative at input '.{word}'");
        if message.contains(&viable) {
            return message
                .replace(&viable, &format!("mismatched input '{word}' expecting IDENTIFIER"));
        }
    }
    let literal = message
        .strip_prefix("invalid string literal: ")
        .or_else(|| message.strip_prefix("invalid bytes literal: "));
    let Some(literal) = literal else { return message.to_owned() };
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

/// Moves the offset of each negative literal to its sign, as in cel-go. The parser's offset points to the first digit.
fn move_offsets_to_signs(expression: &Expression, source: &str, offsets: &mut Offsets) {
    let is_negative = match &expression.expr {
        Expr::Literal(LiteralValue::Int(number)) => *number.inner() < 0,
        Expr::Literal(LiteralValue::Double(number)) => number.inner().is_sign_negative(),
        _ => false,
    };
    if is_negative
        && let Some(before) = offsets.get(expression.id).and_then(|offset| source.get(..offset))
        && let Some(sign) = before.trim_end().strip_suffix('-')
        && let Some(offset) =
            usize::try_from(expression.id).ok().and_then(|id| offsets.0.get_mut(id))
    {
        *offset = sign.len() as u32;
    }
    crate::names::each_child(expression, &mut |child| {
        move_offsets_to_signs(child, source, offsets);
    });
}
