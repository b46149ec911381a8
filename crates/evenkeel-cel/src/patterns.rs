//! Syntax check of regular expressions, with the rules and error messages of Go's package `regexp`.
//!
//! Upstream: Go's regexp/syntax.

use std::borrow::Cow;

/// Maximum repeat count, as in `a{1000}`.
const MAX_REPEAT_COUNT: u32 = 1_000;

/// Checks the syntax of a pattern.
///
/// # Errors
/// Go's message about the first syntax error.
pub(crate) fn check(pattern: &str) -> Result<(), String> {
    let parser = Parser { whole: pattern, rest: pattern, open: 0, names: Vec::new() };
    parser.check().map_err(|error| format!("error parsing regexp: {error}"))
}

/// Translates a Go pattern for the crate `regex`, which does not support quoted text in `\Q…\E`.
pub(crate) fn translated(pattern: &str) -> Cow<'_, str> {
    if !pattern.contains("\\Q") {
        return Cow::Borrowed(pattern);
    }
    let mut translated = String::new();
    let mut rest = pattern;
    while let Some(letter) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix("\\Q") {
            let (text, after) = quoted.split_once("\\E").unwrap_or((quoted, ""));
            translated.push_str(&regex::escape(text));
            rest = after;
            continue;
        }
        let mut length = letter.len_utf8();
        if letter == '\\' {
            length += rest[length..].chars().next().map_or(0, char::len_utf8);
        }
        let (part, after) = rest.split_at(length);
        translated.push_str(part);
        rest = after;
    }
    Cow::Owned(translated)
}

/// Parser that reports the first syntax error. Its methods get the rest of the pattern from the construct that they
/// parse as `start`, for error messages.
struct Parser<'p> {
    whole: &'p str,
    rest: &'p str,
    /// Number of open groups.
    open: usize,
    /// Names of the capture groups.
    names: Vec<&'p str>,
}

impl<'p> Parser<'p> {
    fn check(mut self) -> Result<(), String> {
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
                    can_repeat = true;
                }
                '|' => can_repeat = false,
                '[' => {
                    self.class(start)?;
                    can_repeat = true;
                }
                '\\' => can_repeat = self.escape(start)?,
                '*' | '+' | '?' => is_repetition = true,
                '{' if self.repeat_count(start)? => is_repetition = true,
                _ => can_repeat = true,
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

