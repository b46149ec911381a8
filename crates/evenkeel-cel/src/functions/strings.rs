//! Functions of strings: those of CEL, cel-go's extension, and Kubernetes' regular expressions.

use std::cell::RefCell;
use std::collections::HashMap;

use regex::Regex;

use super::Outcome;
use crate::patterns;
use crate::value::Val;

pub(super) fn member<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let [Val::Str(text), rest @ ..] = args else { return None };
    let text: &str = text;
    Some(match (name, rest) {
        ("contains", [Val::Str(part)]) => Ok(Val::Bool(text.contains(&**part))),
        ("startsWith", [Val::Str(part)]) => Ok(Val::Bool(text.starts_with(&**part))),
        ("endsWith", [Val::Str(part)]) => Ok(Val::Bool(text.ends_with(&**part))),
        ("matches", [Val::Str(pattern)]) => matches(text, pattern),
        ("find", [Val::Str(pattern)]) => {
            regex(pattern).map(|r| Val::str(r.find(text).map_or("", |found| found.as_str())))
        }
        ("charAt", [Val::Int(at)]) => char_at(text, *at),
        ("indexOf", [Val::Str(part)]) => index(text, part, 0),
        ("indexOf", [Val::Str(part), Val::Int(from)]) => index(text, part, *from),
        ("lastIndexOf", [Val::Str(part)]) => last_index(text, part, i64::MAX),
        ("lastIndexOf", [Val::Str(part), Val::Int(from)]) => {
            let length = text.chars().count();
            let is_beyond = usize::try_from(*from).is_ok_and(|from| from >= length);
            if is_beyond && !part.is_empty() {
                return Some(Ok(Val::Int(-1)));
            }
            last_index(text, part, *from)
        }
        ("lowerAscii", []) => Ok(Val::str(text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Val::str(text.to_ascii_uppercase())),
        ("trim", []) => Ok(Val::str(text.trim())),
        ("reverse", []) => Ok(Val::str(text.chars().rev().collect::<String>())),
        ("replace", [Val::Str(from), Val::Str(to)]) => Ok(Val::str(text.replace(&**from, to))),
        ("replace", [Val::Str(from), Val::Str(to), Val::Int(n)]) => Ok(match usize::try_from(*n) {
            Ok(n) => Val::str(text.replacen(&**from, to, n)),
            Err(_) => Val::str(text.replace(&**from, to)),
        }),
        ("split", [Val::Str(by)]) => Ok(split(text, by, -1)),
        ("split", [Val::Str(by), Val::Int(limit)]) => Ok(split(text, by, *limit)),
        ("substring", [Val::Int(from)]) => substring(text, *from, None),
        ("substring", [Val::Int(from), Val::Int(to)]) => substring(text, *from, Some(*to)),
        _ => return None,
    })
}

pub(super) fn global<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    match (name, args) {
        ("matches", [Val::Str(text), Val::Str(pattern)]) => Some(matches(text, pattern)),
        ("strings.quote", [Val::Str(text)]) => Some(Ok(Val::str(quote(text)))),
        _ => None,
    }
}

/// Quotes a string as a CEL literal. Upstream: `quote` of cel-go's `ext/strings.go`.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Number of compiled patterns that a thread keeps.
const MAX_COMPILED: usize = 64;

thread_local! {
    /// Compiled patterns, by source. Compiling a pattern takes longer than most searches.
    static COMPILED: RefCell<HashMap<String, Regex>> = RefCell::default();
}

fn regex(pattern: &str) -> Result<Regex, String> {
    COMPILED.with_borrow_mut(|compiled| {
        if let Some(known) = compiled.get(pattern) {
            return Ok(known.clone());
        }
        let regex = patterns::compile(pattern)?;
        if compiled.len() >= MAX_COMPILED {
            compiled.clear();
        }
        compiled.insert(pattern.to_owned(), regex.clone());
        Ok(regex)
    })
}

