//! Splits a template into text and the tokens of its actions.

use serde_json::{Number, Value};

/// Part of a template.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece {
    Text(String),
    Action(Vec<Token>),
}

/// Token of an action.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    /// Whether a space precedes the token: `.a .b` are two arguments, `.a.b` is one.
    pub(super) spaced: bool,
}

/// Kind of a token.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// Name of a function, or a keyword.
    Word(String),
    /// Field such as `.name`, without the dot.
    Field(String),
    /// Variable such as `$name`, without the dollar sign.
    Variable(String),
    Dot,
    /// String, number or character.
    Literal(Value),
    Pipe,
    Comma,
    Open,
    Close,
    /// The sign `:=` of a declaration.
    Declare,
    /// The sign `=` of an assignment.
    Assign,
}

/// Splits a template. The error is one sentence without a full stop.
pub(super) fn split(source: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let (mut rest, mut trims_next) = (source, false);
    loop {
        let start = rest.find("{{");
        let text = start.map_or(rest, |start| &rest[..start]);
        let text = if trims_next { text.trim_start() } else { text };
        let Some(start) = start else {
            push_text(&mut pieces, text);
            return Ok(pieces);
        };
        let mut body = &rest[start + 2..];
        let trims_before = body.starts_with('-') && body[1..].starts_with(char::is_whitespace);
        push_text(&mut pieces, if trims_before { text.trim_end() } else { text });
        if trims_before {
            body = &body[1..];
        }
        if let Some(comment) = body.trim_start().strip_prefix("/*") {
            let end = comment.find("*/").ok_or("a comment is not closed")?;
            let after = &comment[end + 2..];
            (rest, trims_next) = close(after).ok_or("a comment has something beside it")?;
            continue;
        }
        let (tokens, after, trims) = tokens(body)?;
        pieces.push(Piece::Action(tokens));
        (rest, trims_next) = (after, trims);
    }
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
}

/// Returns the text after the end of an action, and whether a trim marker trims that text. `None` if the action does not end
/// here.
fn close(text: &str) -> Option<(&str, bool)> {
    let trimmed = text.trim_start();
    if let Some(rest) = trimmed.strip_prefix("}}") {
        return Some((rest, false));
    }
    let is_spaced = trimmed.len() < text.len();
    trimmed.strip_prefix("-}}").filter(|_| is_spaced).map(|rest| (rest, true))
}

/// Reads the tokens of an action up to its end. Also returns the text after it, and whether a trim marker trims that text.
fn tokens(body: &str) -> Result<(Vec<Token>, &str, bool), String> {
    let (mut tokens, mut rest) = (Vec::new(), body);
    loop {
        if let Some((after, trims)) = close(rest) {
            return Ok((tokens, after, trims));
        }
        let trimmed = rest.trim_start();
        let spaced = trimmed.len() < rest.len();
        let (kind, after) = token(trimmed)?;
        tokens.push(Token { kind, spaced });
        rest = after;
    }
}

/// Returns the length of the name at the start of a string.
fn name_length(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())
}

