//! Syntax of regular expressions as Go's package `regexp` has it, and its words for errors.
//!
//! Upstream: Go's regexp/syntax.

use std::borrow::Cow;

/// Maximum number of repetitions.
const MAX_REPEATED: u32 = 1_000;

/// Checks the syntax of a pattern.
///
/// # Errors
/// Error with the words of Go.
pub(crate) fn check(pattern: &str) -> Result<(), String> {
    let parser = Parser { whole: pattern, rest: pattern, open: 0, names: Vec::new() };
    parser.check().map_err(|error| format!("error parsing regexp: {error}"))
}

/// Returns a pattern as the regular expressions of this program have it: without `\Q…\E`.
pub(crate) fn translated(pattern: &str) -> Cow<'_, str> {
    if !pattern.contains("\\Q") {
        return Cow::Borrowed(pattern);
    }
    let mut made = String::new();
    let mut rest = pattern;
    while let Some(letter) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix("\\Q") {
            let (text, after) = quoted.split_once("\\E").unwrap_or((quoted, ""));
            made.push_str(&regex::escape(text));
            rest = after;
            continue;
        }
        let mut length = letter.len_utf8();
        if letter == '\\' {
            length += rest[length..].chars().next().map_or(0, char::len_utf8);
        }
        let (part, after) = rest.split_at(length);
        made.push_str(part);
        rest = after;
    }
    Cow::Owned(made)
}

/// State of a check.
struct Parser<'p> {
    whole: &'p str,
    rest: &'p str,
    open: usize,
    names: Vec<&'p str>,
}

impl<'p> Parser<'p> {
    fn check(mut self) -> Result<(), String> {
        // Whether there is something to repeat, and the operator before it if it was repeated.
        let (mut can_repeat, mut last): (bool, Option<&'p str>) = (false, None);
        while let Some(letter) = self.rest.chars().next() {
            let before = self.rest;
            let mut repeated = None;
            self.skip(letter.len_utf8());
            match letter {
                '(' => {
                    can_repeat = !self.group(before)?;
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
                    self.class(before)?;
                    can_repeat = true;
                }
                '\\' => can_repeat = self.escape(before)?,
                '*' | '+' | '?' => repeated = Some(()),
                '{' if self.braces(before)? => repeated = Some(()),
                _ => can_repeat = true,
            }
            if repeated.is_some() {
                if let Some(rest) = self.rest.strip_prefix('?') {
                    self.rest = rest;
                }
                let operator = &before[..before.len() - self.rest.len()];
                if let Some(last) = last {
                    let both = &last[..last.len() - self.rest.len()];
                    return Err(format!("invalid nested repetition operator: `{both}`"));
                }
                if !can_repeat {
                    let what = "missing argument to repetition operator";
                    return Err(format!("{what}: `{operator}`"));
                }
                last = Some(before);
            } else {
                last = None;
            }
        }
        if self.open > 0 {
            return Err(format!("missing closing ): `{}`", self.whole));
        }
        Ok(())
    }

    fn skip(&mut self, length: usize) {
        self.rest = self.rest.get(length..).unwrap_or_default();
    }

    /// Reads the beginning of a group; returns whether it opens one.
    fn group(&mut self, before: &'p str) -> Result<bool, String> {
        let Some(flags) = self.rest.strip_prefix('?') else {
            self.open += 1;
            return Ok(true);
        };
        let name = flags.strip_prefix("P<").or_else(|| flags.strip_prefix('<'));
        if let Some(name) = name.filter(|name| !name.starts_with(['=', '!'])) {
            let Some((name, rest)) = name.split_once('>') else {
                return Err(format!("invalid named capture: `{before}`"));
            };
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(is_word) {
                let capture = &before[..before.len() - rest.len()];
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
        let syntax = &before[..before.len() - rest.len()];
        Err(format!("invalid or unsupported Perl syntax: `{syntax}`"))
    }

    /// Reads a number of repetitions; false if the brace is one to be matched.
    fn braces(&mut self, before: &'p str) -> Result<bool, String> {
        let Some((counts, rest)) = self.rest.split_once('}') else { return Ok(false) };
        let number = |text: &str| -> Option<u32> {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            (is_number && (text == "0" || !text.starts_with('0')))
                .then(|| text.parse().unwrap_or(u32::MAX))
        };
        let (least, most) = match counts.split_once(',') {
            None => (number(counts), number(counts)),
            Some((least, "")) => (number(least), number(least)),
            Some((least, most)) => (number(least), number(most)),
        };
        let (Some(least), Some(most)) = (least, most) else { return Ok(false) };
        self.rest = rest;
        if least > MAX_REPEATED || most > MAX_REPEATED || least > most {
            let counts = &before[..before.len() - rest.len()];
            return Err(format!("invalid repeat count: `{counts}`"));
        }
        Ok(true)
    }

    /// Reads an escape; returns whether it can be repeated.
    fn escape(&mut self, before: &'p str) -> Result<bool, String> {
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
        self.letter(before)?;
        Ok(true)
    }

    /// Reads an escaped letter, within or outside a class.
    fn letter(&mut self, before: &'p str) -> Result<(), String> {
        let Some(letter) = self.rest.chars().next() else {
            return Err("trailing backslash at end of expression: ``".to_owned());
        };
        self.skip(letter.len_utf8());
        let wrong = |rest: &str| {
            Err(format!("invalid escape sequence: `{}`", &before[..before.len() - rest.len()]))
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
                    return Err(format!("invalid character class range: `{before}`"));
                };
                self.skip(length);
                let class = &before[..before.len() - self.rest.len()];
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

    /// Reads a class of characters.
    fn class(&mut self, before: &'p str) -> Result<(), String> {
        let unclosed = || format!("missing closing ]: `{before}`");
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

    /// Reads a member of a class; returns it if it is one letter.
    fn member(&mut self, before: &'p str) -> Result<Option<char>, String> {
        let Some(letter) = self.rest.chars().next() else { return Ok(None) };
        self.skip(letter.len_utf8());
        if letter != '\\' {
            return Ok(Some(letter));
        }
        self.letter(before)?;
        let written = &before[1..before.len() - self.rest.len()];
        let mut letters = written.chars();
        Ok(match (letters.next(), letters.next()) {
            (Some(sign), None) if !sign.is_ascii_alphanumeric() => Some(sign),
            _ => None,
        })
    }
}

/// Names of classes of characters.
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
