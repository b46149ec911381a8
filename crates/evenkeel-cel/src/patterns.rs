//! Regular expressions with the syntax, the meaning and the error messages of Go's package `regexp`.
//!
//! Upstream: Go's regexp/syntax.

use regex::Regex;

/// Maximum repeat count, as in `a{1000}`.
const MAX_REPEAT_COUNT: u32 = 1_000;

/// Checks the syntax of a pattern.
///
/// # Errors
/// Returns Go's message about the first syntax error.
pub fn check(pattern: &str) -> Result<(), String> {
    translated(pattern).map(drop)
}

/// Compiles a pattern. It matches as in Go, where `\d`, `\s`, `\w` and `\b` know only ASCII.
///
/// # Errors
/// Returns Go's message about the first syntax error.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    Regex::new(&translated(pattern)?).map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => {
            format!("error parsing regexp: expression too large: `{pattern}`")
        }
        error => format!("error parsing regexp: {error}"),
    })
}

/// Translates a Go pattern for the crate `regex`. Its captures lose their names.
fn translated(pattern: &str) -> Result<String, String> {
    let mut parser = Parser { whole: pattern, rest: pattern, open: 0, translated: String::new() };
    match parser.parse() {
        Ok(()) => Ok(parser.translated),
        Err(error) => Err(format!("error parsing regexp: {error}")),
    }
}

/// Parser that translates a pattern up to its first syntax error. Its methods get the rest of the pattern from the
/// construct that they parse as `start`, for error messages.
struct Parser<'p> {
    whole: &'p str,
    rest: &'p str,
    /// Number of open groups.
    open: usize,
    /// Translation of the parsed part.
    translated: String,
}

/// Meaning of an escape.
enum Escaped {
    Char(char),
    /// Several characters, so that it cannot begin or end a range.
    Class,
}

impl<'p> Parser<'p> {
    fn parse(&mut self) -> Result<(), String> {
        // Whether the last construct can be repeated.
        let mut can_repeat = false;
        // Rest of the pattern from the repetition operator, if the last construct is one.
        let mut previous_operator: Option<&'p str> = None;
        while let Some(letter) = self.rest.chars().next() {
            let start = self.rest;
            let mut is_repetition = false;
            self.skip(letter.len_utf8());
            match letter {
                '(' => {
                    can_repeat = !self.group(start)?;
                }
                ')' => {
                    self.open = self
                        .open
                        .checked_sub(1)
                        .ok_or_else(|| format!("unexpected ): `{}`", self.whole))?;
                    self.translated.push(')');
                    can_repeat = true;
                }
                '|' => {
                    self.translated.push('|');
                    can_repeat = false;
                }
                '[' => {
                    self.class(start)?;
                    can_repeat = true;
                }
                '\\' => can_repeat = self.escape(start)?,
                '*' | '+' | '?' => is_repetition = true,
                '{' if self.repeat_count(start)? => is_repetition = true,
                '.' | '^' | '$' => {
                    self.translated.push(letter);
                    can_repeat = true;
                }
                _ => {
                    self.literal(letter);
                    can_repeat = true;
                }
            }
            if is_repetition {
                // A question mark after the operator makes it lazy.
                if let Some(rest) = self.rest.strip_prefix('?') {
                    self.rest = rest;
                }
                let operator = &start[..start.len() - self.rest.len()];
                if let Some(previous) = previous_operator {
                    let both_operators = &previous[..previous.len() - self.rest.len()];
                    return Err(format!("invalid nested repetition operator: `{both_operators}`"));
                }
                if !can_repeat {
                    let what = "missing argument to repetition operator";
                    return Err(format!("{what}: `{operator}`"));
                }
                self.translated.push_str(operator);
                previous_operator = Some(start);
            } else {
                previous_operator = None;
            }
        }
        if self.open > 0 {
            return Err(format!("missing closing ): `{}`", self.whole));
        }
        Ok(())
    }

    /// Skips this number of bytes.
    fn skip(&mut self, length: usize) {
        self.rest = self.rest.get(length..).unwrap_or_default();
    }

    /// Translates a literal character.
    fn literal(&mut self, letter: char) {
        self.translated.push_str(&regex::escape(letter.encode_utf8(&mut [0; 4])));
    }