    /// Parses the beginning of a group after its parenthesis. Returns whether it opens a group; `(?i)` only sets flags.
    fn group(&mut self, start: &'p str) -> Result<bool, String> {
        let Some(flags) = self.rest.strip_prefix('?') else {
            self.open += 1;
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
            if self.names.contains(&name) {
                return Err(format!("duplicate capture group name: `{name}`"));
            }
            self.names.push(name);
            self.rest = rest;
            self.open += 1;
            return Ok(true);
        }
        let (mut rest, mut is_negative, mut has_flag) = (flags, false, false);
        while let Some(letter) = rest.chars().next() {
            rest = &rest[letter.len_utf8()..];
            match letter {
                'i' | 'm' | 's' | 'U' => has_flag = true,
                '-' if !is_negative => (is_negative, has_flag) = (true, false),
                ':' | ')' if !is_negative || has_flag => {
                    self.rest = rest;
                    self.open += usize::from(letter == ':');
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
            return Ok(!text.is_empty());
        }
        if matches!(letter, 'A' | 'b' | 'B' | 'z') {
            self.skip(1);
            return Ok(true);
        }
        self.escaped_char(start)?;
        Ok(true)
    }

    /// Parses an escaped character, within or outside a character class.
    fn escaped_char(&mut self, start: &'p str) -> Result<(), String> {
        let Some(letter) = self.rest.chars().next() else {
            return Err("trailing backslash at end of expression: ``".to_owned());
        };
        self.skip(letter.len_utf8());
        let wrong = |rest: &str| {
            Err(format!("invalid escape sequence: `{}`", &start[..start.len() - rest.len()]))
        };
        match letter {
            'd' | 'D' | 's' | 'S' | 'w' | 'W' | 'a' | 'f' | 'n' | 'r' | 't' | 'v' => Ok(()),
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
                match regex::Regex::new(class) {
                    Ok(_) => Ok(()),
                    Err(_) => Err(format!("invalid character class range: `{class}`")),
                }
            }
            '1'..='7' if !self.rest.starts_with(|c| ('0'..='7').contains(&c)) => wrong(self.rest),
            '0'..='7' => {
                let digits = self.rest.chars().take(2).take_while(|c| ('0'..='7').contains(c));
                let count = digits.count();
                self.skip(count);
                Ok(())
            }
            'x' => {
                let is_hex = |c: char| c.is_ascii_hexdigit();
                let digits = match self.rest.strip_prefix('{') {
                    Some(rest) => {
                        rest.split_once('}').map(|(digits, _)| (digits, digits.len() + 2))
                    }
                    None => self.rest.get(..2).map(|digits| (digits, 2)),
                };
                match digits {
                    Some((digits, length))
                        if !digits.is_empty()
                            && digits.chars().all(is_hex)
                            && u32::from_str_radix(digits, 16).is_ok_and(|c| c <= 0x0010_FFFF) =>
                    {
                        self.skip(length);
                        Ok(())
                    }
                    _ => wrong(self.rest),
                }
            }
            letter if letter.is_ascii() && !letter.is_ascii_alphanumeric() => Ok(()),
            _ => wrong(self.rest),
        }
    }

    /// Parses a character class after its bracket.
    fn class(&mut self, class_start: &'p str) -> Result<(), String> {
        let unclosed = || format!("missing closing ]: `{class_start}`");
        if let Some(rest) = self.rest.strip_prefix('^') {
            self.rest = rest;
        }
        let mut is_first = true;
        loop {
            let start = self.rest;
            let letter = start.chars().next().ok_or_else(unclosed)?;
            if letter == ']' && !is_first {
                self.skip(1);
                return Ok(());
            }
            is_first = false;
            if let Some((name, rest)) =
                start.strip_prefix("[:").and_then(|rest| rest.split_once(":]"))
            {
                let name = name.strip_prefix('^').unwrap_or(name);
                if !CLASSES.contains(&name) {
                    let class = &start[..start.len() - rest.len()];
                    return Err(format!("invalid character class range: `{class}`"));
                }
                self.rest = rest;
                continue;
            }
            let low = self.member(start)?;
            let Some(after) = self.rest.strip_prefix('-') else { continue };
            if after.starts_with(']') || after.is_empty() || low.is_none() {
                continue;
            }
            self.rest = after;
            let high = self.member(after)?;
            if high.is_some_and(|high| low.is_some_and(|low| high < low)) {
                let range = &start[..start.len() - self.rest.len()];
                return Err(format!("invalid character class range: `{range}`"));
            }
        }
    }

    /// Parses a member of a character class. Returns it if it is a single character, which may begin a range.
    fn member(&mut self, start: &'p str) -> Result<Option<char>, String> {
        let Some(letter) = self.rest.chars().next() else { return Ok(None) };
        self.skip(letter.len_utf8());
        if letter != '\\' {
            return Ok(Some(letter));
        }
        self.escaped_char(start)?;
        let written = &start[1..start.len() - self.rest.len()];
        let mut letters = written.chars();
        Ok(match (letters.next(), letters.next()) {
            (Some(sign), None) if !sign.is_ascii_alphanumeric() => Some(sign),
            _ => None,
        })
    }
}

/// Names of character classes such as `[:alpha:]`.
const CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_those_of_go() {
        for (pattern, want) in [
            ("(", "missing closing ): `(`"),
            (")", "unexpected ): `)`"),
            ("*", "missing argument to repetition operator: `*`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a{2,1}", "invalid repeat count: `{2,1}`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("[a", "missing closing ]: `[a`"),
            ("[b-a]", "invalid character class range: `b-a`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            (r"\1", r"invalid escape sequence: `\1`"),
            (r"\Z", r"invalid escape sequence: `\Z`"),
            (r"\8", r"invalid escape sequence: `\8`"),
            ("(?P<n", "invalid named capture: `(?P<n`"),
            ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
            ("\\", "trailing backslash at end of expression: ``"),
        ] {
            assert_eq!(check(pattern), Err(format!("error parsing regexp: {want}")), "{pattern}");
        }
        for pattern in [
            "", "a*?", "a{,2}", "x{1,2}", r"[\d-z]", r"\Q(\E", "(?i)a|b", "(?P<n>a)", "[]a]",
            r"\pL\.", "{",
        ] {
            assert_eq!(check(pattern), Ok(()), "{pattern}");
        }
        assert_eq!(translated(r"a\Q.*\E+\\Q"), r"a\.\*+\\Q");
    }
}