/// Returns whether a string is a regular expression.
pub(crate) fn is_pattern(text: &str) -> bool {
    regex(text).is_ok()
}

/// Compiles the pattern of `find` and `findAll`, whose errors have a longer message.
fn illegal(pattern: &str) -> Result<Regex, String> {
    regex(pattern).map_err(|error| format!("Illegal regex: {error}"))
}

fn matches<'a>(text: &str, pattern: &str) -> Outcome<'a> {
    regex(pattern).map(|r| Val::Bool(r.is_match(text)))
}

/// Returns all matches of a pattern, at most `limit`.
pub(crate) fn find_all<'a>(
    text: &str,
    pattern: &str,
    limit: usize,
) -> Result<Vec<Val<'a>>, String> {
    let matched = |found: regex::Match<'_>| Val::str(found.as_str());
    illegal(pattern).map(|regex| regex.find_iter(text).take(limit).map(matched).collect())
}

fn char_at<'a>(text: &str, at: i64) -> Outcome<'a> {
    let length = text.chars().count() as i64;
    if at < 0 || at > length {
        return Err(format!("index out of range: {at}"));
    }
    Ok(Val::str(text.chars().skip(at as usize).take(1).collect::<String>()))
}

/// Converts an index in characters to an index in bytes; the length of `text` if the index is out of bounds.
fn byte_index(text: &str, characters: usize) -> usize {
    text.char_indices().nth(characters).map_or(text.len(), |(at, _)| at)
}

/// Converts an `int` to an index. Fails if it is negative.
fn checked_index(from: i64) -> Result<usize, String> {
    usize::try_from(from).map_err(|_| format!("index out of range: {from}"))
}

/// Returns the index in characters of the first occurrence of a substring that begins at `from` or later; -1 if the
/// string has none.
fn index<'a>(text: &str, part: &str, from: i64) -> Outcome<'a> {
    let start = byte_index(text, checked_index(from)?);
    let found = text[start..].find(part);
    Ok(Val::Int(found.map_or(-1, |at| text[..start + at].chars().count() as i64)))
}

/// Returns the index in characters of the last occurrence of a substring that begins at `from` or earlier; -1 if the
/// string has none.
fn last_index<'a>(text: &str, part: &str, from: i64) -> Outcome<'a> {
    let start = byte_index(text, checked_index(from)?);
    // An occurrence at `start` ends here.
    let end = start.saturating_add(part.len()).min(text.len());
    let end = (end..=text.len()).find(|end| text.is_char_boundary(*end)).unwrap_or(text.len());
    let mut found = text[..end].rfind(part);
    if found.is_some_and(|at| at > start) {
        // `end` was moved after a character, so that later occurrences were found, too.
        found = text[..start].rfind(part);
    }
    Ok(Val::Int(found.map_or(-1, |at| text[..at].chars().count() as i64)))
}

fn split<'a>(text: &str, separator: &str, limit: i64) -> Val<'a> {
    // A negative limit means no limit.
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let parts: Vec<Val<'a>> = if limit == 0 || separator.is_empty() && text.is_empty() {
        Vec::new()
    } else if separator.is_empty() {
        // Each character is a part; the last part has the rest.
        let single = limit.saturating_sub(1).min(text.chars().count().saturating_sub(1));
        let (singles, last) = text.split_at(byte_index(text, single));
        singles.chars().map(Val::str).chain([Val::str(last)]).collect()
    } else {
        text.splitn(limit, separator).map(Val::str).collect()
    };
    Val::list(parts)
}

fn substring<'a>(text: &str, from: i64, to: Option<i64>) -> Outcome<'a> {
    let length = text.chars().count() as i64;
    let has_end = to.is_some();
    let to = to.unwrap_or(length);
    if from > to && has_end {
        return Err(format!("invalid substring range. start: {from}, end: {to}"));
    }
    if from < 0 || from > length {
        return Err(format!("index out of range: {from}"));
    }
    if to < 0 || to > length {
        return Err(format!("index out of range: {to}"));
    }
    Ok(Val::str(text.chars().skip(from as usize).take((to - from) as usize).collect::<String>()))
}