    /// Parses the beginning of a group after its parenthesis. Returns whether it opens a group; `(?i)` only sets flags.
    fn group(&mut self, start: &'p str) -> Result<bool, String> {
        let Some(flags) = self.rest.strip_prefix('?') else {
            self.open += 1;
            self.translated.push('(');
            return Ok(true);
        };
        let name = flags.strip_prefix("P<").or_else(|| flags.strip_prefix('<'));
        if let Some(name) = name.filter(|name| !name.starts_with(['=', '!'])) {
            let Some((name, rest)) = name.split_once('>') else {
                return Err(format!("invalid named capture: `{start}`"));
            };
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(is_word) {
                let capture = &start[..start.len() - rest.len()];
                return Err(format!("invalid named capture: `{capture}`"));
            }
            self.rest = rest;
            self.open += 1;
            self.translated.push('(');
            return Ok(true);
        }
        let (mut on, mut off) = (String::new(), String::new());
        let (mut rest, mut is_negative, mut has_flag) = (flags, false, false);
        while let Some(letter) = rest.chars().next() {
            rest = &rest[letter.len_utf8()..];
            match letter {
                'i' | 'm' | 's' | 'U' => {
                    has_flag = true;
                    on.retain(|flag| flag != letter);
                    off.retain(|flag| flag != letter);
                    if is_negative { &mut off } else { &mut on }.push(letter);
                }
                '-' if !is_negative => (is_negative, has_flag) = (true, false),
                ':' | ')' if !is_negative || has_flag => {
                    self.rest = rest;
                    self.open += usize::from(letter == ':');
                    let sign = if off.is_empty() { "" } else { "-" };
                    // The other syntax has no group that sets no flags.
                    if letter == ':' || !(on.is_empty() && off.is_empty()) {
                        self.translated.push_str(&format!("(?{on}{sign}{off}{letter}"));
                    }
                    return Ok(letter == ':');
                }
                _ => break,
            }
        }
        if flags.is_empty() {
            return Err(format!("missing argument to repetition operator: `{flags}?`"));
        }
        let syntax = &start[..start.len() - rest.len()];
        Err(format!("invalid or unsupported Perl syntax: `{syntax}`"))
    }

    /// Parses a repeat count such as `{2,5}` after its brace. Returns false if the brace is a literal.
    fn repeat_count(&mut self, start: &'p str) -> Result<bool, String> {
        let Some((counts, rest)) = self.rest.split_once('}') else { return Ok(false) };
        let number = |text: &str| -> Option<u32> {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let has_leading_zero = text != "0" && text.starts_with('0');
            if !is_number || has_leading_zero {
                return None;
            }
            // A number that fits no `u32` exceeds the maximum, too.
            Some(text.parse().unwrap_or(u32::MAX))
        };
        let (min, max) = match counts.split_once(',') {
            None => (number(counts), number(counts)),
            Some((min, "")) => (number(min), number(min)),
            Some((min, max)) => (number(min), number(max)),
        };
        let (Some(min), Some(max)) = (min, max) else { return Ok(false) };
        self.rest = rest;
        if min > MAX_REPEAT_COUNT || max > MAX_REPEAT_COUNT || min > max {
            let counts = &start[..start.len() - rest.len()];
            return Err(format!("invalid repeat count: `{counts}`"));
        }
        Ok(true)
    }

    /// Parses an escape after its backslash. Returns whether it can be repeated.
    fn escape(&mut self, start: &'p str) -> Result<bool, String> {
        let Some(letter) = self.rest.chars().next() else {
            return Err("trailing backslash at end of expression: ``".to_owned());
        };
        if letter == 'Q' {
            let quoted = &self.rest[1..];
            let (text, rest) = quoted.split_once("\\E").unwrap_or((quoted, ""));
            self.rest = rest;
            self.translated.push_str(&regex::escape(text));
            return Ok(!text.is_empty());
        }
        let anchor = match letter {
            'A' => r"\A",
            'z' => r"\z",
            'b' => r"(?-u:\b)",
            'B' => r"(?-u:\B)",
            _ => {
                if let Escaped::Char(letter) = self.escaped(start, false)? {
                    self.literal(letter);
                }
                return Ok(true);
            }
        };
        self.skip(1);
        self.translated.push_str(anchor);
        Ok(true)
    }

    /// Parses an escape for a character or a class of characters, and translates a class. `is_member` is true within a
    /// character class.
    fn escaped(&mut self, start: &'p str, is_member: bool) -> Result<Escaped, String> {
        let Some(letter) = self.rest.chars().next() else {
            return Err("trailing backslash at end of expression: ``".to_owned());
        };
        self.skip(letter.len_utf8());
        let wrong = |rest: &str| {
            Err(format!("invalid escape sequence: `{}`", &start[..start.len() - rest.len()]))
        };
        if let Some(members) = perl_class(letter) {
            let class = match (letter.is_ascii_uppercase(), is_member) {
                (true, _) => format!("[^{members}]"),
                (false, true) => members.to_owned(),
                (false, false) => format!("[{members}]"),
            };
            self.translated.push_str(&class);
            return Ok(Escaped::Class);
        }
        let character = match letter {
            'a' => '\u{7}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            'p' | 'P' => {
                let length = match self.rest.chars().next() {
                    Some('{') => self.rest.find('}').map(|end| end + 1),
                    Some(letter) => Some(letter.len_utf8()),
                    None => None,
                };
                let Some(length) = length else {
                    return Err(format!("invalid character class range: `{start}`"));
                };
                self.skip(length);
                let class = &start[..start.len() - self.rest.len()];
                let Some(translated) = unicode_class(class) else {
                    return Err(format!("invalid character class range: `{class}`"));
                };
                self.translated.push_str(&translated);
                return Ok(Escaped::Class);
            }
            '1'..='7' if !self.rest.starts_with(|c| ('0'..='7').contains(&c)) => {
                return wrong(self.rest);
            }
            '0'..='7' => {
                let more = self.rest.chars().take(2).take_while(|c| ('0'..='7').contains(c));
                let digits: String = std::iter::once(letter).chain(more).collect();
                self.skip(digits.len() - 1);
                let number = u32::from_str_radix(&digits, 8).ok();
                number.and_then(char::from_u32).unwrap_or_default()
            }
            'x' => {
                let Some(number) = self.hex_digits() else { return wrong(self.rest) };
                // No string has a surrogate; the replacement character stands for it.
                char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            letter if letter.is_ascii() && !letter.is_ascii_alphanumeric() => letter,
            _ => return wrong(self.rest),
        };
        Ok(Escaped::Char(character))
    }