/// Reads the first token of a string.
fn token(text: &str) -> Result<(Kind, &str), String> {
    let mut chars = text.chars();
    let first = chars.next().ok_or("an action is not closed with }}")?;
    let rest = chars.as_str();
    Ok(match first {
        '|' => (Kind::Pipe, rest),
        ',' => (Kind::Comma, rest),
        '(' => (Kind::Open, rest),
        ')' => (Kind::Close, rest),
        '=' => (Kind::Assign, rest),
        ':' => {
            let rest = rest.strip_prefix('=').ok_or("\":\" stands without \"=\"")?;
            (Kind::Declare, rest)
        }
        '"' => quoted(rest)?,
        '\'' => {
            let (Kind::Literal(Value::String(character)), rest) = delimited(rest, '\'')? else {
                return Err("a character is not closed".to_owned());
            };
            let code = character.chars().next().map(u32::from).unwrap_or_default();
            (Kind::Literal(code.into()), rest)
        }
        '`' => {
            let (raw, rest) = rest.split_once('`').ok_or("a raw text is not closed")?;
            (Kind::Literal(raw.into()), rest)
        }
        '$' => {
            let (name, rest) = rest.split_at(name_length(rest));
            (Kind::Variable(name.to_owned()), rest)
        }
        '.' if rest.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
            let (name, rest) = rest.split_at(name_length(rest));
            (Kind::Field(name.to_owned()), rest)
        }
        '.' if !rest.starts_with(|c: char| c.is_ascii_digit()) => (Kind::Dot, rest),
        '-' | '+' | '.' | '0'..='9' => number(text)?,
        c if c.is_alphabetic() || c == '_' => {
            let (name, rest) = text.split_at(name_length(text));
            (Kind::Word(name.to_owned()), rest)
        }
        other => return Err(format!("unexpected {other:?} in an action")),
    })
}

/// Reads a number, decimal or hexadecimal.
fn number(text: &str) -> Result<(Kind, &str), String> {
    let is_part = |(index, c): (usize, char)| {
        c.is_alphanumeric()
            || matches!(c, '.' | '_')
            || matches!(c, '+' | '-') && (index == 0 || text[..index].ends_with(['e', 'E']))
    };
    let end = text.char_indices().find(|part| !is_part(*part)).map_or(text.len(), |(end, _)| end);
    let (word, rest) = text.split_at(end);
    let digits = word.replace('_', "");
    let value = integer(&digits).map(Value::from).or_else(|| {
        let number = digits.parse::<f64>().ok()?;
        Number::from_f64(number).map(Value::Number)
    });
    let value = value.ok_or_else(|| format!("{word:?} is not a number"))?;
    Ok((Kind::Literal(value), rest))
}

/// Parses an integer as Go writes it: decimal, or with the prefix `0x`, `0o` or `0b`.
pub(super) fn integer(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let radixes = [("0x", 16), ("0o", 8), ("0b", 2)];
    let prefixed = radixes.iter().find_map(|(prefix, radix)| {
        lower.strip_prefix(prefix).map(|digits| (digits.to_owned(), *radix))
    });
    let (digits, radix) = prefixed.unwrap_or((lower, 10));
    i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()
}

fn quoted(text: &str) -> Result<(Kind, &str), String> {
    delimited(text, '"')
}

/// Reads a string up to the delimiter, with Go's escapes.
fn delimited(text: &str, delimiter: char) -> Result<(Kind, &str), String> {
    let (mut out, mut chars) = (String::new(), text.chars());
    loop {
        match chars.next() {
            None | Some('\n') => return Err("a text is not closed".to_owned()),
            Some(c) if c == delimiter => return Ok((Kind::Literal(out.into()), chars.as_str())),
            Some('\\') => {
                let escaped = match chars.next() {
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some('r') => '\r',
                    Some('a') => '\x07',
                    Some('b') => '\x08',
                    Some('f') => '\x0c',
                    Some('v') => '\x0b',
                    Some('x') => code(&mut chars, 2)?,
                    Some('u') => code(&mut chars, 4)?,
                    Some('U') => code(&mut chars, 8)?,
                    Some(c @ ('\\' | '"' | '\'')) => c,
                    other => return Err(format!("unknown escape {other:?}")),
                };
                out.push(escaped);
            }
            Some(c) => out.push(c),
        }
    }
}

/// Reads a character code with this number of hexadecimal digits.
fn code(chars: &mut std::str::Chars<'_>, digits: usize) -> Result<char, String> {
    let word: String = chars.by_ref().take(digits).collect();
    let code = u32::from_str_radix(&word, 16).ok().and_then(char::from_u32);
    code.ok_or_else(|| format!("{word:?} is not the code of a character"))
}