#[cfg(test)]
mod tests {
    use crate::tests::assert_results;

    #[test]
    fn substrings_are_found_by_character() {
        assert_results(&[
            (
                "['abcabc'.indexOf('b'), 'abcabc'.indexOf('b', 2), 'abcabc'.indexOf('b', 100)]",
                "[1,4,-1]",
            ),
            ("['abcabc'.indexOf('', 3), 'abcabc'.indexOf('', 100)]", "[3,6]"),
            ("['abcabc'.lastIndexOf('b'), 'abcabc'.lastIndexOf('b', 2)]", "[4,1]"),
            ("['abcabc'.lastIndexOf(''), 'abcabc'.lastIndexOf('', 3)]", "[6,3]"),
            ("['abcabc'.lastIndexOf('', 100), 'abcabc'.lastIndexOf('b', 100)]", "[6,-1]"),
            (
                "['éaéb'.indexOf('b'), 'éaéb'.lastIndexOf('é'), 'éaé'.lastIndexOf('aéé')]",
                "[3,2,-1]",
            ),
            (
                "['éé'.lastIndexOf('éé', 0), 'aéé'.lastIndexOf('é', 1), 'aé'.lastIndexOf('aé', 1)]",
                "[0,1,0]",
            ),
            ("[''.indexOf('a'), ''.lastIndexOf('a'), 'a'.lastIndexOf('abc', 0)]", "[-1,-1,-1]"),
            ("'abc'.indexOf('b', -1)", "error: index out of range: -1"),
            ("'abc'.lastIndexOf('b', -1)", "error: index out of range: -1"),
            ("['abc'.charAt(1), 'abc'.charAt(3)]", r#"["b",""]"#),
            ("'abc'.charAt(9223372036854775807)", "error: index out of range: 9223372036854775807"),
            ("['hello'.substring(1, 3), 'hello'.substring(5)]", r#"["el",""]"#),
            ("'hello'.substring(6)", "error: index out of range: 6"),
            ("'hello'.substring(9, 1)", "error: invalid substring range. start: 9, end: 1"),
            ("'a'.includes('a') && !'ab'.includes('a')", "true"),
        ]);
    }

    #[test]
    fn strings_are_split_and_replaced_as_go_does() {
        assert_results(&[
            ("['a,b,c'.split(',', 0), 'a,b,c'.split(',', 2)]", r#"[[],["a","b,c"]]"#),
            ("['a,b'.split(',', -1), ''.split(','), ''.split('')]", r#"[["a","b"],[""],[]]"#),
            (
                "['abc'.split(''), 'abc'.split('', 2), 'éa'.split('', 9)]",
                r#"[["a","b","c"],["a","bc"],["é","a"]]"#,
            ),
            ("''.split('', 2)", "[]"),
            ("'a'.split(',', -9223372036854775808)", r#"["a"]"#),
            ("['abab'.replace('b', 'x', 1), 'abab'.replace('b', 'x', 0)]", r#"["axab","abab"]"#),
            ("['ab'.replace('', 'x'), 'ab'.replace('b', 'x', -1)]", r#"["xaxbx","ax"]"#),
            (
                "['abc'.findAll('[a-z]', 2), 'abc'.findAll('[a-z]', -1)]",
                r#"[["a","b"],["a","b","c"]]"#,
            ),
            ("'abc'.findAll('[a-z]', 0)", "[]"),
            (
                r"['A!'.matches(r'^\101\41$'), '\x01'.matches(r'^\01$'), 'B'.matches(r'[\0-\101]')]",
                "[true,true,false]",
            ),
            (r#"strings.quote('a"\n\x01é')"#, r#""\"a\\\"\\n\u0001é\"""#),
        ]);
    }
}