    /// Takes the next character.
    fn next(&mut self) -> Option<char> {
        let letter = self.rest.chars().next()?;
        self.skip(letter.len_utf8());
        Some(letter)
    }

    /// Parses the digits of `\x41` or `\x{1F600}`. If they are wrong, it takes the characters up to the wrong one.
    fn hex_digits(&mut self) -> Option<u32> {
        let first = self.next()?;
        if first != '{' {
            let (first, second) = (first.to_digit(16), self.next().and_then(|c| c.to_digit(16)));
            return Some(first? * 16 + second?);
        }
        let (mut number, mut n_digits) = (0, 0);
        loop {
            match self.next()? {
                '}' => return (n_digits > 0).then_some(number),
                digit => number = number * 16 + digit.to_digit(16)?,
            }
            n_digits += 1;
            if number > u32::from(char::MAX) {
                return None;
            }
        }
    }

    /// Parses a character class after its bracket.
    fn class(&mut self, class_start: &'p str) -> Result<(), String> {
        let unclosed = || format!("missing closing ]: `{class_start}`");
        self.translated.push('[');
        if let Some(rest) = self.rest.strip_prefix('^') {
            self.translated.push('^');
            self.rest = rest;
        }
        let mut is_first = true;
        loop {
            let start = self.rest;
            let letter = start.chars().next().ok_or_else(unclosed)?;
            if letter == ']' && !is_first {
                self.skip(1);
                self.translated.push(']');
                return Ok(());
            }
            is_first = false;
            if let Some((name, rest)) =
                start.strip_prefix("[:").and_then(|rest| rest.split_once(":]"))
            {
                let name = name.strip_prefix('^').unwrap_or(name);
                let class = &start[..start.len() - rest.len()];
                if !CLASSES.contains(&name) {
                    return Err(format!("invalid character class range: `{class}`"));
                }
                self.translated.push_str(class);
                self.rest = rest;
                continue;
            }
            let Escaped::Char(low) = self.member(start)? else { continue };
            let after = self.rest.strip_prefix('-').unwrap_or_default();
            if after.starts_with(']') || after.is_empty() {
                self.literal(low);
                continue;
            }
            self.rest = after;
            let Escaped::Char(high) = self.member(after)? else {
                let class = &after[..after.len() - self.rest.len()];
                return Err(format!("invalid escape sequence: `{class}`"));
            };
            if high < low {
                let range = &start[..start.len() - self.rest.len()];
                return Err(format!("invalid character class range: `{range}`"));
            }
            self.literal(low);
            self.translated.push('-');
            self.literal(high);
        }
    }

    /// Parses a member of a character class.
    fn member(&mut self, start: &'p str) -> Result<Escaped, String> {
        let Some(letter) = self.rest.chars().next() else { return Ok(Escaped::Class) };
        self.skip(letter.len_utf8());
        if letter == '\\' { self.escaped(start, true) } else { Ok(Escaped::Char(letter)) }
    }
}

/// Returns the members of the class that a letter such as the `d` of `\d` or `\D` names.
fn perl_class(letter: char) -> Option<&'static str> {
    Some(match letter.to_ascii_lowercase() {
        'd' => "0-9",
        's' => r"\t\n\x0C\r ",
        'w' => "0-9A-Za-z_",
        _ => return None,
    })
}

/// Translates a class such as `\pL`, `\p{Greek}` or `\P{^Greek}`. Returns `None` if it has no category or script of
/// this name.
///
/// Upstream: the function unicodeTable of Go's regexp/syntax.
fn unicode_class(class: &str) -> Option<String> {
    let name = class.get(2..)?;
    let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
    let (name, is_inverted) = match name.strip_prefix('^') {
        Some(name) => (name, true),
        None => (name, false),
    };
    let letter = if class.starts_with(r"\P") == is_inverted { 'p' } else { 'P' };
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' '));
    // The crate would ignore this prefix.
    let has_prefix = name.get(..2).is_some_and(|prefix| prefix.eq_ignore_ascii_case("is"));
    if !is_name || has_prefix {
        return None;
    }
    ["gc=", "sc="]
        .map(|property| format!(r"\{letter}{{{property}{name}}}"))
        .into_iter()
        .find(|translated| Regex::new(translated).is_ok())
}

/// Names of character classes such as `[:alpha:]`.
const CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

#[cfg(test)]
mod tests;
